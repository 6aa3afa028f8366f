// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carriers: threads beside the pump's that move clients' bytes, each with front-ends, a poller and
//! buffers of its own.
//!
//! The engine decides in one thread, and that costs little; what takes time of a request is its way
//! through a socket, and TLS. So front-ends may be given to carriers: there they run as they would
//! in the pump, by the same two traits ([`Frontend`], [`Core`](crate::frontend::Core)). Requests
//! and replies go through channels, payload stays where it is: the pump's arena borrows the
//! carrier's. No lock is taken on the way (ADR 0017).
//!
//! `thread` is the carrier, `carried` stands for a front-end in the pump.

mod carried;
#[cfg(test)]
mod tests;
mod thread;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use flashfront_device::Arena;
use flashfront_engine::{OriginId, Request, RequestError, RequestId};
use mio::Poll;

use self::carried::Carried;
use self::thread::{Carrier, Hosted};
use crate::frontend::bell::Bell;
use crate::frontend::desk::Clock;
use crate::frontend::{Core, Export, Frontend, TokenRange};

/// A front-end that another thread may have.
pub type Portable = Box<dyn Frontend + Send>;

/// Something that a carrier does with a front-end.
type Errand = Box<dyn FnOnce(&mut dyn Frontend, &mut dyn Core) + Send>;

/// Orders of the pump to a carrier, for its front-end number `at`.
enum Order {
    Reply {
        at: usize,
        id: RequestId,
        result: Result<(), RequestError>,
    },
    Refused {
        at: usize,
        id: RequestId,
    },
    Stop {
        at: usize,
    },
    /// The pump waits until that is done.
    Run {
        at: usize,
        errand: Errand,
    },
    Exports(Vec<Export>),
}

/// A request, and whether it may wait for an origin.
type Asked = (Request, bool);

/// Where a front-end finds its clients.
#[derive(Debug)]
struct Place {
    uri: String,
    /// The only volume there, if there is only one.
    only: Option<OriginId>,
}

/// The state of a front-end, as its carrier shows it to the pump.
#[derive(Debug, Default)]
struct Seen {
    clients: AtomicUsize,
    /// Whether the carrier was told to stop, and has nothing left to do.
    ended: AtomicBool,
    /// Whether the front-end holds its clients, and whether all of them are held. Only the carrier
    /// writes these.
    holds: AtomicBool,
    held: AtomicBool,
}

/// A carrier's thread. It ends when no holder of its orders is left, and the last of them waits for
/// that.
#[derive(Debug)]
struct CarrierThread {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for CarrierThread {
    fn drop(&mut self) {
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so, and the pump has noticed.
            drop(thread.join());
        }
    }
}

/// Gives front-ends to a new carrier, with the pump's clock; the pump's arena has borrowed `arena`.
///
/// Returns the stand-in of each front-end for the pump. The thread ends when the last of these is
/// dropped.
///
/// # Errors
/// When the kernel refuses a poller, an eventfd or a thread.
pub(crate) fn start(
    name: String,
    frontends: Vec<Portable>,
    arena: Arena,
    exports: Vec<Export>,
    clock: Clock,
) -> io::Result<Vec<Box<dyn Frontend>>> {
    let poll = Poll::new()?;
    let bell = Arc::new(Bell::new()?);
    bell.register(poll.registry(), thread::BELL)?;
    let (orders, ordered) = channel();
    let (mut hosted, mut ends) = (Vec::new(), Vec::new());
    let mut first = thread::BELL.0 + 1;
    for mut frontend in frontends {
        let tokens = TokenRange { first, count: frontend.tokens_max() };
        first += tokens.count;
        frontend.register(poll.registry(), tokens)?;
        let (sender, requests) = channel();
        let (pump, seen) = (Arc::new(Bell::new()?), Arc::new(Seen::default()));
        ends.push((
            Place { uri: frontend.uri(), only: frontend.only() },
            requests,
            Arc::clone(&pump),
            Arc::clone(&seen),
        ));
        hosted.push(Hosted::new(frontend, tokens, sender, pump, seen));
    }
    let carrier = Carrier::new(poll, Arc::clone(&bell), ordered, hosted, arena, exports, clock);
    let thread = std::thread::Builder::new().name(name).spawn(move || carrier.run())?;
    let life = Arc::new(CarrierThread { bell, thread: Some(thread) });
    let mut carried: Vec<Box<dyn Frontend>> = Vec::new();
    for (at, (place, requests, bell, seen)) in ends.into_iter().enumerate() {
        carried.push(Box::new(Carried::new(place, at, requests, bell, seen, orders.clone(), Arc::clone(&life))));
    }
    // Before `life`, whose drop waits for the thread.
    drop(orders);
    Ok(carried)
}

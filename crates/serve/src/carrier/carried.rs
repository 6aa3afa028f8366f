// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stand-in for a front-end in the pump while a carrier has it: passes requests in and replies
//! out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use flashfront_engine::{OriginId, RequestError, RequestId, Time};
use mio::{Registry, event::Event};

use super::{Asked, CarrierThread, Order, Place, Seen};
use crate::frontend::bell::Bell;
use crate::frontend::{Core, Export, Frontend, TokenRange};
use crate::upgrade::Parcel;

/// A front-end that a carrier has.
#[derive(Debug)]
pub(super) struct Carried {
    place: Place,
    /// The number of the front-end at the carrier.
    at: usize,
    requests: Receiver<Asked>,
    /// Rung by the carrier when there are requests, or the end.
    bell: Arc<Bell>,
    seen: Arc<Seen>,
    /// The carrier has orders that it has not been woken for.
    ordered: bool,
    stopping: bool,
    // Dropped in this order: without orders to come the thread ends, and then it is waited for.
    orders: Sender<Order>,
    life: Arc<CarrierThread>,
}

impl Carried {
    pub(super) fn new(
        place: Place,
        at: usize,
        requests: Receiver<Asked>,
        bell: Arc<Bell>,
        seen: Arc<Seen>,
        orders: Sender<Order>,
        life: Arc<CarrierThread>,
    ) -> Self {
        Self { place, at, requests, bell, seen, ordered: false, stopping: false, orders, life }
    }

    /// Takes what has come; says whether something has.
    fn take_in(&self, core: &mut dyn Core) -> bool {
        self.bell.heard();
        let mut some = false;
        loop {
            match self.requests.try_recv() {
                Ok((request, may_wait)) => core.submit_carried(request, may_wait),
                Err(TryRecvError::Empty) => return some,
                Err(TryRecvError::Disconnected) => {
                    assert!(self.seen.ended.load(Ordering::Acquire), "{}", self.died());
                    return some;
                }
            }
            some = true;
        }
    }

    fn died(&self) -> String {
        format!("bug: the thread that serves {} died", self.place.uri)
    }

    /// Lets the carrier do something with the front-end, after all earlier orders, and waits for
    /// that. A carrier never waits for the pump, so that this takes one of its turns.
    fn run<T: Send + 'static>(&self, errand: impl FnOnce(&mut dyn Frontend, &mut dyn Core) -> T + Send + 'static) -> T {
        let (done, answer) = channel();
        let errand = move |frontend: &mut dyn Frontend, core: &mut dyn Core| {
            // The pump waits for it.
            let _ = done.send(errand(frontend, core));
        };
        let _ = self.orders.send(Order::Run { at: self.at, errand: Box::new(errand) });
        self.life.bell.ring();
        // An errand that nobody runs any more is dropped with its end of the channel.
        answer.recv().unwrap_or_else(|_| panic!("{}", self.died()))
    }

    /// A carrier that has died gets none; [`Self::take_in`] says so.
    fn order(&mut self, order: Order) {
        self.ordered |= self.orders.send(order).is_ok();
    }
}

impl Frontend for Carried {
    fn uri(&self) -> String {
        self.place.uri.clone()
    }

    fn uri_of(&self, export: &Export) -> Option<String> {
        (self.place.only == Some(export.origin)).then(|| self.uri())
    }

    fn only(&self) -> Option<OriginId> {
        self.place.only
    }

    /// A carrier hears of it from each of its front-ends: they are few.
    fn exports_changed(&mut self, exports: &[Export]) {
        self.order(Order::Exports(exports.to_vec()));
    }

    fn tokens_max(&self) -> usize {
        1
    }

    fn register(&mut self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        self.bell.register(registry, tokens.get(0).ok_or(io::ErrorKind::InvalidInput)?)
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, core: &mut dyn Core) {
        self.take_in(core);
    }

    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, _core: &mut dyn Core) {
        self.order(Order::Reply { at: self.at, id, result });
    }

    fn refused(&mut self, id: RequestId, _core: &mut dyn Core) {
        self.order(Order::Refused { at: self.at, id });
    }

    /// The carrier has buffers of its own.
    fn room(&mut self, _core: &mut dyn Core) {}

    fn turn_end(&mut self, _now: Time, _registry: &Registry, core: &mut dyn Core) -> bool {
        if std::mem::take(&mut self.ordered) {
            self.life.bell.ring();
        }
        self.take_in(core)
    }

    fn next_timer(&self) -> Option<Time> {
        None
    }

    fn stop(&mut self, _registry: &Registry, _core: &mut dyn Core) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.order(Order::Stop { at: self.at });
        }
    }

    /// The front-end is idle when all that it asked for before its end is answered, so that nothing
    /// is left in the channel.
    fn idle(&self) -> bool {
        if self.stopping { self.seen.ended.load(Ordering::Acquire) } else { self.clients() == 0 }
    }

    fn clients(&self) -> usize {
        self.seen.clients.load(Ordering::Relaxed)
    }

    fn stays(&self) -> Option<String> {
        self.run(|frontend, _| frontend.stays())
    }

    /// The carrier rings when all clients are held.
    fn hold(&mut self, forced: bool, _core: &mut dyn Core) {
        let seen = Arc::clone(&self.seen);
        self.run(move |frontend, core| {
            frontend.hold(forced, core);
            seen.holds.store(true, Ordering::Relaxed);
        });
    }

    fn held(&self) -> bool {
        self.seen.held.load(Ordering::Acquire)
    }

    fn release(&mut self) {
        let seen = Arc::clone(&self.seen);
        self.run(move |frontend, _| {
            frontend.release();
            seen.holds.store(false, Ordering::Relaxed);
            seen.held.store(false, Ordering::Release);
        });
    }

    /// The parcel goes to the carrier, and comes back with its clients.
    fn hand_over(&mut self, parcel: &mut Parcel, _core: &mut dyn Core) -> io::Result<()> {
        let mut filled = std::mem::take(parcel);
        let (filled, done) = self.run(move |frontend, core| {
            let done = frontend.hand_over(&mut filled, core);
            (filled, done)
        });
        *parcel = filled;
        done
    }

    fn leave(&mut self) {
        self.run(|frontend, _| frontend.leave());
    }
}

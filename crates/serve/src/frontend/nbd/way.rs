// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way from the gate of an address to one of the front-ends behind it, in another thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mio::{Registry, Token};

use super::super::bell::Bell;
use super::stream::Socket;

/// Held by a client as long as it is served; how many hold one is how many clients there are.
pub(super) type Place = Arc<()>;

/// A client that has come.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) socket: Socket,
    pub(super) place: Option<Place>,
}

/// A front-end behind the gate has this in the place of a listening socket.
#[derive(Debug)]
pub(super) struct Handed {
    clients: Receiver<Accepted>,
    /// Clients that were looked at, and not taken.
    seen: VecDeque<Accepted>,
    bell: Arc<Bell>,
}

impl Handed {
    pub(super) fn take(&mut self) -> io::Result<Accepted> {
        self.look();
        self.seen.pop_front().ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Looks at all clients that have come and were not taken.
    pub(super) fn look(&mut self) -> &VecDeque<Accepted> {
        self.bell.heard();
        self.seen.extend(self.clients.try_iter());
        &self.seen
    }

    pub(super) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        self.bell.register(registry, token)
    }
}

/// The way to a front-end behind the gate.
#[derive(Debug)]
pub(super) struct Way {
    clients: Sender<Accepted>,
    bell: Arc<Bell>,
    places: Place,
}

impl Way {
    /// A way, and its other end.
    pub(super) fn new() -> io::Result<(Self, Handed)> {
        let ((sender, clients), bell) = (channel(), Arc::new(Bell::new()?));
        let handed = Handed { clients, seen: VecDeque::new(), bell: Arc::clone(&bell) };
        Ok((Self { clients: sender, bell, places: Place::default() }, handed))
    }

    /// How many clients the front-end has, or is about to have.
    pub(super) fn clients(&self) -> usize {
        Arc::strong_count(&self.places) - 1
    }

    /// A place for one more.
    pub(super) fn place(&self) -> Place {
        Arc::clone(&self.places)
    }

    /// Hands a client to the front-end. Without a front-end the socket is dropped.
    pub(super) fn hand_over(&self, socket: Socket) {
        if self.clients.send(Accepted { socket, place: Some(self.place()) }).is_ok() {
            self.bell.ring();
        }
    }
}

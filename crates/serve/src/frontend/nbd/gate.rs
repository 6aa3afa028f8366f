// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepts clients for several NBD front-ends, each of them in a thread of its own.
//!
//! A client goes to the front-end that has the fewest (test: `clients_are_spread`). The limit of
//! clients is that of the address, not of a thread. Clients of another program are dealt out in the
//! same way, however many threads that program had.

use std::io;

use flashfront_engine::{RequestError, RequestId, Time};
use mio::{Interest, Registry, event::Event, event::Source};

use super::super::{Core, Export, Frontend, TokenRange};
use super::hold::{HandedOver, put_listener};
use super::listen::{Acceptor, BindError, is_about_client};
use super::listener::Nbd;
use super::options::NbdOptions;
use super::stream::Socket;
use super::way::Way;
use crate::address::Listen;
use crate::unaccepted::Unaccepted;
use crate::upgrade::Parcel;

/// When to try again to accept, if descriptors or memory have run out.
const RETRY_NS: u64 = 1_000_000_000;

/// Whether an address has all the clients that it may have, which is said once for each time that
/// it comes to that. The clients that are turned away are counted.
#[derive(Debug, Default)]
pub(super) struct Full {
    said: bool,
    refused: u64,
}

impl Full {
    /// A client is turned away.
    pub(super) fn refuse(&mut self, at: &Listen, most: u16) {
        self.refused += 1;
        if self.is_news() {
            tracing::warn!("NBD at {at}: {most} clients are connected, the most allowed; further ones are refused");
        }
    }

    /// A client that has not chosen a volume is closed, so that a new one has its place.
    pub(super) fn give_way(&mut self, at: &Listen, most: u16) {
        self.refused += 1;
        if self.is_news() {
            tracing::warn!(
                "NBD at {at}: {most} clients are connected, the most allowed; those that have not chosen a volume are closed, the oldest first, where new ones come"
            );
        }
    }

    /// Clients so far that were turned away or closed.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.said, true)
    }

    /// A client has found a place.
    pub(super) fn let_in(&mut self) {
        self.said = false;
    }
}

/// The listening socket of an address, for several front-ends.
#[derive(Debug)]
pub struct Gate {
    acceptor: Option<Acceptor>,
    acceptable: bool,
    /// No client is accepted.
    held: bool,
    at: Listen,
    options: NbdOptions,
    tokens: TokenRange,
    ways: Vec<Way>,
    retry: Option<Time>,
    full: Full,
    unaccepted: Unaccepted,
}

impl Gate {
    /// Listens for a number of front-ends. They serve the clients, which are accepted once the pump
    /// runs.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(listen: &Listen, options: NbdOptions, frontends: usize) -> Result<(Self, Vec<Nbd>), BindError> {
        let (acceptor, at) = Acceptor::bind(listen, options.insecure || options.tls.is_some())?;
        Self::with(acceptor, at, options, frontends).map_err(|error| BindError::Io { at: listen.clone(), error })
    }

    /// Listens by the socket of another program, the `nth` of the parcel. The front-ends go on with
    /// its clients.
    ///
    /// # Errors
    /// What came is not what this program understands.
    pub(crate) fn take_over(
        listen: &Listen,
        options: NbdOptions,
        nth: usize,
        frontends: usize,
        exports: &[Export],
        parcel: &Parcel,
    ) -> io::Result<(Self, Vec<Nbd>)> {
        let HandedOver { acceptor, at, clients } = HandedOver::unpack(listen, &options, nth, parcel)?;
        let (gate, mut all) = Self::with(acceptor, at, options, frontends)?;
        for client in &clients {
            let ways = gate.ways.iter().zip(&mut all);
            if let Some((way, nbd)) = ways.min_by_key(|(way, _)| way.clients()) {
                nbd.take_up(client, Some(way.place()), exports, parcel)?;
            }
        }
        Ok((gate, all))
    }

    fn with(acceptor: Acceptor, at: Listen, options: NbdOptions, frontends: usize) -> io::Result<(Self, Vec<Nbd>)> {
        let (mut ways, mut all) = (Vec::new(), Vec::new());
        for _ in 0..frontends {
            let (way, handed) = Way::new()?;
            ways.push(way);
            all.push(Nbd::with(Acceptor::Gate(handed), at.clone(), options.clone()));
        }
        let tokens = TokenRange { first: 0, count: 0 };
        let gate = Self {
            acceptor: Some(acceptor),
            acceptable: false,
            held: false,
            at,
            options,
            tokens,
            ways,
            retry: None,
            full: Full::default(),
            unaccepted: Unaccepted::default(),
        };
        Ok((gate, all))
    }

    /// The address at which the gate listens, with the port the system chose.
    #[must_use]
    pub fn address(&self) -> &Listen {
        &self.at
    }

    fn accept(&mut self) {
        while let Some(acceptor) = self.acceptor.as_mut().filter(|_| self.acceptable && !self.held) {
            match acceptor.accept() {
                Ok(accepted) => {
                    self.unaccepted.over();
                    self.let_in(accepted.socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unaccepted.over();
                    self.acceptable = false;
                }
                Err(error) if is_about_client(&error) => {}
                // Out of descriptors or memory: tried again later.
                Err(error) => return self.unaccepted.failed(format_args!("NBD at {}", self.at), &error),
            }
        }
    }

    /// Hands a client to the front-end that has least to do. Without a place for it the socket is
    /// dropped, which is a clear answer.
    fn let_in(&mut self, socket: Socket) {
        let clients: usize = self.ways.iter().map(Way::clients).sum();
        let way = self.ways.iter().min_by_key(|way| way.clients());
        let most = self.options.connections_max;
        if clients >= usize::from(most) {
            return self.full.refuse(&self.at, most);
        }
        self.full.let_in();
        if let Some(way) = way {
            way.hand_over(socket);
        }
    }
}

impl Frontend for Gate {
    fn uri(&self) -> String {
        self.at.uri(&self.options.uri_export, self.options.tls.is_some())
    }

    fn uri_of(&self, export: &Export) -> Option<String> {
        Some(self.at.uri(&export.name, self.options.tls.is_some()))
    }

    fn tokens_max(&self) -> usize {
        1
    }

    fn register(&mut self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        self.tokens = tokens;
        let (Some(token), Some(acceptor)) = (tokens.get(0), &mut self.acceptor) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        acceptor.register(registry, token, Interest::READABLE)
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, _core: &mut dyn Core) {
        self.acceptable = true;
        self.accept();
    }

    fn reply(&mut self, id: RequestId, _result: Result<(), RequestError>, _core: &mut dyn Core) {
        debug_assert!(false, "a gate asks for nothing, and gets a reply: {id:?}");
    }

    fn refused(&mut self, id: RequestId, _core: &mut dyn Core) {
        debug_assert!(false, "a gate asks for nothing, and is refused: {id:?}");
    }

    fn room(&mut self, _core: &mut dyn Core) {}

    fn turn_end(&mut self, now: Time, _registry: &Registry, _core: &mut dyn Core) -> bool {
        self.accept();
        self.retry = self.acceptable.then(|| now.plus_ns(RETRY_NS));
        false
    }

    fn next_timer(&self) -> Option<Time> {
        self.retry
    }

    fn stop(&mut self, registry: &Registry, _core: &mut dyn Core) {
        self.acceptable = false;
        if let Some(mut acceptor) = self.acceptor.take() {
            // The listener is closed next, which does the same.
            drop(acceptor.deregister(registry));
        }
    }

    /// The gate is always idle: its clients are the front-ends'.
    fn idle(&self) -> bool {
        true
    }

    fn clients(&self) -> usize {
        0
    }

    fn clients_refused(&self) -> u64 {
        self.full.refused()
    }

    fn stays(&self) -> Option<String> {
        None
    }

    fn hold(&mut self, _forced: bool, _core: &mut dyn Core) {
        self.held = true;
    }

    fn release(&mut self) {
        self.held = false;
    }

    /// Puts the listening socket in. Front-ends in other threads are asked later, and add their
    /// clients.
    fn hand_over(&mut self, parcel: &mut Parcel, _core: &mut dyn Core) -> io::Result<()> {
        let acceptor = self.acceptor.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        put_listener(acceptor, &self.at, parcel)
    }

    fn leave(&mut self) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_an_address_is_full_is_said_once_a_time() {
        let mut full = Full::default();
        assert!(full.is_news() && !full.is_news());
        full.let_in();
        assert!(full.is_news());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepts clients for several NBD front-ends, each of them in a thread of its own.
//!
//! A client goes to the front-end that has the fewest (test: `clients_are_spread`). The limit of
//! clients is that of the address, not of a thread.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use flashfront_engine::{RequestError, RequestId, Time};
use mio::{Interest, Registry, Token, event::Event, event::Source};

use super::super::bell::Bell;
use super::super::{Core, Export, Frontend, TokenRange};
use super::listen::{Acceptor, BindError, is_about_client};
use super::listener::Nbd;
use super::options::NbdOptions;
use super::stream::Socket;
use crate::address::Listen;
use crate::unaccepted::Unaccepted;

/// When to try again to accept, if descriptors or memory have run out.
const RETRY_NS: u64 = 1_000_000_000;

/// Whether an address has all the clients that it may have, which is said once for each time that
/// it comes to that.
#[derive(Debug, Default)]
pub(super) struct Full(bool);

impl Full {
    /// A client is turned away.
    pub(super) fn refuse(&mut self, at: &Listen, most: u16) {
        if self.is_news() {
            tracing::warn!("NBD at {at}: {most} clients are connected, the most allowed; further ones are refused");
        }
    }

    fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.0, true)
    }

    /// A client has found a place.
    pub(super) fn let_in(&mut self) {
        self.0 = false;
    }
}

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
    bell: Arc<Bell>,
}

impl Handed {
    pub(super) fn take(&self) -> io::Result<Accepted> {
        self.bell.heard();
        self.clients.try_recv().map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    pub(super) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        self.bell.register(registry, token)
    }
}

/// The way to a front-end behind the gate.
#[derive(Debug)]
struct Way {
    clients: Sender<Accepted>,
    bell: Arc<Bell>,
    places: Place,
}

impl Way {
    fn clients(&self) -> usize {
        Arc::strong_count(&self.places) - 1
    }
}

/// The listening socket of an address, for several front-ends.
#[derive(Debug)]
pub struct Gate {
    acceptor: Option<Acceptor>,
    acceptable: bool,
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
        let (mut ways, mut all) = (Vec::new(), Vec::new());
        for _ in 0..frontends {
            let (sender, clients) = channel();
            let bell = Bell::new().map_err(|error| BindError::Io { at: at.clone(), error })?;
            let bell = Arc::new(bell);
            ways.push(Way { clients: sender, bell: Arc::clone(&bell), places: Place::default() });
            all.push(Nbd::with(Acceptor::Gate(Handed { clients, bell }), at.clone(), options.clone()));
        }
        let tokens = TokenRange { first: 0, count: 0 };
        let gate = Self {
            acceptor: Some(acceptor),
            acceptable: false,
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
        while let Some(acceptor) = self.acceptor.as_ref().filter(|_| self.acceptable) {
            match acceptor.accept() {
                Ok(accepted) => {
                    self.unaccepted.over();
                    self.hand_over(accepted.socket);
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
    fn hand_over(&mut self, socket: Socket) {
        let clients: usize = self.ways.iter().map(Way::clients).sum();
        let way = self.ways.iter().min_by_key(|way| way.clients());
        let most = self.options.connections_max;
        if clients >= usize::from(most) {
            return self.full.refuse(&self.at, most);
        }
        self.full.let_in();
        if let Some(way) = way {
            let place = Some(Arc::clone(&way.places));
            if way.clients.send(Accepted { socket, place }).is_ok() {
                way.bell.ring();
            }
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
            // It is closed next, which does the same.
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

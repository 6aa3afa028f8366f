// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD server in the pump's loop: accepts clients, moves bytes, watches limits and timeouts.
//!
//! The loop is edge-triggered: flags remember what a socket can do until it says `WouldBlock`. A
//! socket that takes less than offered counts as full, too, which on Linux means the same and saves
//! a system call.
//!
//! Connections that found no buffers wait in one queue, first come first served, so that short
//! reads don't starve a long one. Answers that a client doesn't read are dropped while others wait
//! (`spare`). TLS handshakes go on one per turn, as a signature (RSA) takes up to milliseconds.

use std::collections::VecDeque;
use std::io;

use flashfront_engine::{RequestError, RequestId, Time};
use flashfront_nbd_proto::server::Security;
use mio::{Interest, Registry, event::Event, event::Source};

use super::super::holding::Hold;
use super::super::piece::PieceId;
use super::super::visit::Visit;
use super::super::{Core, Export, Frontend, TokenRange};
use super::connection::Connection;
use super::gate::Full;
use super::limits::UNREAD_BYTES_MAX;
use super::listen::{Acceptor, BindError, is_about_client};
use super::options::NbdOptions;
use super::peer::Peer;
use super::stream::Stream;
use super::wait::Wait;
use super::way::Accepted;
use crate::address::Listen;
use crate::unaccepted::Unaccepted;
use crate::upgrade::Parcel;

/// Bytes taken from one client before the others have their turn.
const TURN_BYTES: usize = 4 << 20;
/// Every receive counts as this many bytes at least.
///
/// Without TLS only the last receive has less. In TLS a client may send records of one byte, or of
/// none.
const RECEIVE_BYTES_MIN: usize = 128 << 10;

/// The NBD front-end.
#[derive(Debug)]
pub struct Nbd {
    pub(super) acceptor: Option<Acceptor>,
    pub(super) at: Listen,
    pub(super) options: NbdOptions,
    pub(super) tokens: TokenRange,
    pub(super) acceptable: bool,
    pub(super) peers: Vec<Option<Peer>>,
    dirty: Vec<u16>,
    /// A TLS handshake went on in this turn.
    shook: bool,
    /// Connections without buffers, in the order they asked.
    pub(super) waiting: VecDeque<u16>,
    /// Connections with parked requests, in turns.
    pub(super) parked: VecDeque<u16>,
    pub(super) timer: Option<Time>,
    /// When parked requests are looked at once more, and when the first client is known to be
    /// stuck.
    pub(super) retry_at: Option<Time>,
    pub(super) stuck_until: Option<Time>,
    /// Timeouts must be looked at in this turn, whatever `timer` says.
    pub(super) look: bool,
    pub(super) stopping: bool,
    /// How clients are held, for another program that takes them over.
    pub(super) hold: Hold,
    /// While clients are held, TLS handshakes may go on so long.
    pub(super) shaken_until: Option<Time>,
    pub(super) full: Full,
    unaccepted: Unaccepted,
}

impl Nbd {
    /// Listens; clients are accepted once the pump runs.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(listen: &Listen, options: NbdOptions) -> Result<Self, BindError> {
        let (acceptor, at) = Acceptor::bind(listen, options.insecure || options.tls.is_some())?;
        Ok(Self::with(acceptor, at, options))
    }

    pub(super) fn with(acceptor: Acceptor, at: Listen, options: NbdOptions) -> Self {
        let peers = (0..options.connections_max).map(|_| None).collect();
        Self {
            acceptor: Some(acceptor),
            at,
            options,
            tokens: TokenRange { first: 0, count: 0 },
            acceptable: false,
            peers,
            dirty: Vec::new(),
            shook: false,
            waiting: VecDeque::new(),
            parked: VecDeque::new(),
            timer: None,
            retry_at: None,
            stuck_until: None,
            look: false,
            stopping: false,
            hold: Hold::default(),
            shaken_until: None,
            full: Full::default(),
            unaccepted: Unaccepted::default(),
        }
    }

    /// The address at which the server listens, with the port the system chose.
    #[must_use]
    pub fn address(&self) -> &Listen {
        &self.at
    }

    /// Clients connected at the moment.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.peers.iter().flatten().count()
    }

    pub(super) fn security(&self) -> Security {
        match (&self.options.tls, &self.at) {
            (None, _) => Security::Off,
            (Some(_), Listen::Unix(_)) => Security::Offered,
            (Some(_), Listen::Tcp { .. }) => Security::Required,
        }
    }

    fn accept(&mut self, registry: &Registry, core: &mut dyn Core) {
        while self.acceptable && self.hold == Hold::No {
            let Some(acceptor) = &mut self.acceptor else {
                return;
            };
            let Accepted { mut socket, place } = match acceptor.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unaccepted.over();
                    self.acceptable = false;
                    return;
                }
                Err(error) if is_about_client(&error) => continue,
                // Out of descriptors or memory: tried again at the next turn.
                Err(error) => {
                    self.unaccepted.failed(format_args!("NBD at {}", self.at), &error);
                    self.look = true;
                    return;
                }
            };
            self.unaccepted.over();
            let index = match self.peers.iter().position(Option::is_none) {
                Some(index) => {
                    self.full.let_in();
                    index
                }
                None => match self.make_place(registry, core) {
                    Some(index) => index,
                    // No place: dropping the socket is a clear answer, a silent wait is not.
                    None => {
                        self.full.refuse(&self.at, self.options.connections_max);
                        continue;
                    }
                },
            };
            let Some(token) = self.tokens.get(index + 1) else {
                continue;
            };
            let visit = Visit::begin(format!("NBD at {}", self.at), socket.peer());
            let interest = Interest::READABLE | Interest::WRITABLE;
            if socket.register(registry, token, interest).is_err() {
                continue;
            }
            let connection = Connection::new(index as u16, self.security());
            self.peers[index] = Some(Peer::new(Stream::Plain(socket), connection, visit, place));
            self.look = true;
            self.mark(index as u16);
        }
    }

    pub(super) fn mark(&mut self, number: u16) {
        if let Some(peer) = &mut self.peers[usize::from(number)]
            && !peer.dirty
        {
            peer.dirty = true;
            self.dirty.push(number);
        }
    }

    /// Parses what is there and receives more, as far as limits allow. `true` if it submitted
    /// something, or may go on at once in the next turn.
    fn take_in(&mut self, number: u16, core: &mut dyn Core) -> bool {
        let Some(peer) = &mut self.peers[usize::from(number)] else {
            return false;
        };
        let Some(stream) = &mut peer.stream else {
            return false;
        };
        let may_alloc = self.waiting.front().is_none_or(|&first| first == number);
        let before = peer.connection.in_flight();
        if peer.wait == Wait::Own {
            // It was the client's own doing that it had to wait: it has as much in flight as it
            // may, or doesn't read.
            peer.connection.since(core.now());
        }
        let mut bytes = 0;
        let mut shakes = false;
        let mut hangup = None;
        loop {
            if !peer.writable && peer.connection.unread_bytes() >= UNREAD_BYTES_MAX {
                peer.wait = Wait::Own;
                break;
            }
            // A handshake of TLS goes on while clients are held, as no other program can.
            let shakes_on = stream.is_handshaking() && peer.wait != Wait::End;
            peer.wait = if shakes_on { Wait::Input } else { peer.connection.advance(core, may_alloc) };
            if peer.wait != Wait::Input || !peer.readable || bytes >= TURN_BYTES {
                break;
            }
            if stream.is_handshaking() && !shakes {
                if std::mem::replace(&mut self.shook, true) {
                    break;
                }
                shakes = true;
            }
            match peer.connection.receive(core, |into| stream.receive(into)) {
                Ok(received) if received.bytes == 0 => {
                    hangup = Some(true);
                    break;
                }
                Ok(received) => {
                    peer.visit.receive(received.bytes as u64);
                    bytes += received.bytes.max(RECEIVE_BYTES_MIN);
                    peer.readable = !received.short || peer.closing || stream.may_have_more();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => bytes += RECEIVE_BYTES_MIN,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => peer.readable = false,
                Err(_) => {
                    hangup = Some(false);
                    break;
                }
            }
        }
        if peer.visit.is_aimless()
            && let Some(export) = peer.connection.export()
        {
            // Of a volume that is being removed.
            hangup = if peer.visit.open(export) { hangup } else { Some(false) };
        }
        let submitted = peer.connection.in_flight() > before;
        let more = peer.wait == Wait::Input && peer.readable && hangup.is_none();
        match hangup {
            // The client will send nothing more, and may still read.
            Some(true) => {
                peer.connection.finish_up(core);
                peer.wait = Wait::End;
            }
            Some(false) => self.hang_up(number, core),
            None => {}
        }
        self.note_wait(number);
        self.note_parked(number);
        self.mark(number);
        submitted || more
    }

    /// Keeps the queue for buffers.
    fn note_wait(&mut self, number: u16) {
        let wait = self.peers[usize::from(number)].as_ref().map(|peer| peer.wait);
        let queued = self.waiting.iter().position(|&waiting| waiting == number);
        match (wait, queued) {
            (Some(Wait::Room), None) => self.waiting.push_back(number),
            (Some(Wait::Room), Some(_)) | (_, None) => {}
            (_, Some(place)) => drop(self.waiting.remove(place)),
        }
    }

    /// The socket failed: forgets the client, but for its requests at the engine.
    pub(super) fn hang_up(&mut self, number: u16, core: &mut dyn Core) {
        if let Some(peer) = &mut self.peers[usize::from(number)] {
            peer.connection.abort(core);
            peer.wait = Wait::End;
            // Closing the descriptor takes it out of the poller.
            peer.stream = None;
            self.note_wait(number);
            self.mark(number);
        }
    }
}

impl Frontend for Nbd {
    fn uri(&self) -> String {
        self.at.uri(&self.options.uri_export, self.options.tls.is_some())
    }

    fn uri_of(&self, export: &Export) -> Option<String> {
        Some(self.at.uri(&export.name, self.options.tls.is_some()))
    }

    fn tokens_max(&self) -> usize {
        self.peers.len() + 1
    }

    fn register(&mut self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        self.tokens = tokens;
        let last = tokens.get(self.peers.len());
        let (Some(first), Some(_), Some(acceptor)) = (tokens.get(0), last, &mut self.acceptor) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        acceptor.register(registry, first, Interest::READABLE)?;
        self.register_taken_over(registry)
    }

    fn ready(&mut self, event: &Event, registry: &Registry, core: &mut dyn Core) {
        let Some(index) = self.tokens.index(event.token()) else {
            return;
        };
        if index == 0 {
            self.acceptable = true;
            self.accept(registry, core);
            return;
        }
        let number = (index - 1) as u16;
        // A client that left in the same turn is no longer here.
        let Some(peer) = self.peers.get_mut(index - 1).and_then(Option::as_mut) else {
            return;
        };
        peer.closing |= event.is_read_closed() || event.is_error();
        peer.readable |= event.is_readable() || peer.closing;
        peer.writable |= event.is_writable() || event.is_error();
        self.take_in(number, core);
    }

    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, core: &mut dyn Core) {
        let id = PieceId::decode(id);
        let peer = self.peers.get_mut(usize::from(id.connection)).and_then(Option::as_mut);
        // A place is kept until the engine owes nothing for it.
        debug_assert!(peer.is_some(), "a reply to nobody: {id:?}");
        if let Some(peer) = peer {
            peer.connection.reply(id, result, core);
            self.mark(id.connection);
        }
    }

    fn refused(&mut self, id: RequestId, core: &mut dyn Core) {
        let id = PieceId::decode(id);
        if let Some(peer) = self.peers.get_mut(usize::from(id.connection)).and_then(Option::as_mut) {
            peer.connection.refused(id, core);
            self.note_parked(id.connection);
            self.mark(id.connection);
        }
    }

    fn room(&mut self, _core: &mut dyn Core) {
        // Clients that wait are tried at the end of every turn.
    }

    fn turn_end(&mut self, now: Time, registry: &Registry, core: &mut dyn Core) -> bool {
        let mut more = false;
        self.accept(registry, core);
        let mut dirty = std::mem::take(&mut self.dirty);
        for &number in &dirty {
            let Some(peer) = &mut self.peers[usize::from(number)] else {
                continue;
            };
            peer.dirty = false;
            if peer.connection.is_lost() {
                self.hang_up(number, core);
            }
            self.transmit(number, core);
            self.enter_tls(number, core);
            let Some(peer) = &self.peers[usize::from(number)] else {
                continue;
            };
            // Replies were sent, so a limit may be gone; or its share of the turn was used up.
            if peer.wait == Wait::Own || (peer.wait == Wait::Input && peer.readable) {
                more |= self.take_in(number, core);
            }
            self.reap(number, registry);
        }
        dirty.clear();
        // New ones were marked meanwhile; they are few.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        more |= self.resume_parked(now, core);
        more |= self.fetch_again(core);
        while let Some(&number) = self.waiting.front() {
            more |= self.take_in(number, core);
            if self.waiting.front() == Some(&number) {
                break;
            }
        }
        self.make_room(now, core);
        if self.look || self.timer.is_some_and(|timer| now >= timer) {
            self.look = false;
            self.watch(now, core);
        }
        self.shook = false;
        // Replies that were queued above are sent in the next turn, which must not wait for events.
        more | self.dirty.iter().any(|&number| self.has_work(number))
    }

    fn next_timer(&self) -> Option<Time> {
        [self.timer, self.retry_at, self.stuck_until].into_iter().flatten().min()
    }

    fn stop(&mut self, registry: &Registry, core: &mut dyn Core) {
        self.stopping = true;
        self.look = true;
        self.acceptable = false;
        if let Some(mut acceptor) = self.acceptor.take() {
            // The listener is closed next, which does the same.
            drop(acceptor.deregister(registry));
        }
        for number in 0..self.peers.len() as u16 {
            if let Some(peer) = &mut self.peers[usize::from(number)] {
                peer.connection.finish_up(core);
                peer.wait = Wait::End;
                self.mark(number);
            }
        }
        self.waiting.clear();
    }

    fn clients(&self) -> usize {
        self.connections()
    }

    fn clients_refused(&self) -> u64 {
        self.full.refused()
    }

    fn idle(&self) -> bool {
        self.peers.iter().all(Option::is_none)
    }

    fn stays(&self) -> Option<String> {
        None
    }

    fn hold(&mut self, forced: bool, core: &mut dyn Core) {
        self.hold_clients(forced, core);
    }

    fn held(&self) -> bool {
        self.are_clients_held()
    }

    fn release(&mut self) {
        self.release_clients();
    }

    fn hand_over(&mut self, parcel: &mut Parcel, core: &mut dyn Core) -> io::Result<()> {
        self.put_into(parcel, core)
    }

    fn leave(&mut self) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.leave();
        }
    }
}

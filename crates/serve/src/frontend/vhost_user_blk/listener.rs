// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vhost-user-blk server in the pump's loop: gives each client its turn.
//!
//! The loop is edge-triggered: a kick is remembered until its ring is empty. Clients that found no
//! buffers wait in one queue, first come first served. A socket has one volume, and one client as a
//! rule. A second client is for the moment when a client is back before its old connection is known
//! to be gone.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use flashfront_device::Share;
use flashfront_engine::{OriginId, RequestError, RequestId, Time};
use mio::{Registry, event::Event};

use super::super::holding::Hold;
use super::super::piece::PieceId;
use super::super::visit::{self, Visit};
use super::super::{Core, Export, Frontend, TokenRange, export_of};
use super::broken::Broken;
use super::call::Calls;
use super::closing::Closing;
use super::door::Door;
use super::limits::{CONNECTIONS_MAX, QUEUES_MAX};
use super::messages::Talk;
use super::pace::Pace;
use super::peer::Peer;
use super::ring::Ring;
use super::unflushed::Unflushed;
use super::work::Work;
use crate::socket::BindError;
use crate::upgrade::Parcel;

/// Tokens of one client: its socket, and the kicks of its queues.
const PEER_TOKENS: usize = 1 + QUEUES_MAX;

/// How long to wait before a client is told again that could not be, as the kernel had no memory
/// for it.
const TELL_AGAIN_NS: u64 = 1_000_000;

/// Clients accepted at a time: twice as many as there are places, as all present clients may be
/// gone.
const ACCEPTS_MAX: usize = 2 * CONNECTIONS_MAX;

/// A client must have said something within this time, as with NBD. Its place is one that a guest
/// may lack.
const SILENT_NS: u64 = 30_000_000_000;

/// How often requests are tried again that wait for an origin without buffers: their blocks may
/// have come into the cache.
const RETRY_NS: u64 = 5_000_000;
const RETRIES: usize = 16;

/// The vhost-user-blk front-end.
pub struct VhostUserBlk {
    pub(super) door: Door,
    /// The volume's origin.
    pub(super) origin: OriginId,
    /// Tells this daemon from those before it.
    pub(super) daemon: u64,
    pub(super) durable: bool,
    tokens: TokenRange,
    /// When to tell clients again that could not be told.
    tell_at: Option<Time>,
    /// When the server hangs up on the first client that has said nothing.
    silent_at: Option<Time>,
    /// When some of the requests that wait for an origin without buffers are looked at once more.
    retry_at: Option<Time>,
    calls: Calls,
    pub(super) closing: Closing,
    pub(super) peers: Vec<Option<Peer>>,
    /// Clients without buffers, in the order they asked.
    waiting: VecDeque<usize>,
    pub(super) stopping: bool,
    pub(super) hold: Hold,
    pace: Pace,
    /// The rings had new requests since the last end of a turn.
    found: bool,
}

impl VhostUserBlk {
    /// Listens at a socket that only its owner can use; `durable`: what is acknowledged is durable,
    /// always. Clients are accepted once the pump runs.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(path: &Path, origin: OriginId, durable: bool) -> Result<Self, BindError> {
        Self::with(Door::bind(path)?, origin, durable)
    }

    pub(super) fn with(door: Door, origin: OriginId, durable: bool) -> Result<Self, BindError> {
        let path = door.path();
        let mut daemon = [0; 8];
        let drawn = rustix::rand::getrandom(&mut daemon, rustix::rand::GetRandomFlags::empty());
        drawn.map_err(|error| BindError::Io { path: path.to_owned(), source: error.into() })?;
        let calls = Calls::new().map_err(|error| {
            let why = format!("the kernel's asynchronous I/O, by which guests are told: {error}; it needs CONFIG_AIO, and a place below fs.aio-max-nr (sysctl)");
            BindError::Io { path: path.to_owned(), source: io::Error::new(error.kind(), why) }
        })?;
        Ok(Self {
            calls,
            closing: Closing::default(),
            tell_at: None,
            silent_at: None,
            retry_at: None,
            daemon: u64::from_ne_bytes(daemon),
            durable,
            door,
            origin,
            tokens: TokenRange { first: 0, count: 0 },
            peers: (0..CONNECTIONS_MAX).map(|_| None).collect(),
            waiting: VecDeque::new(),
            stopping: false,
            hold: Hold::default(),
            pace: Pace::default(),
            found: false,
        })
    }

    fn peer_tokens(&self, number: usize) -> TokenRange {
        TokenRange { first: self.tokens.first + 1 + number * PEER_TOKENS, count: PEER_TOKENS }
    }

    fn accept(&mut self, registry: &Registry, core: &mut dyn Core) {
        for _ in 0..ACCEPTS_MAX {
            // The files that earlier clients have sent can't be closed: more must not pile up.
            if self.closing.is_stuck() {
                return;
            }
            let Some(socket) = self.door.accept() else { return };
            self.look_who_left(registry, core);
            // No place: dropping the socket is a clear answer, a silent wait is not.
            let place = self.peers.iter().position(Option::is_none);
            let (Some(number), Some(export)) = (place, export_of(core.exports(), self.origin).cloned()) else {
                if place.is_none() {
                    let path = self.door.path().display();
                    tracing::warn!(
                        "{path}: refused a client: {CONNECTIONS_MAX} are connected, the most; one that said nothing for 30 seconds is hung up on"
                    );
                }
                self.closing.close(socket);
                continue;
            };
            let debt = Unflushed::new(self.daemon, self.durable);
            let mut visit =
                Visit::begin(format!("vhost-user-blk at {}", self.door.path().display()), visit::peer(&socket));
            if !visit.open(&export) {
                self.closing.close(socket);
                continue;
            }
            let talk = match Talk::new(socket, export, debt, self.closing.clone()) {
                Ok(talk) => talk,
                Err(error) => {
                    let path = self.door.path().display();
                    tracing::warn!("{path}: a client is refused: {error}");
                    continue;
                }
            };
            if talk.register(registry, self.peer_tokens(number)).is_ok() {
                let work = Work::new(number as u16);
                self.peers[number] = Some(Peer::new(talk, work, visit));
            }
        }
    }

    /// Parts with clients that have hung up, known or not. The client that comes may be one of
    /// them, and two must not use its rings.
    fn look_who_left(&mut self, registry: &Registry, core: &mut dyn Core) {
        for number in 0..self.peers.len() {
            if let Some(Peer { talk: Some(talk), .. }) = &mut self.peers[number] {
                talk.readable = true;
                self.found |= self.serve(number, registry, core, true);
                self.part(number, registry);
            }
        }
    }

    /// Reads a client's messages and takes its requests. `awake`: there is another turn at once.
    /// True if there is something to be carried out.
    fn serve(&mut self, number: usize, registry: &Registry, core: &mut dyn Core, awake: bool) -> bool {
        let tokens = self.peer_tokens(number);
        let may_alloc = self.waiting.is_empty();
        // Requests of a client that is gone may still wait in the engine. The next client asks for
        // the same again, and must not be answered before they are over. An old write would land on
        // what was written since.
        let leaving = self.peers.iter().flatten().any(|peer| peer.talk.is_none() && peer.work.in_flight() > 0);
        let Some(Peer { talk: Some(talk), work, broken, .. }) = &mut self.peers[number] else {
            return false;
        };
        if self.stopping || self.hold != Hold::No || broken.is_some() {
            return false;
        }
        let mut turn = || {
            if !talk.listen(work.in_flight() == 0, registry, tokens)? {
                return Err(Broken::Message(vhost::vhost_user::Error::Disconnected));
            }
            if talk.waits() || leaving { Ok(false) } else { work.pull(&mut talk.session(), core, may_alloc, awake) }
        };
        turn().unwrap_or_else(|error| {
            *broken = Some(error);
            false
        })
    }

    /// Gives up on clients that have said nothing for too long.
    fn watch(&mut self, now: Time) {
        self.silent_at = None;
        if self.hold != Hold::No {
            return;
        }
        for peer in self.peers.iter_mut().flatten() {
            let Some(false) = peer.talk.as_ref().map(|talk| talk.spoke) else { continue };
            let until = *peer.silent_until.get_or_insert(now.plus_ns(SILENT_NS));
            if now >= until {
                peer.broken.get_or_insert(Broken::Silent);
            } else {
                self.silent_at = Some(self.silent_at.map_or(until, |at| at.min(until)));
            }
        }
    }

    /// Lets requests go on that wait for an origin without buffers, as far as there are some. True
    /// if one does.
    fn resume_parked(&mut self, now: Time, core: &mut dyn Core) -> bool {
        let due = self.retry_at.is_some_and(|at| now >= at);
        let (mut begun, mut any) = (false, false);
        for peer in self.peers.iter_mut().flatten() {
            let Peer { talk: Some(talk), work, broken, .. } = peer else { continue };
            let retries = if due { RETRIES } else { 0 };
            // All that buffers can be had for; then some that may have become hits, with the
            // others'.
            let shares = std::iter::repeat_n(Share::Waiting, work.parked());
            for share in shares.chain(std::iter::repeat_n(Share::Passing, retries.min(work.parked()))) {
                match work.resume_parked(share, &mut talk.session(), core) {
                    Ok(true) => begun = true,
                    Ok(false) if share == Share::Passing => {}
                    Ok(false) => break,
                    Err(error) => {
                        broken.get_or_insert(error);
                        break;
                    }
                }
            }
            any |= work.parked() > 0;
        }
        if due || !any {
            self.retry_at = None;
        }
        if any {
            self.retry_at.get_or_insert(now.plus_ns(RETRY_NS));
        }
        begun
    }

    /// Tells a client what it got back.
    fn tell(&mut self, number: usize) {
        let Some(Peer { talk: Some(talk), work, broken, .. }) = &mut self.peers[number] else {
            return;
        };
        let mut session = talk.session();
        let told = work.tell(&mut session, &self.calls);
        let told = if session.is_hit() { Err(Broken::Memory) } else { told };
        if let Err(error) = told {
            broken.get_or_insert(error);
        }
    }

    /// Whether a client has got something back and doesn't know.
    fn has_untold(&self) -> bool {
        let mut talks = self.peers.iter().flatten().filter_map(|peer| peer.talk.as_ref());
        talks.any(|talk| talk.session().rings.iter().any(Ring::is_untold))
    }

    /// Lets go of a client that is gone, or done with.
    fn part(&mut self, number: usize, registry: &Registry) {
        let Some(peer) = &mut self.peers[number] else {
            return;
        };
        if let Some(error) = peer.broken.take()
            && let Some(talk) = peer.talk.take()
        {
            if !matches!(error, Broken::Message(vhost::vhost_user::Error::Disconnected)) {
                tracing::warn!("{}: hung up on a client: {error}", self.door.path().display());
            }
            talk.deregister(registry);
            self.closing.close(talk);
            peer.work.abort();
            self.waiting.retain(|&waiting| waiting != number);
        }
    }
}

impl Frontend for VhostUserBlk {
    fn uri(&self) -> String {
        // A client may be started in another folder.
        let path = std::path::absolute(self.door.path());
        format!("vhost-user-blk:{}", path.as_deref().unwrap_or(self.door.path()).display())
    }

    fn uri_of(&self, export: &Export) -> Option<String> {
        (self.origin == export.origin).then(|| self.uri())
    }

    fn only(&self) -> Option<OriginId> {
        Some(self.origin)
    }

    fn tokens_max(&self) -> usize {
        1 + self.peers.len() * PEER_TOKENS
    }

    fn register(&mut self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        self.tokens = tokens;
        let (Some(first), Some(_)) = (tokens.get(0), tokens.get(self.tokens_max() - 1)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.door.register(registry, first)?;
        for (number, peer) in self.peers.iter().enumerate() {
            if let Some(Peer { talk: Some(talk), .. }) = peer {
                talk.register(registry, self.peer_tokens(number))?;
            }
        }
        Ok(())
    }

    fn ready(&mut self, event: &Event, registry: &Registry, core: &mut dyn Core) {
        let Some(index) = self.tokens.index(event.token()) else {
            return;
        };
        let Some(index) = index.checked_sub(1) else {
            self.door.knocked();
            return self.accept(registry, core);
        };
        let (number, place) = (index / PEER_TOKENS, index % PEER_TOKENS);
        // A client that left in the same turn is no longer here.
        let Some(Peer { talk: Some(talk), .. }) = self.peers.get_mut(number).and_then(Option::as_mut) else {
            return;
        };
        match place.checked_sub(1) {
            None => {
                talk.readable = true;
                talk.closed |= event.is_read_closed() || event.is_error();
            }
            Some(ring) => talk.session().rings[ring].kicked = true,
        }
        // The end of the turn is next.
        self.found |= self.serve(number, registry, core, true);
    }

    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, _core: &mut dyn Core) {
        let id = PieceId::decode(id);
        let peer = self.peers.get_mut(usize::from(id.connection)).and_then(Option::as_mut);
        // A place is kept until the engine owes nothing for it.
        debug_assert!(peer.is_some(), "a reply to nobody: {id:?}");
        if let Some(peer) = peer {
            peer.answers.push((id, result));
        }
    }

    fn refused(&mut self, id: RequestId, core: &mut dyn Core) {
        let id = PieceId::decode(id);
        if let Some(peer) = self.peers.get_mut(usize::from(id.connection)).and_then(Option::as_mut) {
            peer.work.refused(id, core);
            if peer.talk.is_none() {
                peer.work.abort();
            }
        }
    }

    fn replied(&mut self, core: &mut dyn Core) {
        for Peer { talk, work, answers, broken, .. } in self.peers.iter_mut().flatten() {
            if answers.is_empty() && !work.has_done() {
                continue;
            }
            let mut session = talk.as_ref().map(Talk::session);
            if let Err(error) = work.answer(answers, session.as_deref_mut(), core) {
                broken.get_or_insert(error);
            }
        }
    }

    fn room(&mut self, _core: &mut dyn Core) {
        // Clients that wait are tried at the end of every turn.
    }

    fn turn_end(&mut self, now: Time, registry: &Registry, core: &mut dyn Core) -> bool {
        if self.hold == Hold::Handed {
            // What a parcel has of the clients must stay as it is.
            return false;
        }
        self.accept(registry, core);
        self.door.turn_end(now);
        if std::mem::take(&mut self.found) {
            self.pace.found(now);
        }
        let awake = self.pace.is_awake(now);
        self.watch(now);
        let mut more = false;
        for number in 0..self.peers.len() {
            // First, since a message may end a ring.
            self.tell(number);
            more |= self.serve(number, registry, core, awake);
            self.tell(number);
            self.part(number, registry);
            let wants_room = self.peers[number].as_ref().is_some_and(|peer| peer.work.wants_room());
            if wants_room && !self.waiting.contains(&number) {
                self.waiting.push_back(number);
            }
        }
        if more {
            self.pace.found(now);
        } else if !awake {
            self.pace.rest();
        }
        while let Some(&number) = self.waiting.front() {
            if let Some(Peer { talk: Some(talk), work, broken, .. }) = &mut self.peers[number] {
                let before = work.stalled();
                if let Err(error) = work.resume(&mut talk.session(), core) {
                    broken.get_or_insert(error);
                }
                more |= work.stalled() != before;
                if work.wants_room() {
                    break;
                }
            }
            self.waiting.pop_front();
        }
        more |= self.resume_parked(now, core);
        for place in &mut self.peers {
            let Some(peer) = place else { continue };
            let leaves = self.stopping || self.hold != Hold::No;
            if let (true, 0, Some(talk), false) = (leaves, peer.work.in_flight(), &peer.talk, peer.settled) {
                peer.settled = true;
                // A debt that can't be made durable stays. Who holds the clients looks again.
                more |= peer.work.settle(&mut talk.session(), core).unwrap_or(false) || self.hold != Hold::No;
            }
            let over = peer.work.in_flight() == 0 && (peer.talk.is_none() || self.stopping);
            if over {
                if let Some(talk) = peer.talk.take() {
                    talk.deregister(registry);
                    self.closing.close(talk);
                }
                *place = None;
                // A stop may wait for that.
                more = true;
            } else {
                more |= !leaves && peer.talk.as_ref().is_some_and(|talk| talk.more);
            }
        }
        self.tell_at = self.has_untold().then(|| now.plus_ns(TELL_AGAIN_NS));
        more || awake
    }

    fn next_timer(&self) -> Option<Time> {
        [self.door.next_timer(), self.tell_at, self.silent_at, self.retry_at].into_iter().flatten().min()
    }

    fn stop(&mut self, registry: &Registry, _core: &mut dyn Core) {
        self.stopping = true;
        self.door.close(registry);
    }

    fn idle(&self) -> bool {
        self.peers.iter().all(Option::is_none)
    }

    fn clients(&self) -> usize {
        self.peers.iter().flatten().count()
    }

    fn stays(&self) -> Option<String> {
        None
    }

    fn hold(&mut self, _forced: bool, _core: &mut dyn Core) {
        self.hold_clients();
    }

    fn held(&self) -> bool {
        self.are_clients_held()
    }

    fn release(&mut self) {
        self.release_clients();
    }

    fn hand_over(&mut self, parcel: &mut Parcel, _core: &mut dyn Core) -> io::Result<()> {
        self.put_into(parcel)
    }

    fn leave(&mut self) {
        self.door.leave();
    }
}

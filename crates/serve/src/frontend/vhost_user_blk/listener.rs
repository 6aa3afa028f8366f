// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vhost-user-blk server in the pump's loop: accepts clients, and gives each its turn.
//!
//! Edge-triggered: what was kicked is remembered until its ring is empty. Clients that found no
//! buffers wait in one queue, first come first served. One socket has one volume, and one client as
//! a rule; a second one is for the moment when a client is back before its old connection is known
//! to be gone.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use flashfront_device::Share;
use flashfront_engine::{RequestError, RequestId, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, event::Event};

use super::super::piece::PieceId;
use super::super::visit::{self, Visit};
use super::super::{Core, Export, Frontend, TokenRange};
use super::broken::Broken;
use super::call::Calls;
use super::closing::Closing;
use super::limits::{CONNECTIONS_MAX, QUEUES_MAX};
use super::messages::Talk;
use super::pace::Pace;
use super::ring::Ring;
use super::unflushed::Unflushed;
use super::work::Work;
use crate::socket::{BindError, SocketFile, bind};
use crate::unaccepted::Unaccepted;

/// Tokens of one client: its socket, and the kicks of its queues.
const PEER_TOKENS: usize = 1 + QUEUES_MAX;

/// How long to wait before a client is told again that could not be, as the kernel had no memory
/// for it.
const TELL_AGAIN_NS: u64 = 1_000_000;

/// Clients accepted at a time: twice as many as there are places, as those that are there may all
/// be gone.
const ACCEPTS_MAX: usize = 2 * CONNECTIONS_MAX;

/// How long to wait before clients are accepted again that could not be.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// A client must have said something within this time, as with NBD: a place that it keeps is one
/// that a guest lacks.
const SILENT_NS: u64 = 30_000_000_000;

/// How often requests that wait for an origin without buffers are looked at once more, and how many
/// of a client's: what they ask for may have come into the cache.
const RETRY_NS: u64 = 5_000_000;
const RETRIES: usize = 16;

/// A client.
struct Peer {
    /// `None` once it is gone, and the engine still has requests of it.
    talk: Option<Talk>,
    work: Work,
    /// What the engine has just answered.
    answers: Vec<(PieceId, Result<(), RequestError>)>,
    /// Why it is to be hung up on.
    broken: Option<Broken>,
    /// Before the end: what it is owed was made durable.
    settled: bool,
    /// When it is hung up on, if it has said nothing.
    silent_until: Option<Time>,
    visit: Visit,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let (received, sent) = self.work.moved();
        self.visit.receive(received);
        self.visit.send(sent);
    }
}

/// The vhost-user-blk front-end.
pub struct VhostUserBlk {
    listener: Option<(UnixListener, SocketFile)>,
    path: PathBuf,
    /// The volume's name; the first one's if there is none.
    volume: Option<String>,
    /// Tells this daemon from those before it.
    daemon: u64,
    durable: bool,
    tokens: TokenRange,
    acceptable: bool,
    unaccepted: Unaccepted,
    /// When to accept again, as it failed.
    accept_at: Option<Time>,
    /// When to tell those again who could not be told.
    tell_at: Option<Time>,
    /// When the first of those who have said nothing is hung up on.
    silent_at: Option<Time>,
    /// When some of the requests that wait for an origin without buffers are looked at once more.
    retry_at: Option<Time>,
    calls: Calls,
    closing: Closing,
    peers: Vec<Option<Peer>>,
    /// Clients without buffers, in the order they asked.
    waiting: VecDeque<usize>,
    stopping: bool,
    pace: Pace,
    /// There were new requests since the last end of a turn.
    found: bool,
}

impl VhostUserBlk {
    /// Listens at a socket that only its owner can use; `durable`: what is acknowledged is durable,
    /// always. Clients are accepted once the pump runs.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(path: &Path, volume: Option<String>, durable: bool) -> Result<Self, BindError> {
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
            unaccepted: Unaccepted::default(),
            accept_at: None,
            tell_at: None,
            silent_at: None,
            retry_at: None,
            daemon: u64::from_ne_bytes(daemon),
            durable,
            listener: Some(bind(path)?),
            path: path.to_owned(),
            volume,
            tokens: TokenRange { first: 0, count: 0 },
            acceptable: false,
            peers: (0..CONNECTIONS_MAX).map(|_| None).collect(),
            waiting: VecDeque::new(),
            stopping: false,
            pace: Pace::default(),
            found: false,
        })
    }

    fn peer_tokens(&self, number: usize) -> TokenRange {
        TokenRange { first: self.tokens.first + 1 + number * PEER_TOKENS, count: PEER_TOKENS }
    }

    fn export(&self, exports: &[Export]) -> Option<Export> {
        let named = |export: &&Export| self.volume.as_ref().is_none_or(|name| *name == export.name);
        exports.iter().find(named).cloned()
    }

    fn accept(&mut self, registry: &Registry, core: &mut dyn Core) {
        for _ in 0..ACCEPTS_MAX {
            let (true, Some((listener, _))) = (self.acceptable, &self.listener) else {
                return;
            };
            // What earlier ones have sent can't be closed: more of it must not pile up.
            if self.closing.is_stuck() {
                return;
            }
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unaccepted.over();
                    self.acceptable = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // Out of descriptors or memory: tried again.
                Err(error) => return self.unaccepted.failed(self.path.display(), &error),
            };
            self.unaccepted.over();
            self.look_who_left(registry, core);
            // No place: dropping the socket is a clear answer, a silent wait is not.
            let place = self.peers.iter().position(Option::is_none);
            let (Some(number), Some(export)) = (place, self.export(core.exports())) else {
                if place.is_none() {
                    let path = self.path.display();
                    tracing::warn!(
                        "{path}: refused a client: {CONNECTIONS_MAX} are connected, the most; one that said nothing for 30 seconds is hung up on"
                    );
                }
                self.closing.close(socket);
                continue;
            };
            let debt = Unflushed::new(self.daemon, self.durable);
            let mut visit = Visit::begin(format!("vhost-user-blk at {}", self.path.display()), visit::peer(&socket));
            visit.open(&export.name);
            let talk = match Talk::new(socket, export, debt, self.closing.clone()) {
                Ok(talk) => talk,
                Err(error) => {
                    let path = self.path.display();
                    tracing::warn!("{path}: a client is refused: {error}");
                    continue;
                }
            };
            if talk.register(registry, self.peer_tokens(number)).is_ok() {
                let work = Work::new(number as u16);
                let (talk, answers) = (Some(talk), Vec::new());
                self.peers[number] =
                    Some(Peer { talk, work, answers, broken: None, settled: false, silent_until: None, visit });
            }
        }
    }

    /// Parts with clients that have hung up, known or not: the one that comes may be one of them,
    /// and its rings must not be used by two.
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
        // What a client that is gone has asked for may still wait in the engine. The one that comes
        // after it, which asks for the same again, must not be answered before that is over: it
        // would land on what was written since.
        let leaving = self.peers.iter().flatten().any(|peer| peer.talk.is_none() && peer.work.in_flight() > 0);
        let Some(Peer { talk: Some(talk), work, broken, .. }) = &mut self.peers[number] else {
            return false;
        };
        if self.stopping || broken.is_some() {
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
                tracing::warn!("{}: hung up on a client: {error}", self.path.display());
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
        let path = std::path::absolute(&self.path);
        format!("vhost-user-blk:{}", path.as_ref().unwrap_or(&self.path).display())
    }

    fn uri_of(&self, export: &Export) -> Option<String> {
        self.volume.as_ref().is_none_or(|name| *name == export.name).then(|| self.uri())
    }

    fn tokens_max(&self) -> usize {
        1 + self.peers.len() * PEER_TOKENS
    }

    fn register(&mut self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        self.tokens = tokens;
        let (Some(first), Some(_), Some((listener, _))) =
            (tokens.get(0), tokens.get(self.tokens_max() - 1), &self.listener)
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        registry.register(&mut SourceFd(&listener.as_raw_fd()), first, Interest::READABLE)
    }

    fn ready(&mut self, event: &Event, registry: &Registry, core: &mut dyn Core) {
        let Some(index) = self.tokens.index(event.token()) else {
            return;
        };
        let Some(index) = index.checked_sub(1) else {
            self.acceptable = true;
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
        // Those who wait are tried at the end of every turn.
    }

    fn turn_end(&mut self, now: Time, registry: &Registry, core: &mut dyn Core) -> bool {
        self.accept(registry, core);
        self.accept_at = self.acceptable.then(|| now.plus_ns(ACCEPT_AGAIN_NS));
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
            if let (true, 0, Some(talk), false) = (self.stopping, peer.work.in_flight(), &peer.talk, peer.settled) {
                peer.settled = true;
                // What can't be made durable stays owed.
                more |= peer.work.settle(&mut talk.session(), core).unwrap_or(false);
            }
            let over = peer.work.in_flight() == 0 && (peer.talk.is_none() || self.stopping);
            if over {
                if let Some(talk) = peer.talk.take() {
                    talk.deregister(registry);
                    self.closing.close(talk);
                }
                *place = None;
                // Somebody may wait for that.
                more = true;
            } else {
                more |= !self.stopping && peer.talk.as_ref().is_some_and(|talk| talk.more);
            }
        }
        self.tell_at = self.has_untold().then(|| now.plus_ns(TELL_AGAIN_NS));
        more || awake
    }

    fn next_timer(&self) -> Option<Time> {
        [self.accept_at, self.tell_at, self.silent_at, self.retry_at].into_iter().flatten().min()
    }

    fn stop(&mut self, registry: &Registry, _core: &mut dyn Core) {
        self.stopping = true;
        self.acceptable = false;
        if let Some((listener, file)) = self.listener.take() {
            // It is closed next, which does the same.
            let _ = registry.deregister(&mut SourceFd(&listener.as_raw_fd()));
            drop(listener);
            drop(file);
        }
    }

    fn idle(&self) -> bool {
        self.peers.iter().all(Option::is_none)
    }

    fn clients(&self) -> usize {
        self.peers.iter().flatten().count()
    }
}

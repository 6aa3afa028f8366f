// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of one client: when a message is read, and what it must wait for.
//!
//! The `vhost` crate reads and answers a message with calls that block, and the pump has one
//! thread. So a message is read only when all of it is there and its answer fits into the socket. A
//! client that sends half a message, or doesn't read, waits by itself (test:
//! `hostile_half_messages_stop_nobody`). A client that talks without end has its turns as all
//! others have (test: `hostile_messages_without_end_keep_nobody_waiting`).
//!
//! A message that changes what requests in flight use (memory, rings, features) is read when there
//! are none. No requests are taken meanwhile, so a client that takes its memory away has all its
//! answers before.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::unix::SourceFd;
use mio::{Interest, Registry};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use vhost::vhost_user::BackendReqHandler;
use vhost::vhost_user::message::{FrontendReq, MAX_MSG_SIZE};
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_F_RO;

use super::super::{Export, TokenRange};
use super::broken::Broken;
use super::closing::Closing;
use super::config_space::bit;
use super::files;
use super::limits::HEADER_BYTES;
use super::session::{SavedSession, Session};
use super::swap::{hear, swap};
use super::unflushed::Unflushed;
use crate::upgrade::{Descriptor, Parcel};

/// Messages read from one client before the others have their turn. A client that sets up a disk
/// waits for most of the answers anyway.
const TURN_MESSAGES: usize = 16;

/// The next thing in a client's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// There is nothing, or not all of a message.
    Nothing,
    /// The client is gone.
    End,
    /// A message with this many bytes, its header among them.
    Message(FrontendReq, usize),
}

/// A client's socket, and what it has set up.
pub(super) struct Talk {
    // Before the session's other holder: it has the socket.
    handler: BackendReqHandler<Mutex<Session>>,
    session: Arc<Mutex<Session>>,
    socket: UnixStream,
    pub(super) readable: bool,
    /// The client has shut its side down: half a message is all there will be.
    pub(super) closed: bool,
    /// Whether the client has sent a whole message.
    pub(super) spoke: bool,
    /// Whether the client has said more than is read in one turn.
    pub(super) more: bool,
    closing: Closing,
}

impl Talk {
    pub(super) fn new(socket: UnixStream, export: Export, debt: Unflushed, closing: Closing) -> Result<Self, Broken> {
        let session = session_of(&socket, export, debt)?;
        let handler = BackendReqHandler::from_stream(socket.try_clone()?, Arc::clone(&session));
        Ok(Self { handler, session, socket, readable: true, closed: false, spoke: false, more: false, closing })
    }

    /// Goes on with the conversation of another program. The client's socket is read no sooner than
    /// [`Self::listen`] is called.
    pub(super) fn take_over(
        socket: UnixStream,
        export: Export,
        debt: Unflushed,
        closing: Closing,
        saved: &SavedSession,
        parcel: &Parcel,
    ) -> Result<Self, Broken> {
        // A guest whose disk is read-only hears nothing else until it connects again.
        let read_only = saved.said.features.unwrap_or(0) & bit(VIRTIO_BLK_F_RO) != 0;
        let export = Export { read_only: export.read_only || read_only, ..export };
        let session = session_of(&socket, export, debt)?;
        let (client, own) = UnixStream::pair()?;
        let mut handler = BackendReqHandler::from_stream(own, Arc::clone(&session));
        hear(&mut handler, &client, saved.said)?;
        swap(&handler, &socket)?;
        let talk = Self { handler, session, socket, readable: true, closed: false, spoke: false, more: false, closing };
        talk.session().restore(saved, parcel)?;
        Ok(talk)
    }

    /// Puts the conversation's files into the parcel; returns the rest.
    pub(super) fn save(&self, parcel: &mut Parcel) -> io::Result<(Descriptor, SavedSession)> {
        Ok((parcel.put(&self.socket)?, self.session().save(parcel)?))
    }

    /// The client's session. Only one thread ever holds it.
    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the socket by the first of `tokens`; the others are for the kicks.
    pub(super) fn register(&self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        let token = tokens.get(0).ok_or(io::ErrorKind::InvalidInput)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut SourceFd(&self.socket.as_raw_fd()), token, interest)?;
        self.watch_kicks(registry, tokens)
    }

    /// Reads messages as long as there are any and they may be read, up to a turn's. `quiet`: no
    /// request is in flight. False when the client is gone.
    pub(super) fn listen(&mut self, quiet: bool, registry: &Registry, tokens: TokenRange) -> Result<bool, Broken> {
        self.more = false;
        let mut left = TURN_MESSAGES;
        while self.readable {
            let (message, bytes) = match self.next()? {
                Next::End => return Ok(false),
                Next::Nothing => {
                    self.readable = false;
                    break;
                }
                Next::Message(message, bytes) => (message, bytes),
            };
            let socket = self.state()?;
            if socket.contains(PollFlags::HUP) {
                // Messages that came before may wait for their requests, and the next client would
                // wait for that.
                return Ok(false);
            }
            if must_wait(message) && !quiet {
                break;
            }
            if left == 0 {
                self.more = true;
                break;
            }
            if !socket.contains(PollFlags::OUT) {
                self.readable = false;
                break;
            }
            left -= 1;
            self.spoke = true;
            files::look(&self.socket, bytes, &self.closing)??;
            let handled = self.handler.handle_request();
            self.watch_kicks(registry, tokens)?;
            handled.map_err(Broken::Message)?;
        }
        Ok(true)
    }

    /// Whether the next message waits for requests to end, so that no new ones are to be taken.
    pub(super) fn waits(&self) -> bool {
        self.readable && matches!(self.next(), Ok(Next::Message(message, _)) if must_wait(message))
    }

    fn next(&self) -> Result<Next, Broken> {
        let mut header = [0; HEADER_BYTES];
        match rustix::net::recv(&self.socket, &mut header[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Ok(Next::End),
            Ok((_, HEADER_BYTES)) => {}
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return self.incomplete(),
            Err(error) => return Err(Broken::Socket(error.into())),
        }
        let field = |at: usize| header[at..at + 4].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
        let bytes = field(8) as usize;
        let message = FrontendReq::try_from(field(0)).ok().filter(|_| bytes <= MAX_MSG_SIZE);
        let message = message.ok_or(Broken::Message(vhost::vhost_user::Error::InvalidMessage))?;
        let there = rustix::io::ioctl_fionread(&self.socket).map_err(io::Error::from)?;
        let bytes = HEADER_BYTES + bytes;
        if there >= bytes as u64 { Ok(Next::Message(message, bytes)) } else { self.incomplete() }
    }

    fn incomplete(&self) -> Result<Next, Broken> {
        Ok(if self.closed || self.state()?.contains(PollFlags::HUP) { Next::End } else { Next::Nothing })
    }

    /// Returns what the kernel knows of the socket. HUP: the client is gone. OUT: the socket takes
    /// an answer without blocking.
    ///
    /// A unix socket is writable while three quarters of its buffer are free. That is much more
    /// than the longest message.
    fn state(&self) -> io::Result<PollFlags> {
        let socket: BorrowedFd<'_> = self.socket.as_fd();
        let mut poll = [PollFd::new(&socket, PollFlags::OUT)];
        rustix::event::poll(&mut poll, Some(&Timespec::default()))?;
        Ok(poll[0].revents())
    }

    /// Watches the kicks that are new, and those no more that were replaced.
    fn watch_kicks(&self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        let mut session = self.session();
        forget(&mut session, registry);
        for (index, ring) in session.rings.iter_mut().enumerate() {
            if let (Some(kick), false) = (&ring.kick, ring.watched) {
                let token = tokens.get(1 + index).ok_or(io::ErrorKind::InvalidInput)?;
                registry.register(&mut SourceFd(&kick.as_raw_fd()), token, Interest::READABLE)?;
                ring.watched = true;
            }
        }
        Ok(())
    }

    /// Stops watching. The client has the same eventfds, so closing ours would not take them out of
    /// the poller.
    pub(super) fn deregister(&self, registry: &Registry) {
        let mut session = self.session();
        for index in 0..session.rings.len() {
            session.retire_kick(index);
        }
        forget(&mut session, registry);
        // It fails only if it was never registered.
        let _ = registry.deregister(&mut SourceFd(&self.socket.as_raw_fd()));
        // The client must notice at once that the next daemon serves it, or none, whatever other
        // process holds the socket.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// A session without a word so far, of the process at the other end.
fn session_of(socket: &UnixStream, export: Export, debt: Unflushed) -> Result<Arc<Mutex<Session>>, Broken> {
    let client = rustix::net::sockopt::socket_peercred(socket).ok();
    let client = client.and_then(|it| u32::try_from(it.pid.as_raw_nonzero().get()).ok());
    let session = Session::new(export, debt).map_err(Broken::Message)?.of(client);
    Ok(Arc::new(Mutex::new(session)))
}

fn forget(session: &mut Session, registry: &Registry) {
    for kick in session.retired.drain(..) {
        // As above.
        let _ = registry.deregister(&mut SourceFd(&kick.as_raw_fd()));
    }
}

/// Whether a message changes what requests in flight use, or tells the client that there are none.
fn must_wait(message: FrontendReq) -> bool {
    matches!(
        message,
        FrontendReq::SET_FEATURES
            | FrontendReq::RESET_OWNER
            | FrontendReq::RESET_DEVICE
            | FrontendReq::SET_MEM_TABLE
            | FrontendReq::REM_MEM_REG
            | FrontendReq::SET_VRING_NUM
            | FrontendReq::SET_VRING_ADDR
            | FrontendReq::SET_VRING_BASE
            | FrontendReq::GET_VRING_BASE
            | FrontendReq::SET_VRING_ENABLE
            | FrontendReq::SET_INFLIGHT_FD
    )
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of the vhost-user-blk server: accepts clients, and tries again when that failed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use flashfront_engine::Time;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::socket::{BindError, SocketFile, bind};
use crate::unaccepted::Unaccepted;

/// The server waits this long before it tries again to accept a client that it could not accept.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// The socket, as long as clients may come.
pub(super) struct Door {
    listener: Option<(UnixListener, SocketFile)>,
    path: PathBuf,
    /// A client may wait: the socket has not said since that none does.
    acceptable: bool,
    /// Clients wait: this program may give the socket away.
    held: bool,
    unaccepted: Unaccepted,
    /// When to accept again, as it failed.
    accept_at: Option<Time>,
}

impl Door {
    /// Listens at a socket that only its owner can use.
    pub(super) fn bind(path: &Path) -> Result<Self, BindError> {
        Ok(Self::of(bind(path)?, path))
    }

    /// Listens by the socket of another program, with the clients that wait there.
    pub(super) fn take_over(path: &Path, listener: OwnedFd) -> Self {
        Self::of((UnixListener::from(listener), SocketFile::of(path)), path)
    }

    fn of(listener: (UnixListener, SocketFile), path: &Path) -> Self {
        Self {
            listener: Some(listener),
            path: path.to_owned(),
            acceptable: false,
            held: false,
            unaccepted: Unaccepted::default(),
            accept_at: None,
        }
    }

    /// The socket, while clients may come.
    pub(super) fn listener(&self) -> Option<&UnixListener> {
        self.listener.as_ref().map(|(listener, _)| listener)
    }

    /// From now on clients wait, or don't.
    pub(super) const fn hold(&mut self, on: bool) {
        self.held = on;
    }

    /// Leaves the socket's file to another program, which has the socket.
    pub(super) const fn leave(&mut self) {
        if let Some((_, file)) = &mut self.listener {
            file.leave();
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        let Some((listener, _)) = &self.listener else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        registry.register(&mut SourceFd(&listener.as_raw_fd()), token, Interest::READABLE)
    }

    /// Notes that the poller told of clients.
    pub(super) const fn knocked(&mut self) {
        self.acceptable = true;
    }

    /// Accepts the next client that waits; none if no client does, or none can be accepted now.
    pub(super) fn accept(&mut self) -> Option<UnixStream> {
        while let (true, Some((listener, _))) = (self.acceptable && !self.held, &self.listener) {
            match listener.accept() {
                Ok((socket, _)) => {
                    self.unaccepted.over();
                    return Some(socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unaccepted.over();
                    self.acceptable = false;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Out of descriptors or memory: `accept_at` says when it is tried again.
                Err(error) => {
                    self.unaccepted.failed(self.path.display(), &error);
                    return None;
                }
            }
        }
        None
    }

    /// Ends a turn: a client that could not be accepted in it is accepted later.
    pub(super) fn turn_end(&mut self, now: Time) {
        self.accept_at = self.acceptable.then(|| now.plus_ns(ACCEPT_AGAIN_NS));
    }

    pub(super) const fn next_timer(&self) -> Option<Time> {
        self.accept_at
    }

    /// Lets no more clients come.
    pub(super) fn close(&mut self, registry: &Registry) {
        self.acceptable = false;
        if let Some((listener, file)) = self.listener.take() {
            // The listener is closed next, which does the same.
            let _ = registry.deregister(&mut SourceFd(&listener.as_raw_fd()));
            drop(listener);
            drop(file);
        }
    }
}

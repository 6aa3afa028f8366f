// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses at which the NBD server listens, and the sockets.
//!
//! A unix socket is reachable by its owner only, as the control socket is and by the same code.
//! Without TLS, TCP is for this machine only, unless the operator insists.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream, UnixListener};
use mio::{Interest, Registry, Token, event::Source};
use rustix::net::sockopt;

use super::stream::Socket;
use super::way::{Accepted, Handed};
use crate::address::Listen;
use crate::socket::{BindError as SocketError, SocketFile, bind as bind_unix};

/// A TCP client that was silent for this long is asked whether it is there.
const ALIVE_AFTER: Duration = Duration::from_secs(60);
/// The time between two such questions.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// A client that does not answer this many questions is given up: after two minutes in all.
const ALIVE_TIMES: u32 = 4;

/// Why the server can't listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system refused.
    #[error("cannot listen at {at}: {error}")]
    Io {
        /// The address.
        at: Listen,
        /// Why.
        error: io::Error,
    },
    /// The unix socket can't be made.
    #[error(transparent)]
    Unix(#[from] SocketError),
    /// The name means nothing.
    #[error("cannot listen at {0}: the host has no address")]
    NoAddress(Listen),
    /// The address is not of this machine.
    #[error(
        "refusing to serve {0} without TLS: set it up with --tls-certificates DIR, or bind to \
         127.0.0.1 or ::1, or pass --insecure to let anyone who reaches this address read and \
         write the volume"
    )]
    Insecure(SocketAddr),
}

/// The source of new clients.
#[derive(Debug)]
pub(super) enum Acceptor {
    Unix {
        listener: UnixListener,
        file: SocketFile,
    },
    Tcp(TcpListener),
    /// The gate, in another thread, which has accepted them.
    Gate(Handed),
}

impl Acceptor {
    /// Listens; also tells the address with the port the system chose. Beyond this machine only if
    /// `open`.
    pub(super) fn bind(listen: &Listen, open: bool) -> Result<(Self, Listen), BindError> {
        let failed = |error| BindError::Io { at: listen.clone(), error };
        match listen {
            Listen::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                let listener = UnixListener::from_std(listener);
                Ok((Self::Unix { listener, file }, listen.clone()))
            }
            Listen::Tcp { host, port } => {
                let addresses = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
                let addresses = addresses.collect::<Vec<_>>();
                let beyond = addresses.iter().find(|address| !address.ip().is_loopback());
                if let Some(&address) = beyond.filter(|_| !open) {
                    return Err(BindError::Insecure(address));
                }
                let Some(&address) = addresses.first() else {
                    return Err(BindError::NoAddress(listen.clone()));
                };
                let listener = TcpListener::bind(address).map_err(failed)?;
                let port = listener.local_addr().map_err(failed)?.port();
                Ok((Self::Tcp(listener), Listen::Tcp { host: host.clone(), port }))
            }
        }
    }

    pub(super) fn accept(&mut self) -> io::Result<Accepted> {
        let socket = match self {
            Self::Unix { listener, .. } => Socket::Unix(listener.accept()?.0),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                // Replies are written whole, so waiting for more only costs latency.
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Socket::Tcp(stream)
            }
            Self::Gate(handed) => return handed.take(),
        };
        Ok(Accepted { socket, place: None })
    }

    /// Leaves the socket's file to another program.
    pub(super) fn leave(&mut self) {
        if let Self::Unix { file, .. } = self {
            file.leave();
        }
    }
}

/// Lets the kernel ask a client that is silent whether it is still there. A machine that has lost
/// its power says no goodbye, and its clients would keep their places for ever.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, ALIVE_EVERY)?;
    Ok(sockopt::set_tcp_keepcnt(stream, ALIVE_TIMES)?)
}

impl Source for Acceptor {
    fn register(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Unix { listener, .. } => listener.register(registry, token, what),
            Self::Tcp(listener) => listener.register(registry, token, what),
            Self::Gate(handed) => handed.register(registry, token),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Unix { listener, .. } => listener.reregister(registry, token, what),
            Self::Tcp(listener) => listener.reregister(registry, token, what),
            // Its token and interest are always the same.
            Self::Gate(_) => Ok(()),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Unix { listener, .. } => listener.deregister(registry),
            Self::Tcp(listener) => listener.deregister(registry),
            // The gate may ring once more, and the ring has no effect.
            Self::Gate(_) => Ok(()),
        }
    }
}

/// Whether a failed accept concerns one client only, and the next may be fine.
pub(super) fn is_about_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::InvalidInput
    )
}

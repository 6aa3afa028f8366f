// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the NBD server listens: addresses as the operator writes them, and the sockets.
//!
//! A unix socket is reachable by its owner only, as the control socket is and by the same code.
//! Without TLS, TCP is for this machine only, unless the operator insists.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream, UnixListener};
use mio::{Interest, Registry, Token, event::Source};
use rustix::net::sockopt;

use super::gate::{Accepted, Handed};
use super::stream::Socket;
use crate::control::{BindError as SocketError, SocketFile, bind as bind_unix};

/// A client over TCP that was silent for so long is asked whether it is there, so often, and given
/// up after so many questions: after two minutes.
const ALIVE_AFTER: Duration = Duration::from_secs(60);
const ALIVE_EVERY: Duration = Duration::from_secs(15);
const ALIVE_TIMES: u32 = 4;

/// An address to listen at, or to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `unix:PATH`
    Unix(PathBuf),
    /// `tcp:HOST:PORT`
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// 0 = the system chooses.
        port: u16,
    },
}

/// An address that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Neither `unix:` nor `tcp:`.
    #[error("NBD address {0:?}: expected unix:PATH or tcp:HOST:PORT")]
    Scheme(String),
    /// `unix:` and nothing.
    #[error("NBD address {0:?}: the path of the socket is missing")]
    NoPath(String),
    /// `tcp:` without a host.
    #[error("NBD address {0:?}: the host is missing; for this machine only: tcp:127.0.0.1:10809")]
    NoHost(String),
    /// `tcp:` without a port.
    #[error("NBD address {0:?}: expected a port from 0 to 65535 at the end, as in tcp:HOST:10809")]
    Port(String),
}

/// Why the server can't listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system refused.
    #[error("cannot listen at {at}: {error}")]
    Io {
        /// Where.
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
    /// Not this machine.
    #[error(
        "refusing to serve {0} without TLS: set it up with --tls-certificates DIR, or bind to \
         127.0.0.1 or ::1, or pass --insecure to let anyone who reaches this address read and \
         write the volume"
    )]
    Insecure(SocketAddr),
}

impl Listen {
    /// Reads `unix:PATH` or `tcp:HOST:PORT` (`tcp:[::1]:10809` for IPv6).
    ///
    /// # Errors
    /// Tells what is expected instead.
    pub fn parse(text: &str) -> Result<Self, ListenError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(ListenError::NoPath(text.to_owned()));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let Some(rest) = text.strip_prefix("tcp:") else {
            return Err(ListenError::Scheme(text.to_owned()));
        };
        let Some((host, port)) = rest.rsplit_once(':') else {
            return Err(ListenError::Port(text.to_owned()));
        };
        let port = port.parse().map_err(|_| ListenError::Port(text.to_owned()))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        if host.is_empty() {
            return Err(ListenError::NoHost(text.to_owned()));
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }

    /// The URI clients use for the export `name` (empty = the default one). Inside `tls`, if that
    /// is what TCP is served in; a unix socket is served without it too.
    #[must_use]
    pub fn uri(&self, name: &str, tls: bool) -> String {
        let name = escape(name.as_bytes());
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Self::Unix(path) => {
                // A client may be started in another folder.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let path = escape(path.as_os_str().as_encoded_bytes());
                format!("nbd+unix:///{name}?socket={path}")
            }
            Self::Tcp { host, port } => {
                let slash = if name.is_empty() { "" } else { "/" };
                if host.contains(':') {
                    format!("{scheme}://[{host}]:{port}{slash}{name}")
                } else {
                    format!("{scheme}://{host}:{port}{slash}{name}")
                }
            }
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// Percent-encodes all but the unreserved characters of a URI and the slash.
pub(in crate::frontend) fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Where clients come from.
#[derive(Debug)]
pub(super) enum Acceptor {
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
    Tcp(TcpListener),
    /// From another thread that has accepted them.
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
                Ok((Self::Unix { listener, _file: file }, listen.clone()))
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

    pub(super) fn accept(&self) -> io::Result<Accepted> {
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
            // The gate may ring once more; nobody looks.
            Self::Gate(_) => Ok(()),
        }
    }
}

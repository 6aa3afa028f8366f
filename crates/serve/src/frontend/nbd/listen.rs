// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the NBD server listens: addresses as the operator writes them, and the sockets.
//!
//! A unix socket is reachable by its owner only, from its first moment: it gets mode 0600
//! between bind and listen. A file left by a dead daemon is replaced, a living one's is not.
//! Without TLS, TCP is for this machine only, unless the operator insists.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};

use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token, event::Source};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 128;

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
    /// Somebody listens there.
    #[error("cannot listen at {0}: another server is listening there; stop it, or choose another path")]
    InUse(Listen),
    /// A file of another kind.
    #[error("cannot listen at {0}: a file is there that is not a socket; it was left alone")]
    NotASocket(Listen),
    /// The name means nothing.
    #[error("cannot listen at {0}: the host has no address")]
    NoAddress(Listen),
    /// Not this machine.
    #[error(
        "refusing to serve {0} without TLS: bind to 127.0.0.1 or ::1, or pass --insecure to let \
         anyone who reaches this address read and write the volume"
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

    /// The URI clients use for the export `name` (empty = the default one).
    #[must_use]
    pub fn uri(&self, name: &str) -> String {
        let name = escape(name.as_bytes());
        match self {
            Self::Unix(path) => {
                let path = escape(path.as_os_str().as_encoded_bytes());
                format!("nbd+unix:///{name}?socket={path}")
            }
            Self::Tcp { host, port } => {
                let slash = if name.is_empty() { "" } else { "/" };
                if host.contains(':') {
                    format!("nbd://[{host}]:{port}{slash}{name}")
                } else {
                    format!("nbd://{host}:{port}{slash}{name}")
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
fn escape(bytes: &[u8]) -> String {
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

/// A socket that accepts clients.
#[derive(Debug)]
pub(super) enum Acceptor {
    Unix { listener: UnixListener, _file: SocketFile },
    Tcp(TcpListener),
}

/// The file of a unix socket; removed with it, if it is still the same file.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let same =
            fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.dev() == self.device && meta.ino() == self.inode);
        if same {
            // Gone already is as good, and nobody can be told anything else.
            drop(fs::remove_file(&self.path));
        }
    }
}

impl Acceptor {
    /// Listens; also tells the address with the port the system chose.
    pub(super) fn bind(listen: &Listen, insecure: bool) -> Result<(Self, Listen), BindError> {
        let failed = |error| BindError::Io { at: listen.clone(), error };
        match listen {
            Listen::Unix(path) => {
                clear_path(path, listen)?;
                let (listener, file) = bind_unix(path).map_err(failed)?;
                Ok((Self::Unix { listener, _file: file }, listen.clone()))
            }
            Listen::Tcp { host, port } => {
                let addresses = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
                let addresses = addresses.collect::<Vec<_>>();
                let open = addresses.iter().find(|address| !address.ip().is_loopback());
                if let Some(&address) = open.filter(|_| !insecure) {
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

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix { listener, .. } => Ok(Stream::Unix(listener.accept()?.0)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                // Replies are written whole, so waiting for more only costs latency.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

/// Makes way for a socket at `path`, unless something living or foreign is there.
fn clear_path(path: &Path, listen: &Listen) -> Result<(), BindError> {
    let failed = |error| BindError::Io { at: listen.clone(), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(BindError::NotASocket(listen.clone()));
        }
        Ok(_) => {}
    }
    match unix::UnixStream::connect(path) {
        // Nobody has it open: its daemon was killed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Ok(_) => Err(BindError::InUse(listen.clone())),
        // A full backlog (EAGAIN), a socket of another user: alive, or not ours to judge.
        Err(_) => Err(BindError::InUse(listen.clone())),
    }
}

fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let meta = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), device: meta.dev(), inode: meta.ino() };
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((UnixListener::from_std(unix::UnixListener::from(socket)), file))
}

impl Source for Acceptor {
    fn register(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Unix { listener, .. } => listener.register(registry, token, what),
            Self::Tcp(listener) => listener.register(registry, token, what),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Unix { listener, .. } => listener.reregister(registry, token, what),
            Self::Tcp(listener) => listener.reregister(registry, token, what),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Unix { listener, .. } => listener.deregister(registry),
            Self::Tcp(listener) => listener.deregister(registry),
        }
    }
}

/// A client's socket. TLS would be a third kind.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(super) fn receive(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read_vectored(into),
            Self::Tcp(stream) => stream.read_vectored(into),
        }
    }

    pub(super) fn send(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write_vectored(from),
            Self::Tcp(stream) => stream.write_vectored(from),
        }
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.register(registry, token, what),
            Self::Tcp(stream) => stream.register(registry, token, what),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.reregister(registry, token, what),
            Self::Tcp(stream) => stream.reregister(registry, token, what),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.deregister(registry),
            Self::Tcp(stream) => stream.deregister(registry),
        }
    }
}

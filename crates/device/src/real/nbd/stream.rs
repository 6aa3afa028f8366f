// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socket to a server, as it is or inside TLS. No call waits: the socket is non-blocking.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use flashfront_nbd_proto::uri::Address;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

#[cfg(feature = "tls")]
use super::tls::TlsStream;

/// A peer that is silent for so long is asked whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// What a peer does not acknowledge for so long ends the connection. Without this the kernel tries
/// for 15 minutes.
const UNACKNOWLEDGED_MS: u32 = 25_000;
/// The pause between two looks at a unix socket whose server accepts nobody just now.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects until `deadline`.
    pub(super) fn connect(address: &Address, deadline: Instant) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } => {
                let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
                for at in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&at, left(deadline)?) {
                        Ok(socket) => return Self::tcp(socket),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            Address::Unix(path) => unix(path, deadline).map(Self::Unix),
        }
    }

    fn tcp(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_EVERY)?;
        sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED_MS)?;
        Ok(Self::Tcp(socket))
    }
}

/// A blocking connect would wait for ever for a server that accepts nobody.
fn unix(path: &str, deadline: Instant) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(path)?;
    loop {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::AGAIN) => std::thread::sleep(ACCEPT_PAUSE.min(left(deadline)?)),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The time until `deadline`, or an error when that is over.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(into),
            Self::Unix(socket) => socket.read(into),
        }
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read_vectored(into),
            Self::Unix(socket) => socket.read_vectored(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(from),
            Self::Unix(socket) => socket.write(from),
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write_vectored(from),
            Self::Unix(socket) => socket.write_vectored(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // A socket keeps nothing back.
        Ok(())
    }
}

/// Where a server's bytes come from and go to.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Receives what is there; `WouldBlock` if nothing is, 0 at the end.
    pub(super) fn receive(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read_vectored(into),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read_vectored(into),
        }
    }

    /// Takes some bytes; `WouldBlock` if there is no room for any.
    pub(super) fn send(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(from),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write_vectored(from),
        }
    }

    /// Whether bytes that were taken are still to be sent, by [`Stream::flush`].
    pub(super) fn holds_output(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.conn.wants_write(),
        }
    }

    /// Sends as much of them as there is room for.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => match stream.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
                result => result,
            },
        }
    }

    /// Waits until there is something to receive, or room to send if that is wanted.
    pub(super) fn wait(&self, output: bool, deadline: Instant) -> io::Result<()> {
        wait(self, output || self.holds_output(), deadline)
    }
}

/// Waits until there is something to receive, or room to send if that is wanted.
pub(super) fn wait(socket: &impl AsFd, output: bool, deadline: Instant) -> io::Result<()> {
    let flags = if output { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let timeout = Timespec::try_from(left(deadline)?).ok();
    match rustix::event::poll(&mut [PollFd::new(socket, flags)], timeout.as_ref()) {
        Ok(0) => Err(ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.sock.as_fd(),
        }
    }
}

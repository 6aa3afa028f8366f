// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's socket, as it is or inside TLS.
//!
//! Both kinds keep what the edge-triggered loop counts on. Fewer bytes than there was room for mean
//! that the socket is empty (but see [`Stream::may_have_more`]). Fewer bytes sent than offered mean
//! that it is full.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token, event::Source};

use super::super::visit;
use super::tls::TlsStream;

/// A client's socket.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Says for people what is known of the client.
    pub(super) fn peer(&self) -> String {
        match self {
            Self::Unix(socket) => visit::peer(socket),
            Self::Tcp(socket) => match socket.peer_addr() {
                Ok(address) => address.to_string(),
                Err(error) => format!("unknown ({error})"),
            },
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(into),
            Self::Tcp(socket) => socket.read(into),
        }
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read_vectored(into),
            Self::Tcp(socket) => socket.read_vectored(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(from),
            Self::Tcp(socket) => socket.write(from),
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write_vectored(from),
            Self::Tcp(socket) => socket.write_vectored(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // A socket keeps nothing back.
        Ok(())
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.register(registry, token, what),
            Self::Tcp(socket) => socket.register(registry, token, what),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.reregister(registry, token, what),
            Self::Tcp(socket) => socket.reregister(registry, token, what),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.deregister(registry),
            Self::Tcp(socket) => socket.deregister(registry),
        }
    }
}

/// The way of a client's bytes.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(super) fn receive(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read_vectored(into),
            Self::Tls(stream) => stream.receive(into),
        }
    }

    pub(super) fn send(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(from),
            Self::Tls(stream) => stream.send(from),
        }
    }

    /// Whether there may be more to receive although less came than there was room for.
    pub(super) fn may_have_more(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.may_have_more(),
        }
    }

    /// Whether bytes that count as sent are still to be sent, by [`Stream::flush`].
    pub(super) fn holds_output(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.holds_output(),
        }
    }

    /// Sends them; `false` = the socket is full.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(stream) => stream.flush(),
        }
    }

    /// Whether the next bytes may cost a TLS handshake.
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.is_handshaking(),
        }
    }

    /// The socket, below TLS if there is any.
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    pub(super) fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket_mut(),
        }
    }

    /// Says the end of the session, before the socket is closed.
    pub(super) fn say_goodbye(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(stream) => stream.say_goodbye(),
        }
    }
}

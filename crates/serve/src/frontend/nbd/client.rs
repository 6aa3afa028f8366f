// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connects the protocol crate's blocking client to where a server of ours listens.
//!
//! `flashfront try` and tests use it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use flashfront_nbd_proto::blocking::{self, ClientError};

use crate::address::Listen;

/// A connection to an export.
pub type Client = blocking::Client<Socket>;

/// A socket of either kind.
#[derive(Debug)]
pub enum Socket {
    /// A unix socket.
    Unix(UnixStream),
    /// A TCP connection.
    Tcp(TcpStream),
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(into),
            Self::Tcp(socket) => socket.read(into),
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

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects, and opens the export `name` (empty: the default one), with structured replies if
/// wanted and offered.
///
/// # Errors
/// No server listens, it speaks no NBD, or it refuses.
pub fn connect(at: &Listen, name: &str, structured: bool) -> Result<Client, ClientError> {
    let socket = match at {
        Listen::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
        Listen::Tcp { host, port } => {
            let socket = TcpStream::connect((host.as_str(), *port))?;
            socket.set_nodelay(true)?;
            Socket::Tcp(socket)
        }
    };
    blocking::Client::open(socket, name, structured)
}

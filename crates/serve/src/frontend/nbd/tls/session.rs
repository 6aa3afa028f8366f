// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's TLS session on its socket: plaintext to and from the connection.
//!
//! A session never waits: each call does what the socket allows. [`TlsStream::receive`] reads once
//! at most, so that a client can't keep the loop by records without content. Bounds for one client:
//! [`RAW_BYTES`] and a handshake message of 64 KiB (rustls's limit) received, [`UNSENT_BYTES_MAX`]
//! to be sent. Each byte of payload is copied three times on its way in, and twice on its way out.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use super::advice::advice;
use crate::frontend::nbd::stream::Socket;

/// Received with one system call (rustls alone would ask for 4 KiB): almost four full records.
const RAW_BYTES: usize = 64 << 10;
/// Encrypted and not sent: sixteen full records, which go with one system call.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// A client inside TLS.
#[derive(Debug)]
pub(in crate::frontend::nbd) struct TlsStream {
    socket: Socket,
    session: ServerConnection,
    /// Received, and not given to the session: `start..end`.
    raw: Box<[u8]>,
    start: usize,
    end: usize,
    /// The last read did not empty the socket, or found its end.
    more: bool,
    /// The client will send nothing more.
    ended: bool,
}

impl TlsStream {
    pub(super) fn new(socket: Socket, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let raw = vec![0; RAW_BYTES].into_boxed_slice();
        Ok(Self { socket, session, raw, start: 0, end: 0, more: false, ended: false })
    }

    /// Reads as a socket's vectored read does.
    ///
    /// Only `Interrupted` has another meaning: the bytes that came had no content, and there may be
    /// more, or the end.
    pub(in crate::frontend::nbd) fn receive(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let room = into.iter().map(|slice| slice.len()).sum();
        self.more = false;
        let mut total = self.decrypt(into, 0)?;
        if total < room && !self.ended {
            debug_assert!(self.start == self.end, "all that came is used before more is read");
            match self.socket.read(&mut self.raw) {
                Ok(0) => self.ended = true,
                Ok(bytes) => {
                    (self.start, self.end) = (0, bytes);
                    total = self.decrypt(into, total)?;
                    // Without content the caller can't tell how much came.
                    self.more = bytes == RAW_BYTES || total == 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => self.more = true,
                Err(error) => return Err(error),
            }
        }
        self.more |= self.ended;
        match total {
            0 if self.ended => Ok(0),
            0 if self.more => Err(ErrorKind::Interrupted.into()),
            0 => Err(ErrorKind::WouldBlock.into()),
            total => Ok(total),
        }
    }

    /// Fills `into` from its byte `total` on, as far as what came reaches; the new total.
    fn decrypt(&mut self, into: &mut [IoSliceMut<'_>], mut total: usize) -> io::Result<usize> {
        loop {
            while let Some(rest) = rest(into, total) {
                match self.session.reader().read(rest) {
                    Ok(0) => {
                        self.ended = true;
                        self.start = self.end;
                        return Ok(total);
                    }
                    Ok(bytes) => total += bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            if rest(into, total).is_none() || self.start == self.end {
                return Ok(total);
            }
            let bytes = self.session.read_tls(&mut &self.raw[self.start..self.end])?;
            if bytes == 0 {
                return Err(ErrorKind::InvalidData.into());
            }
            self.start += bytes;
            if let Err(error) = self.session.process_new_packets() {
                if self.session.is_handshaking() {
                    tracing::warn!("TLS: {} does not get in: {error}; {}", self.name(), advice(&error));
                } else {
                    tracing::warn!("TLS: hung up on {}: {error}", self.name());
                }
                // So that the client learns why, if its socket has room for it.
                drop(self.flush());
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    /// Writes as a socket's vectored write does; bytes that were taken may still be held.
    pub(in crate::frontend::nbd) fn send(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let offered = from.iter().map(|slice| slice.len()).sum::<usize>();
        let mut slices = from.to_vec();
        let mut slices = &mut slices[..];
        let mut taken = 0;
        loop {
            match self.flush() {
                Ok(true) if taken < offered => {}
                Ok(false) if taken == 0 => return Err(ErrorKind::WouldBlock.into()),
                Ok(_) => return Ok(taken),
                Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
            let bytes = self.session.writer().write_vectored(slices)?;
            if bytes == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut slices, bytes);
            taken += bytes;
        }
    }

    /// Sends what is encrypted; `false` = not all of it. `WouldBlock` = nothing.
    pub(in crate::frontend::nbd) fn flush(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => moved = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && moved => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(in crate::frontend::nbd) fn may_have_more(&self) -> bool {
        self.more
    }

    pub(in crate::frontend::nbd) fn holds_output(&self) -> bool {
        self.session.wants_write()
    }

    pub(in crate::frontend::nbd) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Tells the client that nothing was cut off, if its socket has room for it.
    pub(in crate::frontend::nbd) fn say_goodbye(&mut self) -> &mut Socket {
        self.session.send_close_notify();
        drop(self.flush());
        &mut self.socket
    }

    /// The name of the client in the log.
    fn name(&self) -> String {
        match &self.socket {
            Socket::Unix(_) => "a client of the unix socket".to_owned(),
            Socket::Tcp(socket) => {
                socket.peer_addr().map_or_else(|_| "a client that has gone".to_owned(), |at| at.to_string())
            }
        }
    }
}

/// Returns the rest of `into` after `total` bytes, up to the end of a slice; `None` if nothing is
/// left.
fn rest<'a>(into: &'a mut [IoSliceMut<'_>], mut total: usize) -> Option<&'a mut [u8]> {
    for slice in into {
        if total < slice.len() {
            return Some(&mut slice[total..]);
        }
        total -= slice.len();
    }
    None
}

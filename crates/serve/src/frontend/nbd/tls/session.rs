// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's TLS session on its socket: plaintext to and from the connection.
//!
//! A session never waits: each call does what the socket allows. [`TlsStream::receive`] reads once
//! at most, so that a client can't keep the loop by records without content. Bounds for one client:
//! [`RAW_BYTES`] and a handshake message of 64 KiB (rustls's limit) received, [`UNSENT_BYTES_MAX`]
//! and a record to be sent. Payload is decrypted in its place and copied once on its way in, and
//! copied once and encrypted in its place on its way out.
//!
//! After the handshake a session can be written down at any moment, for another process to go on
//! with ([`TlsStream::save`]). From then on nothing may be sent here: two records with one number
//! would give their content away.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;

use rustls::ServerConfig;
use serde::{Deserialize, Serialize};

use super::advice::advice;
use super::fault::Fault;
use super::handshake::Handshake;
use super::keys::{Keys, Suite};
use super::records::{Record, Records};
use crate::frontend::nbd::stream::Socket;
use crate::upgrade::{Bytes, Parcel};

/// Received with one system call: almost four full records.
const RAW_BYTES: usize = 64 << 10;
/// Encrypted and not sent: sixteen full records, which go with one system call.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// A client inside TLS.
#[derive(Debug)]
pub(in crate::frontend::nbd) struct TlsStream {
    socket: Socket,
    phase: Phase,
    /// Received: first what is decrypted and was not taken, then what is not decrypted.
    raw: Box<[u8]>,
    plain: Range<usize>,
    start: usize,
    end: usize,
    /// Encrypted, of which `sent` bytes are sent.
    out: Vec<u8>,
    sent: usize,
    /// The last read did not empty the socket, or found its end.
    more: bool,
    /// The client will send nothing more.
    ended: bool,
    /// The client has shown a certificate.
    is_verified: bool,
}

#[derive(Debug)]
enum Phase {
    Handshake(Box<Handshake>),
    Open(Box<Records>),
    /// Something was wrong, and the client is hung up on.
    Failed,
}

/// A session as another process takes it up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::frontend::nbd) struct SavedTls {
    suite: Suite,
    incoming: SavedKeys,
    outgoing: SavedKeys,
    owes_update: bool,
    ended: bool,
    is_verified: bool,
    /// What is decrypted and was not taken; what is not decrypted; what is encrypted and not sent.
    plain: Bytes,
    raw: Bytes,
    unsent: Bytes,
}

/// Keys, and the number of their next record.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SavedKeys {
    secret: Bytes,
    number: u64,
}

impl SavedKeys {
    fn of(keys: &Keys, parcel: &mut Parcel) -> Self {
        let secret = parcel.put_bytes(|out| out.extend_from_slice(keys.secret()));
        Self { secret, number: keys.number() }
    }

    fn keys(&self, suite: Suite, parcel: &Parcel) -> io::Result<Keys> {
        let keys = Keys::new(suite, parcel.bytes(self.secret)?, self.number);
        keys.ok_or_else(|| ErrorKind::InvalidData.into())
    }
}

impl SavedTls {
    pub(super) fn is_verified(&self) -> bool {
        self.is_verified
    }
}

impl TlsStream {
    pub(super) fn new(socket: Socket, config: &ServerConfig) -> io::Result<Self> {
        let handshake = Handshake::new(config).map_err(io::Error::other)?;
        Ok(Self::with(socket, Phase::Handshake(Box::new(handshake))))
    }

    fn with(socket: Socket, phase: Phase) -> Self {
        Self {
            socket,
            phase,
            raw: vec![0; RAW_BYTES].into_boxed_slice(),
            plain: 0..0,
            start: 0,
            end: 0,
            out: Vec::new(),
            sent: 0,
            more: false,
            ended: false,
            is_verified: false,
        }
    }

    /// Goes on with a session that another process has written down.
    pub(in crate::frontend::nbd) fn take_up(socket: Socket, saved: &SavedTls, parcel: &Parcel) -> io::Result<Self> {
        let keys = |keys: &SavedKeys| keys.keys(saved.suite, parcel);
        let records = Records::new(keys(&saved.incoming)?, keys(&saved.outgoing)?, saved.owes_update);
        let mut stream = Self::with(socket, Phase::Open(Box::new(records)));
        let (plain, raw) = (parcel.bytes(saved.plain)?, parcel.bytes(saved.raw)?);
        (stream.start, stream.end) = (plain.len(), plain.len() + raw.len());
        stream.plain = 0..stream.start;
        let room = stream.raw.get_mut(..stream.end).ok_or(ErrorKind::InvalidData)?;
        room[..plain.len()].copy_from_slice(plain);
        room[plain.len()..].copy_from_slice(raw);
        stream.out.extend_from_slice(parcel.bytes(saved.unsent)?);
        // The socket says nothing of bytes that were received before.
        (stream.more, stream.ended, stream.is_verified) = (true, saved.ended, saved.is_verified);
        Ok(stream)
    }

    /// Writes a session down. Nothing may be sent or received here afterwards, unless nobody takes
    /// it up.
    pub(in crate::frontend::nbd) fn save(&self, parcel: &mut Parcel) -> io::Result<SavedTls> {
        let Phase::Open(records) = &self.phase else { return Err(ErrorKind::NotConnected.into()) };
        let mut put = |bytes: &[u8]| parcel.put_bytes(|out| out.extend_from_slice(bytes));
        let plain = put(&self.raw[self.plain.clone()]);
        let raw = put(&self.raw[self.start..self.end]);
        let unsent = put(&self.out[self.sent..]);
        Ok(SavedTls {
            suite: records.suite(),
            incoming: SavedKeys::of(records.incoming(), parcel),
            outgoing: SavedKeys::of(records.outgoing(), parcel),
            owes_update: records.owes_update(),
            ended: self.ended,
            is_verified: self.is_verified,
            plain,
            raw,
            unsent,
        })
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
            debug_assert!(self.plain.is_empty(), "all content is taken before more is read");
            // What is left is a part of one record.
            self.raw.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match self.socket.read(&mut self.raw[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(bytes) => {
                    self.end += bytes;
                    let full = self.end == RAW_BYTES;
                    total = self.decrypt(into, total)?;
                    // Without content the caller can't tell how much came.
                    self.more = full || total == 0;
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
                let bytes = rest.len().min(self.plain.len());
                if bytes == 0 {
                    break;
                }
                rest[..bytes].copy_from_slice(&self.raw[self.plain.start..][..bytes]);
                self.plain.start += bytes;
                total += bytes;
            }
            if rest(into, total).is_none() || self.ended || !self.take_record()? {
                return Ok(total);
            }
        }
    }

    /// Takes a record, or a part of one in the handshake; `false` if more must come first.
    fn take_record(&mut self) -> io::Result<bool> {
        let bytes = &mut self.raw[self.start..self.end];
        match &mut self.phase {
            Phase::Failed => Err(ErrorKind::InvalidData.into()),
            Phase::Handshake(handshake) => {
                let taken = handshake.take(bytes, &mut self.out);
                self.start += *taken.as_ref().unwrap_or(&0);
                match taken.and_then(|taken| self.leave_handshake().map(|()| taken > 0)) {
                    Ok(more) => Ok(more),
                    Err(error) => {
                        tracing::warn!("TLS: {} does not get in: {error}; {}", self.name(), advice(&error));
                        Err(self.fail(io::Error::new(ErrorKind::InvalidData, error)))
                    }
                }
            }
            Phase::Open(records) => {
                let taken = records.whole(bytes).and_then(|whole| {
                    let Some(whole) = whole else { return Ok(None) };
                    Ok(Some((whole, records.decrypt(&mut bytes[..whole], &mut self.out)?)))
                });
                let (whole, record) = match taken {
                    Ok(Some(taken)) => taken,
                    Ok(None) => return Ok(false),
                    Err(fault) => return Err(self.give_up(fault)),
                };
                match record {
                    Record::Data(at) => self.plain = self.start + at.start..self.start + at.end,
                    Record::Nothing => {}
                    Record::End => self.ended = true,
                }
                self.start += whole;
                Ok(true)
            }
        }
    }

    /// Goes on to records of the session, once the handshake is done.
    fn leave_handshake(&mut self) -> Result<(), rustls::Error> {
        let is_done = matches!(&self.phase, Phase::Handshake(handshake) if handshake.is_done());
        if is_done && let Phase::Handshake(handshake) = std::mem::replace(&mut self.phase, Phase::Failed) {
            self.is_verified = handshake.is_verified();
            self.phase = Phase::Open(Box::new(handshake.finish()?));
        }
        Ok(())
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
            while taken < offered && self.out.len() < UNSENT_BYTES_MAX {
                let Phase::Open(records) = &mut self.phase else { return Err(ErrorKind::NotConnected.into()) };
                let bytes = match records.encrypt(slices, &mut self.out) {
                    Ok(bytes) => bytes,
                    Err(fault) => return Err(self.give_up(fault)),
                };
                IoSlice::advance_slices(&mut slices, bytes);
                taken += bytes;
            }
        }
    }

    /// Sends what is encrypted; `false` = not all of it. `WouldBlock` = nothing.
    pub(in crate::frontend::nbd) fn flush(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while self.holds_output() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.sent += bytes;
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && moved => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    pub(in crate::frontend::nbd) fn may_have_more(&self) -> bool {
        self.more
    }

    pub(in crate::frontend::nbd) fn holds_output(&self) -> bool {
        self.sent < self.out.len()
    }

    pub(in crate::frontend::nbd) fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    pub(in crate::frontend::nbd) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(in crate::frontend::nbd) fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Tells the client that nothing was cut off, if its socket has room for it.
    pub(in crate::frontend::nbd) fn say_goodbye(&mut self) {
        match &mut self.phase {
            Phase::Handshake(handshake) => handshake.end(&mut self.out),
            Phase::Open(records) => records.end(&mut self.out),
            Phase::Failed => {}
        }
        drop(self.flush());
    }

    /// Hangs up on a client whose session can't go on.
    fn give_up(&mut self, fault: Fault) -> io::Error {
        tracing::warn!("TLS: hung up on {}: {fault}", self.name());
        if let Phase::Open(records) = &mut self.phase {
            records.give_up(fault, &mut self.out);
        }
        self.fail(io::Error::new(ErrorKind::InvalidData, fault))
    }

    /// Sends what is left to be sent, so that the client learns why, if its socket has room for it.
    fn fail(&mut self, error: io::Error) -> io::Error {
        drop(self.flush());
        self.phase = Phase::Failed;
        error
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

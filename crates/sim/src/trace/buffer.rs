// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer holds the piece of a trace that is in RAM. It is filled again whenever it is read.

use super::compressed::{UnpackError, Unpacked};

/// Room for a line or record and much more.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// A piece of a trace.
pub(super) struct Buffer {
    source: Unpacked,
    bytes: Vec<u8>,
    /// What of the bytes is still to be read.
    from: usize,
    to: usize,
    /// The source has ended; or failed, and this is how.
    pub(super) end: Option<Result<(), UnpackError>>,
    /// Bytes before these, since the beginning.
    pub(super) passed: u64,
}

impl Buffer {
    pub(super) fn new(source: Unpacked) -> Self {
        Self { source, bytes: vec![0; BUFFER_BYTES], from: 0, to: 0, end: None, passed: 0 }
    }

    /// What is to be read and is there.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Nothing comes after these, and nothing went wrong.
    pub(super) fn ended_well(&self) -> bool {
        matches!(self.end, Some(Ok(())))
    }

    pub(super) fn input_bytes(&self) -> u64 {
        self.source.input_bytes()
    }

    /// Gets more: there must be room, that is, less than all may be unread.
    pub(super) fn fill(&mut self) {
        self.bytes.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        match self.source.read(&mut self.bytes[self.to..]) {
            Ok(0) => self.end = Some(Ok(())),
            Ok(bytes) => self.to += bytes,
            Err(error) => self.end = Some(Err(error)),
        }
    }

    /// Passes the bytes that were read.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.from += bytes;
        self.passed += bytes as u64;
    }
}

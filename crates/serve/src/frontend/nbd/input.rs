// SPDX-License-Identifier: MIT OR Apache-2.0
//! The read buffer of one connection.
//!
//! It takes many short requests with one system call.

use flashfront_nbd_proto::server::INPUT_BYTES_MIN;

/// The size of the buffer: 31 writes of 4 KiB. The longest option fits.
const INPUT_BYTES: usize = 128 << 10;
const _: () = assert!(INPUT_BYTES >= INPUT_BYTES_MIN);

/// Bytes that have come, and are not done with.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self { bytes: vec![0; INPUT_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }
}

impl Input {
    /// The bytes that are here.
    pub(super) fn here(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How many bytes are here.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The room for further bytes. [`Input::came`] tells how many have come.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.bytes[self.end..]
    }

    pub(super) fn came(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// The first `bytes` that are here are done with.
    pub(super) fn took(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Puts bytes behind those that are here, as if they had come from the client. False: there is
    /// no room for them.
    pub(super) fn put(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.room().get_mut(..bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.came(bytes.len());
        true
    }

    /// Forgets all bytes that are here.
    pub(super) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
}

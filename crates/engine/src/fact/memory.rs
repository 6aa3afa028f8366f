// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where payload lives: the engine sees handles, the caller owns the bytes.
//!
//! A real daemon implements [`Memory`] with aligned buffers registered with the kernel; a
//! simulation without payload implements it with nothing but the few header buffers. Nothing
//! here is I/O: all calls are immediate.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use crate::fact::types::Time;

/// A buffer of whole 4 KiB blocks, aligned to 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Buf(pub u32);

/// A range of bytes in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Buffer and first byte, in one word: a call hands over two words in registers. Three words it
    /// writes to memory, and reads the first two of them back as one. A processor waits for that
    /// until both are there: 6 % of what a hit takes.
    start: u64,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// The range of `len` bytes at `offset` of `buf`.
    #[must_use]
    pub const fn new(buf: Buf, offset: u32, len: u32) -> Self {
        Self { start: (buf.0 as u64) << 32 | offset as u64, len }
    }

    /// The buffer.
    #[must_use]
    pub const fn buf(self) -> Buf {
        Buf((self.start >> 32) as u32)
    }

    /// First byte, from the start of the buffer.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.start as u32
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (buf, offset) = (self.buf(), self.offset());
        f.debug_struct("Span").field("buf", &buf).field("offset", &offset).field("len", &self.len).finish()
    }
}

/// Work that one thread does while others do other work.
pub(crate) trait Work: Send {
    /// About how many blocks there is work for.
    fn blocks(&self) -> u64;

    /// Does the work.
    fn run(&mut self, now: Time, mem: &mut dyn Memory);

    /// Gives the worker back to the engine, which knows its type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// The work of one lane, to be done by whoever has a thread and a memory for it
/// ([`Memory::apart`]).
pub struct LaneJob {
    work: Box<dyn Work>,
    now: Time,
}

impl LaneJob {
    pub(crate) fn new(work: Box<dyn Work>, now: Time) -> Self {
        Self { work, now }
    }

    pub(crate) fn into_work(self) -> Box<dyn Any> {
        self.work.into_any()
    }

    /// About how many blocks there is work for.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.work.blocks()
    }

    /// Does the work.
    pub fn run(&mut self, mem: &mut dyn Memory) {
        self.work.run(self.now, mem);
    }
}

/// The caller's buffers.
pub trait Memory {
    /// A buffer of at least `bytes` bytes (a multiple of 4096), of undefined content.
    ///
    /// The engine has no more at once than [`crate::buffers_most`] says, beside its window and RAM
    /// front; below that bound this must not fail.
    fn alloc(&mut self, bytes: u32) -> Buf;

    /// Gives a buffer of [`Memory::alloc`] back.
    fn free(&mut self, buf: Buf);

    /// The bytes of a range.
    fn bytes(&self, span: Span) -> &[u8];

    /// The bytes of a range, to change.
    fn bytes_mut(&mut self, span: Span) -> &mut [u8];

    /// Copies payload: `from.len` bytes to `offset` of `to`. The ranges don't overlap.
    fn copy(&mut self, from: Span, to: Buf, offset: u32);

    /// Zeroes payload.
    fn zero(&mut self, span: Span);

    /// CRC-32C of payload.
    fn checksum(&self, span: Span) -> u32;

    /// [`Memory::copy`], and the CRC-32C of what was copied. This is for what goes to a device, and
    /// is hardly ever looked at before. The sum is the source's, which the copy then finds in the
    /// processor's caches. The device has had the target's lines since they were written last; they
    /// need not come back for the sum. Nobody changes the source meanwhile.
    fn copy_summed(&mut self, from: Span, to: Buf, offset: u32) -> u32 {
        let sum = self.checksum(from);
        self.copy(from, to, offset);
        sum
    }

    /// A hint: the engine will soon look at the cache line of its own tables that this is in. Who
    /// can asks the processor to fetch it (`flashfront_device::prefetch`); nothing depends on it
    /// but time.
    fn expect_line(&self, _at: *const u8) {}

    /// A hint, for payload that will be copied soon; its first lines will do.
    fn expect_payload(&self, _span: Span) {}

    /// From how many blocks on that two lanes each have work for, [`Memory::apart`] is worth its
    /// trouble; `None`: never.
    fn apart_from(&self) -> Option<u64> {
        None
    }

    /// How many threads run jobs at the same time.
    fn apart_threads(&self) -> usize {
        1
    }

    /// Runs each of the jobs once, in any order or at the same time, and leaves them in their
    /// places. Each has a memory that knows all buffers. What jobs have changed is to be seen in
    /// this memory afterwards.
    fn apart(&mut self, _jobs: &mut Vec<LaneJob>) {
        unreachable!("only a memory that says from when on is asked to");
    }
}

impl dyn Memory + '_ {
    /// [`Memory::expect_line`] of where this is.
    pub(crate) fn expect<T>(&self, what: &T) {
        self.expect_line(core::ptr::from_ref(what).cast());
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    /// Buffers in ordinary memory.
    struct Plain(Vec<Vec<u8>>);

    impl Memory for Plain {
        fn alloc(&mut self, bytes: u32) -> Buf {
            self.0.push(vec![0; bytes as usize]);
            Buf(self.0.len() as u32 - 1)
        }
        fn free(&mut self, _: Buf) {}
        fn bytes(&self, span: Span) -> &[u8] {
            &self.0[span.buf().0 as usize][span.offset() as usize..(span.offset() + span.len) as usize]
        }
        fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
            &mut self.0[span.buf().0 as usize][span.offset() as usize..(span.offset() + span.len) as usize]
        }
        fn copy(&mut self, from: Span, to: Buf, offset: u32) {
            let bytes = self.bytes(from).to_vec();
            self.bytes_mut(Span::new(to, offset, from.len)).copy_from_slice(&bytes);
        }
        fn zero(&mut self, span: Span) {
            self.bytes_mut(span).fill(0);
        }
        fn checksum(&self, span: Span) -> u32 {
            self.bytes(span).iter().fold(1, |sum, byte| sum.wrapping_mul(31) + u32::from(*byte))
        }
    }

    #[test]
    fn a_summed_copy_is_a_copy_and_its_sum() {
        let mut mem = Plain(Vec::new());
        let (from, to) = (mem.alloc(8), mem.alloc(8));
        mem.bytes_mut(Span::new(from, 0, 5)).copy_from_slice(b"bytes");
        let sum = mem.copy_summed(Span::new(from, 1, 3), to, 4);
        assert_eq!(mem.bytes(Span::new(to, 0, 8)), b"\0\0\0\0yte\0");
        assert_eq!(sum, mem.checksum(Span::new(to, 4, 3)));
    }
}

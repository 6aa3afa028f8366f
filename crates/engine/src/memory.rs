// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where payload lives: the engine sees handles, the caller owns the bytes.
//!
//! A real daemon implements [`Memory`] with aligned buffers registered with the kernel; a
//! simulation without payload implements it with nothing but the few header buffers. Nothing
//! here is I/O: all calls are immediate.

/// A buffer of whole 4 KiB blocks, aligned to 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Buf(pub u32);

/// A range of bytes in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The buffer.
    pub buf: Buf,
    /// First byte, from the start of the buffer.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// The range of `len` bytes at `offset` of `buf`.
    #[must_use]
    pub const fn new(buf: Buf, offset: u32, len: u32) -> Self {
        Self { buf, offset, len }
    }
}

/// The caller's buffers.
pub trait Memory {
    /// A buffer of at least `bytes` bytes (a multiple of 4096), of undefined content.
    ///
    /// The engine keeps its own use within [`crate::Options::buffer_bytes`]; below that bound this
    /// must not fail.
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

    /// A hint: the engine will soon look at this cache line of its own tables. Who can asks the processor to
    /// fetch it (`flashfront_device::prefetch`); nothing depends on it but time.
    fn expect(&self, _line: &[u64; 8]) {}
}

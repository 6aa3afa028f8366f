// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers in a `Buf`, and the size classes of buffers.

use std::ptr::NonNull;

use flashfront_engine::{Buf, Span};

use super::chunk::{CHUNK_BYTES, Chunk};

pub(super) const UNIT_SHIFT: u32 = 12;
pub(super) const UNIT_BITS: u32 = 10;
pub(super) const UNITS: usize = 1 << UNIT_BITS;
/// Numbers of chunks, as a `Buf` leaves 22 bits for them: 16 TiB.
pub(super) const CHUNK_NUMBERS: usize = 1 << (32 - UNIT_BITS);
/// Size classes: 4 KiB << 0 to 4 KiB << 10.
pub(super) const CLASSES: usize = UNIT_BITS as usize + 1;

/// The number of the chunk that a buffer is in.
pub(super) fn number_of(buf: Buf) -> usize {
    (buf.0 >> UNIT_BITS) as usize
}

/// The smallest class with buffers that hold `bytes`.
pub(super) fn class_of(bytes: u32) -> usize {
    assert!(bytes > 0 && bytes <= CHUNK_BYTES, "bug: a buffer of {bytes} bytes");
    (bytes.next_power_of_two().trailing_zeros().max(UNIT_SHIFT) - UNIT_SHIFT) as usize
}

pub(super) fn class_bytes(class: usize) -> u32 {
    1 << (UNIT_SHIFT + class as u32)
}

/// The address of a range of a buffer that has a stand-in.
pub(super) fn stood_in(stand_in: &Chunk, span: Span) -> NonNull<u8> {
    let end = u64::from(span.offset()) + u64::from(span.len);
    assert!(end <= u64::from(class_bytes(usize::from(stand_in.class()))), "bug: {span:?} is outside its buffer");
    // SAFETY: the buffer begins where the stand-in does, which is as long as the longest.
    unsafe { stand_in.ptr().add(span.offset() as usize) }
}

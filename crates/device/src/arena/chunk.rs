// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chunk: memory from the kernel, in small pages or huge ones, and the count of those that keep
//! it.
#![expect(unsafe_code, reason = "memory is given back and unmapped")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use rustix::mm::Advice;

use crate::huge;

/// Bytes of a chunk, also the largest buffer (4 MiB).
pub const CHUNK_BYTES: u32 = 4 << 20;

/// 4 MiB of zero-filled memory, aligned to 4096; unmapped with the last holder.
#[derive(Debug)]
pub struct Chunk {
    base: NonNull<u8>,
    /// Rings that have it registered.
    pins: AtomicU32,
    /// The size of its buffers.
    class: AtomicU8,
}

// SAFETY: a chunk is plain memory without thread affinity; access to its bytes is governed by the
// rule at the top of `arena`.
unsafe impl Send for Chunk {}
// SAFETY: as above; the chunk itself offers nothing but its address.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// A chunk in huge pages, or as the kernel likes; `None` if there are no addresses or no memory
    /// left.
    pub(super) fn map(huge: bool) -> Option<Self> {
        let bytes = CHUNK_BYTES as usize;
        let chunk = Self::at(if huge { huge::map(bytes) } else { huge::map_anywhere(bytes) }?);
        if huge {
            chunk.turn(true);
        }
        Some(chunk)
    }

    /// Makes its pages huge from now on, or small: those that it has none of yet.
    pub(super) fn turn(&self, huge: bool) {
        huge::advise(self.base, CHUNK_BYTES as usize, huge);
    }

    fn at(base: NonNull<u8>) -> Self {
        Self { base, pins: AtomicU32::new(0), class: AtomicU8::new(0) }
    }

    /// The class of its buffers. The thread that took a buffer has told it to others that use the
    /// buffer.
    pub(super) fn class(&self) -> u8 {
        self.class.load(Ordering::Relaxed)
    }

    pub(super) fn set_class(&self, class: u8) {
        self.class.store(class, Ordering::Relaxed);
    }

    /// The address of its first byte.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// The kernel is about to hold its pages, until the [`Pin`] is dropped.
    pub(crate) fn pin(self: &Arc<Self>) -> Pin {
        self.pins.fetch_add(1, Ordering::AcqRel);
        Pin(self.clone())
    }

    /// Gives its pages back, if the kernel holds none of them; says whether. They read as zeroes
    /// until written.
    pub(super) fn discard(&self) -> bool {
        // SAFETY: the mapping of `map`; nothing of it is in use (the arena's count), and no
        // reference into it lives. A late access would be to a fresh page of the same mapping.
        let give = |advice| unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), CHUNK_BYTES as usize, advice) };
        // The second is for a process that has locked its memory (Linux 5.18; before, it keeps the
        // pages).
        self.pins.load(Ordering::Acquire) == 0
            && (give(Advice::LinuxDontNeed).is_ok() || give(Advice::LinuxDontneedLocked).is_ok())
    }
}

/// The kernel holds the pages of a chunk.
#[derive(Debug)]
pub(crate) struct Pin(Arc<Chunk>);

impl Pin {
    /// Whether it is this chunk, and not another of the same number.
    pub(crate) fn is_of(&self, chunk: &Arc<Chunk>) -> bool {
        Arc::ptr_eq(&self.0, chunk)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: this is the mapping of `map`, of this length, and no other code holds it.
        // The only error is EINVAL for a wrong address or length, which would be a bug.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), CHUNK_BYTES as usize) };
        debug_assert!(unmapped.is_ok(), "munmap of a chunk: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_cut_off_around_a_chunk() {
        let chunks: Vec<Chunk> =
            (0..8).map(|_| Chunk::at(huge::map_aligned(CHUNK_BYTES as usize).expect("there are addresses"))).collect();
        for (nth, chunk) in chunks.iter().enumerate() {
            assert_eq!(chunk.ptr().as_ptr().align_offset(huge::BYTES), 0);
            for at in [0, CHUNK_BYTES as usize - 1] {
                // SAFETY: the first and the last byte of a chunk that no other code knows.
                unsafe { chunk.ptr().as_ptr().add(at).write(nth as u8 + 1) };
            }
        }
        for (nth, chunk) in chunks.iter().enumerate() {
            // SAFETY: as above.
            let ends = unsafe { (chunk.ptr().read(), chunk.ptr().add(CHUNK_BYTES as usize - 1).read()) };
            assert_eq!(ends, (nth as u8 + 1, nth as u8 + 1));
        }
    }
}

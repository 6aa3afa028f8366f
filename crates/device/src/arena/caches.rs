// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints to the processor's caches: a line to fetch, and a copy to leave them alone.
//!
//! An ordinary store first fetches the line that it changes. A commit's buffer is 1 MiB that a
//! device has had since it was written last. So each line would come from far away only to be
//! overwritten whole. A streaming store doesn't ask for it.
//!
//! Other threads see streamed bytes only after a fence, at which the thread waits for them. A fence
//! for each block took 300 ns of a write's 1,340 (EPYC, in process on a file). So the fence comes
//! when a buffer is looked at again, which happens to a commit when it becomes an I/O
//! ([`Unfenced`]).
//!
//! Invariants: `copy_past` leaves the same bytes as an ordinary copy, at any place
//! (`a_summed_copy_is_a_copy_and_its_sum`). The address of a buffer with stores on their way is
//! never handed out (`whoever_asks_for_what_was_streamed_comes_after_the_fence`).
#![expect(unsafe_code, reason = "raw memory, and instructions that the language has no other words for")]

use std::cell::Cell;
use std::ptr::NonNull;

use flashfront_engine::{Buf, Span};

const LINE: usize = 64;

/// Asks the processor to fetch the cache line at an address that will be read soon. Any address
/// will do: it is a hint.
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: without effect on anything but caches; an address where nothing is mapped is left
    // alone.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(at.cast(), _MM_HINT_T0);
    }
    // Elsewhere stable Rust has no such hint.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Lines of payload that are asked for ahead. The processor goes on by itself: of reads from the
/// RAM front more of them brought no more (ADR 0014).
const LINES: usize = 8;

/// Asks for the first lines of payload.
pub(super) fn prefetch_begin(at: NonNull<u8>) {
    (0..LINES).for_each(|nth| prefetch(at.as_ptr().wrapping_add(nth * LINE)));
}

/// The buffer that was streamed to without a fence since.
#[derive(Debug, Default)]
pub(super) struct Unfenced {
    buf: Cell<Option<Buf>>,
    /// The end of these stores: all of them lie below.
    end: u32,
}

impl Unfenced {
    /// `to` will be streamed to. What is on its way elsewhere, or to the same place, comes first:
    /// of two stores to one place none may overtake the other.
    pub(super) fn begin(&mut self, to: Span) {
        let goes_on = self.buf.get() == Some(to.buf()) && to.offset() >= self.end;
        if !goes_on {
            self.end_all();
            self.buf.set(Some(to.buf()));
        }
        self.end = to.offset() + to.len;
    }

    /// Ends the stores to this buffer, which is about to be read, written or freed.
    #[inline]
    pub(super) fn end(&self, buf: Buf) {
        if self.buf.get() == Some(buf) {
            self.end_all();
        }
    }

    /// Ends all stores: another thread may look at the buffers.
    pub(super) fn end_all(&self) {
        if self.buf.take().is_some() {
            fence();
        }
    }

    /// Whether no stores are on their way.
    pub(super) fn is_empty(&self) -> bool {
        self.buf.get().is_none()
    }

    /// Whether stores to this buffer may be on their way.
    #[cfg(test)]
    pub(super) fn has(&self, buf: Buf) -> bool {
        self.buf.get() == Some(buf)
    }
}

/// Waits until others, the kernel and devices too, see all that this thread has streamed, before
/// its later stores.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an instruction without operands, part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies without fetching the target, which a device reads next.
///
/// # Safety
/// `source` can be read and `target` written for `bytes` bytes, and the two ranges don't overlap.
/// Before the target is accessed again, by any thread, this thread calls [`fence`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn copy_past(source: *const u8, target: *mut u8, bytes: usize) {
    let done = if target.addr().is_multiple_of(LINE) { bytes / LINE * LINE } else { 0 };
    // SAFETY: `done` is a number of whole lines within both ranges, the target's begin is a
    // multiple of a line, and the processor was asked.
    unsafe {
        if std::arch::is_x86_feature_detected!("avx512f") {
            stream_lines(source, target, done);
        } else {
            stream_quarters(source, target, done);
        }
    }
    // SAFETY: the end of both ranges.
    unsafe { target.add(done).copy_from_nonoverlapping(source.add(done), bytes - done) };
}

/// Streams a line with each store.
///
/// The thread goes on when the last store has its place among the processor's waiting stores. There
/// are some 64 of those, and a block has as many lines. In process on a file a write took 3 % less
/// than with four stores a line.
///
/// # Safety
/// As `copy_past`, of whole lines and with AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_lines(source: *const u8, target: *mut u8, bytes: usize) {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_stream_si512};
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: by the contract.
        unsafe { _mm512_stream_si512(target.add(at).cast(), _mm512_loadu_si512(source.add(at).cast())) };
    }
}

/// # Safety
/// As `copy_past`, of whole lines.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_quarters(source: *const u8, target: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: by the contract; SSE2 is part of x86-64.
        unsafe {
            let (from, to) = (source.add(at).cast::<__m128i>(), target.add(at).cast::<__m128i>());
            let line = [0, 1, 2, 3].map(|nth| _mm_loadu_si128(from.add(nth)));
            (0..).zip(line).for_each(|(nth, part)| _mm_stream_si128(to.add(nth), part));
        }
    }
}

/// Copies: stable Rust has no such stores here.
///
/// # Safety
/// `source` can be read and `target` written for `bytes` bytes, and the two ranges don't overlap.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn copy_past(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: by the contract of this function.
    unsafe { target.copy_from_nonoverlapping(source, bytes) };
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn lines_and_quarters_copy_alike() {
        #[repr(align(64))]
        struct Lines([u8; 512]);
        let source: [u8; 513] = std::array::from_fn(|nth| (nth * 7) as u8);
        let has_lines = std::arch::is_x86_feature_detected!("avx512f");
        let ways: [unsafe fn(*const u8, *mut u8, usize); 2] = [stream_quarters, stream_lines];
        for stream in &ways[..1 + usize::from(has_lines)] {
            let mut target = Lines([0; 512]);
            // SAFETY: 448 bytes of both, the target at a line; the processor was asked.
            unsafe { stream(source[1..].as_ptr(), target.0.as_mut_ptr(), 448) };
            fence();
            assert_eq!(target.0[..448], source[1..449]);
            assert_eq!(target.0[448..], [0; 64]);
        }
    }
}

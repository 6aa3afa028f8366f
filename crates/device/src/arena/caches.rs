// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processor's caches are told: a line to fetch, and a copy to leave them alone.
//!
//! An ordinary store first fetches the line that it changes. A commit's buffer is 1 MiB that a device has had since it
//! was written last, so each line would come from far away only to be overwritten whole. A streaming store doesn't ask for it.
//! Invariant: `copy_past` leaves the same bytes as an ordinary copy, at any place (`a_summed_copy_is_a_copy_and_its_sum`).
#![expect(unsafe_code, reason = "raw memory, and instructions that the language has no other words for")]

/// Asks the processor to fetch a cache line that will be read soon.
pub fn prefetch(line: &[u64; 8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint without effect on anything but caches, at the address of a live reference.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(line.as_ptr().cast(), _MM_HINT_T0);
    }
    // Elsewhere stable Rust has no such hint.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Copies without fetching the target, for what a device reads next.
///
/// # Safety
/// `source` can be read and `target` written for `bytes` bytes, and the two ranges don't overlap.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn copy_past(source: *const u8, target: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    let lines = if target.addr().is_multiple_of(LINE) { bytes / LINE } else { 0 };
    for at in (0..lines * LINE).step_by(LINE) {
        // SAFETY: `at + LINE` is at most `bytes`, and the target's address a multiple of 64, so of the 16 that the
        // store asks for; SSE2 is part of x86-64.
        unsafe {
            let (from, to) = (source.add(at).cast::<__m128i>(), target.add(at).cast::<__m128i>());
            let line = [0, 1, 2, 3].map(|nth| _mm_loadu_si128(from.add(nth)));
            (0..).zip(line).for_each(|(nth, part)| _mm_stream_si128(to.add(nth), part));
        }
    }
    // SAFETY: an instruction without operands: what was streamed is seen by others, the kernel and devices too, before all
    // that is stored later. The language wants it before any other access to the target.
    unsafe { _mm_sfence() };
    let (rest, done) = (bytes - lines * LINE, lines * LINE);
    // SAFETY: the end of both ranges.
    unsafe { target.add(done).copy_from_nonoverlapping(source.add(done), rest) };
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

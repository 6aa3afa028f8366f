// SPDX-License-Identifier: MIT OR Apache-2.0
//! An allocator that asks for pages of 2 MiB for large tables.
//!
//! The engine's tables are hashed. Each look-up is in another page, and the processor knows the
//! places of too few pages of 4 KiB. To ask early for the next look-ups' lines took 9 % of a write,
//! and 3 % with large pages (EPYC in a virtual machine). Memory of less than 4 MiB is the system
//! allocator's. A program names this one by `#[global_allocator]`.
//!
//! Cost: a table takes RAM 2 MiB at a time where it is touched, so a hashed one takes all at once.
//! A table that grows is copied. Invariant: large memory begins as zeroes, and belongs to one owner
//! (`large_memory_is_zeroed_aligned_and_given_back`).
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};

use crate::huge;

/// The index of a cache of 2 GiB.
const LARGE_BYTES: usize = 4 << 20;

/// The system's allocator, but for large tables.
#[derive(Debug)]
pub struct Tables;

fn is_large(bytes: usize) -> bool {
    bytes >= LARGE_BYTES
}

// SAFETY: large memory is a mapping of its own, zeroed and aligned to 2 MiB, which is more than any
// type asks for here (checked). It is unmapped by its size, which says which allocator has it. All
// else is `System`'s.
unsafe impl GlobalAlloc for Tables {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size()) {
            return large(layout);
        }
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size()) {
            return large(layout);
        }
        // SAFETY: the caller's promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_large(layout.size()) {
            // SAFETY: `large` made it of this size, and the caller has no more use for it. If the
            // kernel can't, it stays: a leak.
            let _ = unsafe { rustix::mm::munmap(at.cast(), layout.size()) };
        } else {
            // SAFETY: the caller's promises.
            unsafe { System.dealloc(at, layout) }
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !is_large(layout.size()) && !is_large(bytes) {
            // SAFETY: the caller's promises.
            return unsafe { System.realloc(at, layout, bytes) };
        }
        // SAFETY: the caller promises that the size is not 0 and fits the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: as above; both have room for the smaller size, and are apart.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                to.copy_from_nonoverlapping(at, layout.size().min(bytes));
                self.dealloc(at, layout);
            }
            to
        }
    }
}

/// Null if there is none, as allocators say it.
fn large(layout: Layout) -> *mut u8 {
    if layout.align() > huge::BYTES {
        return std::ptr::null_mut();
    }
    let Some(at) = huge::map(layout.size()) else { return std::ptr::null_mut() };
    // The rest of it stays in small pages, or a table of 4 MiB and a bit would take six.
    huge::advise(at, layout.size() / huge::BYTES * huge::BYTES, true);
    at.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_memory_is_zeroed_aligned_and_given_back() {
        for bytes in [LARGE_BYTES, LARGE_BYTES + 1, (9 << 20) + 4097] {
            let layout = Layout::from_size_align(bytes, 64).expect("a layout");
            for _ in 0..3 {
                // SAFETY: the size is not 0; all accesses are within it, and before it is given
                // back.
                unsafe {
                    let at = Tables.alloc(layout);
                    assert_eq!(at.align_offset(huge::BYTES), 0);
                    let whole = std::slice::from_raw_parts_mut(at, bytes);
                    assert!(whole.iter().all(|byte| *byte == 0));
                    whole.fill(1);
                    Tables.dealloc(at, layout);
                }
            }
        }
    }

    #[test]
    fn what_grows_and_shrinks_across_the_bound_keeps_its_bytes() {
        let align = 8;
        let sizes = [100, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES, LARGE_BYTES + 5, 4096];
        let layout = |bytes| Layout::from_size_align(bytes, align).expect("a layout");
        // SAFETY: sizes other than 0; all accesses are within the smaller one of two.
        unsafe {
            let mut at = Tables.alloc_zeroed(layout(sizes[0]));
            for pair in sizes.windows(2) {
                let kept = pair[0].min(pair[1]);
                std::slice::from_raw_parts_mut(at, kept)
                    .iter_mut()
                    .zip(0u32..)
                    .for_each(|(byte, nth)| *byte = nth as u8);
                at = Tables.realloc(at, layout(pair[0]), pair[1]);
                assert!(std::slice::from_raw_parts(at, kept).iter().zip(0u32..).all(|(byte, nth)| *byte == nth as u8));
            }
            Tables.dealloc(at, layout(sizes[sizes.len() - 1]));
        }
    }
}

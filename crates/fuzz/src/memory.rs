// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much heap a target takes, at its peak.
//!
//! The resident size would not do: a vector of a billion zeroes costs nothing until it is touched,
//! and is a bug all the same. Counted for each thread by itself, so that tests can run side by
//! side.
#![expect(unsafe_code, reason = "an allocator can't be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes held, and their peak; what another thread frees makes the first negative.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // A thread that ends may free after its variables are gone: nobody asks for its figures.
    let _ = HELD.try_with(|it| {
        let (held, peak) = it.get();
        it.set((held + bytes, peak.max(held + bytes)));
    });
}

// SAFETY: everything is passed on to the system's allocator as it is; `Layout` never exceeds
// `isize::MAX`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, bytes) }
    }
}

/// How many bytes more than before this thread holds at the peak of `run`.
pub(crate) fn growth_of(run: impl FnOnce()) -> usize {
    let before = HELD.with(|it| {
        let (held, _) = it.get();
        it.set((held, held));
        held
    });
    run();
    HELD.with(|it| usize::try_from(it.get().1 - before).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::growth_of;

    #[test]
    fn the_peak_is_what_counts() {
        let grown = growth_of(|| {
            drop(std::hint::black_box(vec![0_u8; 1 << 30]));
            drop(std::hint::black_box(vec![1_u8; 1 << 10]));
        });
        assert!((1 << 30..(1 << 30) + 4096).contains(&grown), "{grown}");
    }
}

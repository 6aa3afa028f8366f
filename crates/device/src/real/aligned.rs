// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece of memory aligned to 4096, for I/O outside the arena.
#![expect(unsafe_code, reason = "Vec can't be told an alignment")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Zero-filled bytes, aligned to 4096.
#[derive(Debug)]
pub(crate) struct AlignedBuf {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared access is read only.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    pub(crate) fn new(bytes: usize) -> Self {
        let layout =
            Layout::from_size_align(bytes.max(4096), 4096).expect("a buffer is smaller than the address space");
        // SAFETY: the size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        Self { ptr, layout }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: allocated, zero-initialised, of this size.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed` with this layout.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

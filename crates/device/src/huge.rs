// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that begins where a page of 2 MiB can, and what the kernel is told of such pages.
#![expect(unsafe_code, reason = "memory is mapped and unmapped")]

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A huge page of x86-64, and of arm64 with pages of 4 KiB.
pub(crate) const BYTES: usize = 2 << 20;

/// Zero-filled memory at such an address; `None` if there are no addresses or no memory left.
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    // Linux begins such mappings there by itself since 6.7, one beside the other; else what is too
    // much is given back.
    let at = map_anywhere(bytes)?;
    if at.as_ptr().align_offset(BYTES) == 0 {
        return Some(at);
    }
    // SAFETY: the mapping just made, which no other code has seen.
    let _ = unsafe { rustix::mm::munmap(at.as_ptr().cast(), bytes) };
    map_aligned(bytes)
}

/// Makes the pages of a mapping of [`map`] huge from now on, or small: those that it has none of
/// yet.
///
/// A kernel that is told to give no huge ones, or can't, serves small ones.
pub(crate) fn advise(at: NonNull<u8>, bytes: usize, huge: bool) {
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: whatever is there, advice changes none of its bytes.
    let _ = unsafe { rustix::mm::madvise(at.as_ptr().cast(), bytes, advice) };
}

pub(crate) fn map_aligned(bytes: usize) -> Option<NonNull<u8>> {
    // A mapping has whole pages, and each part of it that is given back must begin with one.
    let bytes = bytes.next_multiple_of(rustix::param::page_size());
    let whole = map_anywhere(bytes.checked_add(BYTES)?)?;
    let before = whole.as_ptr().align_offset(BYTES);
    // SAFETY: `before` is less than BYTES, so this and the memory behind it lie within the mapping.
    // Only what is outside of that is unmapped.
    unsafe {
        let wanted = whole.add(before);
        for (at, bytes) in [(whole, before), (wanted.add(bytes), BYTES - before)] {
            if bytes > 0 {
                // A part that can't be unmapped was never touched, and costs only its addresses.
                let _ = rustix::mm::munmap(at.as_ptr().cast(), bytes);
            }
        }
        Some(wanted)
    }
}

/// Zero-filled memory at an address of the kernel's choice.
pub(crate) fn map_anywhere(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a fresh private anonymous mapping.
    let at = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    NonNull::new(at.ok()?.cast())
}

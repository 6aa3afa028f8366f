// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies payload between a guest's memory and a buffer.
//!
//! A request's payload lies in segments of the guest's memory. Each copy says whether all of that
//! memory was there.

use std::ops::Range;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::chain::Segment;

/// Copies payload after its first `skip` bytes from the guest into a buffer.
pub(super) fn copy_in(memory: &GuestMemoryMmap, payload: &[Segment], skip: u32, into: &mut [u8]) -> bool {
    let bytes = into.len();
    each(payload, skip, bytes, |at, range| memory.read_slice(&mut into[range], at).is_ok())
}

/// Copies a buffer to the guest, after the first `skip` bytes of the payload.
pub(super) fn copy_out(memory: &GuestMemoryMmap, payload: &[Segment], skip: u32, from: &[u8]) -> bool {
    each(payload, skip, from.len(), |at, range| memory.write_slice(&from[range], at).is_ok())
}

/// Calls `copy` with each part of `bytes` bytes of payload after the first `skip`, and with its
/// range among those bytes.
fn each(
    payload: &[Segment],
    skip: u32,
    bytes: usize,
    mut copy: impl FnMut(GuestAddress, Range<usize>) -> bool,
) -> bool {
    let (mut skip, mut done) = (skip, 0);
    for segment in payload {
        let passed = skip.min(segment.len);
        skip -= passed;
        let here = ((segment.len - passed) as usize).min(bytes - done);
        if here > 0 && !copy(GuestAddress(segment.at.0 + u64::from(passed)), done..done + here) {
            return false;
        }
        done += here;
    }
    done == bytes
}

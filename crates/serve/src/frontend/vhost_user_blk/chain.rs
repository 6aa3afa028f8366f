// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chain of descriptors: where in the guest's memory a request's bytes are.
//!
//! `virtio-queue` walks chains too, but not as this needs. It ends a damaged chain as if it were
//! whole. It starts only at new heads in the ring, while a request that is taken up again is known
//! by its head alone (`inflight`). However a chain is knotted, at most [`DESCRIPTORS_MAX`]
//! descriptors are looked at (test: `any_bytes_are_a_request_or_refused`).

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

use super::guest::Guest;
use super::limits::{QUEUE_SIZE_MAX, SEGMENTS_MAX};

/// Descriptors of one chain, with header and status in pieces if need be.
const DESCRIPTORS_MAX: usize = SEGMENTS_MAX as usize + 34;
const DESCRIPTOR_BYTES: u64 = 16;

/// Why a chain can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChainError {
    #[error("a descriptor's number is beyond the end of its table")]
    Index,
    #[error("a descriptor is outside the memory")]
    Unmapped,
    #[error("a chain of more than {DESCRIPTORS_MAX} descriptors")]
    Long,
    #[error("an indirect table that has a bad length, or is inside another")]
    Indirect,
    #[error("a part for the driver to fill after one for the device")]
    Order,
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) at: GuestAddress,
    pub(super) len: u32,
}

/// A request's parts, in order: what we read, and what we write.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) readable: Vec<Segment>,
    pub(super) writable: Vec<Segment>,
}

/// The address of a descriptor of a table.
fn place(table: GuestAddress, index: u16) -> Option<GuestAddress> {
    table.checked_add(u64::from(index) * DESCRIPTOR_BYTES)
}

/// Hints that the requests of these heads will be read soon: first the descriptors of all, then the
/// memory that those name.
///
/// Waited for one by one, these reads took a tenth of the time of a read from the RAM front.
pub(super) fn expect(guest: &Guest, table: GuestAddress, heads: &[u16]) {
    let places = || heads.iter().filter_map(|&head| place(table, head));
    places().for_each(|at| guest.expect(at));
    for at in places() {
        if let Ok(descriptor) = guest.memory().read_obj::<Descriptor>(at) {
            guest.expect(descriptor.addr());
        }
    }
}

impl Chain {
    /// Follows the chain that starts at `head` in the table of `size` descriptors.
    pub(super) fn follow(
        &mut self,
        memory: &GuestMemoryMmap,
        table: GuestAddress,
        size: u16,
        head: u16,
    ) -> Result<(), ChainError> {
        debug_assert!(size <= QUEUE_SIZE_MAX, "the session has seen to that");
        self.readable.clear();
        self.writable.clear();
        let (mut table, mut entries, mut index, mut indirect) = (table, u64::from(size), head, false);
        for _ in 0..=DESCRIPTORS_MAX {
            if u64::from(index) >= entries {
                return Err(ChainError::Index);
            }
            let at = place(table, index).ok_or(ChainError::Unmapped)?;
            let descriptor: Descriptor = memory.read_obj(at).map_err(|_| ChainError::Unmapped)?;
            let len = descriptor.len();
            if descriptor.refers_to_indirect_table() {
                let whole = len > 0 && u64::from(len).is_multiple_of(DESCRIPTOR_BYTES);
                if indirect || descriptor.has_next() || !whole {
                    return Err(ChainError::Indirect);
                }
                (table, entries, index, indirect) = (descriptor.addr(), u64::from(len) / DESCRIPTOR_BYTES, 0, true);
                continue;
            }
            let segment = Segment { at: descriptor.addr(), len };
            if descriptor.is_write_only() {
                self.writable.push(segment);
            } else if self.writable.is_empty() {
                self.readable.push(segment);
            } else {
                return Err(ChainError::Order);
            }
            if !descriptor.has_next() {
                return Ok(());
            }
            index = descriptor.next();
        }
        Err(ChainError::Long)
    }
}

/// Bytes of all parts.
pub(super) fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.len)).sum()
}

/// Takes `bytes` away from the front; false if there are fewer.
pub(super) fn take_front(segments: &mut Vec<Segment>, mut bytes: u32, mut taken: impl FnMut(Segment)) -> bool {
    let mut whole = 0;
    for segment in segments.iter_mut() {
        let here = segment.len.min(bytes);
        if here > 0 {
            taken(Segment { at: segment.at, len: here });
        }
        bytes -= here;
        if here < segment.len {
            // Past the end of the address space there is no memory, so it is refused with the rest.
            segment.at = GuestAddress(segment.at.0.saturating_add(u64::from(here)));
            segment.len -= here;
            break;
        }
        whole += 1;
    }
    segments.drain(..whole);
    bytes == 0
}

/// Takes the last byte away.
pub(super) fn take_last(segments: &mut Vec<Segment>) -> Option<GuestAddress> {
    while segments.last().is_some_and(|segment| segment.len == 0) {
        segments.pop();
    }
    let last = segments.last_mut()?;
    last.len -= 1;
    last.at.checked_add(u64::from(last.len))
}

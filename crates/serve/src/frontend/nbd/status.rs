// SPDX-License-Identifier: MIT OR Apache-2.0
//! BLOCK_STATUS: which parts of a range are holes, for clients that have selected
//! `base:allocation`.
//!
//! The engine answers with a list of extents, perhaps of less than was asked for: the client asks
//! again for the rest. A hole is told as one that reads as zeroes, all else as data. A reply has at
//! most [`DESCRIPTORS_MAX`] extents.

use flashfront_device::Share;
use flashfront_engine::{BLOCK_BYTES, Extent, MAP_BYTES, RequestOp, SECTOR_BYTES, Span, extents};

use super::super::Core;
use super::check::Ask;
use super::connection::{Connection, Wait};
use super::context::ALLOCATION_ID;
use super::pending::Part;
use super::wire::{ChunkHeader, Fields, Replies, RequestHeader, chunk, command_flag, state};

/// Extents of one reply: 8 KiB with extended headers.
const DESCRIPTORS_MAX: usize = 512;
/// The payload of a request that names the one context there is: the length of the range, and the
/// context.
pub(super) const STATUS_PAYLOAD_BYTES: usize = 12;

/// A request with a payload means what the same without one does, if it names the context that
/// there is; else it is none that is known. Whether it is.
pub(super) fn narrow(header: &mut RequestHeader, payload: &[u8]) -> bool {
    let mut fields = Fields(payload);
    let (len, id) = (fields.u64(), fields.u32());
    let Some(len) = len.filter(|_| id == Some(ALLOCATION_ID)) else {
        return false;
    };
    header.len = len;
    header.flags &= !command_flag::PAYLOAD_LEN;
    true
}

impl Connection {
    /// Asks for the extents of all blocks that a range touches.
    pub(super) fn start_status(
        &mut self,
        header: &RequestHeader,
        ask: Ask,
        core: &mut dyn Core,
        may_alloc: bool,
    ) -> Option<Wait> {
        let wait = self.must_wait(MAP_BYTES.into(), may_alloc);
        if wait.is_some() {
            return wait;
        }
        let place = self.table.insert(ask, header.cookie, header.offset, header.len);
        if !self.begin_status(place, self.share_for(MAP_BYTES.into()), core) {
            self.table.remove(place);
            return Some(Wait::Room);
        }
        None
    }

    /// Takes the buffer for the list, and asks the engine for it; false if there is none.
    pub(super) fn begin_status(&mut self, place: u16, share: Option<Share>, core: &mut dyn Core) -> bool {
        let size_bytes = self.export.as_ref().map_or(0, |export| export.size_bytes);
        let (offset, len) = (self.table.get_mut(place).offset, self.table.get_mut(place).len);
        let Some(buf) = self.alloc(share, MAP_BYTES, core) else { return false };
        self.held_bytes += u64::from(MAP_BYTES);
        self.table.get_mut(place).put(0, Part { buf, bytes: MAP_BYTES, at: offset, len: MAP_BYTES });
        let start = offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = (offset + len).next_multiple_of(BLOCK_BYTES).min(size_bytes);
        self.submit(place, 0, RequestOp::Map, start / SECTOR_BYTES..end / SECTOR_BYTES, Some(buf), false, core);
        true
    }

    /// The engine's list is there: queues the reply.
    pub(super) fn answer_status(&mut self, place: u16, one: bool, core: &mut dyn Core) {
        let replies = self.agreed.replies;
        let pending = self.table.get_mut(place);
        let (cookie, offset, len) = (pending.cookie, pending.offset, pending.len);
        let buf = pending.parts[0].map(|part| part.buf);
        let list = buf.map_or(&[][..], |buf| core.memory().bytes(Span::new(buf, 0, MAP_BYTES)));
        let most = if one { 1 } else { DESCRIPTORS_MAX };
        let asked = within(extents(list), offset % BLOCK_BYTES, len).take(most);
        let mut body = Vec::new();
        let mut count = 0u32;
        for Extent { bytes, hole } in asked {
            let state = if hole { state::HOLE | state::ZERO } else { 0 };
            if replies == Replies::Extended {
                body.extend_from_slice(&bytes.to_be_bytes());
                body.extend_from_slice(&u64::from(state).to_be_bytes());
            } else {
                body.extend_from_slice(&(bytes as u32).to_be_bytes());
                body.extend_from_slice(&state.to_be_bytes());
            }
            count += 1;
        }
        debug_assert!(count > 0, "a list tells of something");
        self.free_bufs(place, core);
        let fill = |out: &mut Vec<u8>| {
            let mut head = ALLOCATION_ID.to_be_bytes().to_vec();
            let kind = if replies == Replies::Extended {
                head.extend_from_slice(&count.to_be_bytes());
                chunk::BLOCK_STATUS_EXTENDED
            } else {
                chunk::BLOCK_STATUS
            };
            let len = (head.len() + body.len()) as u32;
            ChunkHeader { done: true, kind, cookie, offset, len }.encode(replies, out);
            out.extend_from_slice(&head);
            out.extend_from_slice(&body);
        };
        self.outbox.push(fill, None, None, Some(place));
    }
}

/// What is left of extents without the first `skip` bytes, and of that the first `len`.
fn within(all: impl Iterator<Item = Extent>, skip: u64, len: u64) -> impl Iterator<Item = Extent> {
    let (mut skip, mut left) = (skip, len);
    let rest = all.map(move |extent| {
        let skipped = skip.min(extent.bytes);
        skip -= skipped;
        let bytes = (extent.bytes - skipped).min(left);
        left -= bytes;
        Extent { bytes, ..extent }
    });
    rest.filter(|extent| extent.bytes > 0)
}

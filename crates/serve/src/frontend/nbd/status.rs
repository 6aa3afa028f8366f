// SPDX-License-Identifier: MIT OR Apache-2.0
//! BLOCK_STATUS: which parts of a range are holes, for clients that have selected
//! `base:allocation`.
//!
//! The engine answers with a list of extents, perhaps of less than was asked for: the client asks
//! again for the rest. A hole is told as one that reads as zeroes, all else as data. A reply has at
//! most [`DESCRIPTORS_MAX`] extents.

use flashfront_device::Share;
use flashfront_engine::{BLOCK_BYTES, MAP_BYTES, RequestOp, SECTOR_BYTES, Span, extents};
use flashfront_nbd_proto::Request;
use flashfront_nbd_proto::server::Extent;

use super::super::Core;
use super::connection::{Connection, Wait};
use super::pending::Part;

/// Extents of one reply: 8 KiB with extended headers.
const DESCRIPTORS_MAX: usize = 512;
impl Connection {
    /// Asks for the extents of all blocks that a range touches.
    pub(super) fn start_status(&mut self, request: &Request, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        let wait = self.must_wait(MAP_BYTES.into(), may_alloc);
        if wait.is_some() {
            return wait;
        }
        let place = self.table.insert(request.ask, request.cookie, request.offset, request.len);
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
        let reply = self.reply_to(place);
        let pending = self.table.get_mut(place);
        let (offset, len) = (pending.offset, pending.len);
        let buf = pending.parts[0].map(|part| part.buf);
        let list = buf.map_or(&[][..], |buf| core.memory().bytes(Span::new(buf, 0, MAP_BYTES)));
        let most = if one { 1 } else { DESCRIPTORS_MAX };
        let all = extents(list).map(|extent| Extent { bytes: extent.bytes, hole: extent.hole });
        let asked: Vec<Extent> = within(all, offset % BLOCK_BYTES, len).take(most).collect();
        self.free_bufs(place, core);
        self.outbox.push(|out| reply.extents(&asked, out), None, None, Some(place));
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

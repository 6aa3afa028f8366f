// SPDX-License-Identifier: MIT OR Apache-2.0
//! BLOCK_STATUS: which parts of a range are holes, for clients that have selected
//! `base:allocation`.
//!
//! The engine answers with a list of extents, perhaps for less than the whole range: the client
//! asks again for the rest. A hole is told as one that reads as zeroes, all else as data. A reply
//! has at most [`DESCRIPTORS_MAX`] extents.

use flashfront_device::Share;
use flashfront_engine::{BLOCK_BYTES, MAP_BYTES, RequestOp, SECTOR_BYTES, Span, extents};
use flashfront_nbd_proto::Request;
use flashfront_nbd_proto::server::Extent;

use super::asked::Order;
use super::pending::Part;
use super::requests::Requests;
use super::wait::Wait;
use crate::frontend::Core;

/// Extents of one reply: 8 KiB with extended headers.
const DESCRIPTORS_MAX: usize = 512;

/// Asks for the extents of all blocks that a range touches.
pub(super) fn start(requests: &mut Requests, request: &Request, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
    let wait = requests.holdings.must_wait(MAP_BYTES.into(), may_alloc);
    if wait.is_some() {
        return wait;
    }
    let place = requests.insert(request);
    if !begin(requests, place, requests.holdings.share_for(MAP_BYTES.into()), core) {
        requests.table.remove(place);
        return Some(Wait::Room);
    }
    None
}

/// Takes the buffer for the list, and asks the engine for it; false if there is none.
pub(super) fn begin(requests: &mut Requests, place: u16, share: Option<Share>, core: &mut dyn Core) -> bool {
    let size_bytes = requests.export().map_or(0, |export| export.size_bytes);
    let Some(buf) = requests.holdings.alloc(share, MAP_BYTES, core) else { return false };
    let pending = requests.table.get_mut(place);
    let (offset, len) = (pending.offset, pending.len);
    pending.put(0, Part { buf, bytes: MAP_BYTES, at: offset, len: MAP_BYTES });
    let start = offset / BLOCK_BYTES * BLOCK_BYTES;
    let end = (offset + len).next_multiple_of(BLOCK_BYTES).min(size_bytes);
    let sectors = start / SECTOR_BYTES..end / SECTOR_BYTES;
    requests.submit(Order { place, slot: 0, op: RequestOp::Map, sectors, buf: Some(buf), fua: false }, core);
    true
}

/// The engine's list is there: queues the reply.
pub(super) fn answer(requests: &mut Requests, place: u16, one: bool, core: &mut dyn Core) {
    let reply = requests.reply_to(place);
    let pending = requests.table.get_mut(place);
    let (offset, len) = (pending.offset, pending.len);
    let buf = pending.parts[0].map(|part| part.buf);
    let list = buf.map_or(&[][..], |buf| core.memory().bytes(Span::new(buf, 0, MAP_BYTES)));
    let most = if one { 1 } else { DESCRIPTORS_MAX };
    let all = extents(list).map(|extent| Extent { bytes: extent.bytes, hole: extent.hole });
    let asked: Vec<Extent> = within(all, offset % BLOCK_BYTES, len).take(most).collect();
    requests.free_bufs(place, core);
    requests.outbox.push(|out| reply.extents(&asked, out), None, None, Some(place));
}

/// Cuts the first `skip` bytes off extents, and all after the next `len`.
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

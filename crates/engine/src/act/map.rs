// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps: where an origin has holes that the cache has nothing newer for.
//!
//! What is clean in the cache is the same on the origin, so only dirty blocks count. They are noted
//! before the origin is asked. So a block that was clean then, and whose place is a hole
//! afterwards, read as zeroes at some moment between (test: `holes_read_as_zeroes`). A block that
//! is destaged meanwhile was dirty when it was noted. A request costs [`STEPS_MAX`] steps at most,
//! however long its range is. The answer may tell of less than was asked.

use crate::act::answer::part_done;
use crate::coordinator::{Asked, Coordinator, MAP};
use crate::cx::COORDINATOR;
use crate::cx::Cx;
use crate::fact::extents::{Extent, extents, holes_of_both, put_extents};
use crate::fact::io::{DeviceError, Op};
use crate::fact::memory::Span;
use crate::fact::types::{BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES};
use crate::lanes::Lanes;
use crate::organ::active::Range;
use crate::organ::index::Flat;

/// What the buffer of a map must hold: two lists of 1024 extents each.
pub const MAP_BYTES: u32 = 16 << 10;
const LIST_BYTES: u32 = MAP_BYTES / 2;
/// Looks into the dirty set: a client may ask for many maps at once, and all others wait meanwhile.
const STEPS_MAX: u32 = 1024;

/// Notes the dirty blocks of a range, and asks the origin for its holes there.
pub(crate) fn map(coordinator: &mut Coordinator, request: usize, range: Range, lanes: &Lanes, cx: &mut Cx<'_>) {
    let buf = range.buf.expect("a map has a buffer");
    let origin = &cx.facts.origins[range.origin];
    let start = range.lba * SECTOR_BYTES;
    let end = start + range.sectors * SECTOR_BYTES;
    let base = origin.base.0;
    let dirty = |from: u64| lanes.driven().filter_map(|lane| lane.store.next_dirty(Flat(base + from))).min();
    let (mut steps, mut told) = (0, start);
    let noted = core::iter::from_fn(|| {
        if told >= end || steps == STEPS_MAX {
            return None;
        }
        steps += 1;
        let from = told.div_ceil(BLOCK_BYTES);
        let next = dirty(from).map_or(end, |flat| ((flat.0 - base) * BLOCK_BYTES).min(end));
        let hole = next > told;
        let until = if hole { next } else { (told + BLOCK_BYTES).min(end) };
        let bytes = until - told;
        told = until;
        Some(Extent { bytes, hole })
    });
    let bytes = put_extents(cx.mem.bytes_mut(Span::new(buf, 0, LIST_BYTES)), noted);
    put_extents(cx.mem.bytes_mut(Span::new(buf, LIST_BYTES, LIST_BYTES)), []);
    coordinator.requests[request].hold();
    coordinator.maps.push(Asked { request, buf, bytes });
    let device = cx.origin_range(Flat(base + range.lba / BLOCK_SECTORS), 1).0;
    let span = Span::new(buf, LIST_BYTES, LIST_BYTES);
    cx.ranged_io(COORDINATOR, MAP + request, device, Op::Map, start, bytes, Some(span));
}

/// The origin has told of its holes. One that can't has none.
pub(crate) fn mapped(coordinator: &mut Coordinator, request: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let asked = coordinator.maps.iter().position(|asked| asked.request == request).expect("a map that was asked for");
    let Asked { buf, bytes, .. } = coordinator.maps.swap_remove(asked);
    let lists = cx.mem.bytes(Span::new(buf, 0, MAP_BYTES)).to_vec();
    let (noted, told) = lists.split_at(LIST_BYTES as usize);
    let told = if result.is_ok() { told } else { &[] };
    let unknown = extents(told).next().is_none().then_some(Extent { bytes, hole: false });
    let holes = holes_of_both(extents(noted), extents(told).chain(unknown));
    put_extents(cx.mem.bytes_mut(Span::new(buf, 0, MAP_BYTES)), holes);
    part_done(coordinator, request, None, cx);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write-zeroes: whole blocks of short ranges are written like data. Whole blocks of long ranges
//! are zeroed on the origin. Ragged ends are always written like data.
//!
//! If the client allows it, the origin gives the space of long ranges back. Outside writeback it
//! also gives back the space of short ranges. A block of zeroes in the cache is data like any
//! other. It gets its place on the origin when it is destaged.
//!
//! Whole blocks of zeroes all come from one buffer. A ragged end is completed from its old content,
//! so it needs a block of its own. Clients may ask for many such blocks at once, without any
//! payload that would bound them. So there is a bound here, and further ragged ends wait (test:
//! `zeroes_have_a_bound`).

use crate::act::answer::part_done;
use crate::act::request::split_whole;
use crate::act::request::write;
use crate::act::request::{always_durable, writes_are_cached};
use crate::coordinator::Coordinator;
use crate::cx::{Cx, blocks_span};
use crate::fact::types::{BLOCK_SECTORS, SECTOR_BYTES};
use crate::lanes::Lanes;
use crate::organ::active::Range;
use crate::organ::piece::PieceKind;
use crate::organ::zeroes::{CACHED_BYTES_MAX, Zeroed};

pub(crate) fn write_zeroes(
    coordinator: &mut Coordinator,
    request: usize,
    zeroed: Zeroed,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    let range = zeroed.range;
    let is_ragged = !range.lba.is_multiple_of(BLOCK_SECTORS) || !range.sectors.is_multiple_of(BLOCK_SECTORS);
    let ragged = &mut coordinator.zeroes.ragged;
    if is_ragged && (!ragged.is_left(range.origin) || ragged.is_waited_for(range.origin)) {
        coordinator.requests[request].hold();
        ragged.wait(range.origin, (request, zeroed));
    } else {
        write_zeroes_now(coordinator, request, zeroed, lanes, cx);
    }
}

/// Goes on with the requests that waited for room for their ragged ends.
pub(crate) fn zeroes_step(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    while let Some((request, zeroed)) = coordinator.zeroes.ragged.next() {
        write_zeroes_now(coordinator, request, zeroed, lanes, cx);
        part_done(coordinator, request, None, cx);
    }
}

fn write_zeroes_now(coordinator: &mut Coordinator, request: usize, zeroed: Zeroed, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let Zeroed { range, kind, fua } = zeroed;
    let end = range.lba + range.sectors;
    let (first_whole, end_whole) = (range.lba.next_multiple_of(BLOCK_SECTORS), end / BLOCK_SECTORS * BLOCK_SECTORS);
    if first_whole > end_whole {
        // The range lies inside one block.
        return write_ragged(coordinator, request, range, fua, lanes, cx);
    }
    if first_whole > range.lba {
        write_ragged(coordinator, request, Range { sectors: first_whole - range.lba, ..range }, fua, lanes, cx);
    }
    let long = range.sectors * SECTOR_BYTES > CACHED_BYTES_MAX;
    if long || (kind == PieceKind::Punch && !writes_are_cached(range, cx)) {
        split_whole(coordinator, request, range, kind, fua || always_durable(range, cx), lanes, cx);
    } else if end_whole > first_whole {
        let buf = Some(coordinator.zeroes.whole_blocks(cx));
        let used = coordinator.requests[request].zeroes.get_or_insert_default();
        coordinator.zeroes.users += usize::from(!core::mem::replace(&mut used.whole, true));
        write(
            coordinator,
            request,
            Range { lba: first_whole, sectors: end_whole - first_whole, buf, ..range },
            fua,
            lanes,
            cx,
        );
    }
    if end > end_whole {
        write_ragged(coordinator, request, Range { lba: end_whole, sectors: end - end_whole, ..range }, fua, lanes, cx);
    }
}

/// Writes zeroes to a part of one block.
fn write_ragged(
    coordinator: &mut Coordinator,
    request: usize,
    range: Range,
    fua: bool,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    let buf = cx.alloc(1);
    cx.mem.zero(blocks_span(buf, 0, 1));
    coordinator.zeroes.ragged.take(range.origin);
    coordinator.requests[request].zeroes.get_or_insert_default().ragged.push(buf);
    write(coordinator, request, Range { buf: Some(buf), ..range }, fua, lanes, cx);
}

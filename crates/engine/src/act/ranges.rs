// SPDX-License-Identifier: MIT OR Apache-2.0
//! Discards and long zeroes: whole blocks without payload, of any length, so they are cut bit by
//! bit.
//!
//! A client may ask for all of a disk at once. For 8 TiB that would be eight million pieces, of
//! some hundred bytes and an I/O each. While there are more than some hundreds, each lock of
//! anybody takes longer to find ([`crate::organ::locks`]).
//!
//! Invariant: there are [`crate::coordinator::RANGE_PIECES_MAX`] of them and a step's more at most.
//! A client that asked for little doesn't wait for one that asked for much (test:
//! `long_ranges_have_a_bound`), nor for another origin ([`crate::organ::places`]).

use crate::act::answer::part_done;
use crate::act::request::split;
use crate::coordinator::Coordinator;
use crate::cx::Cx;
use crate::fact::types::SECTOR_BYTES;
use crate::lanes::Lanes;
use crate::organ::active::Range;
use crate::organ::piece::PieceKind;

/// Cut off at a time, before the next one has its turn.
const STEP_SECTORS: u64 = (16 << 20) / SECTOR_BYTES;

/// Takes whole blocks of a range; the request has one more part until all are cut.
pub(crate) fn take_range(
    coordinator: &mut Coordinator,
    request: usize,
    range: Range,
    kind: PieceKind,
    fua: bool,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    coordinator.requests[request].hold();
    coordinator.ranges.wait(range.origin, (request, range, kind, fua));
    ranges_step(coordinator, lanes, cx);
}

/// Cuts them, each in its turn.
pub(crate) fn ranges_step(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    while let Some((request, range, kind, fua)) = coordinator.ranges.next() {
        let sectors = range.sectors.min(STEP_SECTORS - range.lba % STEP_SECTORS);
        split(coordinator, request, Range { sectors, ..range }, kind, fua, true, lanes, cx);
        if sectors < range.sectors {
            let rest = Range { lba: range.lba + sectors, sectors: range.sectors - sectors, ..range };
            coordinator.ranges.wait(range.origin, (request, rest, kind, fua));
        } else {
            part_done(coordinator, request, None, cx);
        }
    }
}

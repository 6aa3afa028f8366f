// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints to the memory: what of the engine's tables, and of its copies, will be looked at soon.
//!
//! Nothing depends on them but time: a look into a large table waits for main memory otherwise.

use crate::cx::Cx;
use crate::fact::memory::{Memory, Span};
use crate::fact::types::{BLOCK_BYTES, Key};
use crate::lane::Lane;
use crate::organ::index::Flat;
use crate::organ::piece::{Piece, PieceKind};

/// Cache lines of tables that are fetched ahead for a piece: what a processor can wait for at once.
const EXPECTED_BLOCKS_MAX: u64 = 16;

/// Asks for what will be looked at for a piece. It comes from main memory, and is needed when
/// all that was taken with this request is.
pub(crate) fn expect(lane: &Lane, piece: &Piece, mem: &dyn Memory) {
    let flats = piece.first.0..piece.end().0.min(piece.first.0 + EXPECTED_BLOCKS_MAX);
    flats.clone().for_each(|flat| mem.expect(lane.store.index().looks_at(Flat(flat))));
    if piece.kind == PieceKind::Write {
        expect_missed(lane, flats, mem);
    }
}

/// Asks for what the policy remembers of blocks that are not in the cache. Of reads only those
/// that miss do, so that hits don't pay for it (3 %).
pub(crate) fn expect_missed(lane: &Lane, flats: core::ops::Range<u64>, mem: &dyn Memory) {
    let ahead = flats.take(EXPECTED_BLOCKS_MAX as usize);
    ahead.filter_map(|flat| lane.policy.looks_at(flat)).for_each(|word| mem.expect(word));
}

/// Asks for what will be copied from the RAM front. Of the next block that is its payload. Of the
/// one after it that is what says where it is. `ahead` is that block and its slot, for the next
/// call.
pub(crate) fn expect_copies(
    lane: &Lane,
    ahead: &mut Option<(Flat, u32)>,
    next: Option<Flat>,
    after: Option<Flat>,
    mem: &dyn Memory,
) {
    let look = |flat: Flat| lane.store.get(flat).map(|found| (flat, found.slot));
    let known = ahead.filter(|(flat, _)| next == Some(*flat));
    if let Some((_, slot)) = known.or_else(|| next.and_then(look))
        && let Some((buf, offset)) = lane.ram_front.peek(slot)
    {
        mem.expect_payload(Span::new(buf, offset, BLOCK_BYTES as u32));
    }
    *ahead = after.and_then(look);
    if let Some(set) = ahead.and_then(|(_, slot)| lane.ram_front.looks_at(slot)) {
        mem.expect(set);
    }
}

/// The index will be asked for this block: its place is fetched meanwhile, else each entry
/// waits for RAM.
pub(crate) fn expect_key(lane: &Lane, key: Key, cx: &Cx<'_>) {
    if let Some(flat) = cx.facts.flat(key) {
        cx.mem.expect(lane.store.index().looks_at(flat));
    }
}

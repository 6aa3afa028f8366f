// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of cached blocks that the origin answers, because the cache device is slower at the moment (`congestion`).
//!
//! Only clean blocks: of dirty ones the origin has an older version (canary `congested-dirty`). The piece's lock keeps them clean. An
//! origin that fails is no harm, nor one that has something else than what is cached: then that is read from the cache device after all
//! (test: `hits_survive_a_broken_origin`). An origin that hangs is waited for.

use smallvec::smallvec;

use crate::canary::Canary;
use crate::commit::Place;
use crate::congestion::Taken;
use crate::index::{Flat, Found};
use crate::io::{DeviceError, Op, RequestError};
use crate::lane::{Lane, LaneIo, SlotsRead};
use crate::memory::Span;
use crate::shared::{Cx, blocks_span};
use crate::types::BLOCK_BYTES;

/// Blocks of a read piece that take the detour.
pub(crate) struct Detoured {
    pub(crate) piece: usize,
    /// First block of the piece, and how many.
    at: u32,
    blocks: u32,
    taken: Taken,
}

impl Lane {
    fn may_detour(&self, found: Found, cx: &Cx<'_>) -> bool {
        (!found.dirty || cx.shared.planted(Canary::CongestedDirty)) && self.on_device(found.slot)
    }

    /// Whether a cached block should be read from the origin: then what the cache device is expected to take.
    pub(crate) fn detour(&self, found: Found, flat: Flat, cx: &Cx<'_>) -> Option<u64> {
        let origin = &cx.shared.origins[cx.shared.origin_of(flat)];
        cx.shared.gauge.read_past(&origin.gauge, cx.now).filter(|_| self.may_detour(found, cx))
    }

    /// Whether the block behind one that takes the detour goes along.
    pub(crate) fn shared_by_detour(&mut self, flat: Flat, cx: &Cx<'_>) -> bool {
        let along = self.index.get(flat).is_some_and(|found| self.may_detour(found, cx));
        if along {
            self.index.touch(flat);
        }
        along
    }

    pub(crate) fn read_detour(&mut self, at: usize, block: u32, blocks: u32, instead_of_ns: u64, cx: &mut Cx<'_>) {
        let origin = cx.shared.origin_of(self.pieces[at].first);
        let taken = cx.shared.detour_began(origin, instead_of_ns, cx.now);
        cx.shared.counters.bypassed_congested_blocks += u64::from(blocks);
        cx.shared.counters.read_misses += u64::from(blocks);
        self.ask_origin(at, block, blocks, LaneIo::Detour(Detoured { piece: at, at: block, blocks, taken }), cx);
    }

    pub(crate) fn detour_done(&mut self, read: &Detoured, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let &Detoured { piece: at, at: from, blocks, taken } = read;
        let origin = cx.shared.origin_of(self.pieces[at].first);
        cx.shared.origins[origin].client_read_ended(result.is_ok().then_some(blocks), cx.now);
        cx.shared.origins[origin].gauge.detour.ended(taken, result.is_ok(), cx.now);
        self.pieces[at].pending -= 1;
        if let Err(error) = result {
            let first = Flat(self.pieces[at].first.0 + u64::from(from));
            cx.origin_failed(Op::Read, first, u64::from(blocks), error);
        }
        for block in from..from + blocks {
            if result.is_err() || !self.is_as_cached(at, block, cx) {
                self.read_after_all(at, block, cx);
            }
        }
        self.read_step(at, cx);
    }

    /// Whether the origin has what is cached. If it was changed behind our back, clients must not see now the one and now the other.
    fn is_as_cached(&self, at: usize, block: u32, cx: &Cx<'_>) -> bool {
        let piece = &self.pieces[at];
        let flat = Flat(piece.first.0 + u64::from(block));
        let buf = piece.buf.expect("a read has a buffer");
        let sum = cx.shared.checksum(cx.mem, flat, blocks_span(buf, piece.buf_block + block, 1));
        let same = self.index.get(flat).is_none_or(|found| found.checksum == self.index.kept(sum));
        same || cx.shared.planted(Canary::CongestedDirty)
    }

    /// The origin failed, or has something else: a block is read from where it is cached, if it still is.
    fn read_after_all(&mut self, at: usize, block: u32, cx: &mut Cx<'_>) {
        let piece = &mut self.pieces[at];
        let (flat, buf_block) = (Flat(piece.first.0 + u64::from(block)), piece.buf_block);
        let Some(found) = self.index.get(flat) else {
            piece.error = Some(RequestError::Io);
            return;
        };
        if let Place::Ram(from, offset) = self.place(found.slot) {
            let buf = self.pieces[at].buf.expect("a read has a buffer");
            cx.mem.copy(Span::new(from, offset, BLOCK_BYTES as u32), buf, (buf_block + block) * BLOCK_BYTES as u32);
            return;
        }
        let device = self.holder(flat, cx);
        let checksums = smallvec![found.checksum];
        self.read_slots(SlotsRead { piece: at, at: block, slot: found.slot, checksums, device }, cx);
    }
}

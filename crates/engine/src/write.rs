// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes into the cache: merge what is written in part, append to the log, acknowledge.
//!
//! A block written in part is first completed from its newest copy, while the piece holds its
//! exclusive lock. A piece that finds no room in the log waits; it holds its lock, but nothing
//! that makes room (destage, reclaim) needs a lock.

use core::ops::Range;

use crate::commit::log::Place;
use crate::cx::{Cx, blocks_span};
use crate::index::{Flat, Found};
use crate::io::{DeviceError, DeviceId, Op, RequestError};
use crate::lane::Lane;
use crate::memory::{Buf, Span};
use crate::organ::flying::{LaneIo, Source};
use crate::organ::measured::Measured;
use crate::organ::waiter::{Wait, Waiter};
use crate::piece::PieceKind;
use crate::places::Places;
use crate::types::BLOCK_BYTES;

const BLOCK: u32 = BLOCK_BYTES as u32;
impl Lane {
    pub(crate) fn start_write(&mut self, at: usize, cx: &mut Cx<'_>) {
        self.merge(at, cx);
    }

    /// Completes the first and the last block from their old content.
    pub(crate) fn merge(&mut self, at: usize, cx: &mut Cx<'_>) {
        let (head, tail, last) = {
            let piece = &self.pieces[at];
            (piece.head(), piece.tail(), piece.blocks - 1)
        };
        if head + tail > 0 {
            let first = self.pieces[at].first;
            let origin = cx.shared.origin_of(first);
            let in_part = [(head, first), (tail, Flat(first.0 + u64::from(last)))];
            let missed = in_part.iter().any(|(sectors, flat)| *sectors > 0 && self.index.get(*flat).is_none());
            let merges = if missed { &mut self.merges } else { &mut self.cache_merges };
            if !merges.is_left(origin) {
                merges.wait(origin, at);
                return;
            }
        }
        // One extra count, so that a merge from RAM doesn't end the phase before all are begun.
        self.pieces[at].pending += 1;
        if head > 0 || (tail > 0 && last == 0) {
            self.merge_block(at, 0, cx);
        }
        if tail > 0 && last > 0 {
            self.merge_block(at, last, cx);
        }
        self.pieces[at].pending -= 1;
        self.merge_step(at, cx);
    }

    fn merge_block(&mut self, at: usize, block: u32, cx: &mut Cx<'_>) {
        let flat = Flat(self.pieces[at].first.0 + u64::from(block));
        let found = self.index.get(flat);
        if let Some(found) = found
            && let Place::Ram(from, offset) = self.place(found.slot)
        {
            self.fill_around(at, block, from, offset, cx);
            return;
        }
        self.pieces[at].pending += 1;
        let places = if found.is_some() { Source::Cache } else { Source::Origin };
        self.merges_of(places).take(cx.shared.origin_of(flat));
        let buf = cx.alloc(1);
        let from = found.map(|found| (found, self.holder(flat, cx)));
        let io = self.ios.insert(LaneIo::Merge { piece: at, block, buf, from, places });
        if let Some((found, device)) = from {
            self.log.segment_of(found.slot).pins += 1;
            let offset = cx.shared.superblock.slot_offset(self.id as u32, found.slot);
            cx.io(self.id, io, device, Op::Read, offset, Some(blocks_span(buf, 0, 1)));
        } else {
            self.merge_from_origin(flat, buf, io, cx);
        }
    }

    fn merges_of(&mut self, places: Source) -> &mut Places<usize> {
        match places {
            Source::Origin => &mut self.merges,
            Source::Cache => &mut self.cache_merges,
        }
    }

    fn merge_from_origin(&mut self, flat: Flat, buf: Buf, io: usize, cx: &mut Cx<'_>) {
        let (device, offset, len) = cx.origin_range(flat, 1);
        let origin = cx.shared.origin_of(flat);
        cx.shared.measure(Measured::OriginMergeBegan { origin }, cx.now);
        cx.mem.zero(blocks_span(buf, 0, 1));
        cx.io(self.id, io, device, Op::Read, offset, Some(Span::new(buf, 0, len as u32)));
    }

    #[expect(clippy::too_many_arguments, reason = "it is the fields of an I/O")]
    pub(crate) fn merge_done(
        &mut self,
        at: usize,
        block: u32,
        buf: Buf,
        from: Option<(Found, DeviceId)>,
        places: Source,
        result: Result<(), DeviceError>,
        cx: &mut Cx<'_>,
    ) {
        let flat = Flat(self.pieces[at].first.0 + u64::from(block));
        let mut failed = result.is_err();
        if from.is_none() {
            let origin = cx.shared.origin_of(flat);
            cx.shared.origins[origin].gauge.merges.ended(cx.now, 0);
        }
        if let Some((found, device)) = from {
            self.log.segment_of(found.slot).pins -= 1;
            let sum = cx.shared.checksum(cx.mem, flat, blocks_span(buf, 0, 1));
            if failed || self.index.kept(sum) != found.checksum {
                let Some(result) = self.try_other(flat, found.slot, device, result, cx) else {
                    self.log.segment_of(found.slot).pins += 1;
                    let device = self.holder(flat, cx);
                    let from = Some((found, device));
                    let io = self.ios.insert(LaneIo::Merge { piece: at, block, buf, from, places });
                    let offset = cx.shared.superblock.slot_offset(self.id as u32, found.slot);
                    cx.io(self.id, io, device, Op::Read, offset, Some(blocks_span(buf, 0, 1)));
                    return;
                };
                if !self.damaged(flat, found.slot, result, cx) {
                    let io = self.ios.insert(LaneIo::Merge { piece: at, block, buf, from: None, places });
                    self.merge_from_origin(flat, buf, io, cx);
                    return;
                }
                failed = true;
            }
        } else if let Err(error) = result {
            cx.origin_failed(Op::Read, flat, 1, error);
        }
        if failed {
            self.pieces[at].error = Some(RequestError::Io);
        } else {
            self.fill_around(at, block, buf, 0, cx);
        }
        cx.free(buf, 1);
        self.merges_of(places).give_back(cx.shared.origin_of(flat), 1);
        self.pieces[at].pending -= 1;
        self.merge_step(at, cx);
        while let Some(next) = self.merges_of(places).next() {
            self.merge(next, cx);
        }
    }

    /// Copies the parts of a block that the piece does not write into the request's buffer.
    fn fill_around(&mut self, at: usize, block: u32, from: Buf, offset: u32, cx: &mut Cx<'_>) {
        let piece = &self.pieces[at];
        let (buf, start) = (piece.buf.expect("a write has a buffer"), (piece.buf_block + block) * BLOCK);
        let (head, tail, last) = (piece.head(), piece.tail(), piece.blocks - 1);
        if block == 0 && head > 0 {
            cx.mem.copy(Span::new(from, offset, head), buf, start);
        }
        if block == last && tail > 0 {
            let kept = BLOCK - tail;
            cx.mem.copy(Span::new(from, offset + kept, tail), buf, start + kept);
        }
    }

    fn merge_step(&mut self, at: usize, cx: &mut Cx<'_>) {
        let piece = &mut self.pieces[at];
        if piece.pending > 0 {
            return;
        }
        if piece.error.is_some() {
            self.finish(at, cx);
            return;
        }
        piece.completed = true;
        match piece.kind {
            PieceKind::Write => {
                if self.awaiting_room.is_empty() {
                    self.append_piece(at, cx);
                } else {
                    self.awaiting_room.push_back(at);
                }
            }
            _ => self.clear_way(at, cx),
        }
    }

    /// Appends what is left of a piece; false if it has to wait for room.
    fn append_piece(&mut self, at: usize, cx: &mut Cx<'_>) -> bool {
        if cx.shared.cache_failed {
            // To the origin, then; as a whole, though a part of it may be in the open commit
            // already.
            let piece = &mut self.pieces[at];
            piece.kind = PieceKind::Direct;
            let reserved = core::mem::take(&mut piece.reserved);
            cx.shared.give_back_reserved(piece.first, reserved);
            self.clear_way(at, cx);
            return true;
        }
        while self.pieces[at].next < self.pieces[at].blocks {
            let piece = &self.pieces[at];
            let flat = Flat(piece.first.0 + u64::from(piece.next));
            let span = blocks_span(piece.buf.expect("a write has a buffer"), piece.buf_block + piece.next, 1);
            let found = self.index.get(flat);
            if !self.append_write(flat, found, span, cx) {
                if !self.awaiting_room.contains(&at) {
                    self.awaiting_room.push_back(at);
                }
                return false;
            }
            let counters = &mut cx.shared.counters;
            *(if found.is_some() { &mut counters.write_hits } else { &mut counters.write_misses }) += 1;
            let piece = &mut self.pieces[at];
            piece.next += 1;
            if piece.reserved > 0 {
                piece.reserved -= 1;
                cx.shared.give_back_reserved(flat, 1);
            }
        }
        // From here on the blocks are in the log's order: later requests need not wait for ours.
        self.unlock(at);
        if !self.pieces[at].durable || self.await_durable(Waiter::Piece(at), cx) == Wait::Durable {
            self.finish(at, cx);
        }
        true
    }

    /// Whether a write to these places waits for room in the log.
    pub(crate) fn awaits_room_at(&self, places: &Range<u64>) -> bool {
        self.awaiting_room.iter().any(|at| places.contains(&self.pieces[*at].first.0))
    }

    /// An origin refuses what fills the log: its writes don't wait for room any more.
    pub(crate) fn give_up_room(&mut self, places: &Range<u64>, error: RequestError, cx: &mut Cx<'_>) {
        for at in core::mem::take(&mut self.awaiting_room) {
            if places.contains(&self.pieces[at].first.0) {
                self.fail(at, error, cx);
            } else {
                self.awaiting_room.push_back(at);
            }
        }
    }

    /// Lets waiting pieces go on, as far as there is room.
    pub(crate) fn resume_awaiting_room(&mut self, cx: &mut Cx<'_>) {
        while let Some(&at) = self.awaiting_room.front() {
            let appended = self.append_piece(at, cx);
            if !appended && !self.full_of_lost(cx) {
                return;
            }
            self.awaiting_room.pop_front();
            if !appended {
                // An error is better than to wait for ever.
                self.fail(at, RequestError::Io, cx);
            }
        }
    }
}

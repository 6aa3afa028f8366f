// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads: from RAM, from the cache device, from the origin; then promotion of what missed.
//!
//! A hit is read straight into the request's buffer and verified there before the reply
//! (invariant 5: `corruption_never_leaves`). A corrupt clean block is dropped and read from the
//! origin; a corrupt dirty block is an error for that block, and is listed as lost.

use smallvec::smallvec;

use crate::canary::Canary;
use crate::commit::log::Place;
use crate::cx::{Cx, blocks_span};
use crate::event::Event;
use crate::format::Stream;
use crate::index::{Flat, Found};
use crate::io::{DeviceError, DeviceId, Op, RequestError};
use crate::lane::Lane;
use crate::memory::{Memory, Span};
use crate::mirror::Copies;
use crate::organ::flying::{LaneIo, SlotsRead};
use crate::organ::measured::Measured;
use crate::organ::members::device;
use crate::organ::under_way::Reading;
use crate::types::{BLOCK_BYTES, Mode};

impl Lane {
    /// The copy of a block in the window, and whether it came along and is asked for for the first
    /// time.
    fn waiting(&mut self, flat: Flat, past: bool) -> Option<(Span, bool)> {
        if past { None } else { self.window.read(flat, &mut *self.policy) }
    }

    /// Asks for what will be copied from the RAM front: of the next block its payload, of the one
    /// after it what says where that is. `ahead` is that one and its slot, for the next call.
    pub(crate) fn expect_copies(
        &self,
        ahead: &mut Option<(Flat, u32)>,
        next: Option<Flat>,
        after: Option<Flat>,
        mem: &dyn Memory,
    ) {
        let look = |flat: Flat| self.index.get(flat).map(|found| (flat, found.slot));
        let known = ahead.filter(|(flat, _)| next == Some(*flat));
        if let Some((_, slot)) = known.or_else(|| next.and_then(look))
            && let Some((buf, offset)) = self.ram_front.peek(slot)
        {
            mem.expect_payload(Span::new(buf, offset, BLOCK_BYTES as u32));
        }
        *ahead = after.and_then(look);
        if let Some(set) = ahead.and_then(|(_, slot)| self.ram_front.looks_at(slot)) {
            mem.expect(set);
        }
    }

    pub(crate) fn start_read(&mut self, at: usize, cx: &mut Cx<'_>) {
        let (first, blocks, buf_block) = (self.pieces[at].first, self.pieces[at].blocks, self.pieces[at].buf_block);
        let buf = self.pieces[at].buf.expect("a read has a buffer");
        let past = cx.shared.origins[cx.shared.origin_of(first)].mode == Mode::Passthrough;
        // What is clean is not read from the cache then.
        let readable = |found: Found| found.dirty || !past;
        let (mut block, mut ahead) = (0, None);
        while block < blocks {
            let flat = Flat(first.0 + u64::from(block));
            let Some(found) = self.index.hit(flat, readable) else {
                if let Some((copy, first)) = self.waiting(flat, past) {
                    cx.shared.counters.read_hits += 1;
                    cx.shared.counters.ram_hits += 1;
                    cx.mem.copy(copy, buf, (buf_block + block) * BLOCK_BYTES as u32);
                    if first && !self.pieces[at].bypass {
                        self.settle(flat, copy, cx);
                    }
                    block += 1;
                    continue;
                }
                let from = block;
                block += 1;
                while block < blocks {
                    let next = Flat(first.0 + u64::from(block));
                    if self.index.get(next).is_some_and(readable) || self.window.holds(next) {
                        break;
                    }
                    block += 1;
                }
                self.pieces[at].add_missed((from, block - from));
                if !self.pieces[at].bypass {
                    self.expect_missed(first.0 + u64::from(from)..first.0 + u64::from(block), cx.mem);
                }
                self.read_missed(at, from, block - from, cx);
                continue;
            };
            if let Some(instead_of_ns) = self.detour(found, flat, cx) {
                block += self.read_detour(at, block, found, blocks - block, instead_of_ns, cx);
                continue;
            }
            cx.shared.counters.read_hits += 1;
            if let Place::Ram(buffer, offset) = self.place(found.slot) {
                cx.shared.counters.ram_hits += 1;
                if block + 1 < blocks && !self.ram_front.is_none() {
                    let after = (block + 2 < blocks).then_some(Flat(flat.0 + 2));
                    self.expect_copies(&mut ahead, Some(Flat(flat.0 + 1)), after, cx.mem);
                }
                let from = Span::new(buffer, offset, BLOCK_BYTES as u32);
                cx.mem.copy(from, buf, (buf_block + block) * BLOCK_BYTES as u32);
                block += 1;
                continue;
            }
            let (mut checksums, device) = (smallvec![found.checksum], self.holder(flat, cx));
            let from = block;
            block += 1;
            while block < blocks {
                let flat = Flat(first.0 + u64::from(block));
                let next =
                    self.index.get(flat).filter(|next| readable(*next) && next.slot == found.slot + (block - from));
                let Some(next) = next.filter(|next| self.on_device(next.slot)) else { break };
                if self.holder(flat, cx) != device {
                    break;
                }
                self.index.touch(flat);
                cx.shared.counters.read_hits += 1;
                checksums.push(next.checksum);
                block += 1;
            }
            self.read_slots(SlotsRead { piece: at, at: from, slot: found.slot, checksums, device }, cx);
        }
        self.read_step(at, cx);
    }

    pub(crate) fn read_slots(&mut self, read: SlotsRead, cx: &mut Cx<'_>) {
        self.log.segment_of(read.slot).pins += 1;
        let piece = &mut self.pieces[read.piece];
        piece.pending += 1;
        let buf = piece.buf.expect("a read has a buffer");
        let read_blocks = read.checksums.len() as u64;
        let span = blocks_span(buf, piece.buf_block + read.at, read_blocks as u32);
        let offset = cx.shared.superblock.slot_offset(self.id as u32, read.slot);
        let device = read.device;
        let io = self.ios.insert(LaneIo::ReadCache(read));
        cx.shared.measure(Measured::CacheReadBegan { blocks: read_blocks }, cx.now);
        cx.io(self.id, io, device, Op::Read, offset, Some(span));
    }

    /// Which member of a mirrored cache a block is read from.
    pub(crate) fn holder(&self, flat: Flat, cx: &Cx<'_>) -> DeviceId {
        match cx.shared.members.other() {
            Some(other) if self.elsewhere.get(&flat).is_some_and(|copies| *copies != Copies::OfLead) => device(other),
            _ => cx.lead(),
        }
    }

    /// How many dirty blocks only the lead of two members has, as far as is known.
    pub(crate) fn only_on_lead(&self) -> u64 {
        self.elsewhere.values().filter(|copies| **copies == Copies::OfLead).count() as u64
    }

    /// Whether the lead can't be read where a dirty block is.
    pub(crate) fn reads_elsewhere(&self) -> bool {
        self.elsewhere.values().any(|copies| *copies != Copies::OfLead)
    }

    /// A block could not be read from a member, or is not what it should be there (`Ok`). `None`:
    /// there is another copy to try. Else what is known of it: that it can't be read now, or that
    /// no copy is what it should be.
    pub(crate) fn try_other(
        &mut self,
        flat: Flat,
        slot: u32,
        from: DeviceId,
        result: Result<(), DeviceError>,
        cx: &mut Cx<'_>,
    ) -> Option<Result<(), DeviceError>> {
        if self.index.get(flat).is_none_or(|found| !found.dirty || found.slot != slot) {
            return Some(result);
        }
        match cx.shared.members.other() {
            // Else the lead is another one by now.
            None => (from == cx.lead()).then_some(result),
            Some(other) if from == device(other) => match (self.elsewhere.get(&flat), result) {
                (Some(Copies::Rotten), _) => Some(result),
                // The lead couldn't read it, which may pass (test:
                // `a_mirror_that_lacks_a_block_does_not_hide_it`).
                (_, Ok(())) => {
                    self.elsewhere.insert(flat, Copies::OfLead);
                    Some(Err(DeviceError::Io))
                }
                (_, Err(_)) => {
                    self.elsewhere.remove(&flat);
                    Some(result)
                }
            },
            Some(_) if self.elsewhere.get(&flat) == Some(&Copies::OfLead) => Some(result),
            Some(_) => {
                let copies = if result.is_ok() { Copies::Rotten } else { Copies::Unreadable };
                if self.elsewhere.insert(flat, copies).is_none() {
                    // What has one sound copy should soon have one on the origin.
                    self.urgent.insert(flat);
                    let key = cx.shared.key(flat);
                    cx.event(Event::ReadFromMirror { key });
                }
                None
            }
        }
    }

    pub(crate) fn read_origin(&mut self, at: usize, block: u32, blocks: u32, cx: &mut Cx<'_>) {
        let first = Flat(self.pieces[at].first.0 + u64::from(block));
        let read = self.under_way.begin(Reading::new(at, first, blocks));
        self.ask_origin(at, block, blocks, LaneIo::ReadOrigin { read }, cx);
    }

    /// Reads blocks of a piece from the origin, for this.
    pub(crate) fn ask_origin(&mut self, at: usize, block: u32, blocks: u32, what: LaneIo, cx: &mut Cx<'_>) {
        let piece = &mut self.pieces[at];
        piece.pending += 1;
        piece.from_origin = true;
        let first = Flat(piece.first.0 + u64::from(block));
        let (device, offset, len) = cx.origin_range(first, u64::from(blocks));
        let buf = piece.buf.expect("a read has a buffer");
        let whole = blocks_span(buf, piece.buf_block + block, blocks);
        if len < u64::from(whole.len) {
            // The origin ends inside this block: what is behind its end reads as zeroes.
            cx.mem.zero(Span::new(buf, whole.offset() + len as u32, whole.len - len as u32));
        }
        let io = self.ios.insert(what);
        let origin = cx.shared.origin_of(first);
        let end = first.0 + u64::from(blocks);
        cx.shared.measure(Measured::OriginReadBegan { origin, first: first.0, end }, cx.now);
        cx.io(self.id, io, device, Op::Read, offset, Some(Span::new(buf, whole.offset(), len as u32)));
    }

    pub(crate) fn read_origin_done(&mut self, read: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let (read, waiting) = self.under_way.end(read);
        let at = read.piece();
        let piece = &mut self.pieces[at];
        let origin = cx.shared.origin_of(piece.first);
        let blocks = result.is_ok().then_some(read.blocks());
        cx.shared.measure(Measured::OriginReadEnded { origin, blocks }, cx.now);
        piece.pending -= 1;
        if let Err(error) = result {
            piece.error = Some(RequestError::Io);
            cx.origin_failed(Op::Read, read.first(), u64::from(read.blocks()), error);
        } else if !waiting.is_empty() {
            // Before the piece ends: with it goes its buffer.
            let ahead = (read.first().0 - piece.first.0) as u32;
            let (buf, buf_block) = (piece.buf.expect("a read has a buffer"), piece.buf_block + ahead);
            self.share(&read, &waiting, buf, buf_block, cx);
        }
        self.read_step(at, cx);
        self.go_on(&read, waiting, result.is_ok(), cx);
    }

    pub(crate) fn read_cache_done(&mut self, read: &SlotsRead, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let &SlotsRead { piece: at, at: block, slot, ref checksums, device } = read;
        self.log.segment_of(slot).pins -= 1;
        cx.shared.measure(Measured::CacheReadEnded { sound: result.is_ok() }, cx.now);
        let piece = &mut self.pieces[at];
        piece.pending -= 1;
        let (first, buf_block) = (piece.first, piece.buf_block);
        let buf = piece.buf.expect("a read has a buffer");
        for (nth, &expected) in checksums.iter().enumerate() {
            let block = block + nth as u32;
            let flat = Flat(first.0 + u64::from(block));
            let span = blocks_span(buf, buf_block + block, 1);
            let same = self.index.kept(cx.shared.checksum(cx.mem, flat, span)) == expected;
            if result.is_ok() && (same || cx.shared.planted(Canary::ChecksumIgnored)) {
                if !cx.shared.lost.is_empty() {
                    self.found_again(flat, slot + nth as u32, cx);
                }
                if let Some((front, offset)) = self.ram_front.take(slot + nth as u32, cx) {
                    cx.mem.copy(span, front, offset);
                }
                continue;
            }
            let slot = slot + nth as u32;
            match self.try_other(flat, slot, device, result, cx) {
                None => {
                    let (device, checksums) = (self.holder(flat, cx), smallvec![expected]);
                    self.read_slots(SlotsRead { piece: at, at: block, slot, checksums, device }, cx);
                }
                Some(result) if self.damaged(flat, slot, result, cx) => self.pieces[at].error = Some(RequestError::Io),
                Some(_) => self.read_origin(at, block, 1, cx),
            }
        }
        self.read_step(at, cx);
    }

    /// A block of the cache device could not be read, or is not what was written there. Returns
    /// whether its data is lost; otherwise the origin has it.
    pub(crate) fn damaged(&mut self, flat: Flat, slot: u32, result: Result<(), DeviceError>, cx: &mut Cx<'_>) -> bool {
        // A block that has left this slot since was clean: its data is on the origin. (Who rewrites
        // it waits for this reader, and reclaim moves no dirty one while anybody reads from its
        // segment.)
        let Some(found) = self.index.get(flat).filter(|found| found.slot == slot) else { return false };
        if let Err(error) = result {
            let offset = cx.shared.superblock.slot_offset(self.id as u32, slot);
            cx.event(Event::DeviceFailed { device: self.holder(flat, cx), op: Op::Read, offset, error });
        } else {
            cx.shared.counters.corrupt_blocks += 1;
            let key = cx.shared.key(flat);
            cx.event(Event::Corrupt { key, dirty: found.dirty });
        }
        if found.dirty {
            // What can't be read now may be readable again; destage finds out.
            if result.is_ok() {
                self.lose(flat, slot, cx);
            }
            return true;
        }
        self.unmap(flat, cx);
        self.record_dropped(flat, cx);
        false
    }

    /// A dirty block is lost, if it is still in that slot: until it is written anew, or can be read
    /// after all.
    pub(crate) fn lose(&mut self, flat: Flat, slot: u32, cx: &mut Cx<'_>) {
        if self.index.get(flat).is_some_and(|found| found.dirty && found.slot == slot) {
            let origin = cx.shared.origin_of(flat);
            let volatile = self.log.last_seq_of([slot].into_iter()) > self.log.durable_seq;
            cx.shared.origins[origin].flush.note_lost(volatile);
            cx.shared.lost.insert(flat);
            self.urgent.remove(&flat);
        }
    }

    /// A block was read soundly from that slot: if it was lost, it no longer is.
    pub(crate) fn found_again(&mut self, flat: Flat, slot: u32, cx: &mut Cx<'_>) {
        if self.index.get(flat).is_some_and(|found| found.slot == slot) && cx.shared.lost.remove(&flat) {
            self.suspect.remove(&flat);
            self.urgent.insert(flat);
        }
    }

    pub(crate) fn read_step(&mut self, at: usize, cx: &mut Cx<'_>) {
        if self.pieces[at].pending > 0 {
            return;
        }
        if self.pieces[at].error.is_none() && !self.pieces[at].bypass {
            for (block, blocks) in self.pieces[at].take_missed() {
                (block..block + blocks).for_each(|block| self.promote(at, block, cx));
            }
        }
        self.finish(at, cx);
    }

    /// Puts a block that was read from the origin into the cache, if the policy wants it and it
    /// doesn't have to wait.
    fn promote(&mut self, at: usize, block: u32, cx: &mut Cx<'_>) {
        let piece = &self.pieces[at];
        let flat = Flat(piece.first.0 + u64::from(block));
        let span = blocks_span(piece.buf.expect("a read has a buffer"), piece.buf_block + block, 1);
        // Somebody else may have missed it, too, and been first.
        if self.index.get(flat).is_some() && !cx.shared.planted(Canary::FillOverNewer) {
            self.index.touch(flat);
            return;
        }
        match self.window.read(flat, &mut *self.policy) {
            None => self.offer(flat, span, cx),
            Some((_, true)) => self.settle(flat, span, cx),
            Some((_, false)) => {}
        }
    }

    /// Asks the policy about a neighbour in the window, whose first reader has come.
    fn settle(&mut self, flat: Flat, span: Span, cx: &mut Cx<'_>) {
        if let Err(seen) = self.admit(flat, span, cx) {
            self.window.settle(flat, seen);
        }
    }

    /// Offers the policy a clean block that is not in the cache; it doesn't wait for room.
    pub(crate) fn offer(&mut self, flat: Flat, span: Span, cx: &mut Cx<'_>) {
        if let Err(seen) = self.admit(flat, span, cx) {
            self.window.put(flat, seen, span, &mut *self.policy, cx);
        }
    }

    /// Puts it into the cache, or says how often it was seen if it is not admitted.
    fn admit(&mut self, flat: Flat, span: Span, cx: &mut Cx<'_>) -> Result<(), u8> {
        let verdict = self.policy.missed(flat.0, self.has_room_for_missed());
        let affordable = !verdict.admit || cx.shared.budget.as_mut().is_none_or(|budget| budget.allows(cx.now));
        cx.shared.counters.over_budget_blocks += u64::from(!affordable);
        let origin = &cx.shared.origins[cx.shared.origin_of(flat)];
        let unfit = origin.flush.is_overdue() || cx.shared.gauge.reads_congested(&origin.gauge, cx.now).is_some();
        if verdict.admit && affordable && !unfit && self.append_clean(Stream::Promoted, flat, 0, span, cx) {
            cx.shared.counters.promoted_blocks += 1;
            return Ok(());
        }
        Err(if verdict.admit { self.policy.refused(verdict.seen) } else { verdict.seen })
    }
}

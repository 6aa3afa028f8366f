// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lane: an independent log with its own part of the index. What it holds, and what keeps its
//! organs in step.
//!
//! What a lane does is in the acts: `read`, `write`, `direct`, `commit`, `destage/run`, `reclaim`,
//! `checkpoint`, `recover`. Which of them comes next is decided in `turn`.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use slab::Slab;

use crate::act::checkpoint::state::Checkpoint;
use crate::act::commit::log::{Bytes, Log, Note};
use crate::act::destage::state::Run;
use crate::act::destage::versions::{forget_versions, note_version, version_found};
use crate::act::detour::state::Detours;
use crate::act::reclaim::state::Reclaim;
use crate::act::recover::state::Recovery;
use crate::act::sync::state::Sync;
use crate::cx::{Apart, Cx};
use crate::fact::canary::Canary;
use crate::fact::io::{DeviceError, RequestError};
use crate::fact::open_error::OpenError;
use crate::fact::types::Destage;
use crate::facts::Facts;
use crate::organ::cursor::Cursors;
use crate::organ::down::{Covered, FlushWish};
use crate::organ::eras::Eras;
use crate::organ::flush::FlushWaiter;
use crate::organ::flying::LaneIo;
use crate::organ::hand::Hand;
use crate::organ::index::{Flat, Found};
use crate::organ::locks::Locks;
use crate::organ::neighbours::Neighbours;
use crate::organ::piece::{Piece, PieceKind};
use crate::organ::places::Places;
use crate::organ::ram_front::RamFront;
use crate::organ::seen::Rest;
use crate::organ::segment::Segment;
use crate::organ::store::Store;
use crate::organ::trouble::Trouble;
use crate::organ::under_way::UnderWay;
use crate::organ::up::Up;
use crate::organ::waiter::{Wait, Waiter};
use crate::organ::window::RamWindow;
use crate::policy::{Capacity, Policy};

/// Blocks that are being completed at a time, each in a buffer: 1 MiB of them. The others wait, so
/// that clients with many short writes can't take more of the engine's memory than it has (test:
/// `merges_have_a_bound`).
pub(crate) const MERGING_MAX: u32 = MERGING_ORIGIN_MAX + MERGING_CACHE_MAX;
/// From the origin, and from the cache device: one that answers nothing must not stop those who
/// need the other.
pub(crate) const MERGING_ORIGIN_MAX: u32 = 192;
pub(crate) const MERGING_CACHE_MAX: u32 = 64;

/// A lane: an independent log with its own part of the index.
pub(crate) struct Lane {
    pub(crate) id: usize,
    /// The blocks that it has.
    pub(crate) store: Store,
    /// The versions that ordered destage needs, if destage is ordered.
    pub(crate) eras: Option<Box<Eras>>,
    pub(crate) locks: Locks,
    pub(crate) neighbours: Neighbours,
    pub(crate) under_way: UnderWay,
    pub(crate) detours: Detours,
    pub(crate) pieces: Slab<Piece>,
    /// Pieces whose lock was granted.
    pub(crate) ready: VecDeque<usize>,
    /// What is left for when lanes work apart: pieces that came, and clients' I/Os that ended.
    pub(crate) arrived: Vec<Piece>,
    pub(crate) ended: Vec<(usize, Result<(), DeviceError>)>,
    /// What it works on beside the other lanes.
    pub(crate) apart: Option<Box<Apart>>,
    pub(crate) ios: Slab<LaneIo>,
    pub(crate) log: Log,
    pub(crate) ram_front: RamFront,
    /// Where the piece after the next one begins, and the slot that this block had when it was
    /// looked for: a hint.
    pub(crate) ahead: Option<(Flat, u32)>,
    pub(crate) window: RamWindow,
    pub(crate) policy: Box<dyn Policy>,
    /// Blocks that are being completed from their old content, and pieces that wait for their turn
    /// to be.
    pub(crate) merges: Places<usize>,
    /// Blocks that are completed from the cache device alone, and pieces that wait for that.
    pub(crate) cache_merges: Places<usize>,
    /// Pieces that wait for room in the log, first come first served.
    pub(crate) awaiting_room: VecDeque<usize>,
    /// Pieces that wait until nothing in their range is dirty or being destaged.
    pub(crate) awaiting_clean: Vec<usize>,
    pub(crate) runs: Slab<Run>,
    /// First block -> blocks of each run, from its start until its blocks are clean.
    pub(crate) run_ranges: BTreeMap<Flat, u32>,
    /// Where destage goes on, for each origin.
    pub(crate) cursors: Cursors,
    /// What is wrong with blocks.
    pub(crate) trouble: Trouble,
    pub(crate) reclaim: Reclaim,
    pub(crate) hand: Hand,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) recovery: Option<Box<Recovery>>,
    /// Replay is over, and the lane waits for the word to go on.
    pub(crate) replayed: Option<Box<Recovery>>,
    /// A new mirror is being filled.
    pub(crate) sync: Option<Sync>,
    /// The index is to have room for so many keys, as soon as nothing walks over it.
    pub(crate) widens_to: Option<u64>,
}

impl Lane {
    pub(crate) fn new(id: usize, keys: u64, facts: &Facts) -> Result<Self, OpenError> {
        let superblock = &facts.superblock;
        let segments = superblock.segments_per_lane;
        let slots = u64::from(segments) * u64::from(superblock.segment_blocks);
        Ok(Self {
            id,
            store: Store::new(keys, slots).ok_or(OpenError::KeySpaceTooLarge)?,
            eras: (facts.options.destage == Destage::Ordered).then(Box::default),
            locks: Locks::default(),
            neighbours: Neighbours::default(),
            under_way: UnderWay::default(),
            detours: Detours::default(),
            pieces: Slab::new(),
            ready: VecDeque::new(),
            arrived: Vec::new(),
            ended: Vec::new(),
            apart: None,
            ios: Slab::new(),
            log: Log::new(superblock),
            ram_front: RamFront::new(facts.options.ram_front_bytes / u64::from(superblock.lanes)),
            ahead: None,
            window: RamWindow::new(slots, u64::from(superblock.lanes)),
            policy: (facts.options.policy.build)(Capacity {
                segments,
                segment_blocks: superblock.segment_blocks,
                stands_for: 1,
            }),
            merges: Places::new(MERGING_ORIGIN_MAX, facts.origins.len()),
            cache_merges: Places::new(MERGING_CACHE_MAX, facts.origins.len()),
            awaiting_room: VecDeque::new(),
            awaiting_clean: Vec::new(),
            runs: Slab::new(),
            run_ranges: BTreeMap::new(),
            sync: None,
            widens_to: None,
            cursors: Cursors::default(),
            trouble: Trouble::default(),
            reclaim: Reclaim::default(),
            hand: Hand::default(),
            checkpoint: Checkpoint::default(),
            recovery: None,
            replayed: None,
        })
    }

    /// There is one origin more.
    pub(crate) fn add_origin(&mut self) {
        self.merges.add_origin();
        self.cache_merges.add_origin();
        // What it works on beside other lanes is made anew.
        self.apart = None;
    }

    /// Gives the piece's lock back before the piece ends.
    pub(crate) fn unlock(&mut self, piece: usize) {
        if let Some(lock) = self.pieces[piece].lock.take() {
            self.locks.release(lock, &mut self.ready);
        }
    }

    /// Ends a piece.
    pub(crate) fn finish(&mut self, piece: usize, cx: &mut Cx<'_>) {
        self.unlock(piece);
        let it = self.pieces.remove(piece);
        debug_assert_eq!(it.pending, 0, "a piece ended with I/O in flight");
        if it.reserved > 0 {
            cx.give_back_reserved(it.first, it.reserved);
        }
        let Piece { request, error, from_origin, .. } = it;
        cx.delta.tell(if it.kind.is_range() {
            Up::RangePieceDone { request, error }
        } else {
            Up::PieceDone { request, error, from_origin }
        });
    }

    /// Ends a piece whose wait is over.
    pub(crate) fn end(&mut self, piece: usize, result: Result<(), RequestError>, cx: &mut Cx<'_>) {
        match result {
            Ok(()) => self.finish(piece, cx),
            Err(error) => self.fail(piece, error, cx),
        }
    }

    /// Gives a piece back to the coordinator that was to go past the log, and can't.
    pub(crate) fn give_back(&mut self, piece: usize, cx: &mut Cx<'_>) {
        self.unlock(piece);
        cx.delta.tell(Up::PastCongestion(Box::new(self.pieces.remove(piece))));
    }

    /// Ends a piece with an error.
    pub(crate) fn fail(&mut self, piece: usize, error: RequestError, cx: &mut Cx<'_>) {
        self.pieces[piece].fail(error);
        self.finish(piece, cx);
    }

    /// Gives up a piece that waits for something that may never come.
    pub(crate) fn give_up(&mut self, piece: usize, error: RequestError, cx: &mut Cx<'_>) {
        let request = self.pieces[piece].request;
        self.fail(piece, error, cx);
        if cx.facts.planted(Canary::CancelledAnswered) {
            cx.delta.tell(Up::PieceDone { request, error: None, from_origin: false });
        }
    }

    /// The first byte of a slot on the cache device.
    pub(crate) fn offset_of(&self, slot: u32, cx: &Cx<'_>) -> u64 {
        cx.facts.superblock.slot_offset(self.id as u32, slot)
    }

    /// Where a slot's bytes are right now.
    pub(crate) fn bytes_of(&mut self, slot: u32) -> Bytes {
        match self.log.bytes_of(slot) {
            Bytes::OnDevice => {
                self.ram_front.get(slot).map_or(Bytes::OnDevice, |(buf, offset)| Bytes::Ram(buf, offset))
            }
            ram => ram,
        }
    }

    /// Whether a slot's bytes are on the cache device only.
    pub(crate) fn on_device(&self, slot: u32) -> bool {
        self.log.bytes_of(slot) == Bytes::OnDevice && !self.ram_front.holds(slot)
    }

    /// Puts a block into the index at a new slot, with all that hangs on it. `era`: the one that
    /// needs this version, where destage is ordered.
    pub(crate) fn map(&mut self, flat: Flat, found: Found, era: u64, cx: &mut Cx<'_>) {
        self.window.forget(flat, flat.next());
        let old = self.store.put(flat, found);
        let was_dirty = old.is_some_and(|old| old.dirty);
        let held = self.eras.is_some() && note_version(self, flat, old, found, era, cx);
        match old {
            Some(old) => {
                self.log.supersede(old.slot);
                if !held {
                    self.left_slot(old);
                }
            }
            None => cx.of_origin(flat).cached.add(1),
        }
        // Of a mirror that came later nobody knows what was written before it did.
        let mirrored = self.store.is_opening() && cx.delta.members.pairing().paired == 0;
        self.log.block_came(found.slot, found.dirty, mirrored);
        match (was_dirty, found.dirty) {
            (true, true) => self.forget_trouble(flat, cx),
            (true, false) => self.not_dirty(flat, cx),
            (false, true) => {
                cx.delta.cache_reads.dirtied();
                self.count_dirty(flat, 1, cx);
            }
            (false, false) => {}
        }
    }

    /// Takes a block out of the index, with all that hangs on it.
    pub(crate) fn unmap(&mut self, flat: Flat, cx: &mut Cx<'_>) {
        let Some(old) = self.store.remove(flat) else { return };
        self.log.supersede(old.slot);
        self.left_slot(old);
        cx.of_origin(flat).cached.sub(1);
        if old.dirty {
            forget_versions(self, flat, old.slot, cx);
            self.not_dirty(flat, cx);
        }
    }

    /// A block is no longer in that slot.
    pub(crate) fn left_slot(&mut self, old: Found) {
        let slots = self.log.segment_slots();
        if let Some(live) = self.log.block_left(old.slot, old.dirty) {
            self.reclaim.sparse.fell(old.slot / slots, live, slots);
        }
    }

    /// A block is not dirty any more, or not there.
    fn not_dirty(&mut self, flat: Flat, cx: &mut Cx<'_>) {
        self.forget_trouble(flat, cx);
        self.count_dirty(flat, -1, cx);
    }

    /// What was known of a dirty version that is not the newest any more.
    fn forget_trouble(&mut self, flat: Flat, cx: &mut Cx<'_>) {
        if self.trouble.forget(flat) {
            cx.count_found(flat);
        }
    }

    /// A drain is asked for: lost blocks may be readable by now, and are tried once more. But not
    /// what is being replaced right now on the origin.
    pub(crate) fn try_lost(&mut self, cx: &mut Cx<'_>) {
        let pieces = &self.pieces;
        let changing = |flat| has_piece(pieces, flat, |kind| kind != PieceKind::Read);
        for flat in self.trouble.try_lost(changing) {
            cx.count_found(flat);
            version_found(self, flat, cx);
        }
    }

    /// Forgets clean blocks of the segments that are asked for.
    pub(crate) fn drop_clean(&mut self, of: impl Fn(&Segment) -> bool, cx: &mut Cx<'_>) {
        let slots = self.log.segment_slots();
        let lately = self.log.cleaned_lately();
        for part in 0..self.store.index().parts() {
            let mut clean = Vec::new();
            let segments = self.log.segments();
            self.store.index().scan(part, |flat, found| {
                if !found.dirty && of(&segments[(found.slot / slots) as usize]) {
                    clean.push((flat, found.slot));
                }
            });
            for (flat, slot) in clean {
                self.unmap(flat, cx);
                // As the lane opens its checkpoint says so, before anything is asked for. (A note
                // for each block of a cache would keep FLUSHes waiting for minutes.)
                if !self.store.is_opening() && (self.log.lacks(slot) || lately.contains(&flat)) {
                    // The log may still end before the commit that says that the block is clean.
                    self.record_dropped(flat, cx);
                }
            }
        }
    }

    /// The log has to say that this block is not in the cache any more.
    pub(crate) fn record_dropped(&mut self, flat: Flat, cx: &mut Cx<'_>) {
        self.trouble.drop_unrecorded(flat);
        self.log.note(Note::Dropped(flat));
        if let Wait::Over(Ok(())) = self.await_durable(Waiter::Dropped(flat), cx) {
            self.trouble.recorded(flat);
        }
    }

    /// Waits until everything appended so far is durable.
    pub(crate) fn await_durable(&mut self, waiter: Waiter, cx: &mut Cx<'_>) -> Wait {
        if cx.cache_failed() { self.without_cache(waiter, cx) } else { self.log.await_durable(waiter, cx) }
    }

    /// Finds another way for a waiter: the cache device failed. What should be durable for a client
    /// has to be on the origin.
    pub(crate) fn without_cache(&mut self, waiter: Waiter, cx: &mut Cx<'_>) -> Wait {
        match waiter {
            Waiter::Request(request) => {
                cx.delta.tell(Up::UntilDrained { waiter: FlushWaiter::Request(request), origin: None });
            }
            Waiter::Piece(piece) => {
                let origin = Some(cx.facts.origin_of(self.pieces[piece].first));
                cx.delta.tell(Up::UntilDrained { waiter: FlushWaiter::Piece(self.id, piece), origin });
            }
            _ => {}
        }
        self.log.without_cache(waiter, cx.delta.members.failure)
    }

    /// Whether the cache device should be flushed for this lane, and what such a flush would cover.
    pub(crate) fn flush_wish(&self) -> FlushWish {
        let seq = self.log.written_seq;
        let checkpoint = self.checkpoint.wish(seq);
        FlushWish { wanted: checkpoint.is_some() || self.log.wants_flush(), covers: Covered { seq, checkpoint } }
    }

    /// The number of the filling of a mirror of which the lane has done its part.
    pub(crate) fn filled(&self) -> Option<u64> {
        self.sync.as_ref().and_then(Sync::filled)
    }

    /// The lead of a mirrored cache is the other member now, which has no data of clean blocks.
    pub(crate) fn lead_changed(&mut self, cx: &mut Cx<'_>) {
        self.trouble.forget_copies();
        self.drop_clean(|segment| !segment.mirrored, cx);
    }

    /// Marks a block of the index clean.
    pub(crate) fn clean(&mut self, flat: Flat, slot: u32, cx: &mut Cx<'_>) {
        self.store.set_clean(flat);
        self.log.block_cleaned(slot);
        self.not_dirty(flat, cx);
    }

    pub(crate) fn count_dirty(&mut self, flat: Flat, change: i64, cx: &mut Cx<'_>) {
        cx.delta.count_dirty(cx.facts.origin_of(flat), change);
    }

    /// Whether a request in flight changes this block.
    pub(crate) fn is_changing(&self, flat: Flat) -> bool {
        has_piece(&self.pieces, flat, |kind| kind != PieceKind::Read)
    }

    /// Whether one changes it on its origin, or is going to.
    pub(crate) fn is_changing_on_origin(&self, flat: Flat) -> bool {
        has_piece(&self.pieces, flat, |kind| !matches!(kind, PieceKind::Read | PieceKind::Write))
    }

    /// What of the lane is at rest.
    pub(crate) fn rest(&self) -> Rest {
        Rest {
            idle: self.ios.is_empty() && self.pieces.is_empty() && self.runs.is_empty(),
            log_quiet: self.log.quiet(),
            no_checkpoint: self.checkpoint.resting(),
        }
    }

    /// Memory of the lane's tables.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.store.bytes()
            + self.eras.as_ref().map_or(0, |eras| eras.bytes())
            + self.policy.bytes()
            + self.log.bytes()
            + self.reclaim.sparse.bytes()
            + self.ram_front.bytes()
            + self.window.bytes()
            + self.neighbours.bytes()
    }
}

/// Whether a piece of such a kind covers a block.
fn has_piece(pieces: &Slab<Piece>, flat: Flat, is: impl Fn(PieceKind) -> bool) -> bool {
    let covers = |piece: &Piece| is(piece.kind) && (piece.first..piece.end()).contains(&flat);
    pieces.iter().any(|(_, piece)| covers(piece))
}

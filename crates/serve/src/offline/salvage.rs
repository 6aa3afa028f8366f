// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can still be known of a damaged lane: every header that is left, and what follows from them.
//!
//! A checkpoint with all commits after it says exactly what is in the cache, as in replay. Where a
//! commit of the stream `Writes` is missing, nobody knows which blocks it wrote: whatever is dirty and
//! older is from then on `older`: it may have been superseded, or be newer on the origin. The same
//! goes for blocks that only their commit's header speaks for, because the checkpoint is damaged.
//! Never is a block taken for current that something lost may have replaced
//! (test: `repair_of_any_damage_serves_only_what_is_right`).

use std::collections::BTreeMap;

use flashfront_engine::format::{CheckpointHeader, CommitHeader, Entry, STREAMS, Stream};

use super::blocks::Live;
use super::reader::{Reader, checksum_of};
use super::walk::LaneWalk;

const WRITES: usize = Stream::Writes as usize;
/// Blocks of one commit at most.
const COMMIT_DATA_MAX: u64 = 252;

/// A commit header that is left, without its entries.
#[derive(Clone, Copy, Debug)]
struct Placed {
    epoch: u64,
    seq: u64,
    durable_seq: u64,
    heads: [u32; STREAMS],
    stream: usize,
}

/// Commits that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Dirty blocks in them, at most.
    pub(super) blocks_at_most: u64,
}

/// What is known of a lane.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    /// The blocks; those that are `older` are to be decided on.
    pub(super) walk: LaneWalk,
    pub(super) gaps: Vec<Gap>,
    /// Index entries in damaged blocks of the checkpoint.
    pub(super) unknown_entries: u64,
    /// Neither checkpoint has a sound head.
    pub(super) no_checkpoint: bool,
    /// Clean blocks may be older than the origin.
    pub(super) clean_doubtful: bool,
    /// The highest numbers seen anywhere in the lane.
    pub(super) epoch: u64,
    pub(super) seq: u64,
    pub(super) generation: u64,
}

impl Salvage {
    /// Everything is known as exactly as replay would.
    fn is_exact(&self) -> bool {
        self.gaps.is_empty() && self.unknown_entries == 0 && !self.no_checkpoint
    }
}

/// All headers of a lane by slot.
type Headers = BTreeMap<u32, Placed>;

impl Reader<'_> {
    /// Salvages a lane, in whose segments `open` the log was to go on. What it comes upon is reported as damage once more; `check` has told already.
    /// `looked` hears of each segment whose headers were looked at.
    pub(super) fn salvage(&mut self, lane: u32, open: &[u32], looked: &mut dyn FnMut()) -> Salvage {
        let mut headers = Headers::new();
        for segment in 0..self.superblock.segments_per_lane {
            self.scan(lane, segment, open.contains(&segment), &mut headers);
            looked();
        }
        let mut heads: Vec<(u32, CheckpointHeader)> = Vec::new();
        let mut head_lost = false;
        for area in 0..2 {
            let block = self.blocks(self.superblock.checkpoint_offset(lane, area), 1);
            match block.as_ref().ok().and_then(|block| self.decode_head(lane, area, block)) {
                Some(head) => heads.push((area, head)),
                None => head_lost |= !block.is_ok_and(|block| block.iter().all(|byte| *byte == 0)),
            }
        }
        heads.sort_by_key(|(_, head)| std::cmp::Reverse(head.generation));
        // The older of two checkpoints may be whole, and the log since too: then nothing is lost.
        let mut best: Option<Salvage> = None;
        for (nth, (area, head)) in heads.iter().enumerate() {
            let found = self.load_checkpoint(lane, *area, *head, &headers, (head_lost || nth > 0, heads[0].1.seq));
            if best.is_none() || found.is_exact() {
                best = Some(found);
            }
            if best.as_ref().is_some_and(Salvage::is_exact) {
                break;
            }
        }
        let mut it = best.unwrap_or_else(|| {
            let mut it = self.empty(lane);
            (it.no_checkpoint, it.clean_doubtful) = (true, true);
            self.add_older(&mut it, &headers, None);
            it
        });
        it.epoch =
            heads.iter().map(|(_, head)| head.epoch).chain(headers.values().map(|it| it.epoch)).max().unwrap_or(0);
        it.seq = heads.iter().map(|(_, head)| head.seq).chain(headers.values().map(|it| it.seq)).max().unwrap_or(0);
        it.generation = heads.iter().map(|(_, head)| head.generation).max().unwrap_or(0);
        it
    }

    fn empty(&self, lane: u32) -> Salvage {
        Salvage { walk: LaneWalk::new(lane, self.superblock), ..Salvage::default() }
    }

    /// Finds the headers of a segment: one behind the other, and where one is missing, block by block. Of one in which the log was to go on,
    /// every block is looked at: in the place of a commit that is missing may be an older one, whose data is commits now.
    fn scan(&self, lane: u32, segment: u32, is_open: bool, headers: &mut Headers) {
        let slots = self.superblock.segment_blocks;
        let (mut slot, end) = (segment * slots, (segment + 1) * slots);
        let mut bytes = is_open.then(|| self.segment(lane, segment));
        let mut last = (0, 0);
        while slot < end {
            let header = match &bytes {
                None => self.header(lane, slot),
                Some(bytes) => bytes.block(slot).ok().and_then(|block| self.decode(lane, slot, block)),
            };
            // A lower number, or one of an earlier opening, is left over from an earlier use of the segment.
            let header = header.filter(|it| (it.epoch, it.seq) > last);
            let Some(header) = header else {
                bytes.get_or_insert_with(|| self.segment(lane, segment));
                slot += 1;
                continue;
            };
            headers.insert(
                slot,
                Placed {
                    epoch: header.epoch,
                    seq: header.seq,
                    durable_seq: header.durable_seq,
                    heads: header.heads,
                    stream: usize::from(header.stream),
                },
            );
            // One that describes none of its blocks may have come here by accident: it proves nothing
            // about what follows.
            if self.describes_its_data(&header, lane, slot) {
                last = (header.epoch, header.seq);
                slot += if is_open { 1 } else { header.data_blocks() + 1 };
            } else {
                bytes.get_or_insert_with(|| self.segment(lane, segment));
                slot += 1;
            }
        }
    }

    fn describes_its_data(&self, header: &CommitHeader, lane: u32, slot: u32) -> bool {
        let mut looked = false;
        for (at, entry) in header.placed(slot) {
            if let Entry::Dirty { key, checksum } | Entry::Clean { key, checksum } = *entry {
                looked = true;
                let block = self.blocks(self.superblock.slot_offset(lane, at), 1);
                if block.is_ok_and(|block| checksum_of(&block, key, self.superblock) == checksum) {
                    return true;
                }
            }
        }
        !looked
    }

    /// Loads a checkpoint and applies all commits after it that are left. `strict`: a newer checkpoint was
    /// there, so that the log did not end in a crash where it ends now; at least it came to `least`.
    fn load_checkpoint(
        &mut self,
        lane: u32,
        area: u32,
        head: CheckpointHeader,
        headers: &Headers,
        (strict, least): (bool, u64),
    ) -> Salvage {
        let mut it = self.empty(lane);
        it.walk.checkpoint = Some((area, head));
        if head.seq > 0 {
            self.body(&mut it.walk, area, head);
            it.unknown_entries = head.entries - head.entries.min(it.walk.live.len());
        }
        let mut epochs: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
        for (slot, placed) in headers.iter().filter(|(_, it)| it.epoch >= head.epoch && it.seq >= head.seq) {
            epochs.entry(placed.epoch).or_default().entry(placed.seq).or_insert(*slot);
        }
        // An opening whose checkpoint is lost may have dropped all clean blocks.
        it.clean_doubtful |= epochs.keys().any(|epoch| *epoch != head.epoch);
        let mut replay = Replay { next: head.seq, heads: Some(head.heads), strict };
        let mut end = None;
        let numbers: Vec<u64> = epochs.keys().copied().collect();
        for (nth, epoch) in numbers.iter().enumerate() {
            // What a later opening numbered anew it had not found.
            let later = numbers[nth + 1..].iter().filter_map(|epoch| epochs[epoch].keys().next().copied()).min();
            let mut commits = epochs[epoch].clone();
            commits.retain(|seq, _| later.is_none_or(|later| *seq < later));
            if *epoch != head.epoch {
                replay.heads = None;
            }
            self.replay_epoch(&mut it, &mut replay, &commits, headers, later);
            end = Some((*epoch, replay.next));
        }
        it.walk.forget_unproven();
        if replay.next < least {
            self.gap(&mut it, &mut replay, least, None);
        }
        if it.unknown_entries > 0 {
            self.add_older(&mut it, headers, end);
        }
        it
    }

    fn replay_epoch(
        &mut self,
        it: &mut Salvage,
        replay: &mut Replay,
        commits: &BTreeMap<u64, u32>,
        headers: &Headers,
        later: Option<u64>,
    ) {
        let durable = commits.values().map(|slot| headers[slot].durable_seq).max().unwrap_or(0);
        // The log may end here, as a crash ends it, if nothing speaks against that.
        let may_end = later.is_none() && !replay.strict;
        loop {
            let Some((&seq, &slot)) = commits.range(replay.next..).next() else {
                if let Some(later) = later.filter(|later| *later > replay.next) {
                    self.gap(it, replay, later, None);
                }
                return;
            };
            if seq > replay.next {
                if may_end && replay.next > durable {
                    return;
                }
                self.gap(it, replay, seq, Some((slot, headers[&slot])));
            }
            let Some(header) = self.header(it.walk.lane, slot) else { return };
            if may_end && seq > durable && !self.data_is_whole(&header, it.walk.lane, slot) {
                it.walk.torn = Some(seq);
                return;
            }
            if later.is_some() && seq > durable && !self.data_is_whole(&header, it.walk.lane, slot) {
                // The opening after it may have found it torn, or whole.
                self.gap(it, replay, seq + 1, None);
                continue;
            }
            it.walk.apply(&header, slot);
            (replay.next, replay.heads) = (seq + 1, Some(header.heads));
        }
    }

    /// The commits from `replay.next` up to `to` are gone; `after` is the next one that is left.
    fn gap(&self, it: &mut Salvage, replay: &mut Replay, to: u64, after: Option<(u32, Placed)>) {
        let segment = |slot: u32| slot / self.superblock.segment_blocks;
        let count = to - replay.next;
        // Where the stream `Writes` stood before, and where after them.
        let places = replay.heads.zip(after).map(|(heads, (slot, after))| {
            (heads[WRITES], if after.stream == WRITES { slot } else { after.heads[WRITES] })
        });
        let all = count.saturating_mul(COMMIT_DATA_MAX);
        let blocks_at_most = match places {
            Some((from, to)) if from == to => 0,
            Some((from, to)) if to > from && segment(from) == segment(to) => all.min(u64::from(to - from - 1)),
            _ => all,
        };
        if places.is_none_or(|(from, to)| from != to) {
            it.walk.live.make_older();
        }
        it.clean_doubtful = true;
        it.gaps.push(Gap { first: replay.next, last: to - 1, blocks_at_most });
        (replay.next, replay.heads) = (to, None);
    }

    /// Adds dirty blocks that no checkpoint speaks for any more, from all headers that are left.
    /// `end`: where the log of the last epoch ends.
    fn add_older(&mut self, it: &mut Salvage, headers: &Headers, end: Option<(u64, u64)>) {
        let lane = it.walk.lane;
        let mut commits: Vec<(u64, u64, u32)> =
            headers.iter().map(|(slot, placed)| (placed.epoch, placed.seq, *slot)).collect();
        commits.retain(|(epoch, seq, _)| end.is_none_or(|end| (*epoch, *seq) < end));
        commits.sort_unstable();
        let mut found = self.empty(lane).walk;
        for (_, _, slot) in commits {
            if let Some(header) = self.header(lane, slot) {
                found.apply(&header, slot);
            }
        }
        for live in found.live.iter().filter(|live| live.dirty) {
            if it.walk.live.get(live.key).is_none() {
                it.walk.live.insert_displaced(Live { older: true, ..live });
            }
        }
    }
}

struct Replay {
    next: u64,
    /// The streams' heads before commit `next`, if known.
    heads: Option<[u32; STREAMS]>,
    strict: bool,
}

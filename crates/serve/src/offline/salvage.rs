// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds all that can still be known of a damaged lane: every header that is left, and what follows
//! from them.
//!
//! A checkpoint with all commits after it says exactly what is in the cache, as in replay. If a
//! commit of the stream `Writes` is missing, its blocks are not known. Every dirty block that is
//! older is `older` from then on: it may have been superseded, or be newer on the origin. If the
//! checkpoint is damaged, blocks that only their commit's header speaks for are `older`, too. No
//! block is ever taken for current that something lost may have replaced (test:
//! `repair_of_any_damage_serves_only_what_is_right`).

use std::collections::{BTreeMap, BTreeSet};

use flashfront_engine::format::{CheckpointHeader, Entry, Mirror, STREAMS, Stream};

use super::blocks::Live;
use super::reader::Reader;
use super::scan::{Area, Beyond, Headers, Placed};
use super::walk::LaneWalk;

const WRITES: usize = Stream::Writes as usize;
/// Blocks of one commit at most.
const COMMIT_DATA_MAX: u64 = 252;

/// Commits that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Dirty blocks in them, at most.
    pub(super) blocks_at_most: u64,
}

/// The blocks of a lane that can be known.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    /// The blocks; the operator decides on those that are `older`.
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

impl Reader<'_> {
    /// Salvages a lane, in whose segments `open` the log was to go on.
    ///
    /// Damage is reported once more, as `check` has told it already. `looked` hears of each segment
    /// whose headers were looked at.
    pub(super) fn salvage(&mut self, lane: u32, open: &[u32], looked: &mut dyn FnMut()) -> Salvage {
        let headers = self.headers(lane, open, looked);
        let areas = [0, 1].map(|area| self.area(lane, area));
        let mut heads: Vec<(u32, CheckpointHeader)> =
            (0..).zip(&areas).filter_map(|(nth, area)| Some((nth, area.head?))).collect();
        heads.sort_by_key(|(_, head)| std::cmp::Reverse(head.generation));
        // The older of two checkpoints may be whole, and the log since too: then nothing is lost.
        let mut best: Option<Salvage> = None;
        for (area, head) in &heads {
            let found = self.load_checkpoint(lane, *area, *head, &headers, &areas);
            if best.is_none() || found.is_exact() {
                best = Some(found);
            }
            if best.as_ref().is_some_and(Salvage::is_exact) {
                break;
            }
        }
        let mut it = best.unwrap_or_else(|| self.without_checkpoint(lane, &headers, &areas));
        it.epoch =
            heads.iter().map(|(_, head)| head.epoch).chain(headers.values().map(|it| it.epoch)).max().unwrap_or(0);
        it.seq = heads.iter().map(|(_, head)| head.seq).chain(headers.values().map(|it| it.seq)).max().unwrap_or(0);
        it.generation = heads.iter().map(|(_, head)| head.generation).max().unwrap_or(0);
        it
    }

    fn empty(&self, lane: u32) -> Salvage {
        Salvage { walk: LaneWalk::new(lane, self.superblock), ..Salvage::default() }
    }

    /// Blocks of one commit at most.
    fn commit_most(&self) -> u64 {
        COMMIT_DATA_MAX.min(u64::from(self.superblock.segment_blocks) - 1)
    }

    /// Salvages without a checkpoint: all that the headers say is older than what is unknown.
    fn without_checkpoint(&self, lane: u32, headers: &Headers, areas: &[Area; 2]) -> Salvage {
        let mut it = self.empty(lane);
        (it.no_checkpoint, it.clean_doubtful) = (true, true);
        let ages = areas.iter().filter_map(|area| area.ages.as_ref()).max_by_key(|(generation, _)| *generation);
        let ages = ages.map(|(_, ages)| &ages[..]);
        let last = headers.values().map(|it| it.seq).max().unwrap_or(0);
        let mut blocks_at_most = self.unspoken(lane, headers, ages, &it.walk.live);
        if let Some(ages) = ages {
            // Those after that checkpoint may be in segments that it didn't know.
            let known = ages.iter().copied().max().unwrap_or(0);
            let found: BTreeSet<u64> = headers.values().map(|it| it.seq).filter(|seq| *seq > known).collect();
            let missing = last.saturating_sub(known) - found.len() as u64;
            blocks_at_most = blocks_at_most.saturating_add(missing.saturating_mul(self.commit_most()));
        }
        blocks_at_most = blocks_at_most.min(u64::from(self.superblock.slots()));
        it.gaps.push(Gap { first: 1, last: last.max(1), blocks_at_most });
        self.add_older(&mut it, headers, None);
        it
    }

    /// Loads a checkpoint and applies all commits after it that are left.
    fn load_checkpoint(
        &mut self,
        lane: u32,
        area: u32,
        head: CheckpointHeader,
        headers: &Headers,
        areas: &[Area; 2],
    ) -> Salvage {
        let mut it = self.empty(lane);
        it.walk.checkpoint = Some((area, head));
        if head.seq > 0 {
            self.body(&mut it.walk, area, head);
            it.unknown_entries = head.entries - head.entries.min(it.walk.live.len());
        }
        let pairing = &self.superblock.pairing;
        // A device that was filled as a mirror has one checkpoint at first.
        let mirrored = pairing.mirror != Mirror::None || pairing.paired != 0;
        let mut beyond = Beyond::of(areas, area, head, mirrored);
        // An opening writes its checkpoint before its first commit.
        beyond.unknown |= head.seq == 0 && !headers.is_empty();
        let mut epochs: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
        epochs.entry(head.epoch).or_default();
        for (slot, placed) in headers.iter().filter(|(_, it)| it.epoch >= head.epoch && it.seq >= head.seq.max(1)) {
            let known = epochs.entry(placed.epoch).or_default().entry(placed.seq).or_insert(*slot);
            if placed.is_sound && !headers[known].is_sound {
                *known = *slot;
            }
        }
        // An opening whose checkpoint is lost may have dropped all clean blocks.
        it.clean_doubtful |= epochs.keys().any(|epoch| *epoch != head.epoch);
        let mut replay = Replay { next: head.seq.max(1), heads: Some(head.heads), unsure: false };
        let numbers: Vec<u64> = epochs.keys().copied().collect();
        for (nth, epoch) in numbers.iter().enumerate() {
            let mut durable = epochs[epoch].values().map(|slot| headers[slot].durable_seq).max().unwrap_or(0);
            let of_head = *epoch == head.epoch;
            if of_head {
                durable = durable.max(beyond.least.saturating_sub(1));
            } else {
                replay.heads = None;
            }
            // Commits that a later opening numbered anew are those that it had not found.
            let later = numbers[nth + 1..].iter().filter_map(|epoch| epochs[epoch].keys().next().copied()).min();
            let commits = &epochs[epoch];
            match later {
                Some(later) => {
                    let start = beyond.start.filter(|start| of_head && *start <= later);
                    self.replay_ended(&mut it, &mut replay, commits, headers, (durable, start, later));
                }
                None => {
                    // The opening that wrote that checkpoint has left no commit.
                    let ended =
                        beyond.start.filter(|_| of_head && beyond.epoch.unwrap_or(self.superblock.epoch) != head.epoch);
                    self.replay_last(&mut it, &mut replay, commits, headers, (durable, ended, beyond));
                }
            }
        }
        let end = (numbers.last().copied().unwrap_or(head.epoch), replay.next);
        it.walk.forget_unproven();
        if replay.next < beyond.least {
            self.gap(&mut it, &mut replay, beyond.least, None);
        }
        self.end_of_log(&mut it, &replay);
        let ages = areas[area as usize].own_ages();
        if beyond.unknown {
            it.walk.live.make_older();
            it.clean_doubtful = true;
            let blocks_at_most = self.unspoken(lane, headers, None, &it.walk.live);
            it.gaps.push(Gap { first: replay.next, last: replay.next + blocks_at_most, blocks_at_most });
        } else if it.unknown_entries > 0 {
            let blocks_at_most = self.unspoken(lane, headers, ages, &it.walk.live).min(it.unknown_entries);
            it.gaps.push(Gap { first: 1, last: head.seq.max(2) - 1, blocks_at_most });
        }
        if it.unknown_entries > 0 {
            self.add_older(&mut it, headers, Some(end));
        }
        it
    }

    /// Replays the commits of an opening that another one followed.
    ///
    /// The next opening's first commit is `start`, if that is known. Replay does not go beyond
    /// `later`.
    fn replay_ended(
        &mut self,
        it: &mut Salvage,
        replay: &mut Replay,
        commits: &BTreeMap<u64, u32>,
        headers: &Headers,
        (durable, start, later): (u64, Option<u64>, u64),
    ) {
        let end = start.unwrap_or_else(|| later.min(durable + 1));
        for (&seq, &slot) in commits.range(replay.next.min(end)..end) {
            if seq > replay.next {
                self.gap(it, replay, seq, Some((slot, headers[&slot])));
            }
            self.take(it, replay, slot);
        }
        if replay.next < end {
            self.gap(it, replay, end, None);
        }
        if replay.next < later && start.is_none() {
            // The next opening may have found those torn, or whole; or have written others of these
            // numbers, which are gone.
            for (&seq, &slot) in commits.range(replay.next..later) {
                let whole =
                    self.header(it.walk.lane, slot).filter(|it_is| self.data_is_whole(it_is, it.walk.lane, slot));
                if let Some(header) = whole.filter(|header| header.seq == seq) {
                    it.walk.apply(&header, slot);
                }
            }
            self.gap(it, replay, later, None);
        }
    }

    /// Replays the commits of the last opening of which there are any; those from `ended` on
    /// another one may have found or not.
    fn replay_last(
        &mut self,
        it: &mut Salvage,
        replay: &mut Replay,
        commits: &BTreeMap<u64, u32>,
        headers: &Headers,
        (durable, ended, beyond): (u64, Option<u64>, Beyond),
    ) {
        for (&seq, &slot) in commits.range(replay.next..) {
            // The log may end here, as a crash ends it, if nothing speaks against that.
            let may_end = !beyond.unknown;
            if ended.is_some_and(|ended| seq >= ended) && beyond.epoch.is_some() {
                return;
            }
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
            self.take(it, replay, slot);
            if ended.is_some_and(|ended| seq >= ended) {
                for entry in &header.entries {
                    if let Entry::Dirty { key, .. } = *entry {
                        it.walk.live.mark_older(key);
                    }
                }
            }
        }
    }

    /// Applies a commit that is the next one.
    fn take(&self, it: &mut Salvage, replay: &mut Replay, slot: u32) {
        let Some(header) = self.header(it.walk.lane, slot) else { return };
        it.walk.apply(&header, slot);
        replay.unsure &= usize::from(header.stream) != WRITES;
        (replay.next, replay.heads) = (header.seq + 1, Some(header.heads));
    }

    /// Notes that the commits from `replay.next` up to `to` are gone; `after` is the next one that
    /// is left.
    fn gap(&self, it: &mut Salvage, replay: &mut Replay, to: u64, after: Option<(u32, Placed)>) {
        let segment = |slot: u32| slot / self.superblock.segment_blocks;
        let count = to - replay.next;
        // Where the stream `Writes` stood before, and where after them.
        let places = replay.heads.zip(after).map(|(heads, (slot, after))| {
            (heads[WRITES], if after.stream == WRITES { slot } else { after.heads[WRITES] })
        });
        // Each commit that counts had a slot of its own.
        let all = count.saturating_mul(self.commit_most()).min(u64::from(self.superblock.slots()));
        let blocks_at_most = match places {
            Some((from, to)) if from == to => 0,
            Some((from, to)) if to > from && segment(from) == segment(to) => all.min(u64::from(to - from - 1)),
            _ => all,
        };
        if places.is_none_or(|(from, to)| from != to) {
            it.walk.live.make_older();
            replay.unsure = true;
        }
        it.clean_doubtful = true;
        it.gaps.push(Gap { first: replay.next, last: to - 1, blocks_at_most });
        (replay.next, replay.heads) = (to, None);
    }

    /// Notes the end of the log. If the last commits of the stream `Writes` are gone, more may be
    /// gone that were behind them in their segment.
    fn end_of_log(&self, it: &mut Salvage, replay: &Replay) {
        let slots = self.superblock.segment_blocks;
        let behind = replay.heads.map_or(slots, |heads| slots - heads[WRITES] % slots);
        if let Some(gap) = it.gaps.iter_mut().rev().find(|gap| gap.blocks_at_most > 0).filter(|_| replay.unsure) {
            gap.blocks_at_most += u64::from(behind);
        }
    }

    /// Adds dirty blocks that no checkpoint speaks for any more, from all headers that are left.
    /// `end`: where the log of the last epoch ends.
    fn add_older(&self, it: &mut Salvage, headers: &Headers, end: Option<(u64, u64)>) {
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
    /// Commits of the stream `Writes` are missing, and none was found since.
    unsure: bool,
}

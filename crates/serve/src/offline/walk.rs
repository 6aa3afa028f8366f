// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a lane the way replay does, writes nothing, and goes on behind damage.
//!
//! The result is what the next start would find: which block is in which slot, dirty or clean, and
//! where the log ends. Everything that should be whole and is not becomes a [`Damage`]. A log that
//! ends in a torn commit is not damage: that is what a crash looks like (test:
//! `a_crash_is_not_damage`).

use std::collections::VecDeque;

use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointHeader, CommitHeader, Entry, Mirror, STREAMS, Superblock,
    UnprovenBlocks, decode_checkpoint_ages, decode_checkpoint_entries,
};

use super::blocks::{Blocks, Live};
use super::damage::DamageKind;
use super::reader::Reader;
use super::scan::is_alone;

/// Blocks of a checkpoint read at once.
const BATCH: u64 = 256;

/// The content of a lane.
#[derive(Debug, Default)]
pub(super) struct LaneWalk {
    pub(super) lane: u32,
    /// The checkpoint that replay starts with, and its area.
    pub(super) checkpoint: Option<(u32, CheckpointHeader)>,
    /// Commits replayed after it: number, slot of the header, blocks.
    pub(super) commits: Vec<(u64, u32, u32)>,
    /// The blocks in the cache.
    pub(super) live: Blocks,
    /// Blocks that may not be durable on their origin, as far as the log was applied.
    pub(super) unproven: UnprovenBlocks,
    /// Last commit of each segment.
    pub(super) last_seq: Vec<u64>,
    /// The log ends in a commit that is not whole; its number.
    pub(super) torn: Option<u64>,
    /// The segments in which the log was to go on.
    pub(super) open: Vec<u32>,
    /// Blocks in a segment.
    segment_slots: u32,
}

impl LaneWalk {
    /// A lane of which nothing is known yet.
    pub(super) fn new(lane: u32, superblock: &Superblock) -> Self {
        Self {
            lane,
            live: Blocks::new(superblock.slots()),
            last_seq: vec![0; superblock.segments_per_lane as usize],
            segment_slots: superblock.segment_blocks,
            ..Self::default()
        }
    }

    /// The log ends here: what may not be durable on its origin is not taken.
    pub(super) fn forget_unproven(&mut self) {
        for (key, slot) in std::mem::take(&mut self.unproven).at_end() {
            if self.live.get(key).is_some_and(|live| live.slot == slot && !live.dirty) {
                self.live.remove(key);
            }
        }
    }

    /// Blocks of volumes that were removed are dead, as in replay. With version 1 no volume is ever
    /// removed.
    fn forget_removed(&mut self, superblock: &Superblock) {
        if superblock.table.is_some() {
            let is_gone = |live: &Live| superblock.origin(live.key.origin).is_none();
            let gone: Vec<Live> = self.live.iter().filter(is_gone).collect();
            gone.into_iter().for_each(|live| self.live.remove(live.key));
        }
    }

    /// Does what the commit did whose header is at that slot.
    pub(super) fn apply(&mut self, header: &CommitHeader, slot: u32) {
        self.last_seq[(slot / self.segment_slots) as usize] = header.seq;
        self.unproven.follow(header, slot);
        for (slot, entry) in header.placed(slot) {
            match *entry {
                Entry::Dead => {}
                Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } => {
                    let dirty = matches!(entry, Entry::Dirty { .. });
                    self.live.insert(Live { key, slot, dirty, older: false, checksum, checksum_mask: u32::MAX });
                }
                Entry::Invalidate { key, blocks } => self.live.remove_range(key, blocks),
                Entry::Sent { .. } | Entry::Group { .. } => {}
                Entry::Cleaned { key, slot } => self.live.clean(key, slot),
                Entry::Freed { segment } => {
                    let first = segment.saturating_mul(self.segment_slots);
                    self.live.free(first..first.saturating_add(self.segment_slots));
                }
            }
        }
    }
}

impl Reader<'_> {
    /// Reads a whole lane. `looked` hears of each segment with headers that were looked at.
    pub(super) fn lane(&mut self, lane: u32, looked: &mut dyn FnMut()) -> LaneWalk {
        self.lane_to_end(lane, Some(looked))
    }

    /// Reads a lane that was closed a moment ago, by its checkpoint: nothing is looked for behind
    /// the end of the log.
    pub(super) fn closed_lane(&mut self, lane: u32) -> LaneWalk {
        self.lane_to_end(lane, None)
    }

    fn lane_to_end(&mut self, lane: u32, looked: Option<&mut dyn FnMut()>) -> LaneWalk {
        let mut walk = LaneWalk::new(lane, self.superblock);
        walk.checkpoint = self.newest_head(lane);
        match (walk.checkpoint, looked) {
            (Some((area, head)), looked) if head.seq > 0 => {
                self.body(&mut walk, area, head);
                self.replay(&mut walk, head, looked);
            }
            (_, None) => {}
            // Never opened, unless there are commits: then what counted is gone, and an old head
            // has come to light.
            (Some((_, head)), Some(looked)) => self.look_behind(&mut walk, head, 1, looked),
            (None, Some(looked)) => (0..self.superblock.segments_per_lane).for_each(|_| looked()),
        }
        walk.forget_removed(self.superblock);
        walk
    }

    fn newest_head(&mut self, lane: u32) -> Option<(u32, CheckpointHeader)> {
        let mut found: Vec<(u32, CheckpointHeader)> = Vec::new();
        let mut void = None;
        for area in 0..2 {
            let offset = self.superblock.checkpoint_offset(lane, area);
            let Some(block) = self.sound_block(DamageKind::Checkpoint, offset) else { continue };
            match self.decode_head(lane, area, &block) {
                Some(head) => found.push((area, head)),
                // Never written since the format, or void: an opening of a mirrored cache was cut
                // off.
                None if block.iter().all(|byte| *byte == 0) => void = Some(offset),
                None => self.report(DamageKind::Checkpoint, offset, "a checkpoint head", "a damaged or foreign block"),
            }
        }
        if found.is_empty() {
            let offset = self.superblock.checkpoint_offset(lane, 0);
            self.report(DamageKind::Checkpoint, offset, "a checkpoint head in one of two areas", "none");
        }
        let newest = found.into_iter().max_by_key(|(_, head)| head.generation);
        if let (Some(offset), Some((_, head))) = (void, newest)
            && !is_alone(&head)
            && self.superblock.pairing.mirror == Mirror::None
            // A device that was filled as a mirror has one checkpoint at first.
            && self.superblock.pairing.paired == 0
        {
            self.report(DamageKind::Checkpoint, offset, "a checkpoint head", "zeroes");
        }
        newest
    }

    pub(super) fn body(&mut self, walk: &mut LaneWalk, area: u32, head: CheckpointHeader) {
        let segments = u64::from(self.superblock.segments_per_lane);
        let age_blocks = segments.div_ceil(CHECKPOINT_AGES_MAX as u64);
        let entry_blocks = head.entries.div_ceil(CHECKPOINT_ENTRIES_MAX as u64);
        let start = self.superblock.checkpoint_offset(walk.lane, area) + BLOCK_BYTES;
        let room = u64::from(self.superblock.checkpoint_blocks).saturating_sub(1 + age_blocks);
        let (mut entries, damage_before) = (0, self.damage.len());
        let blocks = age_blocks + entry_blocks.min(room);
        for first in (0..blocks).step_by(BATCH as usize) {
            let count = BATCH.min(blocks - first) as u32;
            let stretch = self.stretch(start + first * BLOCK_BYTES, count);
            for (nth, at) in (first..).zip(0..count) {
                let offset = start + nth * BLOCK_BYTES;
                match stretch.block(at) {
                    Err(error) => self.report(DamageKind::Checkpoint, offset, "readable blocks", error),
                    Ok(block) if nth < age_blocks => self.ages(walk, head.generation, nth as usize, block, offset),
                    Ok(block) => entries += self.entries(walk, head, block, offset),
                }
            }
        }
        // A block that is damaged has been told, and takes its entries along.
        if entries != head.entries && self.damage.len() == damage_before {
            let (expected, found) = (format!("{} index entries", head.entries), format!("{entries}"));
            self.report(DamageKind::Checkpoint, start, &expected, &found);
        }
    }

    /// Takes the block of this number of the ages of segments.
    fn ages(&mut self, walk: &mut LaneWalk, generation: u64, nth: usize, block: &[u8], offset: u64) {
        let segments = &mut walk.last_seq[nth * CHECKPOINT_AGES_MAX..];
        let all = segments.len().min(CHECKPOINT_AGES_MAX);
        match decode_checkpoint_ages(generation, block).filter(|ages| ages.len() == all) {
            Some(ages) => segments[..all].copy_from_slice(&ages),
            None => self.report(DamageKind::Checkpoint, offset, "segment ages", "a damaged block"),
        }
    }

    /// Takes a block of index entries, and says how many.
    fn entries(&mut self, walk: &mut LaneWalk, head: CheckpointHeader, block: &[u8], offset: u64) -> u64 {
        let Some(found) = decode_checkpoint_entries(head.generation, block) else {
            self.report(DamageKind::Checkpoint, offset, "index entries", "a damaged block");
            return 0;
        };
        let mask = (u64::MAX >> (64 - u32::from(head.checksum_bits.clamp(1, 32)))) as u32;
        for entry in &found {
            if entry.slot >= self.superblock.slots() {
                self.report(DamageKind::Checkpoint, offset, "slots of this lane", &format!("slot {}", entry.slot));
                continue;
            }
            walk.live.insert(Live {
                key: entry.key,
                slot: entry.slot,
                dirty: entry.dirty,
                older: false,
                checksum: entry.checksum & mask,
                checksum_mask: mask,
            });
        }
        found.len() as u64
    }

    /// Follows the log from the checkpoint's heads; see the engine's recovery.
    fn replay(&mut self, walk: &mut LaneWalk, head: CheckpointHeader, looked: Option<&mut dyn FnMut()>) {
        let slots = self.superblock.slots();
        let (mut heads, mut next) = (head.heads, head.seq);
        // All that a checkpoint refers to was flushed before its head was written.
        let mut durable = walk.last_seq.iter().copied().max().unwrap_or(0);
        let mut next_segments = head.next_segments;
        // Commits that nothing calls durable yet.
        let mut pending: VecDeque<(CommitHeader, u32)> = VecDeque::new();
        loop {
            let candidates: [Option<CommitHeader>; STREAMS] = heads.map(|slot| {
                let header = if slot < slots { self.header(walk.lane, slot) } else { None };
                header.filter(|header| header.seq == next && header.epoch == head.epoch)
            });
            let at = candidates.iter().position(Option::is_some);
            let Some((stream, header)) = at.zip(candidates.into_iter().flatten().next()) else { break };
            let slot = heads[stream];
            if usize::from(header.stream) != stream {
                break;
            }
            heads = header.heads;
            next_segments[stream] = header.next_segment;
            next += 1;
            durable = durable.max(header.durable_seq);
            pending.push_back((header, slot));
            while let Some((header, slot)) = pending.pop_front_if(|(header, _)| header.seq <= durable) {
                walk.commits.push((header.seq, slot, header.data_blocks()));
                walk.apply(&header, slot);
            }
        }
        let ends_early = durable >= next;
        for (header, slot) in pending {
            if !self.data_is_whole(&header, walk.lane, slot) {
                walk.torn = Some(header.seq);
                next = header.seq;
                break;
            }
            walk.commits.push((header.seq, slot, header.data_blocks()));
            walk.apply(&header, slot);
        }
        walk.forget_unproven();
        // The rest of the log, if there is any, begins in one of these.
        walk.open = heads.into_iter().map(|slot| slot / self.superblock.segment_blocks).chain(next_segments).collect();
        if let Some(looked) = looked {
            self.look_behind(walk, head, next, looked);
        }
        if ends_early {
            let offset = self.superblock.checkpoint_offset(walk.lane, (head.generation % 2) as u32);
            let expected = format!("commit {next} of lane {}; {durable} was durable", walk.lane);
            self.report(DamageKind::Log, offset, &expected, "a log that ends before it");
        }
    }

    /// Whether the slots up to `end` seem never to have been written: zeroes are in the first, the
    /// second and the last of them.
    fn is_blank(&self, lane: u32, slot: u32, end: u32) -> bool {
        let blank = |slot| {
            let block = self.blocks(self.superblock.slot_offset(lane, slot), 1);
            block.is_ok_and(|block| block.iter().all(|byte| *byte == 0))
        };
        [slot, (slot + 1).min(end - 1), end - 1].into_iter().all(blank)
    }

    /// Looks behind the end of the log, which ended before commit `end`.
    ///
    /// If a later commit says that `end` was durable, it was not torn by a crash but damaged since.
    /// In the segments that were open every block is looked at. So it is behind a damaged header,
    /// since the next ones can't be found otherwise.
    fn look_behind(&mut self, walk: &mut LaneWalk, head: CheckpointHeader, end: u64, looked: &mut dyn FnMut()) {
        let segment_slots = self.superblock.segment_blocks;
        let mut proof: Option<(u64, u32)> = None;
        let mut later: Option<(u64, u32)> = None;
        for segment in 0..self.superblock.segments_per_lane {
            let (mut slot, slots_end) = (segment * segment_slots, (segment + 1) * segment_slots);
            let is_open = walk.open.contains(&segment);
            let mut broken = false;
            let open = is_open.then(|| self.segment(walk.lane, segment));
            while slot < slots_end {
                let header = match &open {
                    None => self.header(walk.lane, slot),
                    Some(open) => open.block(slot).ok().and_then(|block| self.decode(walk.lane, slot, block)),
                };
                match &header {
                    Some(it) if it.epoch == head.epoch && it.seq > end && it.durable_seq >= end => {
                        proof = proof.filter(|(seq, _)| *seq < it.seq).or(Some((it.seq, slot)));
                    }
                    Some(it) if it.epoch > head.epoch => {
                        later = later.filter(|(epoch, _)| *epoch < it.epoch).or(Some((it.epoch, slot)));
                    }
                    _ => {}
                }
                slot = match header {
                    // In the place of a missing commit there may be an older one, whose data had
                    // its place once.
                    _ if is_open => slot + 1,
                    Some(header) => slot + header.data_blocks() + 1,
                    // A segment that was never used is left at once.
                    None if !broken && self.is_blank(walk.lane, slot, slots_end) => break,
                    None => {
                        broken = true;
                        slot + 1
                    }
                };
            }
            looked();
        }
        if let Some((seq, slot)) = proof {
            walk.torn = None;
            let offset = self.superblock.slot_offset(walk.lane, slot);
            let expected =
                format!("commit {end} of lane {}, which commit {seq} at this place calls durable", walk.lane);
            self.report(DamageKind::Log, offset, &expected, "a log that ends before it");
        }
        // An opening writes its checkpoint before its first commit.
        if let Some((epoch, slot)) = later {
            let offset = self.superblock.slot_offset(walk.lane, slot);
            let (expected, found) = (format!("no commit later than epoch {}, the checkpoint's", head.epoch), epoch);
            self.report(DamageKind::Checkpoint, offset, &expected, &format!("a commit of epoch {found}"));
        }
    }
}

/// Tells `progress` each time one more segment was looked at, out of `times` looks at each segment
/// of the cache.
///
/// Headers and data are a look each: from a fast device both take about as long.
pub(super) fn looks(superblock: &Superblock, times: u64, progress: &mut dyn FnMut(u64, u64)) -> impl FnMut() {
    let all = times * u64::from(superblock.lanes) * u64::from(superblock.segments_per_lane);
    let mut done = 0;
    move || {
        done += 1;
        progress(done, all);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a lane the way replay does, writes nothing, and goes on behind damage.
//!
//! The result is what the next start would find: which block is in which slot, dirty or clean, and
//! where the log ends. Everything that should be whole and is not becomes a [`Damage`]. A log that
//! ends in a torn commit is not damage: that is what a crash looks like (test: `a_crash_is_not_damage`).

use std::collections::BTreeMap;
use std::io;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointHeader, CommitHeader, Entry, STREAMS, Superblock,
    UnprovenBlocks, decode_checkpoint_ages, decode_checkpoint_entries, seal_checksum,
};
use flashfront_engine::{BLOCK_BYTES, Key};

use super::check::{Damage, DamageKind};

const BLOCK_LEN: usize = BLOCK_BYTES as usize;

/// A block that the next start would find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) slot: u32,
    pub(super) dirty: bool,
    /// As many low bits of the checksum as are known.
    pub(super) checksum: u32,
    pub(super) checksum_mask: u32,
    /// Perhaps superseded by what is lost: see `salvage`. Never set by a walk.
    pub(super) older: bool,
}

/// What a lane holds.
#[derive(Debug, Default)]
pub(super) struct LaneWalk {
    pub(super) lane: u32,
    /// The checkpoint that replay starts with, and its area.
    pub(super) checkpoint: Option<(u32, CheckpointHeader)>,
    /// Commits replayed after it: number, slot of the header, blocks.
    pub(super) commits: Vec<(u64, u32, u32)>,
    /// What is in the cache.
    pub(super) live: BTreeMap<Key, Live>,
    /// What of it may not be durable on its origin, as far as the log was applied.
    pub(super) unproven: UnprovenBlocks,
    /// Last commit of each segment.
    pub(super) last_seq: Vec<u64>,
    /// The log ends in a commit that is not whole; its number.
    pub(super) torn: Option<u64>,
    /// The segments in which the log was to go on.
    pub(super) open: Vec<u32>,
}

impl LaneWalk {
    /// The log ends here: what may not be durable on its origin is not taken.
    pub(super) fn forget_unproven(&mut self) {
        for (key, slot) in std::mem::take(&mut self.unproven).at_end() {
            if self.live.get(&key).is_some_and(|live| live.slot == slot && !live.dirty) {
                self.live.remove(&key);
            }
        }
    }
}

/// Reads a cache device block by block.
pub(super) struct Reader<'a> {
    pub(super) device: &'a DeviceFile,
    pub(super) superblock: &'a Superblock,
    pub(super) damage: Vec<Damage>,
}

impl Reader<'_> {
    pub(super) fn blocks(&self, offset: u64, blocks: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; blocks as usize * BLOCK_LEN];
        self.device.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads what must be there; what the device can't read is damage.
    pub(super) fn sound_blocks(&mut self, kind: DamageKind, offset: u64, blocks: u32) -> Option<Vec<u8>> {
        match self.blocks(offset, blocks) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.report(kind, offset, "readable blocks", &format!("read error: {error}"));
                None
            }
        }
    }

    pub(super) fn report(&mut self, kind: DamageKind, offset: u64, expected: &str, found: &str) {
        self.damage.push(Damage {
            kind,
            offset,
            origin: None,
            lba: None,
            expected: expected.to_owned(),
            found: found.to_owned(),
        });
    }

    /// Whether the data behind a commit's header is what the header says.
    pub(super) fn data_is_whole(&self, header: &CommitHeader, lane: u32, slot: u32) -> bool {
        let (blocks, no_clean) = (header.data_blocks(), lacks_clean_data(self.superblock));
        let Ok(data) = self.blocks(self.superblock.slot_offset(lane, slot) + BLOCK_BYTES, blocks) else {
            return false;
        };
        let with_data = header.entries.iter().filter(|entry| entry.has_data());
        with_data.zip(data.chunks(BLOCK_LEN)).all(|(entry, block)| match *entry {
            // As in replay: such a commit is whole without it, and so is what comes after.
            Entry::Clean { .. } if no_clean => true,
            Entry::Dirty { key, checksum } | Entry::Clean { key, checksum } => {
                checksum_of(block, key, self.superblock) == checksum
            }
            _ => true,
        })
    }

    /// The header at a slot, if it is a sound one of this cache and lane.
    pub(super) fn header(&self, lane: u32, slot: u32) -> Option<CommitHeader> {
        let block = self.blocks(self.superblock.slot_offset(lane, slot), 1).ok()?;
        self.decode(lane, slot, &block)
    }

    /// The header in a block, if it is a sound one of this cache, lane and slot.
    pub(super) fn decode(&self, lane: u32, slot: u32, block: &[u8]) -> Option<CommitHeader> {
        let header = CommitHeader::decode(block)?;
        let ours = header.cache_tag == self.superblock.cache_tag() && u32::from(header.lane) == lane;
        (ours && header.fits(self.superblock, slot)).then_some(header)
    }

    /// The head of a checkpoint in a block, if it is a sound one of this cache, lane and area.
    pub(super) fn decode_head(&self, lane: u32, area: u32, block: &[u8]) -> Option<CheckpointHeader> {
        let head = CheckpointHeader::decode(block)?;
        let ours = head.cache_tag == self.superblock.cache_tag() && u32::from(head.lane) == lane;
        (ours && head.fits(self.superblock, area)).then_some(head)
    }

    /// Reads a whole lane.
    pub(super) fn lane(&mut self, lane: u32) -> LaneWalk {
        let segments = self.superblock.segments_per_lane as usize;
        let mut walk = LaneWalk { lane, last_seq: vec![0; segments], ..LaneWalk::default() };
        let Some((area, head)) = self.newest_head(lane) else { return walk };
        walk.checkpoint = Some((area, head));
        if head.seq > 0 {
            self.body(&mut walk, area, head);
            self.replay(&mut walk, head);
        }
        walk
    }

    fn newest_head(&mut self, lane: u32) -> Option<(u32, CheckpointHeader)> {
        let mut found: Vec<(u32, CheckpointHeader)> = Vec::new();
        for area in 0..2 {
            let offset = self.superblock.checkpoint_offset(lane, area);
            let Some(block) = self.sound_blocks(DamageKind::Checkpoint, offset, 1) else { continue };
            match self.decode_head(lane, area, &block) {
                Some(head) => found.push((area, head)),
                // Never written since the format.
                None if block.iter().all(|byte| *byte == 0) => {}
                None => self.report(DamageKind::Checkpoint, offset, "a checkpoint head", "a damaged or foreign block"),
            }
        }
        if found.is_empty() {
            let offset = self.superblock.checkpoint_offset(lane, 0);
            self.report(DamageKind::Checkpoint, offset, "a checkpoint head in one of two areas", "none");
        }
        found.into_iter().max_by_key(|(_, head)| head.generation)
    }

    pub(super) fn body(&mut self, walk: &mut LaneWalk, area: u32, head: CheckpointHeader) {
        let segments = u64::from(self.superblock.segments_per_lane);
        let slots = segments * u64::from(self.superblock.segment_blocks);
        let age_blocks = segments.div_ceil(CHECKPOINT_AGES_MAX as u64);
        let entry_blocks = head.entries.div_ceil(CHECKPOINT_ENTRIES_MAX as u64);
        let start = self.superblock.checkpoint_offset(walk.lane, area) + BLOCK_BYTES;
        let room = u64::from(self.superblock.checkpoint_blocks).saturating_sub(1 + age_blocks);
        let (mut entries, damage_before) = (0, self.damage.len());
        for nth in 0..age_blocks + entry_blocks.min(room) {
            let offset = start + nth * BLOCK_BYTES;
            let Some(block) = self.sound_blocks(DamageKind::Checkpoint, offset, 1) else { continue };
            if nth < age_blocks {
                let segments = &mut walk.last_seq[nth as usize * CHECKPOINT_AGES_MAX..];
                let all = segments.len().min(CHECKPOINT_AGES_MAX);
                match decode_checkpoint_ages(head.generation, &block).filter(|ages| ages.len() == all) {
                    Some(ages) => segments[..all].copy_from_slice(&ages),
                    None => self.report(DamageKind::Checkpoint, offset, "segment ages", "a damaged block"),
                }
                continue;
            }
            let Some(found) = decode_checkpoint_entries(head.generation, &block) else {
                self.report(DamageKind::Checkpoint, offset, "index entries", "a damaged block");
                continue;
            };
            entries += found.len() as u64;
            for entry in found {
                if u64::from(entry.slot) >= slots {
                    self.report(DamageKind::Checkpoint, offset, "slots of this lane", &format!("slot {}", entry.slot));
                    continue;
                }
                let mask = (u64::MAX >> (64 - u32::from(head.checksum_bits.clamp(1, 32)))) as u32;
                let live = Live {
                    slot: entry.slot,
                    dirty: entry.dirty,
                    checksum: entry.checksum & mask,
                    checksum_mask: mask,
                    older: false,
                };
                walk.live.insert(entry.key, live);
            }
        }
        // A block that is damaged has been told, and takes its entries along.
        if entries != head.entries && self.damage.len() == damage_before {
            let (expected, found) = (format!("{} index entries", head.entries), format!("{entries}"));
            self.report(DamageKind::Checkpoint, start, &expected, &found);
        }
    }

    /// Follows the log from the checkpoint's heads; see the engine's recovery.
    fn replay(&mut self, walk: &mut LaneWalk, head: CheckpointHeader) {
        let slots = self.superblock.slots();
        let (mut heads, mut next) = (head.heads, head.seq);
        // All that a checkpoint refers to was flushed before its head was written.
        let mut durable = walk.last_seq.iter().copied().max().unwrap_or(0);
        let mut next_segments = head.next_segments;
        let mut pending: Vec<(CommitHeader, u32)> = Vec::new();
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
            pending.push((header, slot));
        }
        let ends_early = durable >= next;
        let mut owners: BTreeMap<u32, Key> = walk.live.iter().map(|(key, live)| (live.slot, *key)).collect();
        for (header, slot) in pending {
            if header.seq > durable && !self.data_is_whole(&header, walk.lane, slot) {
                walk.torn = Some(header.seq);
                next = header.seq;
                break;
            }
            walk.commits.push((header.seq, slot, header.data_blocks()));
            self.apply(walk, &mut owners, &header, slot);
        }
        walk.forget_unproven();
        // The rest of the log, if there is any, begins in one of these.
        walk.open = heads.into_iter().map(|slot| slot / self.superblock.segment_blocks).chain(next_segments).collect();
        self.look_behind(walk, head, next);
        if ends_early {
            let offset = self.superblock.checkpoint_offset(walk.lane, (head.generation % 2) as u32);
            let expected = format!("commit {next} of lane {}; {durable} was durable", walk.lane);
            self.report(DamageKind::Log, offset, &expected, "a log that ends before it");
        }
    }

    pub(super) fn apply(&self, walk: &mut LaneWalk, owners: &mut BTreeMap<u32, Key>, header: &CommitHeader, slot: u32) {
        let segment_slots = self.superblock.segment_blocks;
        walk.last_seq[(slot / segment_slots) as usize] = header.seq;
        walk.unproven.follow(header, slot);
        let mut at = slot;
        let forget = |walk: &mut LaneWalk, owners: &mut BTreeMap<u32, Key>, key: Key| {
            if let Some(old) = walk.live.remove(&key) {
                owners.remove(&old.slot);
            }
        };
        for entry in &header.entries {
            at += u32::from(entry.has_data());
            match *entry {
                Entry::Dead => {}
                Entry::Dirty { key, checksum } | Entry::Clean { key, checksum } => {
                    forget(walk, owners, key);
                    let dirty = matches!(entry, Entry::Dirty { .. });
                    walk.live.insert(key, Live { slot: at, dirty, checksum, checksum_mask: u32::MAX, older: false });
                    owners.insert(at, key);
                }
                Entry::Invalidate { key, blocks } => {
                    let end = Key { block: flashfront_engine::Block(key.block.0 + u64::from(blocks)), ..key };
                    let gone: Vec<Key> = walk.live.range(key..end).map(|(key, _)| *key).collect();
                    gone.into_iter().for_each(|key| forget(walk, owners, key));
                }
                Entry::Cleaned { key, slot } => {
                    if let Some(live) = walk.live.get_mut(&key).filter(|live| live.slot == slot) {
                        live.dirty = false;
                    }
                }
                Entry::Freed { segment } => {
                    let first = segment.saturating_mul(segment_slots);
                    let gone: Vec<Key> =
                        owners.range(first..first.saturating_add(segment_slots)).map(|(_, key)| *key).collect();
                    gone.into_iter().for_each(|key| forget(walk, owners, key));
                }
            }
        }
    }

    /// The log ended before commit `end`. If a later commit says that `end` was durable, it was not
    /// torn by a crash but damaged since. In the segments that were open all is looked at, since the headers
    /// behind a damaged one can't be found otherwise.
    fn look_behind(&mut self, walk: &mut LaneWalk, head: CheckpointHeader, end: u64) {
        let segment_slots = self.superblock.segment_blocks;
        let mut proof: Option<(u64, u32)> = None;
        let mut later: Option<(u64, u32)> = None;
        for segment in 0..self.superblock.segments_per_lane {
            let mut slot = segment * segment_slots;
            while slot < (segment + 1) * segment_slots {
                let is_open = walk.open.contains(&segment);
                let Some(header) = self.header(walk.lane, slot) else {
                    if is_open {
                        slot += 1;
                        continue;
                    }
                    break;
                };
                if header.epoch == head.epoch && header.seq > end && header.durable_seq >= end {
                    proof = proof.filter(|(seq, _)| *seq < header.seq).or(Some((header.seq, slot)));
                }
                if header.epoch > head.epoch {
                    later = later.filter(|(epoch, _)| *epoch < header.epoch).or(Some((header.epoch, slot)));
                }
                // Where a commit is missing there may be an older one, whose data had its place once.
                slot += if is_open { 1 } else { header.data_blocks() + 1 };
            }
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

/// Whether this device has no data of clean blocks, as a mirror, or what it has is dropped: nothing is damaged then.
pub(super) fn lacks_clean_data(superblock: &Superblock) -> bool {
    superblock.pairing.member != superblock.pairing.lead || superblock.pairing.clean_lost
}

/// The checksum that a block's index entry should have.
pub(super) fn checksum_of(block: &[u8], key: Key, superblock: &Superblock) -> u32 {
    let data = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block) as u32;
    seal_checksum(data, key, superblock.cache_tag())
}

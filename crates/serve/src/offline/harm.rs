// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damages caches for tests: every kind of structure, flipped, zeroed or swapped.
//!
//! The one place where tests plan damage. It knows what a crash may do as well: a harm to a commit
//! that nothing calls durable is no damage but a torn tail.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use flashfront_device::Rng;
use flashfront_device::real::{Access, DeviceFile};
use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{CHECKPOINT_ENTRIES_MAX, Stream, Superblock};

use super::reader::Reader;
use super::walk::LaneWalk;

const BLOCK_LEN: usize = BLOCK_BYTES as usize;

/// The structure that is harmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    SuperblockFirst,
    SuperblockLast,
    /// The head that counts.
    NewestHead,
    OtherHead,
    Ages,
    Entries,
    /// Headers of commits that replay reads.
    LogHeader,
    /// Headers of older commits, with live blocks behind them.
    OldHeader,
    CleanData,
    DirtyData,
    /// A whole segment with dirty blocks.
    Segment,
    /// Two headers, each in the other's place.
    SwappedHeaders,
    /// Two dirty blocks, each in the other's place.
    SwappedData,
    /// A whole checkpoint.
    Area,
    /// Blocks as they were before: the device acknowledged what it did not write.
    LostWrites,
}

/// A damage.
#[derive(Clone, Debug)]
pub(super) struct Harm {
    pub(super) target: Target,
    /// Whether the damage looks as what a power cut leaves.
    pub(super) tail: bool,
    /// The commit whose `LogHeader` is hit.
    pub(super) commit: Commit,
    writes: Vec<(u64, Vec<u8>)>,
}

/// The content of a commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Commit {
    /// Whether the commit is of the stream `Writes`.
    pub(super) writes: bool,
    /// The number of blocks. A commit without blocks says something else: that a segment was freed,
    /// say.
    pub(super) blocks: u32,
}

impl Harm {
    pub(super) fn new(target: Target, offset: u64, bytes: Vec<u8>) -> Self {
        Self { target, tail: false, commit: Commit::default(), writes: vec![(offset, bytes)] }
    }

    pub(super) fn plant(&self, cache: &Path) {
        let file = File::options().write(true).open(cache).unwrap();
        for (offset, bytes) in &self.writes {
            file.write_all_at(bytes, *offset).unwrap();
        }
    }
}

struct Planner<'a> {
    image: &'a [u8],
    rng: Rng,
    harms: Vec<Harm>,
}

impl Planner<'_> {
    fn block(&self, offset: u64) -> Vec<u8> {
        self.image[offset as usize..][..BLOCK_LEN].to_vec()
    }

    fn flip(&mut self, target: Target, tail: bool, offset: u64) {
        let mut block = self.block(offset);
        block[self.rng.below(BLOCK_BYTES) as usize] ^= 1 << self.rng.below(8);
        self.harms.push(Harm { target, tail, commit: Commit::default(), writes: vec![(offset, block)] });
    }

    fn zero(&mut self, target: Target, tail: bool, offset: u64, blocks: u32) {
        let writes = vec![(offset, vec![0; blocks as usize * BLOCK_LEN])];
        self.harms.push(Harm { target, tail, commit: Commit::default(), writes });
    }

    fn swap(&mut self, target: Target, one: u64, other: u64) {
        let writes = vec![(one, self.block(other)), (other, self.block(one))];
        self.harms.push(Harm { target, tail: false, commit: Commit::default(), writes });
    }

    /// The first, the last and some between.
    fn some<T: Copy>(&mut self, all: &[T], most: usize) -> Vec<T> {
        let mut chosen = Vec::new();
        for nth in 0..most.min(all.len()) {
            let at = match nth {
                0 => 0,
                1 => all.len() - 1,
                _ => self.rng.below(all.len() as u64) as usize,
            };
            chosen.push(all[at]);
        }
        chosen
    }
}

/// Harms to a lane of a sound cache, and to its superblocks.
pub(super) fn harms(cache: &Path, lane: u32, seed: u64) -> Vec<Harm> {
    let image = std::fs::read(cache).unwrap();
    let device = DeviceFile::open(cache, Access::ReadOnly).unwrap();
    let superblock = crate::superblock::read(&device).unwrap().superblock;
    let mut reader = Reader { device: &device, superblock: &superblock, damage: Vec::new() };
    let walk = reader.lane(lane, &mut || {});
    assert!(reader.damage.is_empty(), "{:?}", reader.damage);
    let mut it = Planner { image: &image, rng: Rng::new(seed), harms: Vec::new() };
    let [first, last] = Superblock::offsets(superblock.cache_bytes);
    it.flip(Target::SuperblockFirst, false, first);
    it.zero(Target::SuperblockFirst, false, first, 1);
    it.flip(Target::SuperblockLast, false, last);
    checkpoint(&mut it, &superblock, &walk);
    commits(&mut it, &reader, &walk);
    let offset = |slot: &u32| superblock.slot_offset(walk.lane, *slot);
    for dirty in [false, true] {
        let slots: Vec<u32> = walk.live.iter().filter(|live| live.dirty == dirty).map(|live| live.slot).collect();
        let slots: Vec<u32> = slots.into_iter().filter(|slot| !is_in_tail(&reader, &walk, *slot)).collect();
        let target = if dirty { Target::DirtyData } else { Target::CleanData };
        for slot in it.some(&slots, 4) {
            it.flip(target, false, offset(&slot));
        }
        if dirty && slots.len() > 1 {
            it.zero(target, false, offset(&slots[1]), 1);
            it.swap(Target::SwappedData, offset(&slots[0]), offset(&slots[slots.len() - 1]));
            let segment_blocks = superblock.segment_blocks;
            let whole = |slot: &u32| !takes_its_proof_along(&reader, &walk, slot / segment_blocks);
            let slots: Vec<u32> = slots.into_iter().filter(whole).collect();
            for slot in it.some(&slots, 3) {
                let start = slot / segment_blocks * segment_blocks;
                it.zero(Target::Segment, false, offset(&start), segment_blocks);
            }
        }
    }
    it.harms
}

fn checkpoint(it: &mut Planner<'_>, superblock: &Superblock, walk: &LaneWalk) {
    let (area, head) = walk.checkpoint.unwrap();
    let start = superblock.checkpoint_offset(walk.lane, area);
    it.flip(Target::NewestHead, false, start);
    it.flip(Target::Ages, false, start + BLOCK_BYTES);
    let entries = head.entries.div_ceil(CHECKPOINT_ENTRIES_MAX as u64);
    for nth in 0..entries {
        it.flip(Target::Entries, false, start + (2 + nth) * BLOCK_BYTES);
    }
    if entries > 0 {
        it.zero(Target::Entries, false, start + 2 * BLOCK_BYTES, entries as u32);
    }
    let other = superblock.checkpoint_offset(walk.lane, 1 - area);
    if it.block(other).iter().any(|byte| *byte != 0) {
        it.flip(Target::OtherHead, false, other);
    }
}

/// The last commit that the checkpoint proves durable.
fn proven(reader: &Reader<'_>, walk: &LaneWalk) -> u64 {
    let area = walk.checkpoint.map(|(area, _)| reader.area(walk.lane, area));
    area.and_then(|area| area.own_ages().and_then(|ages| ages.iter().copied().max())).unwrap_or(0)
}

/// Numbers of the last commits that nothing calls durable.
fn known_durable(reader: &Reader<'_>, walk: &LaneWalk) -> u64 {
    let durable =
        walk.commits.iter().filter_map(|(_, slot, _)| reader.header(walk.lane, *slot)).map(|it| it.durable_seq).max();
    durable.unwrap_or(0).max(proven(reader, walk))
}

/// Whether losing this header or block looks as if the log had ended before it: nothing *behind* it
/// says that it was durable.
fn is_tail(reader: &Reader<'_>, walk: &LaneWalk, seq: u64) -> bool {
    let behind =
        walk.commits.iter().filter(|(it, ..)| *it > seq).filter_map(|(_, slot, _)| reader.header(walk.lane, *slot));
    let durable = behind.map(|it| it.durable_seq).max().unwrap_or(0).max(proven(reader, walk));
    walk.commits.iter().any(|(it, ..)| *it == seq) && durable < seq
}

fn is_in_tail(reader: &Reader<'_>, walk: &LaneWalk, slot: u32) -> bool {
    let durable = known_durable(reader, walk);
    walk.commits.iter().any(|(seq, first, blocks)| *seq > durable && (*first..=first + blocks).contains(&slot))
}

/// Whether losing this segment looks as if the log had ended before it: whatever says that its
/// commits were durable is in it.
fn takes_its_proof_along(reader: &Reader<'_>, walk: &LaneWalk, segment: u32) -> bool {
    let inside = |slot: &u32| slot / reader.superblock.segment_blocks == segment;
    let Some(first) = walk.commits.iter().filter(|(_, slot, _)| inside(slot)).map(|(seq, ..)| *seq).min() else {
        return false;
    };
    let others = walk.commits.iter().filter(|(seq, slot, _)| *seq > first && !inside(slot));
    !others.filter_map(|(_, slot, _)| reader.header(walk.lane, *slot)).any(|it| it.durable_seq >= first)
}

fn commits(it: &mut Planner<'_>, reader: &Reader<'_>, walk: &LaneWalk) {
    let superblock = reader.superblock;
    for (seq, slot, blocks) in it.some(&walk.commits, 8) {
        let writes = reader.header(walk.lane, slot).is_some_and(|header| header.stream == Stream::Writes as u8);
        it.flip(Target::LogHeader, is_tail(reader, walk, seq), superblock.slot_offset(walk.lane, slot));
        it.zero(Target::LogHeader, is_tail(reader, walk, seq), superblock.slot_offset(walk.lane, slot), 1);
        it.harms.iter_mut().rev().take(2).for_each(|harm| harm.commit = Commit { writes, blocks });
    }
    // Headers with live blocks of their own.
    let mut old: Vec<u32> = Vec::new();
    for segment in 0..superblock.segments_per_lane {
        let (mut slot, end) = (segment * superblock.segment_blocks, (segment + 1) * superblock.segment_blocks);
        while slot < end {
            let Some(header) = reader.header(walk.lane, slot) else { break };
            let behind = slot + 1..=slot + header.data_blocks();
            let live = walk.live.iter().any(|live| behind.contains(&live.slot));
            if live && !walk.commits.iter().any(|(_, at, _)| *at == slot) {
                old.push(slot);
            }
            slot += header.data_blocks() + 1;
        }
    }
    for slot in it.some(&old, 5) {
        it.flip(Target::OldHeader, false, superblock.slot_offset(walk.lane, slot));
    }
    let durable: Vec<u32> =
        walk.commits.iter().filter(|(seq, ..)| !is_tail(reader, walk, *seq)).map(|(_, slot, _)| *slot).collect();
    for all in [&old, &durable] {
        if all.len() > 2 {
            let (one, other) =
                (superblock.slot_offset(walk.lane, all[0]), superblock.slot_offset(walk.lane, all[all.len() - 2]));
            it.swap(Target::SwappedHeaders, one, other);
        }
    }
    if let ([one, ..], [other, ..]) = (&old[..], &durable[..]) {
        it.swap(
            Target::SwappedHeaders,
            superblock.slot_offset(walk.lane, *one),
            superblock.slot_offset(walk.lane, *other),
        );
    }
}

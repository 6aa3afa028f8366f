// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds what is left of a damaged lane: the headers of commits, and the checkpoints.
//!
//! Nothing is decided here. [`salvage`](super::salvage) says what follows.

use std::collections::BTreeMap;

use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{
    CHECKPOINT_AGES_MAX, CheckpointHeader, CommitHeader, Entry, NO_SLOT, STREAMS, decode_checkpoint_ages,
};

use super::reader::{Reader, checksum_of};

/// Numbers of commits are below this: see docs/internals/format.md.
const NUMBER_MAX: u64 = 1 << 62;

/// A commit header that is left, without its entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) epoch: u64,
    pub(super) seq: u64,
    pub(super) durable_seq: u64,
    pub(super) heads: [u32; STREAMS],
    pub(super) stream: usize,
    /// The data behind the header is what it says.
    pub(super) is_sound: bool,
}

/// The headers of a lane by slot.
pub(super) type Headers = BTreeMap<u32, Placed>;

/// The content of a checkpoint area, as far as it is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Area {
    pub(super) head: Option<CheckpointHeader>,
    /// Zeroes are where the head should be.
    pub(super) is_void: bool,
    /// The generation of the segment ages behind the head, and the ages, if all of them are left.
    pub(super) ages: Option<(u64, Vec<u64>)>,
}

impl Area {
    /// The ages, if they belong to the head.
    pub(super) fn own_ages(&self) -> Option<&[u64]> {
        let (generation, ages) = self.ages.as_ref()?;
        (self.head?.generation == *generation).then_some(ages)
    }
}

/// What is known of the log from another checkpoint than the loaded one, and from its own ages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beyond {
    /// All commits before this one were durable.
    pub(super) least: u64,
    /// A later checkpoint began with this commit.
    pub(super) start: Option<u64>,
    /// The opening in which that was, if its head is left.
    pub(super) epoch: Option<u64>,
    /// A later checkpoint may have been there of which nothing is left.
    pub(super) unknown: bool,
}

impl Beyond {
    /// Returns what is known beyond the checkpoint in this area.
    pub(super) fn of(areas: &[Area; 2], area: u32, head: CheckpointHeader, mirrored: bool) -> Self {
        let (own, other) = (&areas[area as usize], &areas[1 - area as usize]);
        let after = |ages: &[u64]| ages.iter().max().map_or(0, |age| age + 1);
        let it = Self { least: own.own_ages().map_or(head.seq, after).max(head.seq), ..Self::default() };
        match (&other.head, &other.ages) {
            (Some(newer), _) if newer.generation > head.generation => {
                let least = other.own_ages().map_or(0, after).max(newer.seq).max(it.least);
                Self { least, start: Some(newer.seq), epoch: Some(newer.epoch), unknown: false }
            }
            (Some(_), _) => it,
            (None, _) if other.is_void && (is_alone(&head) || mirrored) => it,
            // All that the ages speak of was durable before the head was written.
            (None, Some((generation, ages))) if *generation > head.generation => {
                Self { least: after(ages).max(it.least), start: Some(after(ages)), ..it }
            }
            (None, Some(_)) => it,
            (None, None) => Self { unknown: true, ..it },
        }
    }
}

/// Whether a checkpoint with this head has no other one beside it: format and repair leave such
/// ones.
pub(super) fn is_alone(head: &CheckpointHeader) -> bool {
    head.seq == 0 || head.heads == [NO_SLOT; STREAMS]
}

impl Reader<'_> {
    /// Reads a checkpoint area.
    pub(super) fn area(&self, lane: u32, area: u32) -> Area {
        let start = self.superblock.checkpoint_offset(lane, area);
        let block = self.blocks(start, 1).ok();
        let is_void = block.as_ref().is_some_and(|block| block.iter().all(|byte| *byte == 0));
        let head = block.and_then(|block| self.decode_head(lane, area, &block));
        Area { head, is_void, ages: self.ages_of(start + BLOCK_BYTES) }
    }

    fn ages_of(&self, start: u64) -> Option<(u64, Vec<u64>)> {
        let segments = self.superblock.segments_per_lane as usize;
        let count = segments.div_ceil(CHECKPOINT_AGES_MAX) as u32;
        let blocks = self.stretch(start, count);
        let generation = u64::from_le_bytes(blocks.block(0).ok()?.get(8..16)?.try_into().ok()?);
        let mut ages = Vec::with_capacity(segments);
        for nth in 0..count {
            ages.extend(decode_checkpoint_ages(generation, blocks.block(nth).ok()?)?);
        }
        // Nothing counts so far.
        let sound = ages.len() == segments && ages.iter().all(|age| *age < NUMBER_MAX);
        sound.then_some((generation, ages))
    }

    /// Finds all headers of a lane, in whose segments `open` the log was to go on. `looked` hears
    /// of each segment.
    pub(super) fn headers(&self, lane: u32, open: &[u32], looked: &mut dyn FnMut()) -> Headers {
        let mut headers = Headers::new();
        for segment in 0..self.superblock.segments_per_lane {
            self.scan(lane, segment, open.contains(&segment), &mut headers);
            looked();
        }
        headers
    }

    /// Finds the headers of a segment: one behind the other, and block by block where one is
    /// missing.
    ///
    /// In a segment where the log was to go on, every block is looked at. In the place of a missing
    /// commit there may be an older one, whose data is commits now.
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
            // A lower number, or a number of an earlier opening, is left over from an earlier use
            // of the segment. Headers that a repair made are of no opening.
            let is_next = |it: &CommitHeader| if it.epoch == 0 { it.seq > last.1 } else { (it.epoch, it.seq) > last };
            let Some(header) = header.filter(is_next) else {
                bytes.get_or_insert_with(|| self.segment(lane, segment));
                slot += 1;
                continue;
            };
            let is_sound = self.describes_its_data(&header, lane, slot);
            let CommitHeader { epoch, seq, durable_seq, heads, stream, .. } = header;
            let stream = usize::from(stream);
            headers.insert(slot, Placed { epoch, seq, durable_seq, heads, stream, is_sound });
            // A header that describes none of its blocks may have come here by accident: it proves
            // nothing about what follows.
            if is_sound {
                last = (last.0.max(header.epoch), header.seq);
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
            if let Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } = *entry {
                looked = true;
                let block = self.blocks(self.superblock.slot_offset(lane, at), 1);
                if block.is_ok_and(|block| checksum_of(&block, key, self.superblock) == checksum) {
                    return true;
                }
            }
        }
        !looked
    }
}

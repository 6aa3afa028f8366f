// SPDX-License-Identifier: MIT OR Apache-2.0
//! The superblock of a cache that shrinks: which segments stay where they are, and where its
//! checkpoint areas go.
//!
//! A cache that has shrunk looks like one that has grown (format version 3). Its first segments are
//! where they were, and new checkpoint areas lie behind all segments. So each checkpoint of before
//! is whole until the new superblock counts. Where a cache has several lanes, these lie back to
//! back: all but the first have to begin elsewhere, and nothing of the log stays.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::grow::area_blocks;
use super::{Grown, LogPart, SEGMENTS_MIN, Superblock};
use crate::fact::types::BLOCK_BYTES;

impl Superblock {
    /// This cache on a smaller device of that size, with as many segments as fit. The number says
    /// how many of a lane's first segments stay where they are. Only numbers change here: each
    /// lane's checkpoint has to be in its new area before this counts. `None`: nothing useful fits.
    #[must_use]
    pub fn shrunk_to(&self, cache_bytes: u64) -> Option<(Self, u32)> {
        let segments = cache_bytes / BLOCK_BYTES / u64::from(self.segment_blocks) / u64::from(self.lanes);
        let most = segments.min(u64::from(self.segments_per_lane)) as u32;
        let mut possible = (SEGMENTS_MIN..=most).rev().filter_map(|segments| self.shrunk_with(segments));
        let (mut it, kept) = possible.find(|(it, _)| it.cache_bytes <= cache_bytes)?;
        let last = cache_bytes / BLOCK_BYTES - 1;
        // Its last superblock would lie on what still counts: the rest of the device stays unused.
        if !self.checkpoint_areas().any(|area| area.contains(&last)) {
            it.cache_bytes = cache_bytes;
        }
        Some((it, kept))
    }

    /// This cache with so many segments of each lane, on the smallest device: see
    /// [`Self::shrunk_to`]. `None`: it has not more, or can't shrink.
    #[must_use]
    pub fn shrunk_with(&self, segments: u32) -> Option<(Self, u32)> {
        if !(SEGMENTS_MIN..self.segments_per_lane).contains(&segments) {
            return None;
        }
        let (segment, lanes) = (u64::from(self.segment_blocks), u64::from(self.lanes));
        let made = self.grown.as_ref().map_or(self.segments_per_lane, |grown| grown.made_segments);
        let made_checkpoint_blocks = self.grown.as_ref().map_or(self.checkpoint_blocks, |it| it.made_checkpoint_blocks);
        let one_lane = self.lanes == 1;
        let (made_segments, parts) = match &self.grown {
            // Some of what was gained stays.
            Some(grown) if one_lane && segments > made => (made, first_parts(&grown.parts, segments - made)),
            // The last segment is a part of its own, since there is at least one.
            _ => {
                let made = segments - 1;
                let lane = 2 * u64::from(made_checkpoint_blocks) + u64::from(made) * segment;
                let behind = u64::from(self.first_block) + lanes * lane + 1;
                (made, alloc::vec![LogPart { first_block: behind.next_multiple_of(segment), segments: 1 }])
            }
        };
        let last = parts.last()?;
        let end = last.first_block + lanes * u64::from(last.segments) * segment;
        let area = area_blocks(segments, self.segment_blocks);
        let all = 2 * lanes * area;
        // The areas of before, and those of after with the superblock behind them, are apart.
        let mut checkpoints = end.next_multiple_of(segment);
        while let Some(other) =
            self.checkpoint_areas().find(|it| it.start < checkpoints + all + 1 && checkpoints < it.end)
        {
            checkpoints = other.end.next_multiple_of(segment);
        }
        let kept = match one_lane {
            true if segments > made => segments,
            true => made_segments,
            false => 0,
        };
        let grown = Grown { made_segments, made_checkpoint_blocks, checkpoints, parts };
        let superblock = Self {
            cache_bytes: (checkpoints + all + 1) * BLOCK_BYTES,
            segments_per_lane: segments,
            checkpoint_blocks: area as u32,
            grown: Some(Box::new(grown)),
            ..self.clone()
        };
        superblock.layout_is_sound().ok().map(|()| (superblock, kept))
    }

    /// The blocks of all checkpoint areas.
    fn checkpoint_areas(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        (0..self.lanes).map(|lane| {
            let first = self.checkpoint_offset(lane, 0) / BLOCK_BYTES;
            first..first + 2 * u64::from(self.checkpoint_blocks)
        })
    }
}

/// The first segments of the parts, as many as asked for.
fn first_parts(parts: &[LogPart], segments: u32) -> Vec<LogPart> {
    let mut left = segments;
    let mut taken = Vec::new();
    for part in parts {
        let segments = part.segments.min(left);
        if segments == 0 {
            break;
        }
        taken.push(LogPart { segments, ..*part });
        left -= segments;
    }
    taken
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;
    use crate::format::Table;

    /// A cache of version 2, with a table of volumes before its lanes.
    fn superblock(lanes: u32) -> Superblock {
        let base = crate::format::tests::superblock();
        let table = Some(Table { first_block: 1, blocks: 1, number: 1, next_id: 0 });
        let segments_per_lane = 64;
        let checkpoint_blocks = area_blocks(segments_per_lane, base.segment_blocks) as u32;
        let lane = 2 * checkpoint_blocks + segments_per_lane * base.segment_blocks;
        let first_block = 3_u32.next_multiple_of(base.segment_blocks);
        let cache_bytes = u64::from(first_block + lanes * lane + 1) * BLOCK_BYTES;
        let grown = None;
        let origins = Vec::new();
        Superblock {
            lanes,
            segments_per_lane,
            checkpoint_blocks,
            first_block,
            cache_bytes,
            table,
            grown,
            origins,
            ..base
        }
    }

    fn blocks(it: &Superblock, lane: u32, segment: u32) -> Range<u64> {
        let first = it.slot_offset(lane, segment * it.segment_blocks) / BLOCK_BYTES;
        first..first + u64::from(it.segment_blocks)
    }

    /// What is written before the new superblock counts lies on nothing that counts until then: not
    /// on segments that stay, on checkpoints, or on superblocks.
    fn assert_sound(before: &Superblock, to: u64) -> Option<Superblock> {
        let (it, kept) = before.shrunk_to(to)?;
        assert_eq!(Superblock::decode(&it.encode()), Ok(it.clone()), "{it:?}");
        assert!(it.cache_bytes <= to && it.version() == 3);
        let mut needed = BTreeSet::from([0, before.cache_bytes / BLOCK_BYTES - 1]);
        needed.extend(before.checkpoint_areas().flatten());
        for segment in 0..kept {
            assert_eq!(blocks(&it, 0, segment), blocks(before, 0, segment), "segment {segment} stays");
            needed.extend(blocks(before, 0, segment));
        }
        let mut taken = BTreeSet::from([0]);
        for block in it.checkpoint_areas().flatten().chain([it.cache_bytes / BLOCK_BYTES - 1]) {
            assert!(!needed.contains(&block), "{block} still counts");
            assert!(taken.insert(block) && block < it.cache_bytes / BLOCK_BYTES);
        }
        for (lane, segment) in (0..it.lanes).flat_map(|lane| (0..it.segments_per_lane).map(move |it| (lane, it))) {
            assert!(blocks(&it, lane, segment).all(|block| taken.insert(block)), "lane {lane} segment {segment}");
        }
        Some(it)
    }

    #[test]
    fn nothing_is_written_on_what_still_counts() {
        for lanes in [1, 3] {
            let whole = superblock(lanes);
            let twice = whole.grown_to(whole.cache_bytes * 2).expect("there is room");
            let often = twice.grown_to(whole.cache_bytes * 3).expect("there is room");
            for before in [whole, twice, often] {
                let mut fitted = 0;
                for percent in 1..100 {
                    let to = before.cache_bytes * percent / 100;
                    let Some(after) = assert_sound(&before, to) else { continue };
                    fitted += 1;
                    // And once more, and larger again.
                    assert_sound(&after, to * 3 / 4);
                    if let Ok(grown) = after.grown_to(before.cache_bytes) {
                        assert_sound(&grown, to);
                    }
                }
                assert!(fitted > 40, "{fitted} sizes of {before:?}");
            }
        }
    }

    #[test]
    fn little_is_wasted() {
        let before = superblock(1);
        let (after, _) = before.shrunk_to(before.cache_bytes * 3 / 4).expect("it fits");
        assert!(after.segments_per_lane >= 44, "{after:?}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The superblock of a cache that grows: where the room that is gained goes, and what makes sense.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CHECKPOINT_AGES_MAX, GrowError, Grown, LogPart, NO_SLOT, PARTS_MAX, Superblock, checkpoint_blocks};
use crate::fact::types::BLOCK_BYTES;

/// Checkpoint areas are whole segments if the lane has so many: under 1 % of it.
const WHOLE_SEGMENTS: u32 = 256;

/// Blocks of a checkpoint area of a lane with so many segments.
pub(super) fn area_blocks(segments: u32, segment_blocks: u32) -> u64 {
    let blocks = checkpoint_blocks(segments, segment_blocks);
    if segments >= WHOLE_SEGMENTS { blocks.next_multiple_of(u64::from(segment_blocks)) } else { blocks }
}

impl Superblock {
    /// Whether the parts lie one behind the other between these blocks, beside the checkpoint
    /// areas.
    pub(super) fn has_sound_parts(&self, grown: &Grown, from: u64, end: u64) -> bool {
        let lanes = u64::from(self.lanes);
        let (mut free_from, mut segments, mut areas_apart) = (from, u64::from(grown.made_segments), true);
        let areas_end = grown.checkpoints.saturating_add(2 * lanes * u64::from(self.checkpoint_blocks));
        for part in &grown.parts {
            if part.segments > self.segments_per_lane {
                return false;
            }
            let blocks = lanes * u64::from(part.segments) * u64::from(self.segment_blocks);
            let part_end = part.first_block.saturating_add(blocks);
            if part.first_block < free_from || part_end > end {
                return false;
            }
            areas_apart &= areas_end <= part.first_block || grown.checkpoints >= part_end;
            (free_from, segments) = (part_end, segments + u64::from(part.segments));
        }
        let areas_inside = grown.checkpoints >= from && areas_end <= end;
        !grown.parts.is_empty() && areas_inside && areas_apart && segments == u64::from(self.segments_per_lane)
    }

    /// This cache on a device of that size, larger than the one that it has. Only numbers change
    /// here: each lane's checkpoint has to be in its new area before this counts.
    ///
    /// # Errors
    /// [`GrowError`]
    pub fn grown_to(&self, cache_bytes: u64) -> Result<Self, GrowError> {
        let segment = u64::from(self.segment_blocks);
        // The last superblock of before stays where it is, and all before that.
        let from = (self.cache_bytes / BLOCK_BYTES).next_multiple_of(segment);
        let room = (cache_bytes / BLOCK_BYTES).saturating_sub(1).saturating_sub(from);
        let lanes = u64::from(self.lanes);
        let most = (u64::from(NO_SLOT) - 1) / segment - u64::from(self.segments_per_lane);
        if most == 0 {
            return Err(GrowError::TooLarge);
        }
        let areas = |more: u64| {
            let blocks = area_blocks(self.segments_per_lane + more as u32, self.segment_blocks);
            (blocks, (2 * lanes * blocks).next_multiple_of(segment))
        };
        let mut more = (room / segment / lanes).min(most);
        while more > 0 && areas(more).1 + lanes * more * segment > room {
            more -= 1;
        }
        if more == 0 {
            return Err(GrowError::TooLittle);
        }
        let mut grown = self.grown.clone().unwrap_or_else(|| {
            Box::new(Grown {
                made_segments: self.segments_per_lane,
                made_checkpoint_blocks: self.checkpoint_blocks,
                checkpoints: 0,
                parts: Vec::new(),
            })
        });
        if grown.parts.len() == PARTS_MAX {
            return Err(GrowError::TooOften);
        }
        let (area, all) = areas(more);
        grown.checkpoints = from;
        grown.parts.push(LogPart { first_block: from + all, segments: more as u32 });
        Ok(Self {
            cache_bytes,
            segments_per_lane: self.segments_per_lane + more as u32,
            checkpoint_blocks: area as u32,
            grown: Some(grown),
            ..self.clone()
        })
    }

    /// Blocks of the ages in a checkpoint: they tell of all segments of a lane.
    #[must_use]
    pub fn age_blocks(&self) -> u32 {
        self.segments_per_lane.div_ceil(CHECKPOINT_AGES_MAX as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Table;

    /// A cache of version 2, with a table of volumes behind its lanes.
    fn superblock() -> Superblock {
        let table = Some(Table { first_block: 300, blocks: 1, number: 1, next_id: 0 });
        Superblock { table, origins: Vec::new(), ..crate::format::tests::superblock() }
    }

    /// Every slot and every checkpoint area has blocks of its own, before and after each growth.
    #[test]
    fn nothing_lies_on_anything_else() {
        let mut it = superblock();
        for bytes in [3 << 20, (7 << 20) + 4096, 64 << 20] {
            let before = it.clone();
            it = it.grown_to(bytes).expect("there is room");
            assert_eq!(Superblock::decode(&it.encode()), Ok(it.clone()), "{it:?}");
            assert_eq!(it.version(), 3);
            let mut taken = alloc::collections::BTreeSet::from([0, it.cache_bytes / BLOCK_BYTES - 1]);
            assert!(taken.insert(before.cache_bytes / BLOCK_BYTES - 1), "the last copy of before");
            taken.extend([300, 301]);
            for lane in 0..it.lanes {
                for slot in 0..it.slots() {
                    let offset = it.slot_offset(lane, slot);
                    assert!(slot >= before.slots() || offset == before.slot_offset(lane, slot), "slots stay");
                    assert!(offset < it.cache_bytes && taken.insert(offset / BLOCK_BYTES), "lane {lane} slot {slot}");
                }
                for area in 0..2 {
                    let (new, old) = (it.checkpoint_offset(lane, area), before.checkpoint_offset(lane, area));
                    assert!(new >= before.cache_bytes && old != new);
                    let new = new / BLOCK_BYTES..new / BLOCK_BYTES + u64::from(it.checkpoint_blocks);
                    let old = old / BLOCK_BYTES..old / BLOCK_BYTES + u64::from(before.checkpoint_blocks);
                    assert!(new.chain(old).all(|block| taken.insert(block)), "lane {lane} area {area}");
                }
            }
        }
        assert!(it.slots() * it.lanes * 100 > (64 << 8) * 85, "little is wasted: {it:?}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let it = superblock();
        assert_eq!(it.grown_to(it.cache_bytes + BLOCK_BYTES), Err(GrowError::TooLittle));
        let mut often = it.clone();
        for nth in 1..=PARTS_MAX as u64 {
            often = often.grown_to((2 + nth) << 20).expect("there is room");
        }
        assert_eq!(often.grown_to(64 << 20), Err(GrowError::TooOften));
        let grown = it.grown_to(4 << 20).expect("there is room");
        let harmed = |harm: &dyn Fn(&mut Grown)| {
            let mut it = grown.clone();
            harm(it.grown.as_mut().expect("it has grown"));
            Superblock::decode(&it.encode())
        };
        for harm in [
            &(|it: &mut Grown| it.parts[0].first_block = 3) as &dyn Fn(&mut Grown),
            &|it| it.parts[0].first_block = u64::MAX - 5,
            &|it| it.parts[0].segments += 1,
            &|it| it.checkpoints = it.parts[0].first_block,
            &|it| it.checkpoints = u64::MAX - 5,
            &|it| it.checkpoints = 1,
            &|it| it.made_segments += 1,
            &|it| it.made_segments = u32::MAX,
            &|it| it.made_checkpoint_blocks = u32::MAX,
            &|it| it.parts.clear(),
        ] {
            assert!(harmed(harm).is_err());
        }
    }
}

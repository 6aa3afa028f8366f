// SPDX-License-Identifier: MIT OR Apache-2.0
//! Divides a cache device: superblocks, checkpoint areas, segments.
//!
//! Numbers in, numbers out. Lanes start at multiples of a segment where that costs little, so that
//! segments are whole erase blocks on drives whose erase blocks divide them.

use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{Table, VOLUMES_MAX, checkpoint_blocks};

use crate::config::Size;
use crate::report::counted;

/// Segment size if none is given: 1 MiB: one large sequential write; four commits' headers
/// are 1.6 % of it.
pub const SEGMENT_BYTES_DEFAULT: u64 = 1 << 20;
/// The least segments of a lane. Six are open (two for each of three streams), reclaim keeps eight
/// to sixteen free, and some should hold data.
const SEGMENTS_PER_LANE_MIN: u64 = 24;
/// Most lanes: each keeps 15 MiB of buffers in RAM, and one thread drives them all unless the
/// operator gives them more.
pub const LANES_MAX: u32 = 16;
/// A stripe: runs of 16 MiB stay in one lane, long enough for any merged write.
pub(super) const STRIPE_BLOCKS: u32 = 4096;
/// Slots are numbered with 32 bits, of which the highest number means "none".
const SLOTS_PER_LANE_MAX: u64 = u32::MAX as u64 - 1;

/// Why a device can't be divided as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The segment size is out of range.
    #[error("segments of {} are not possible; take a power of two from 64 KiB to 16 MiB", Size(*.0))]
    Segment(u64),
    /// There are too few lanes, or too many.
    #[error("{0} lanes are not possible; take 1 to {LANES_MAX}")]
    Lanes(u32),
    /// The device is too small.
    #[error(
        "the cache device is too small: it has {}, and {} with segments of {} need at least {} MiB; take a larger device, fewer lanes or smaller segments",
        Size(*found).told(), counted((*lanes).into(), "lane"), Size(*segment_bytes), least.div_ceil(1 << 20)
    )]
    TooSmall {
        /// The bytes of the device.
        found: u64,
        /// The bytes that are needed.
        least: u64,
        /// Lanes asked for.
        lanes: u32,
        /// Segment size asked for.
        segment_bytes: u64,
    },
}

/// The places of all parts, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) lanes: u32,
    pub(super) segment_blocks: u32,
    pub(super) segments_per_lane: u32,
    pub(super) checkpoint_blocks: u32,
    pub(super) first_block: u32,
    /// Blocks of each of the two areas for the table of volumes, which begin at block 1.
    pub(super) table_blocks: u32,
}

impl Layout {
    /// Divides a device. What is not given is chosen for its size.
    pub(super) fn new(cache_bytes: u64, segment_bytes: Option<u64>, lanes: Option<u32>) -> Result<Self, LayoutError> {
        let segment_bytes = segment_bytes.unwrap_or_else(|| default_segment(cache_bytes));
        if !segment_bytes.is_power_of_two() || !(64 << 10..=16 << 20).contains(&segment_bytes) {
            return Err(LayoutError::Segment(segment_bytes));
        }
        let lanes = lanes.unwrap_or_else(|| default_lanes(cache_bytes));
        if !(1..=LANES_MAX).contains(&lanes) {
            return Err(LayoutError::Lanes(lanes));
        }
        let segment = segment_bytes / BLOCK_BYTES;
        // One superblock at each end; the tables of volumes lie before the first lane, which starts
        // with a segment.
        let first_block = first_block(cache_bytes, segment);
        let room = (cache_bytes / BLOCK_BYTES).saturating_sub(first_block + 1) / u64::from(lanes);
        // A checkpoint entry takes 1/255 of a block per slot, in two areas: start a little too
        // high.
        let mut segments = (room / segment).min(SLOTS_PER_LANE_MAX / segment);
        while segments >= SEGMENTS_PER_LANE_MIN && 2 * area(segments, segment) + segments * segment > room {
            segments -= 1;
        }
        if segments < SEGMENTS_PER_LANE_MIN {
            let lane = 2 * area(SEGMENTS_PER_LANE_MIN, segment) + SEGMENTS_PER_LANE_MIN * segment;
            // Of a larger device the tables are larger.
            let with = |bytes| (self::first_block(bytes, segment) + 1 + u64::from(lanes) * lane) * BLOCK_BYTES;
            let mut least = with(0);
            while with(least) > least {
                least = with(least);
            }
            return Err(LayoutError::TooSmall { found: cache_bytes, least, lanes, segment_bytes });
        }
        Ok(Self {
            lanes,
            segment_blocks: segment as u32,
            segments_per_lane: segments as u32,
            checkpoint_blocks: area(segments, segment) as u32,
            first_block: first_block as u32,
            table_blocks: table_blocks(cache_bytes),
        })
    }

    /// Blocks the log has room for, headers included.
    pub(super) fn capacity_blocks(&self) -> u64 {
        u64::from(self.lanes) * u64::from(self.segments_per_lane) * u64::from(self.segment_blocks)
    }
}

/// Blocks of an area for the table of volumes. From 1.2 GiB on there is room for 4,096 volumes. A
/// smaller cache gives 1/256 of itself to both areas.
fn table_blocks(cache_bytes: u64) -> u32 {
    let most = u64::from(Table::blocks_for(VOLUMES_MAX));
    (cache_bytes / BLOCK_BYTES / 512).clamp(3, most) as u32
}

/// Where the first lane starts: with a whole segment, behind both areas.
fn first_block(cache_bytes: u64, segment: u64) -> u64 {
    (1 + 2 * u64::from(table_blocks(cache_bytes))).next_multiple_of(segment)
}

/// Blocks of a checkpoint area; whole segments once that is under 1 % of the lane.
fn area(segments: u64, segment: u64) -> u64 {
    let blocks = checkpoint_blocks(segments as u32, segment as u32);
    if segments >= 256 { blocks.next_multiple_of(segment) } else { blocks }
}

/// Small devices get smaller segments, so that there are at least 64.
fn default_segment(cache_bytes: u64) -> u64 {
    let mut segment = SEGMENT_BYTES_DEFAULT;
    while segment > 64 << 10 && cache_bytes / segment < 72 {
        segment /= 2;
    }
    segment
}

/// Returns the number of lanes: one below 64 GiB, then four.
///
/// Each lane has its own open segments and its own part in every FLUSH, and gains only by threads
/// (`--lane-threads`). But the number is fixed at format.
fn default_lanes(cache_bytes: u64) -> u32 {
    if cache_bytes < 64 << 30 { 1 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_fits_and_little_is_wasted() {
        for mib in [8_u64, 16, 31, 64, 256, 1000, 4096, 65_535, 65_536, 1 << 20, 16 << 20] {
            let bytes = mib << 20;
            let layout = Layout::new(bytes, None, None).unwrap();
            let lane = 2 * u64::from(layout.checkpoint_blocks) + layout.capacity_blocks() / u64::from(layout.lanes);
            let end = u64::from(layout.first_block) + u64::from(layout.lanes) * lane + 1;
            assert!(end <= bytes / BLOCK_BYTES, "{mib} MiB: {layout:?}");
            let used = layout.capacity_blocks() * BLOCK_BYTES * 100 / bytes;
            assert!(used >= 95, "{mib} MiB: {used} % {layout:?}");
            assert!(
                u64::from(layout.checkpoint_blocks)
                    >= checkpoint_blocks(layout.segments_per_lane, layout.segment_blocks)
            );
        }
    }

    #[test]
    fn what_is_too_small_is_told_how_much_is_needed() {
        let Err(LayoutError::TooSmall { least, .. }) = Layout::new(1 << 20, None, None) else {
            panic!("1 MiB is enough")
        };
        Layout::new(least, Some(64 << 10), None).unwrap();
        assert!(Layout::new(least - BLOCK_BYTES, Some(64 << 10), None).is_err());
        let Err(LayoutError::TooSmall { least, .. }) = Layout::new(64 << 20, Some(1 << 20), Some(16)) else {
            panic!("64 MiB is enough")
        };
        Layout::new(least, Some(1 << 20), Some(16)).unwrap();
    }

    #[test]
    fn odd_sizes_are_refused() {
        for segment in [0, 4096, 100_000, 3 << 20, 32 << 20] {
            assert_eq!(Layout::new(1 << 30, Some(segment), None), Err(LayoutError::Segment(segment)));
        }
        for lanes in [0, 17] {
            assert_eq!(Layout::new(1 << 30, None, Some(lanes)), Err(LayoutError::Lanes(lanes)));
        }
    }
}

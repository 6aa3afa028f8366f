// SPDX-License-Identifier: MIT OR Apache-2.0
//! A spec says what a world is made of: sizes, origins, options.

use flashfront_device::sim::RamSpec;
use flashfront_engine::format::{Mirror, OriginRecord, Pairing, Superblock, Table, checkpoint_blocks};
use flashfront_engine::{BLOCK_BYTES, Mode, Options, OriginId};

/// Blocks of each area for the table of volumes, at least: room for 14.
const TABLE_BLOCKS: u32 = 2;

/// An origin of a world.
#[derive(Clone, Copy, Debug)]
pub struct OriginSpec {
    /// Its size, a multiple of its logical block.
    pub size_bytes: u64,
    /// 512 or 4096.
    pub logical_block_bytes: u32,
    /// The mode in the beginning.
    pub mode: Mode,
}

/// The parts and sizes of a world.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// The seed of the disks' jitter.
    pub seed: u64,
    /// Lanes of the cache.
    pub lanes: u32,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Segments of a lane.
    pub segments_per_lane: u32,
    /// Blocks of a stripe.
    pub stripe_blocks: u32,
    /// Whether the cache lies on two devices.
    pub mirrored: bool,
    /// The origins.
    pub origins: Vec<OriginSpec>,
    /// Time of one I/O of the cache device, and up to as much again.
    pub cache_ns: u64,
    /// Time of one I/O of an origin, and up to as much again.
    pub origin_ns: u64,
    /// What a member of the cache may take for an I/O before it hangs; `None` = for ever.
    pub cache_limit_ns: Option<u64>,
    /// How long an origin may take for an I/O before it hangs; `None` = for ever.
    pub origin_limit_ns: Option<u64>,
    /// The engine's options; `origin_block_bytes` is filled in from the origins.
    pub options: Options,
    /// What was written to an origin between two flushes is there as a whole or not at all: a
    /// volume in an object store.
    pub whole_flushes: bool,
    /// Every other input is taken together with the next one, as a daemon does with what comes
    /// together.
    pub batches: bool,
    /// Messages between lanes and the coordinator are on their way for a while.
    pub by_mail: bool,
    /// Chooses, with the seed, which of them comes next.
    pub order: u64,
    /// Lanes work apart wherever two have anything to do, with so many helpers.
    pub apart: Option<usize>,
    /// But only while the cache opens, as in a daemon without threads for lanes.
    pub apart_while_opening: bool,
    /// The number of segments of each lane that came by growing.
    pub grown_segments: u32,
    /// Walk the engine's invariants after each input.
    pub check: bool,
}

impl Default for WorldSpec {
    /// A world with a lane of 48 segments of 16 blocks (3 MiB) before one origin of 8 MiB,
    /// writeback.
    fn default() -> Self {
        Self {
            seed: 0,
            lanes: 1,
            segment_blocks: 16,
            segments_per_lane: 48,
            stripe_blocks: 64,
            mirrored: false,
            origins: vec![OriginSpec { size_bytes: 8 << 20, logical_block_bytes: 512, mode: Mode::Writeback }],
            cache_ns: 50_000,
            origin_ns: 1_000_000,
            cache_limit_ns: None,
            origin_limit_ns: None,
            options: Options::default(),
            whole_flushes: false,
            batches: false,
            by_mail: false,
            order: 0,
            apart: None,
            apart_while_opening: false,
            grown_segments: 0,
            check: true,
        }
    }
}

impl WorldSpec {
    /// The superblock of such a cache, freshly formatted.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        if self.grown_segments > 0 {
            let segments_per_lane = self.segments_per_lane - self.grown_segments;
            let made = Self { segments_per_lane, grown_segments: 0, ..self.clone() }.superblock();
            let step = u64::from(self.lanes * self.segment_blocks) * BLOCK_BYTES;
            let mut sizes = (1..).map(|nth| made.grown_to(made.cache_bytes + nth * step));
            let grown = sizes.find(|it| it.as_ref().is_ok_and(|it| it.segments_per_lane == self.segments_per_lane));
            return grown.and_then(Result::ok).unwrap_or(made);
        }
        let area = checkpoint_blocks(self.segments_per_lane, self.segment_blocks);
        let tables = TABLE_BLOCKS.max(Table::blocks_for(self.origins.len()));
        let lane = 2 * area + u64::from(self.segments_per_lane) * u64::from(self.segment_blocks);
        let record = |(id, origin): (usize, &OriginSpec)| OriginRecord {
            id: OriginId(id as u32),
            mode: origin.mode,
            size_bytes: origin.size_bytes,
            name: format!("origin{id}"),
            ..OriginRecord::default()
        };
        Superblock {
            uuid: *b"a cache of tests",
            update: 1,
            epoch: 0,
            clean: true,
            failed: false,
            dirty_blocks: 0,
            pairing: Pairing { mirror: if self.mirrored { Mirror::Whole } else { Mirror::None }, ..Pairing::default() },
            cache_bytes: (2 + 2 * u64::from(tables) + u64::from(self.lanes) * lane) * BLOCK_BYTES,
            lanes: self.lanes,
            segment_blocks: self.segment_blocks,
            segments_per_lane: self.segments_per_lane,
            checkpoint_blocks: area as u32,
            stripe_blocks: self.stripe_blocks,
            first_block: 1 + 2 * tables,
            grown: None,
            table: Some(Table { first_block: 1, blocks: tables, number: 1, next_id: self.origins.len() as u32 }),
            origins: self.origins.iter().enumerate().map(record).collect(),
        }
    }

    /// The options with what the origins demand.
    #[must_use]
    pub fn engine_options(&self) -> Options {
        let unit = |(id, origin): (usize, &OriginSpec)| (OriginId(id as u32), origin.logical_block_bytes);
        let origin_block_bytes = self.origins.iter().enumerate().map(unit).collect();
        let ids = (0..self.origins.len()).filter(|_| self.whole_flushes).map(|id| OriginId(id as u32));
        Options {
            origin_block_bytes,
            whole_flushes: ids.collect(),
            #[cfg(feature = "canary")]
            canary: crate::canary::planted(),
            ..self.options.clone()
        }
    }

    pub(crate) fn cache_disk(&self, size_bytes: u64, member: u8) -> RamSpec {
        RamSpec {
            size_bytes,
            logical_block_bytes: 4096,
            latency_ns: self.cache_ns,
            jitter_ns: self.cache_ns,
            seed: self.seed ^ 0xcac4e ^ u64::from(member) << 40,
            ..RamSpec::default()
        }
    }

    pub(crate) fn origin_disk(&self, nth: usize) -> RamSpec {
        RamSpec {
            size_bytes: self.origins[nth].size_bytes,
            logical_block_bytes: self.origins[nth].logical_block_bytes,
            latency_ns: self.origin_ns,
            jitter_ns: self.origin_ns,
            seed: self.seed ^ 0x0419 ^ (nth as u64) << 32,
            whole_flushes: self.whole_flushes,
            ..RamSpec::default()
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a seed decides before anything runs.

use flashfront_device::Rng;
use flashfront_engine::{Durability, Mode, Options, admission, replacement};

use crate::spec::{OriginSpec, WorldSpec};

/// The life of one cache.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its world.
    pub spec: WorldSpec,
    /// Openings.
    pub generations: u64,
    /// Requests of one opening.
    pub requests: u64,
    /// Requests in flight at most.
    pub depth: u64,
    /// Of a hundred requests so many are reads.
    pub reads: u64,
    /// Longest request in sectors.
    pub sectors_max: u64,
    /// Requests go to this many sectors at the start of each origin most of the time.
    pub hot_sectors: u64,
    /// One request in so many is a FLUSH.
    pub flush_every: u64,
    /// One request in so many is followed by a control command; 0 = none.
    pub control_every: u64,
    /// One request in so many is a discard or write-zeroes; 0 = none.
    pub special_every: u64,
    /// One request in so many comes with an I/O that fails, somewhere; 0 = none.
    pub faults_every: u64,
    /// The cache device's writes and flushes fail too.
    pub cache_faults: bool,
    /// One write in so many has FUA; 0 = none.
    pub fua_every: u64,
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

impl Plan {
    /// The life that a seed stands for.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let lanes = pick(rng, &[1, 1, 1, 2, 2, 4]);
        let segment_blocks = pick(rng, &[16, 16, 16, 32, 64]);
        let segments_per_lane = pick(rng, &[16, 24, 24, 32, 64]);
        let origins = 1 + rng.below(2) as usize;
        let capacity = u64::from(lanes * segment_blocks * segments_per_lane);
        let mode =
            pick(rng, &[Mode::Writeback, Mode::Writeback, Mode::Writeback, Mode::Writethrough, Mode::Writearound]);
        let origin = |rng: &mut Rng| {
            let logical_block_bytes = pick(rng, &[512, 512, 4096]);
            let size = capacity * 4096 * (60 + rng.below(200)) / 100 / origins as u64;
            let size_bytes =
                size.clamp(1 << 20, 12 << 20) / u64::from(logical_block_bytes) * u64::from(logical_block_bytes);
            OriginSpec { size_bytes, logical_block_bytes, mode }
        };
        let origins: Vec<_> = (0..origins).map(|_| origin(rng)).collect();
        let dirty_limit_blocks = pick(rng, &[None, None, Some(capacity / 8), Some(capacity)]);
        let options = Options {
            admission: &admission::ALL[rng.below(admission::ALL.len() as u64) as usize],
            replacement: &replacement::ALL[rng.below(replacement::ALL.len() as u64) as usize],
            durability: pick(rng, &[Durability::Flush, Durability::Flush, Durability::Always]),
            dirty_limit_blocks,
            sequential_bypass_bytes: pick(rng, &[0, 64 << 10, 512 << 10]),
            dirty_age_max_ns: pick(rng, &[600_000_000_000, 100_000_000]),
            commit_age_max_ns: pick(rng, &[1_000_000_000, 2_000_000]),
            ..Options::default()
        };
        let spec = WorldSpec {
            seed: rng.next_u64(),
            lanes,
            segment_blocks,
            segments_per_lane,
            stripe_blocks: pick(rng, &[8, 64, 256]),
            origins,
            cache_ns: pick(rng, &[1_000, 50_000, 2_000_000]),
            origin_ns: pick(rng, &[1_000, 200_000, 5_000_000]),
            options,
            check: true,
        };
        let small = spec.origins.iter().map(|origin| origin.size_bytes / 512).min().unwrap_or(1);
        let sectors_max = pick(rng, &[8, 64, 256, 2048]);
        let generations = 1 + rng.below(4);
        // The whole cache is replaced several times, if that isn't too many requests.
        let blocks = capacity * pick(rng, &[1, 4, 8]);
        let requests = (blocks * 16 / sectors_max).clamp(50, 1500) / generations;
        Self {
            generations,
            requests,
            depth: pick(rng, &[1, 4, 16, 32]),
            reads: pick(rng, &[10, 40, 80]),
            sectors_max,
            hot_sectors: pick(rng, &[64, 4096, small, small]).min(small),
            flush_every: pick(rng, &[4, 20, 1000]),
            control_every: pick(rng, &[0, 100, 10]),
            special_every: pick(rng, &[0, 20, 5]),
            fua_every: pick(rng, &[0, 10, 2]),
            faults_every: pick(rng, &[0, 0, 0, 5, 50]),
            cache_faults: rng.below(4) == 0,
            spec,
        }
    }
}

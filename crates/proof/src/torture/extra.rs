// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extras are what only some lives have, in any combination. [`Plan`](super::Plan) says what all
//! lives have.

use flashfront_device::Rng;
use flashfront_engine::format::SEGMENTS_MIN;
use flashfront_engine::{Durability, Mode, Options, policy};

use super::pick::pick;
use crate::spec::{OriginSpec, WorldSpec};

/// What a large cache's origins grow to.
const ORIGIN_BYTES_MAX: u64 = 64 << 20;

/// Something that only some lives have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Each opening has other options than the one before it.
    NewOptions,
    /// Every other opening forgets what is clean, as if an origin had been changed.
    DropClean,
    /// A clean stop finds requests in flight.
    BusyStop,
    /// Where one of two members may die it may do so during replay.
    ReplayFaults,
    /// That a cache failed can't be remembered outside of it.
    Forgetful,
    /// Where the cache dies both members of a mirrored one may.
    BothDie,
    /// The mirror is added to a cache that began without one.
    MirrorLater,
    /// Each origin begins in a mode of its own.
    Modes,
    /// There are one to three small origins more.
    Origins,
    /// The cache device is slower than the origins, as one that wears out or does other work.
    SlowCache,
    /// Segments as large as a large cache has them.
    LargeSegments,
    /// Eight or sixteen lanes.
    ManyLanes,
    /// Volumes come and go, where no device fails.
    Volumes,
    /// The cache has grown: half of its segments lie behind its first superblock's end.
    Grown,
    /// The cache moves to other devices, and members of a mirrored one are removed, where no device
    /// fails.
    Moves,
    /// Ranges are brought into the cache before they are read.
    Warm,
    /// Volumes have smallest and largest parts, which change.
    Shares,
    /// The end of the cache is emptied, as before it shrinks, and is used again.
    Vacate,
}

impl Extra {
    /// All, with what each is called in a [`Change`](super::Change).
    pub const ALL: [(Self, &str); 18] = [
        (Self::NewOptions, "new-options"),
        (Self::DropClean, "drop-clean"),
        (Self::BusyStop, "busy-stop"),
        (Self::ReplayFaults, "replay-faults"),
        (Self::Forgetful, "forgetful"),
        (Self::BothDie, "both-die"),
        (Self::MirrorLater, "mirror-later"),
        (Self::Modes, "modes"),
        (Self::Origins, "origins"),
        (Self::SlowCache, "slow-cache"),
        (Self::LargeSegments, "large-segments"),
        (Self::ManyLanes, "many-lanes"),
        (Self::Volumes, "volumes"),
        (Self::Grown, "grown"),
        (Self::Moves, "moves"),
        (Self::Warm, "warm"),
        (Self::Shares, "shares"),
        (Self::Vacate, "vacate"),
    ];

    /// Draws the extras of a seed's life. Three lives of five have none, so most lives remain what
    /// they were. The others have each extra with one chance in two. What makes a cache large comes
    /// with one chance in eight, since the engine's checks after each input walk all of the cache.
    pub(super) fn draw(rng: &mut Rng) -> Vec<Self> {
        let any = rng.below(5) < 2;
        let odds = |extra: Self| if matches!(extra, Self::LargeSegments | Self::ManyLanes) { 8 } else { 2 };
        Self::ALL.into_iter().filter(|(extra, _)| any && rng.below(odds(*extra)) == 0).map(|(extra, _)| extra).collect()
    }
}

/// Gives each origin a mode.
pub(super) fn mix_modes(rng: &mut Rng, spec: &mut WorldSpec) {
    spec.origins.iter_mut().for_each(|origin| origin.mode = pick(rng, &Mode::ALL));
}

/// Adds small origins.
pub(super) fn add_origins(rng: &mut Rng, spec: &mut WorldSpec) {
    let mode = spec.origins[0].mode;
    for _ in 0..1 + rng.below(3) {
        let (size_bytes, logical_block_bytes) = ((1 << 20) + rng.below(64) * 4096, pick(rng, &[512, 4096]));
        spec.origins.push(OriginSpec { size_bytes, logical_block_bytes, mode });
    }
}

/// Makes the cache device slower than the origins.
pub(super) fn slow_cache(rng: &mut Rng, spec: &mut WorldSpec) {
    spec.cache_ns = spec.origin_ns * pick(rng, &[2, 10, 100]);
}

/// Gives the cache segments of half a MiB or one, as few as there may be, and the origins room for
/// twice as much.
pub(super) fn enlarge_segments(rng: &mut Rng, spec: &mut WorldSpec) {
    (spec.segment_blocks, spec.segments_per_lane) = (pick(rng, &[128, 256]), SEGMENTS_MIN);
    grow_origins(spec);
}

/// Gives the cache more lanes, of few segments each.
pub(super) fn add_lanes(rng: &mut Rng, spec: &mut WorldSpec) {
    (spec.lanes, spec.segments_per_lane) = (pick(rng, &[8, 16]), SEGMENTS_MIN);
    grow_origins(spec);
}

/// Has half of the cache's segments come by growing, as far as a cache of the others is possible.
pub(super) fn grow_cache(spec: &mut WorldSpec) {
    spec.grown_segments = (spec.segments_per_lane / 2).min(spec.segments_per_lane - SEGMENTS_MIN);
}

/// Makes the origins at least twice as large as the cache, if that is not too much memory for one
/// life.
fn grow_origins(spec: &mut WorldSpec) {
    let cache_bytes = u64::from(spec.lanes * spec.segment_blocks * spec.segments_per_lane) * 4096;
    let each_bytes = (2 * cache_bytes / spec.origins.len() as u64 / 4096 * 4096).min(ORIGIN_BYTES_MAX);
    for origin in &mut spec.origins {
        origin.size_bytes = origin.size_bytes.max(each_bytes);
    }
}

/// Other options for the next opening: all that a config file may change between two.
pub(super) fn other_options(rng: &mut Rng, options: &mut Options) {
    options.durability = pick(rng, &[Durability::Flush, Durability::Always]);
    options.policy = &policy::ALL[rng.below(policy::ALL.len() as u64) as usize];
    options.sequential_bypass_bytes = pick(rng, &[0, 64 << 10, 512 << 10]);
    options.ram_front_bytes = pick(rng, &[0, 64 << 10, 1 << 20]);
    options.read_around_blocks = pick(rng, &[0, 16, 64]);
    options.commit_age_max_ns = pick(rng, &[1_000_000_000, 2_000_000]);
    options.dirty_age_max_ns = pick(rng, &[600_000_000_000, 100_000_000]);
}

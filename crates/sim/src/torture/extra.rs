// SPDX-License-Identifier: MIT OR Apache-2.0
//! What only some lives have, in any combination, beside what [`Plan`](super::Plan) says of all.

use flashfront_device::Rng;
use flashfront_engine::{Durability, Mode, Options, policy};

use super::plan::pick;
use crate::spec::{OriginSpec, WorldSpec};

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
    /// One to three small origins more.
    Origins,
}

impl Extra {
    /// All, with what each is called in a [`Change`](super::Change).
    pub const ALL: [(Self, &str); 9] = [
        (Self::NewOptions, "new-options"),
        (Self::DropClean, "drop-clean"),
        (Self::BusyStop, "busy-stop"),
        (Self::ReplayFaults, "replay-faults"),
        (Self::Forgetful, "forgetful"),
        (Self::BothDie, "both-die"),
        (Self::MirrorLater, "mirror-later"),
        (Self::Modes, "modes"),
        (Self::Origins, "origins"),
    ];

    /// What this seed's life has: in three of five nothing, so that most lives remain what they were, else half of all.
    pub(super) fn draw(rng: &mut Rng) -> Vec<Self> {
        let any = rng.below(5) < 2;
        Self::ALL.into_iter().filter(|_| any && rng.below(2) == 0).map(|(extra, _)| extra).collect()
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

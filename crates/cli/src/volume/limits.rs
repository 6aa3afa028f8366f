// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume's limits of its own: the options of `volume add` and `volume set`.

use clap::Args;
use flashfront_engine::format::Shares;
use flashfront_serve::config::{OwnAge, OwnPart, OwnSize, OwnWeight, SharesAsked, shares_told};
use flashfront_serve::report::VolumeReport;

/// What is said of a volume's limits.
#[derive(Debug, Args)]
pub(super) struct Limits {
    /// The part of the cache that other volumes leave to it: a share of the cache or a size ("20%",
    /// "50 GiB"). "none" takes it away.
    #[arg(long, value_name = "PART")]
    share_min: Option<OwnPart>,
    /// The largest part of the cache that it may have, or "none".
    #[arg(long, value_name = "PART")]
    share_max: Option<OwnPart>,
    /// What it gets of the cache beside other volumes with a weight, from 1 to 10000. With 300 that
    /// is three times what 100 gets, if both ask for that much. "none" takes the weight away.
    #[arg(long, value_name = "NUMBER")]
    weight: Option<OwnWeight>,
    /// The most of its data that may be dirty: a share of the cache or a size ("10%", "20 GiB").
    /// "none" takes the limit away.
    #[arg(long, value_name = "LIMIT")]
    dirty_limit: Option<OwnPart>,
    /// How long its data may stay dirty ("30s", "5min"), or "none". From half of it on destage
    /// hurries.
    #[arg(long, value_name = "TIME")]
    dirty_age: Option<OwnAge>,
    /// Reads and writes of a stream longer than this go past the cache ("8 MiB"; 0B = none does).
    /// "none": as for the whole cache.
    #[arg(long, value_name = "SIZE")]
    sequential_bypass: Option<OwnSize>,
    /// How much is read at once from a slow origin, if a part of it is missed ("128 KiB"; 0B = only
    /// what is asked for). "none": as for the whole cache.
    #[arg(long, value_name = "SIZE")]
    read_around: Option<OwnSize>,
}

impl Limits {
    pub(super) const fn asked(&self) -> SharesAsked {
        let Self { share_min, share_max, weight, dirty_limit, dirty_age, sequential_bypass, read_around } = *self;
        SharesAsked { share_min, share_max, weight, dirty_limit, dirty_age, sequential_bypass, read_around }
    }
}

/// The limits that a volume has of its own, for people.
pub(super) fn told(volume: &VolumeReport) -> Option<String> {
    shares_told(Shares {
        min_bytes: volume.share_min_bytes,
        max_bytes: volume.share_max_bytes,
        dirty_limit_bytes: volume.dirty_limit_bytes,
        dirty_age_ms: volume.dirty_age_ms,
        weight: volume.weight,
        bypass_bytes: volume.sequential_bypass_bytes,
        read_around_bytes: volume.read_around_bytes,
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume's limits of its own: the options of `volume add` and `volume set`.

use clap::Args;
use flashfront_engine::format::Shares;
use flashfront_serve::config::{OwnAge, OwnPart, SharesAsked, shares_told};
use flashfront_serve::report::VolumeReport;

/// What is said of a volume's limits.
#[derive(Debug, Args)]
pub(super) struct Limits {
    /// The part of the cache that other volumes leave to it: a share of the cache or a size ("20%",
    /// "50 GiB"). "none" takes it away.
    #[arg(long, value_name = "PART")]
    share_min: Option<OwnPart>,
    /// The most of its data that may be dirty: a share of the cache or a size ("10%", "20 GiB").
    /// "none" takes the limit away.
    #[arg(long, value_name = "LIMIT")]
    dirty_limit: Option<OwnPart>,
    /// How long its data may stay dirty ("30s", "5min"), or "none". From half of it on destage
    /// hurries.
    #[arg(long, value_name = "TIME")]
    dirty_age: Option<OwnAge>,
}

impl Limits {
    pub(super) const fn asked(&self) -> SharesAsked {
        let Self { share_min, dirty_limit, dirty_age } = *self;
        SharesAsked { share_min, dirty_limit, dirty_age }
    }
}

/// The limits that a volume has of its own, for people.
pub(super) fn told(volume: &VolumeReport) -> Option<String> {
    shares_told(Shares {
        min_bytes: volume.share_min_bytes,
        max_bytes: volume.share_max_bytes,
        dirty_limit_bytes: volume.dirty_limit_bytes,
        dirty_age_ms: volume.dirty_age_ms,
        weight: 0,
    })
}

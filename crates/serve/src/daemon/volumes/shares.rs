// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives a volume limits of its own, or takes them away: `flashfront volume set`.

use flashfront_engine::format::Shares;
use flashfront_engine::{OriginId, VolumeChange};

use super::error::VolumesError;
use super::orders::{Reply, What};
use crate::config::{SharesAsked, shares_told};
use crate::daemon::Daemon;

impl Daemon {
    pub(super) fn begin_sharing(&mut self, name: &str, asked: SharesAsked, reply: &Reply) -> Result<(), VolumesError> {
        self.may_change()?;
        let origin = self.config.volumes[self.place_of(name)?].id;
        let superblock = self.pump.engine().superblock();
        let from = superblock.origin(origin).map_or_else(Shares::default, |record| record.shares);
        let to = asked.of(from, superblock);
        self.ask(VolumeChange::SetShares { origin, shares: to }, What::SetShares { id: origin, from, to }, reply);
        Ok(())
    }

    /// The limits of a volume have changed.
    pub(super) fn shares_set(&self, id: OriginId, from: Shares, to: Shares) {
        let name = self.config.volume(id).map_or("?", |volume| volume.name.as_str());
        let told = |shares| shares_told(shares).unwrap_or_else(|| "none".to_owned());
        tracing::info!("volume {name}: set by the operator: limits of its own from {} to {}", told(from), told(to));
    }
}

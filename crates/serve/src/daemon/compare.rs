// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the origins after a crash with what the last daemon left there.
//!
//! Two records say what an origin must hold. The state folder has a record of sampled places,
//! superblocks above all. They are compared here, before anything is written. The cache has clean
//! blocks, which `clean` compares. A difference is treated as after a clean stop: dirty data is
//! refused, else all clean data is dropped (tests: end to end `crashed_stale`).

use std::sync::Arc;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::{OriginRecord, Superblock};

use super::opened::Opened;
use crate::config::Config;
use crate::report::counted;
use crate::stale::{self, Sampled, Watch};

/// Says for people how an origin has changed since its last daemon died, by the record of its
/// samples.
pub(super) fn samples(config: &Config, origin: &DeviceFile, superblock: &Superblock, at: usize) -> Option<String> {
    let (state, shown) = (config.state.as_deref(), origin.path().display());
    let id = superblock.origins[at].id;
    match stale::compare_samples(state, origin, id, &superblock.uuid, superblock.epoch) {
        Sampled::Changed { offset } => Some(how(offset)),
        Sampled::Same { places } => {
            tracing::info!(
                "{shown}: the last stop was not clean; {} are as that daemon left them",
                counted(places as u64, "sample")
            );
            None
        }
        Sampled::Unknown { why } => {
            tracing::warn!(
                "{shown}: the last stop was not clean, and {why}: only what the cache has of it can be compared"
            );
            None
        }
    }
}

pub(super) fn how(offset: u64) -> String {
    format!("was changed after its daemon had died (at byte {offset} it holds what that daemon did not leave there)")
}

/// Records samples of the origins, before the first write of this opening.
pub(super) fn watches(config: &Config, opened: &Opened, epoch: u64) -> Vec<Option<Watch>> {
    let origins = opened.origins.iter().zip(&opened.superblock.origins).filter(|_| !opened.members.is_empty());
    let watch = |(origin, record): (&Arc<DeviceFile>, &OriginRecord)| {
        let watch = Watch::begin(config.state.as_deref(), origin, record.id, opened.superblock.uuid, epoch);
        watch.map_err(|error| {
            tracing::warn!(
                "{}: can't record samples of it in the state folder ({error}); should the daemon die, only what the cache has of it can be compared",
                origin.path().display()
            );
        })
    };
    origins.map(|it| watch(it).ok()).collect()
}

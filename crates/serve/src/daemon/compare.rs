// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the origins after a crash with what the last daemon left there.
//!
//! Two records say what an origin must hold. The state folder has a record of sampled places,
//! superblocks above all. They are compared here, before anything is written. The cache has clean
//! blocks, which `clean` compares. A difference is treated as after a clean stop: dirty data is
//! refused, else all clean data is dropped (tests: end to end `crashed_stale`).

use std::sync::Arc;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::Superblock;

use super::opened::Opened;
use crate::config::{Config, Volume};
use crate::stale::{self, Found, Sampled, Verdict, Watch};

/// Says for people how an origin has changed since its last daemon died, by the record of its
/// samples.
pub(super) fn samples(config: &Config, origin: &DeviceFile, superblock: &Superblock, at: usize) -> Option<String> {
    let (state, shown) = (config.state.as_deref(), origin.path().display());
    let record = &superblock.origins[at];
    if let Some(mark) = origin.mark() {
        let is_changed = stale::compare_mark(&mark, record, true, false) == Verdict::Changed;
        return is_changed.then(|| {
            format!("was opened by another writer since, and changed (its newest object is of opening {})", mark.epoch)
        });
    }
    match stale::compare_samples(state, origin, record, &superblock.uuid, superblock.epoch) {
        Sampled::Changed { offset } => Some(how(offset)),
        Sampled::Same => {
            tracing::info!("{shown}: the last stop was not clean; its samples are as that daemon left them");
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

pub(super) fn how(offset: Option<u64>) -> String {
    let what = match offset {
        Some(offset) => format!("at byte {offset} it holds what that daemon did not leave there"),
        None => "that daemon never wrote it, and its samples are others than at the last clean stop".to_owned(),
    };
    format!("was changed after its daemon had died ({what})")
}

/// Prepares the records of samples: an origin gets its record before its first write. Where nothing
/// else tells what the origins hold now, all records are written at once.
pub(super) fn watches(config: &Config, opened: &Opened, epoch: u64) -> Vec<Option<Watch>> {
    let (state, superblock) = (config.state.as_deref(), &opened.superblock);
    if opened.members.is_empty() {
        return Vec::new();
    }
    let found = match (opened.drop_clean, superblock.clean) {
        (true, _) => Found::Changed,
        (false, true) => Found::AsRecorded,
        (false, false) => Found::AsLeft,
    };
    let is_known = stale::remember_opening(state, &superblock.uuid, epoch, found).map_err(|error| {
        tracing::warn!(
            "{}: can't record samples of its origins in the state folder ({error}); should the daemon die, only what the cache has of them can be compared",
            config.cache.display()
        );
    });
    let Ok(is_known) = is_known else { return Vec::new() };
    let watch = |(origin, volume): (&Arc<DeviceFile>, &Volume)| {
        if origin.mark().is_some() {
            return None;
        }
        let owner = (superblock.uuid, epoch);
        let watch = Watch::new(state, origin, volume.id, owner, config.timeout_of_origin(volume));
        if is_known {
            return Some(watch);
        }
        let begun = watch.begin().map_err(|error| {
            tracing::warn!(
                "{}: can't record samples of it in the state folder ({error}); should the daemon die, only what the cache has of it can be compared",
                origin.path().display()
            );
        });
        begun.ok()
    };
    opened.origins.iter().zip(&opened.volumes).map(watch).collect()
}

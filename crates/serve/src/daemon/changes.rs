// SPDX-License-Identifier: MIT OR Apache-2.0
//! Origins that are known to have changed: what a start makes of that, and when it is settled.
//!
//! Clean data is dropped, and dirty data a reason to refuse. That an origin has changed is durable before the
//! first write or request, and settled for a cache when what it held is durably dropped: a crash in between,
//! however often, changes nothing (tests: `daemon::without_cache::tests`).

use std::io;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::Superblock;

use super::error::failed;
use super::members::Members;
use super::{Daemon, Opened, ServeError};
use crate::config::Config;
use crate::offline::{self, uuid_text};
use crate::stale::{self, Change, How};

/// What is remembered of this origin and not settled for this cache.
pub(super) fn find(
    config: &Config,
    origin: &DeviceFile,
    superblock: &Superblock,
    at: usize,
) -> Result<Vec<Change>, ServeError> {
    let who = || failed(format!("{}: who it is", origin.path().display()));
    let identity = stale::identity(origin).map_err(who())?;
    let path = std::fs::canonicalize(origin.path()).map_err(who())?.to_string_lossy().into_owned();
    let (record, uuid) = (&superblock.origins[at], uuid_text(&superblock.uuid));
    Ok(stale::remembered(config.state.as_deref(), &identity, Some(&path), record, &uuid)?)
}

/// Refuses to write older dirty data over a changed origin, but by the operator's word.
pub(super) fn check(
    config: &Config,
    origin: &DeviceFile,
    members: &Members,
    superblock: &Superblock,
    change: &Change,
) -> Result<(), ServeError> {
    let how = match change.how {
        How::ServedWithoutCache => "was served without its cache",
        How::Seen => "was changed behind the cache's back",
        How::ServedWithAnotherCache => "was served with another cache",
    };
    let how = format!("{how} (as {}, {})", change.origin, change.at);
    if !config.accept_changed_origin {
        let (dirty, damaged) = match superblock.clean {
            true => (superblock.dirty_blocks, false),
            // The superblock doesn't know.
            false => {
                let (dirty, places) = offline::dirty(members.iter().map(|(_, file)| file.as_ref()), superblock);
                (dirty, places > 0)
            }
        };
        if dirty > 0 || damaged {
            let (origin, cache) = (origin.path().to_owned(), config.cache.clone());
            return Err(ServeError::OriginNewer { origin, how, cache, dirty, damaged });
        }
    }
    tracing::warn!("{} {how}: dropping all clean data of the cache", origin.path().display());
    Ok(())
}

/// Makes durable that the origins change, before they do; returns what is to be settled.
pub(super) fn remember(config: &Config, opened: &Opened) -> Result<Vec<Change>, ServeError> {
    let (state, uuid) = (config.state.as_deref(), uuid_text(&opened.superblock.uuid));
    let mut changes = opened.changes.clone();
    if opened.members.is_empty() {
        for origin in &opened.origins {
            stale::remember(state, origin, How::ServedWithoutCache, Vec::new())
                .map_err(unremembered(origin, "is served without its cache"))?;
            tracing::warn!(
                "{}: SERVED WITHOUT ITS CACHE, in mode passthrough. If the cache held dirty data, that is missing here. From now on whatever the cache holds is older: its clean data will be dropped, and its dirty data refused",
                origin.path().display()
            );
        }
    } else if opened.drop_clean && changes.is_empty() {
        // From the next write on the superblock no longer tells, and the clean data is not dropped yet.
        for origin in &opened.origins {
            let change = stale::remember(state, origin, How::Seen, Vec::new());
            changes.push(change.map_err(unremembered(origin, "may be newer than its cache"))?);
        }
    }
    for origin in opened.origins.iter().filter(|_| !opened.members.is_empty()) {
        let before = stale::served_by(state, origin)?;
        if before.as_ref() == Some(&uuid) {
            continue;
        }
        if before.is_some() {
            // That one, and all others that may come back, are older from now on. What this one has to drop it has yet
            // to drop: the record of that may be the one that is replaced.
            let settled = if changes.is_empty() { vec![uuid.clone()] } else { Vec::new() };
            let change = stale::remember(state, origin, How::ServedWithAnotherCache, settled)
                .map_err(unremembered(origin, "is newer than the cache that it was served with before"))?;
            changes.extend((!changes.is_empty()).then_some(change));
        }
        if let Err(error) = stale::remember_served(state, origin, &uuid) {
            tracing::warn!(
                "{}: can't remember in the state folder that it is served with this cache ({error}); should it be served with another one later, this one will not know it",
                origin.path().display()
            );
        }
    }
    Ok(changes)
}

/// Then nothing is begun: cut off before it is ready, it would leave a cache that no later start doubts.
fn unremembered(origin: &DeviceFile, how: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    let origin = origin.path().to_owned();
    move |source| ServeError::Unremembered { origin, how, source }
}

impl Daemon<'_> {
    /// The log has begun anew without what was dropped.
    pub(super) fn settle(&mut self) {
        if self.pump.engine().status().cache_failed {
            return;
        }
        let uuid = uuid_text(&self.pump.engine().superblock().uuid);
        for change in std::mem::take(&mut self.unsettled) {
            if let Err(error) = stale::settle(self.config.state.as_deref(), &change, &uuid) {
                tracing::warn!(
                    "can't note in the state folder that the cache has dropped what it held of {} ({error}); the next start drops its clean data again",
                    change.origin
                );
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Origins that are known to have changed: what a start makes of that, and when it is settled.
//!
//! A start drops clean data, and refuses to go on with dirty data. It makes durable that an origin
//! has changed before the first write or request. A change is settled for a cache when the cache
//! has durably dropped what it held. A crash in between, however often, changes nothing (tests:
//! `daemon::without_cache::tests`).

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::Superblock;

use super::error::{OriginsError, ServeError, failed};
use super::members::Members;
use super::opened::Opened;
use crate::config::Config;
use crate::offline::{self, uuid_text};
use crate::stale::{self, Change, How, Served};

/// Finds changes of this origin, among the `known` ones, that are not settled for this cache.
pub(super) fn find(
    origin: &DeviceFile,
    superblock: &Superblock,
    at: usize,
    known: &[Change],
) -> Result<Vec<Change>, ServeError> {
    let who = || failed(format!("{}: who it is", origin.path().display()));
    let identity = stale::identity(origin).map_err(who())?;
    let path = origin.whole_path().map_err(who())?;
    let (record, uuid) = (&superblock.origins[at], uuid_text(&superblock.uuid));
    Ok(stale::about(known, &identity, Some(&path), record, &uuid))
}

/// The opening of this cache that the origin has seen later, if this is a copy from before its end.
pub(super) fn later_opening(
    config: &Config,
    origin: &DeviceFile,
    superblock: &Superblock,
) -> Result<Option<Served>, ServeError> {
    let served = stale::served_by(config.state.as_deref(), origin)?;
    let is_later = |it: &Served| match it.epoch.cmp(&superblock.epoch) {
        Ordering::Less => false,
        // The copy was made while the cache was served.
        Ordering::Equal => it.ended && !superblock.clean,
        Ordering::Greater => true,
    };
    Ok(served.filter(|it| it.cache == uuid_text(&superblock.uuid) && is_later(it)))
}

/// Says for people how the origin has changed.
pub(super) fn how(change: &Change) -> String {
    let how = match change.how {
        How::ServedWithoutCache => "was served without its cache",
        How::Seen => "was changed behind the cache's back",
        How::ServedWithAnotherCache => "was served with another cache",
    };
    format!("{how} (as {}, {})", change.origin, change.at)
}

/// How a later opening served the origin.
pub(super) fn how_later(served: &Served) -> String {
    format!("was served with a newer copy of this cache (as {}, {})", served.origin, served.at)
}

/// Counts the dirty blocks of a stopped cache, and damaged places that may hide more.
pub(super) fn dirty<'a>(members: impl IntoIterator<Item = &'a DeviceFile>, superblock: &Superblock) -> (u64, usize) {
    match superblock.clean {
        true => (superblock.dirty_blocks, 0),
        // The superblock doesn't know.
        false => offline::dirty(members, superblock, &mut |_, _| {}),
    }
}

/// Refuses to write older dirty data over a changed origin, but by the operator's word.
pub(super) fn check(
    config: &Config,
    origin: &DeviceFile,
    members: &Members,
    superblock: &Superblock,
    how: String,
) -> Result<(), ServeError> {
    if !config.accept_changed_origin {
        let (dirty, places) = dirty(members.iter().map(|(_, file)| file.as_ref()), superblock);
        let damaged = places > 0;
        if dirty > 0 || damaged {
            let (origin, cache) = (origin.path().to_owned(), config.cache.clone());
            return Err(OriginsError::OriginNewer { origin, how, cache, dirty, damaged }.into());
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
        // From the next write on the superblock no longer tells, and the clean data is not dropped
        // yet.
        for origin in &opened.origins {
            let change = stale::remember(state, origin, How::Seen, Vec::new());
            changes.push(change.map_err(unremembered(origin, "may be newer than its cache"))?);
        }
    }
    for origin in opened.origins.iter().filter(|_| !opened.members.is_empty()) {
        let before = stale::served_by(state, origin)?;
        if before.is_some_and(|it| it.cache != uuid) {
            // Every other cache is older from now on, the last one and all that may come back. This
            // cache has yet to drop what it holds: the record of that may be the one that is
            // replaced.
            let settled = if changes.is_empty() { vec![uuid.clone()] } else { Vec::new() };
            let change = stale::remember(state, origin, How::ServedWithAnotherCache, settled)
                .map_err(unremembered(origin, "is newer than the cache that it was served with before"))?;
            changes.extend((!changes.is_empty()).then_some(change));
        }
    }
    Ok(changes)
}

/// Makes durable by which cache the origins are served, and in which of its openings.
///
/// That happens after replay and before the first request. A start that fails serves nothing, and
/// the operator may put back the copy that he made before it.
pub(super) fn remember_served(config: &Config, origins: &[Arc<DeviceFile>], superblock: &Superblock) {
    let uuid = uuid_text(&superblock.uuid);
    if let Err(error) = stale::remember_served(config.state.as_deref(), origins, &uuid, superblock.epoch) {
        let served = match origins {
            [one] => one.path().display().to_string(),
            _ => "each origin".to_owned(),
        };
        tracing::warn!(
            "{}: it can't be written down there that {served} is served with this cache now ({error}). Without that an older copy of the cache, or another cache of this origin, is not recognised as old when it is served later. Make the state folder writable for this user, or name another one with --state DIR, and then at every start",
            folder(config)
        );
    }
}

/// Makes durable that this opening ended by a clean stop, which the cache knows already.
pub(super) fn remember_ended(config: &Config, superblock: &Superblock) {
    let ended = stale::remember_ended(config.state.as_deref(), &uuid_text(&superblock.uuid), superblock.epoch);
    if let Err(error) = ended {
        tracing::warn!(
            "{}: it can't be written down there that the cache was closed ({error}), so a copy that was made while it was served is not recognised as old when it is served later. Make the state folder writable for this user, or name another one with --state DIR, and then at every start",
            folder(config)
        );
    }
}

/// Writes down that the cache has dropped what it held before these changes.
pub(super) fn settle(config: &Config, superblock: &Superblock, changes: Vec<Change>) {
    let uuid = uuid_text(&superblock.uuid);
    for change in changes {
        if let Err(error) = stale::settle(config.state.as_deref(), &change, &uuid) {
            tracing::warn!(
                "{}: it can't be written down there that the cache has dropped its old data of {} ({error}), so the next start drops the clean data again. Make the state folder writable for this user",
                folder(config),
                change.origin
            );
        }
    }
}

/// The state folder, for people.
fn folder(config: &Config) -> String {
    config
        .state
        .as_ref()
        .map_or_else(|| "no state folder (HOME is not set)".to_owned(), |path| path.display().to_string())
}

/// Refuses to begin: a start that is cut off before it is ready would leave a cache that no later
/// start doubts.
pub(super) fn unremembered(origin: &DeviceFile, how: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    let origin = origin.path().to_owned();
    move |source| OriginsError::Unremembered { origin, how, source }.into()
}

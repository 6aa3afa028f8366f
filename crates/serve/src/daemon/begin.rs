// SPDX-License-Identifier: MIT OR Apache-2.0
//! Begins to use a cache: the first write of a start, and the daemon that follows from it.
//!
//! Everything that can be refused is refused before that write.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use flashfront_device::real::Reactor;
use flashfront_engine::format::Superblock;
use flashfront_engine::{Engine, Options, Time};
use mio::Poll;

use super::changes::remember;
use super::error::{OriginsError, ServeError, failed};
use super::figures::Earlier;
use super::grown::AllGrown;
use super::held::Held;
use super::hooks::Hooks;
use super::leave::Leaving;
use super::leaver::Leaver;
use super::members::{self, Members};
use super::mirror::NewMirror;
use super::open::attach;
use super::opened::Opened;
use super::upgrading::Upgrading;
use super::volumes::orders::Volumes;
use super::whole::whole;
use super::{Daemon, buffers, compare, link};
use crate::config::Config;
use crate::control::ControlCall;
use crate::failure;
use crate::origin_errors::AllOriginErrors;
use crate::pump::Pump;
use crate::stale;
use crate::upgrade::UpgradeHandle;

/// Writes for the first time: from here on the cache is in use, in a new epoch. Returns a daemon
/// that has yet to replay its log.
pub(super) fn begin(
    config: &Config,
    opened: Opened,
    options: Options,
    reactor: Reactor,
    hooks: &Hooks,
    poll: Poll,
    calls: Receiver<ControlCall>,
) -> Result<Daemon, ServeError> {
    let mut superblock = opened.superblock.clone();
    let cache = (!opened.members.is_empty()).then_some(superblock.uuid);
    for (nth, origin) in opened.origins.iter().enumerate() {
        origin.take_over(cache).map_err(failed(format!("{}: taking over", origin.path().display())))?;
        // A start that fails leaves the cache as the last stop did.
        origin.owe(cache.is_some() && may_owe(&superblock, nth));
    }
    let was_clean = superblock.clean && !opened.members.is_empty();
    if !opened.members.is_empty() {
        (superblock.clean, superblock.failed, superblock.epoch) = (false, false, superblock.epoch + 1);
        superblock.update += 1;
        superblock.pairing.member = superblock.pairing.lead;
        let whole_cache = superblock.clone();
        let found = opened.volumes.iter().zip(&opened.origins);
        for (record, (volume, file)) in superblock.origins.iter_mut().zip(found) {
            record.mode = volume.mode.unwrap_or(record.mode);
            record.read_only = volume.read_only.unwrap_or(record.read_only) || file.is_snapshot();
            record.shares = volume.shares().of(record.shares, &whole_cache);
            if superblock.table.is_some() {
                record.origin_path = whole(file);
            }
            stale::record_mark(file, record);
        }
        check_shares(&superblock)?;
        if superblock.origins != opened.superblock.origins {
            superblock.begin_table();
        }
    }
    // Everything that can be refused comes before the write.
    let (arena, arenas) = buffers::arenas(config, superblock.lanes).map_err(failed("starting threads for lanes"))?;
    let engine = Engine::new(superblock.clone(), options, Time(0))
        .map_err(|error| ServeError::Open { path: config.cache.clone(), error })?;
    let unsettled = remember(config, &opened)?;
    let watches = compare::watches(config, &opened, superblock.epoch);
    let Opened { members, origins, volumes, superblock: before, .. } = opened;
    if !members.is_empty() {
        if let Err((path, error)) = members::put(config, &members, &superblock) {
            // Members that took the write say again how the last run ended, as in `Ending::undo`.
            // The member that refused refuses again.
            (superblock.clean, superblock.failed) = (before.clean, before.failed);
            let _ = members::write(config, &members, &mut superblock);
            return Err(begin_failed(&members, path, error));
        }
        failure::forget(config.state.as_deref(), &superblock);
    }

    if let Some(notice) = reactor.notice() {
        tracing::warn!("{notice}");
    }
    for notice in origins.iter().chain(members.iter().map(|(_, file)| file)).filter_map(|file| file.notice()) {
        tracing::warn!("{notice}");
    }
    let backend = reactor.backend_name();
    link::look_after(config, &members, &origins, &superblock);
    let devices = attach(config, reactor, &members, &origins, &superblock, watches, hooks)?;
    let pump = Pump::new(engine, arena, devices, poll, calls);
    let (started, stop) = (Instant::now(), hooks.stop.clone());
    let mut config = config.with_volumes(&volumes);
    config.policy.destage = Some(config.destage());
    let held = Held::new(members, origins, superblock.origins.iter().map(|record| record.id).collect(), &config);
    Ok(Daemon {
        pump,
        arenas,
        backend,
        started,
        ready: None,
        stop,
        unsettled,
        was_clean,
        sequential_bypass: config.policy.sequential_bypass,
        config,
        names: Default::default(),
        held,
        uris: Vec::new(),
        new_mirror: NewMirror::default(),
        leaver: Leaver::default(),
        volumes: Volumes::default(),
        reload: hooks.reload.clone(),
        tls: None,
        leaving: Leaving::default(),
        origin_errors: AllOriginErrors::default(),
        grown: AllGrown::default(),
        earlier: Earlier::default(),
        sampler: None,
        doors: None,
        upgrades: UpgradeHandle::default(),
        upgrading: Upgrading::default(),
        can_upgrade: hooks.successor.is_some(),
    })
}

/// Whether a cache may hold writes that this origin lacks, as far as its superblock knows.
fn may_owe(superblock: &Superblock, nth: usize) -> bool {
    let dirty_blocks = match superblock.table {
        Some(_) => superblock.origins[nth].dirty_blocks,
        None => superblock.dirty_blocks,
    };
    !superblock.clean || dirty_blocks > 0
}

/// Tells that a device refused its first write. The other member has taken it, and says now that
/// both belong together.
fn begin_failed(members: &Members, path: PathBuf, source: io::Error) -> ServeError {
    let error = ServeError::Io { what: format!("{}: superblock", path.display()), source };
    match members.iter().find(|(_, file)| file.path() != path) {
        Some((_, other)) => ServeError::HalfMissing { error: Box::new(error), other: other.path().to_owned() },
        None => error,
    }
}

/// Refuses limits of a volume's own that can't be kept.
fn check_shares(superblock: &Superblock) -> Result<(), ServeError> {
    for record in &superblock.origins {
        Engine::check_shares(record.shares, Some(record.id), superblock)
            .map_err(|error| OriginsError::Shares { name: record.name.clone(), error })?;
    }
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon's end: leaves the stale guard's data, or a mark if the cache device failed.
//!
//! A cache that failed is marked however the daemon was stopped. Its log may hold blocks that are
//! older than the origin (tests: `daemon::tests`, and end to end `cache_failure`).
//!
//! Nothing is opened here. Another device could be found by its path and be written to, or the next
//! start could take it for the origin (tests: `what_took_the_place_of_..`).

use std::sync::Arc;
use std::time::Duration;

use flashfront_device::real::{DeviceFile, each};
use flashfront_engine::format::{OriginRecord, Superblock};
use flashfront_engine::{BLOCK_BYTES, DeviceId, OriginStatus};

use super::answered::answered;
use super::astray;
use super::changes;
use super::error::{ServeError, failed};
use super::front::Front;
use super::held::Held;
use super::leave::{Leaving, Left};
use super::members::{self, Members};
use super::open::member_id;
use crate::config::{Config, Size};
use crate::origin_errors::AllOriginErrors;
use crate::pump::Pump;
use crate::{failure, stale};

/// An end at once waits this long for I/O in flight. Most devices answer in that time, and then
/// their locks are free.
const LAST_IO: Duration = Duration::from_secs(1);

/// How a daemon ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// The daemon stopped cleanly.
    Clean {
        /// Blocks that are still dirty in the cache.
        blocks_dirty: u64,
        /// Clients that were still connected, and origins that refused their dirty data.
        left: Left,
    },
    /// The daemon ended at once; the next start replays the log.
    AtOnce,
    /// Another program serves the clients. `front`: this process is what its starter knows, and is
    /// to stay ([`Front::stay`]); none: an earlier one is.
    HandedOver {
        /// The way to the program that serves.
        front: Option<Front>,
    },
    /// The daemon stopped cleanly, and there was no cache ([`Config::without_cache`]).
    WithoutCache {
        /// The cache was detached while the volumes were served: the origins lack nothing.
        detached: bool,
    },
    /// The cache device failed: replay the log only with thought.
    CacheFailed {
        /// Dirty blocks that did not reach their origin.
        blocks_dirty: u64,
    },
}

/// The parts of a daemon that ends.
pub(super) struct Ending {
    pub(super) config: Config,
    pub(super) pump: Pump,
    pub(super) held: Held,
    pub(super) leaving: Leaving,
    pub(super) origin_errors: AllOriginErrors,
    /// The last stop was a clean one, and there is a cache.
    pub(super) was_clean: bool,
}

impl Ending {
    /// Ends all I/O, writes what the next start must know, and closes the devices.
    pub(super) fn close(self, clean: bool) -> Result<Ended, ServeError> {
        let Ending { config, mut pump, held, leaving, origin_errors, .. } = self;
        let config = &config;
        let mut superblock = pump.engine().superblock().clone();
        let status = pump.engine().status();
        let mut left = leaving.left(config, &origin_errors, &status);
        let overtaken = |it: &OriginStatus| {
            let by = held.origin(it.id)?.link()?.store?.fenced.filter(|_| it.blocks_dirty > 0)?;
            Some((config.volume(it.id)?.name.clone(), by))
        };
        left.lost = held.origins().iter().filter_map(|origin| astray::lost(origin)).collect();
        left.overtaken = status.origins.iter().filter_map(overtaken).collect();
        let blocks_dirty = status.blocks_dirty;
        let used = held.members_in_use(pump.engine());
        let origins = || status.origins.iter().filter_map(|it| Some((held.origin(it.id)?, it)));
        let doubtful: Vec<_> = origins().filter(|(_, it)| it.doubtful).collect();
        let doubtful: Vec<_> = doubtful.into_iter().map(|(origin, _)| origin.path().display().to_string()).collect();
        let certain = || if doubtful.is_empty() { Ok(()) } else { Err(ServeError::Doubtful(doubtful.join(", "))) };
        if !clean {
            // Front-ends go first. Devices may hang, and then this process ends before they are
            // closed and would leave a mount or a socket behind.
            pump.drop_frontends();
        }
        // I/O of a device that hangs is not waited for; an end at once waits for no I/O at all.
        let hangs = |id| pump.devices().hang(pump.now(), id).is_some();
        let silent: Vec<_> = used.iter().filter(|(number, _)| hangs(member_id(*number))).cloned().collect();
        let silent_origin = origins().find(|(_, it)| hangs(DeviceId::Origin(it.id)));
        let silent_origin = silent_origin.map(|(origin, _)| origin.path().to_owned());
        let torn = origins().find(|(origin, it)| it.may_be_torn && !stale::is_fenced(origin));
        let torn = torn.map(|(origin, _)| origin.path().to_owned());
        if !clean || pump.devices().any_hangs() {
            let _ = pump.devices().end_io(LAST_IO);
        }
        // After a clean stop no I/O is in flight any more. The files, and their locks, stay.
        drop(pump);
        if config.without_cache {
            if !clean {
                return Ok(Ended::AtOnce);
            }
            return sync(config, held.origins())
                .and_then(|()| certain())
                .map(|()| Ended::WithoutCache { detached: !config.detached.is_empty() });
        }
        superblock.dirty_blocks = blocks_dirty;
        if status.cache_failed {
            mark_failed(config, &used, &silent, &mut superblock);
            return certain().map(|()| Ended::CacheFailed { blocks_dirty });
        }
        if !clean {
            return Ok(Ended::AtOnce);
        }
        // Its last flush would tear what an origin is to have as a whole.
        if let Some(path) = torn {
            return Err(ServeError::Torn { path });
        }
        if let Some(path) = silent_origin {
            // A write that a client sent past the cache may still be on its way.
            let limit = config.timeout_of(&path).unwrap_or_default();
            return Err(ServeError::Silent { path, limit });
        }
        superblock.begin_table();
        for (origin, it) in origins() {
            origin.owe(it.blocks_dirty > 0);
            tell_unsent(origin, it.blocks_dirty);
        }
        record_origins(config, &held, &mut superblock)?;
        for (record, status) in superblock.origins.iter_mut().zip(&status.origins) {
            record.dirty_blocks = status.blocks_dirty;
        }
        (superblock.clean, superblock.failed) = (true, false);
        mark(config, &used, &silent, &mut superblock)?;
        changes::remember_ended(config, &superblock);
        certain().map(|()| Ended::Clean { blocks_dirty, left })
    }

    /// Says again that the last stop was a clean one, after a start that was cut off before
    /// anything was served.
    ///
    /// Only after a clean stop the next start compares the origin, which may be changed until then.
    /// The records are still those of that stop, so that the next start sees every change again.
    pub(super) fn undo(self) {
        let (engine, used) = (self.pump.engine(), self.held.members_in_use(self.pump.engine()));
        let (mut superblock, failed) = (engine.superblock().clone(), engine.status().cache_failed);
        let ended = self.pump.devices().end_io(LAST_IO);
        // The pump goes before the superblock is written: then no I/O is in flight any more.
        drop(self.pump);
        if !self.was_clean || failed || superblock.failed || !ended {
            return;
        }
        superblock.clean = true;
        if let Err(error) = mark(&self.config, &used, &Members::new(), &mut superblock) {
            tracing::warn!("{error}: the next start can't tell whether the origin was changed until then");
        }
    }
}

/// Says what a store that is away lacks. The last words to it take their time, and may fail.
fn tell_unsent(origin: &DeviceFile, blocks_dirty: u64) {
    let Some((since, why)) = origin.link().filter(|it| it.store.is_some()).and_then(|it| it.away) else { return };
    tracing::warn!(
        "{}: the store has not answered for {} s ({why}); {} of dirty data that it lacks stay in the cache, which alone can bring them at a later start",
        origin.path().display(),
        since.elapsed().as_secs(),
        Size(blocks_dirty * BLOCK_BYTES).told()
    );
}

/// Marks a cache whose device failed. If the device can't be marked, the state folder remembers it.
fn mark_failed(config: &Config, used: &Members, silent: &Members, superblock: &mut Superblock) {
    (superblock.clean, superblock.failed) = (false, true);
    match mark(config, used, silent, superblock) {
        Ok(()) => failure::forget(config.state.as_deref(), superblock),
        Err(error) => match failure::record(config.state.as_deref(), superblock, superblock.dirty_blocks) {
            Ok(path) => tracing::warn!("{error}; {} remembers that the cache failed", path.display()),
            Err(second) => tracing::error!("{error}, nor remembered ({second}): never serve this cache again"),
        },
    }
}

/// Makes the origins durable, and fills in by which samples the next start knows them.
fn record_origins(config: &Config, held: &Held, superblock: &mut Superblock) -> Result<(), ServeError> {
    let origins = superblock.origins.iter().map(|record| (held.origin(record.id).cloned(), record.clone()));
    let origins: Vec<_> = origins.collect();
    let sample = |(origin, record): &(Option<Arc<DeviceFile>>, OriginRecord)| {
        let mut record = record.clone();
        match origin {
            Some(origin) => {
                // A volume that was to grow may have stayed as it was.
                origin.use_bytes(record.size_bytes);
                let read = failed(format!("{}: reading samples", origin.path().display()));
                stale::record(origin, &mut record).map(|()| record).map_err(read)
            }
            None => Ok(record),
        }
    };
    let sampled = answered(config, move |_| each(&origins, |_, it| sample(it)))?;
    superblock.origins = sampled.into_iter().collect::<Result<_, _>>()?;
    Ok(())
}

/// Makes all acknowledged writes durable on the origins, as a clean stop with a cache does.
fn sync(config: &Config, origins: &[Arc<DeviceFile>]) -> Result<(), ServeError> {
    for origin in origins {
        let device = Arc::clone(origin);
        let synced = answered(config, move |_| device.sync())?;
        synced.map_err(failed(format!("{}: syncing at the stop", origin.path().display())))?;
    }
    Ok(())
}

/// Writes the superblock to the cache devices in use.
///
/// It refuses if one of them is among the `silent`, which hang: to ask those would be in vain.
fn mark(config: &Config, used: &Members, silent: &Members, superblock: &mut Superblock) -> Result<(), ServeError> {
    if let Some((_, file)) = silent.first() {
        let path = file.path().to_owned();
        return Err(ServeError::Silent { limit: config.timeout_of(&path).unwrap_or_default(), path });
    }
    members::write(config, used, superblock)
        .map_err(|(path, error)| failed(format!("{}: can't write the superblock at the stop", path.display()))(error))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon's end: leaves the stale guard's data, or a mark if the cache device failed.
//!
//! A cache that failed is marked however the daemon was stopped, because its log may hold blocks
//! that are older than the origin (tests: `daemon::tests`, and end to end `cache_failure`).
//!
//! Nothing is opened here: by its path another device could be found, which would be written to, or
//! be taken for the origin by the next start (tests: `what_took_the_place_of_..`).

use std::sync::Arc;
use std::time::Duration;

use flashfront_device::real::DeviceFile;
use flashfront_engine::DeviceId;
use flashfront_engine::format::Superblock;

use super::answered::answered;
use super::error::failed;
use super::members::{self, Members};
use super::open::member_id;
use super::{Daemon, Ended, ServeError};
use crate::config::Config;
use crate::{failure, stale};

/// What an end at once waits for I/O that is in flight: most devices answer in that time, and free
/// their locks with it.
const LAST_IO: Duration = Duration::from_secs(1);

impl Daemon<'_> {
    /// Ends all I/O, writes what the next start must know, and closes the devices.
    pub(super) fn close(mut self, clean: bool) -> Result<Ended, ServeError> {
        self.note_refusals();
        let mut superblock = self.pump.engine().superblock().clone();
        let status = self.pump.engine().status();
        let left = std::mem::take(&mut self.left);
        let (config, blocks_dirty) = (self.config, status.blocks_dirty);
        let used = self.members();
        let doubtful: Vec<_> = self.origins.iter().zip(&status.origins).filter(|(_, it)| it.doubtful).collect();
        let doubtful: Vec<_> = doubtful.into_iter().map(|(origin, _)| origin.path().display().to_string()).collect();
        let certain = || if doubtful.is_empty() { Ok(()) } else { Err(ServeError::Doubtful(doubtful.join(", "))) };
        if !clean {
            // First, as devices may hang: then this process ends before they are closed, and a
            // folder would be left behind.
            self.pump.drop_frontends();
        }
        // What a device that hangs has in flight is not waited for, nor anything else at an end at
        // once.
        let hangs = |id| self.pump.hang(id).is_some();
        let silent: Vec<_> = used.iter().filter(|(number, _)| hangs(member_id(*number))).cloned().collect();
        let silent_origin = self.origins.iter().zip(&status.origins).find(|(_, it)| hangs(DeviceId::Origin(it.id)));
        let silent_origin = silent_origin.map(|(origin, _)| origin.path().to_owned());
        if !clean || self.pump.any_hangs() {
            let _ = self.pump.end_io(LAST_IO);
        }
        // Else nothing is in flight any more. The files, and their locks, stay.
        drop(self.pump);
        if config.without_cache {
            if !clean {
                return Ok(Ended::AtOnce);
            }
            return sync(config, &self.origins).and_then(|()| certain()).map(|()| Ended::WithoutCache);
        }
        superblock.dirty_blocks = blocks_dirty;
        if status.cache_failed {
            (superblock.clean, superblock.failed) = (false, true);
            match mark(config, &used, &silent, &mut superblock) {
                Ok(()) => failure::forget(config.state.as_deref(), &superblock),
                Err(error) => match failure::record(config.state.as_deref(), &superblock, blocks_dirty) {
                    Ok(path) => tracing::warn!("{error}; {} remembers that the cache failed", path.display()),
                    Err(second) => tracing::error!("{error}, nor remembered ({second}): never serve this cache again"),
                },
            }
            return certain().map(|()| Ended::CacheFailed { blocks_dirty });
        }
        if !clean {
            return Ok(Ended::AtOnce);
        }
        if let Some(path) = silent_origin {
            // What a client wrote past the cache may still be on its way.
            let limit = config.timeout_of(&path).unwrap_or_default();
            return Err(ServeError::Silent { path, limit });
        }
        for (record, origin) in superblock.origins.iter_mut().zip(&self.origins) {
            let what = || failed(format!("{}: reading samples", origin.path().display()));
            let (origin, mut sampled) = (Arc::clone(origin), record.clone());
            *record = answered(config, move |_| {
                // The superblock is durable at once. A time of change that it has and the file's
                // inode has not yet would be another one after a power cut, and the origin taken
                // for changed.
                origin.sync_all()?;
                stale::record(&origin, &mut sampled).map(|()| sampled)
            })?
            .map_err(what())?;
        }
        (superblock.clean, superblock.failed) = (true, false);
        mark(config, &used, &silent, &mut superblock)?;
        certain().map(|()| Ended::Clean { blocks_dirty, left })
    }

    /// Says again that the last stop was a clean one, after a start that was cut off before
    /// anything was served: only then does the next start compare the origin, which may be changed
    /// until it comes. The records are still those of that stop, so that a change that this start
    /// saw is seen again.
    pub(super) fn undo(self) {
        let (engine, used) = (self.pump.engine(), self.members());
        let (mut superblock, failed) = (engine.superblock().clone(), engine.status().cache_failed);
        let ended = self.pump.end_io(LAST_IO);
        // Else nothing is in flight any more.
        drop(self.pump);
        if !self.was_clean || failed || superblock.failed || !ended {
            return;
        }
        superblock.clean = true;
        if let Err(error) = mark(self.config, &used, &Members::new(), &mut superblock) {
            tracing::warn!("{error}: the next start can't tell whether the origin was changed until then");
        }
    }
}

/// As after a clean stop with a cache: what was acknowledged is durable.
fn sync(config: &Config, origins: &[Arc<DeviceFile>]) -> Result<(), ServeError> {
    for origin in origins {
        let device = Arc::clone(origin);
        let synced = answered(config, move |_| device.sync())?;
        synced.map_err(failed(format!("{}: syncing at the stop", origin.path().display())))?;
    }
    Ok(())
}

/// `silent`: those that hang, which could only be asked in vain.
fn mark(config: &Config, used: &Members, silent: &Members, superblock: &mut Superblock) -> Result<(), ServeError> {
    if let Some((_, file)) = silent.first() {
        let path = file.path().to_owned();
        return Err(ServeError::Silent { limit: config.timeout_of(&path).unwrap_or_default(), path });
    }
    members::write(config, used, superblock)
        .map_err(|(path, error)| failed(format!("{}: can't write the superblock at the stop", path.display()))(error))
}

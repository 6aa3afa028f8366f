// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon's end: leaves the stale guard's data, or a mark if the cache device failed.
//!
//! A cache that failed is marked however the daemon was stopped, because its log may hold blocks that
//! are older than the origin (tests: `daemon::tests`, and end to end `cache_failure`).
//!
//! Nothing is opened here: by its path another device could be found, which would be written to, or be taken for
//! the origin by the next start (tests: `what_took_the_place_of_..`).

use std::sync::Arc;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::Superblock;

use super::error::failed;
use super::members::{self, Members};
use super::{Daemon, Ended, ServeError};
use crate::{failure, stale};

impl Daemon<'_> {
    /// Ends all I/O, writes what the next start must know, and closes the devices.
    pub(super) fn close(self, clean: bool) -> Result<Ended, ServeError> {
        let mut superblock = self.pump.engine().superblock().clone();
        let status = self.pump.engine().status();
        let (config, blocks_dirty) = (self.config, status.blocks_dirty);
        let used = self.members();
        let doubtful: Vec<_> = self.origins.iter().zip(&status.origins).filter(|(_, it)| it.doubtful).collect();
        let doubtful: Vec<_> = doubtful.into_iter().map(|(origin, _)| origin.path().display().to_string()).collect();
        let certain = || if doubtful.is_empty() { Ok(()) } else { Err(ServeError::Doubtful(doubtful.join(", "))) };
        // Nothing is in flight any more. The files, and their locks, stay.
        drop(self.pump);
        if config.without_cache {
            if !clean {
                return Ok(Ended::AtOnce);
            }
            return sync(&self.origins).and_then(|()| certain()).map(|()| Ended::WithoutCache);
        }
        superblock.dirty_blocks = blocks_dirty;
        if status.cache_failed {
            (superblock.clean, superblock.failed) = (false, true);
            match mark(&used, &mut superblock) {
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
        for (record, origin) in superblock.origins.iter_mut().zip(&self.origins) {
            let what = || failed(format!("{}: reading samples", origin.path().display()));
            // The superblock is durable at once. A time of change that it has and the file's inode has not yet would be
            // another one after a power cut, and the origin taken for changed.
            origin.sync_all().map_err(what())?;
            stale::record(origin, record).map_err(what())?;
        }
        (superblock.clean, superblock.failed) = (true, false);
        mark(&used, &mut superblock)?;
        certain().map(|()| Ended::Clean { blocks_dirty })
    }

    /// Says again that the last stop was a clean one, after a start that was cut off before anything was served: only
    /// then does the next start compare the origin, which may be changed until it comes. The records are still those of
    /// that stop, so that a change that this start saw is seen again.
    pub(super) fn undo(self) {
        let (engine, used) = (self.pump.engine(), self.members());
        let (mut superblock, failed) = (engine.superblock().clone(), engine.status().cache_failed);
        // Nothing is in flight any more.
        drop(self.pump);
        if !self.was_clean || failed || superblock.failed {
            return;
        }
        superblock.clean = true;
        if let Err(error) = mark(&used, &mut superblock) {
            tracing::warn!("{error}: the next start can't tell whether the origin was changed until then");
        }
    }
}

/// As after a clean stop with a cache: what was acknowledged is durable.
fn sync(origins: &[Arc<DeviceFile>]) -> Result<(), ServeError> {
    for origin in origins {
        origin.sync().map_err(failed(format!("{}: syncing at the stop", origin.path().display())))?;
    }
    Ok(())
}

fn mark(used: &Members, superblock: &mut Superblock) -> Result<(), ServeError> {
    members::write(used, superblock)
        .map_err(|(path, error)| failed(format!("{}: can't write the superblock at the stop", path.display()))(error))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A start without the cache device: the origins alone, by the same engine, in passthrough mode.
//!
//! The engine gets an empty cache in RAM, which stays empty: the mode can't be changed, so nothing
//! is ever dirty. That the origins change without their caches is remembered before the first
//! request (`changes`).

use std::sync::Arc;

use flashfront_device::real::{Access, DeviceFile};
use flashfront_device::sim::{RamDisk, RamSpec};
use flashfront_engine::format::{ORIGINS_MAX, OriginRecord, Superblock};
use flashfront_engine::{Mode, OriginId};

use super::apart::check_apart;
use super::error::{OriginsError, ServeError};
use super::opened::Opened;
use super::{buffers, members};
use crate::config::{Config, Volume};
use crate::{offline, stale};

#[cfg(test)]
mod tests;

/// Room for the log's open ends. What is not written takes no memory.
const RAM_CACHE_BYTES: u64 = 4 << 20;

/// Opens the origins.
pub(super) fn open(config: &Config) -> Result<Opened, ServeError> {
    let given = config.volumes.len();
    if given > ORIGINS_MAX {
        return Err(OriginsError::Volumes { given }.into());
    }
    check_apart(config.volumes.iter().map(|volume| volume.origin.as_path()))?;
    let (mut origins, mut records) = (Vec::new(), Vec::new());
    // A cache that was detached knew more of its volumes than a configuration says.
    let known = |volume: &Volume| config.detached.iter().find(|record| record.name == volume.name);
    for (at, volume) in config.volumes.iter().enumerate() {
        let origin = DeviceFile::open(&volume.origin, Access::Exclusive)?;
        members::refuse_cache(&origin)?;
        if let Some(by) = stale::other_writer(&origin, None, &OriginRecord::default())
            && !config.take_over
        {
            return Err(OriginsError::held(&volume.origin, by).into());
        }
        let found = origin.geometry().size_bytes;
        let record = known(volume);
        if let Some(record) = record.filter(|record| record.size_bytes < found) {
            origin.use_bytes(record.size_bytes);
        }
        records.push(OriginRecord {
            id: record.map_or(OriginId(at as u32), |record| record.id),
            mode: Mode::Passthrough,
            read_only: record.map_or_else(|| volume.read_only.unwrap_or(false), |record| record.read_only),
            size_bytes: record.map_or(found, |record| record.size_bytes),
            name: volume.name.clone(),
            ..OriginRecord::default()
        });
        origins.push(Arc::new(origin));
    }
    let superblock = offline::superblock_in_ram(RAM_CACHE_BYTES, records).expect("4 MiB can be divided");
    buffers::check(config, superblock.lanes)?;
    let ids = superblock.origins.iter().map(|record| record.id);
    let volumes = ids.zip(&config.volumes).map(|(id, volume)| Volume { id, ..volume.clone() }).collect();
    Ok(Opened { members: Vec::new(), origins, volumes, superblock, drop_clean: false, changes: Vec::new() })
}

/// The cache in RAM, formatted.
pub(super) fn ram(superblock: &Superblock) -> RamDisk {
    let spec = RamSpec { size_bytes: superblock.cache_bytes, latency_ns: 0, jitter_ns: 0, ..RamSpec::default() };
    let mut disk = RamDisk::new(spec);
    for (offset, block) in superblock.empty_checkpoints() {
        disk.poke(offset, &block);
    }
    disk
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volumes of a stopped cache: shows them, adds, removes and renames them, and converts a cache
//! of format version 1.
//!
//! A change is durable when it is made: the next table goes to the area that no superblock names,
//! then the superblocks name it. A power cut before that leaves everything as it was (test:
//! `a_power_cut_leaves_version_1_or_version_2`).

use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::format::{Mirror, OriginRecord, PairingError, Shares, Superblock, Table, VOLUMES_MAX, choose};
use flashfront_engine::{BLOCK_BYTES, DirtyOnRemove, Engine, Mode, OriginId, VolumeError};

use super::detach::dirty_of;
use super::format::absolute;
use crate::config::Size;
use crate::failure::{self, FailureReadError};
use crate::mixup::Mixup;
use crate::stale::Verdict;
use crate::superblock::{self, SuperblockReadError};
use crate::{config, stale, storage};

/// Why nothing was changed, but by [`VolumesError::Write`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumesError {
    /// Whether the cache failed can't be told.
    #[error(transparent)]
    Failure(#[from] FailureReadError),
    /// A device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device is no cache.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// Devices are mixed up.
    #[error(transparent)]
    Mixup(#[from] Mixup),
    /// Half of a mirrored cache, or no pair.
    #[error("{cache}: {error}. Name both devices of a mirrored cache with --cache and --mirror", cache = cache.display())]
    Pairing {
        /// The cache device.
        cache: PathBuf,
        /// The fault of the pair.
        error: PairingError,
    },
    /// The change makes no sense, or is not safe.
    #[error("{cache}, volume {name}: {error}", cache = cache.display())]
    Volume {
        /// The cache device.
        cache: PathBuf,
        /// The volume's name.
        name: String,
        /// Why.
        error: VolumeError,
    },
    /// The origin belongs to another volume of the cache.
    #[error("{origin}: it is the origin of the volume {other} already; name another origin", origin = origin.display())]
    OriginTaken {
        /// The origin.
        origin: PathBuf,
        /// The other volume.
        other: String,
    },
    /// The cache is damaged, so that nobody knows how much of a volume is dirty.
    #[error("{cache} is damaged in {places} places, so it is not known whether the volume has dirty blocks; see `flashfront check`", cache = cache.display())]
    Damaged {
        /// The cache device.
        cache: PathBuf,
        /// How many.
        places: usize,
    },
    /// The origin was changed since the last stop, and not only grown.
    #[error("{origin}: it was changed since the cache was stopped, or is another device; serve it first, which says what becomes of the cache's data, and grow the volume then", origin = origin.display())]
    OriginChanged {
        /// The origin.
        origin: PathBuf,
    },
    /// The origin is smaller than the volume.
    #[error("{origin}: the origin has {}, less than the {} of its volume; give it its size again", found.told(), size.told(), origin = origin.display())]
    OriginShrank {
        /// The origin.
        origin: PathBuf,
        /// The size of the volume.
        size: Size,
        /// The size of the origin.
        found: Size,
    },
    /// The cache has version 2 already.
    #[error("{cache} has format version 2 already: nothing to convert", cache = cache.display())]
    Converted {
        /// The cache device.
        cache: PathBuf,
    },
    /// A device can't be read.
    #[error("{path}: can't be read: {source}", path = path.display())]
    Read {
        /// The device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The cache device can't be written.
    #[error("{path}: can't be written: {source}; the change is made or not, and the volumes are whole in both cases", path = path.display())]
    Write {
        /// The cache device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A volume to add.
#[derive(Clone, Debug)]
pub struct AddOptions {
    /// Its name.
    pub name: String,
    /// The path or address of its origin.
    pub origin: PathBuf,
    /// How writes are treated.
    pub mode: Mode,
    /// Whether clients may not write.
    pub read_only: bool,
    /// Its part of the cache.
    pub shares: Shares,
}

/// What to set of a volume; `None` leaves it as it is.
#[derive(Clone, Debug, Default)]
pub struct SetOptions {
    /// How writes are treated.
    pub mode: Option<Mode>,
    /// Whether clients may not write.
    pub read_only: Option<bool>,
    /// Its part of the cache.
    pub shares: Option<Shares>,
    /// Where its origin is found.
    pub origin: Option<PathBuf>,
}

/// The volumes of a stopped cache, whose devices stay locked until this is dropped.
#[derive(Debug)]
pub struct Volumes {
    cache: PathBuf,
    members: Vec<(DeviceFile, u8)>,
    superblock: Superblock,
    state: Option<PathBuf>,
}

impl Volumes {
    /// Opens a stopped cache. `state` is the folder that remembers failures of caches that could
    /// not be marked. `writable`: it is to be changed.
    ///
    /// # Errors
    /// [`VolumesError`]
    pub fn open(
        cache: &Path,
        mirror: Option<&Path>,
        state: Option<&Path>,
        writable: bool,
    ) -> Result<Self, VolumesError> {
        let access = if writable { Access::Exclusive } else { Access::ReadOnly };
        let mut found = Vec::new();
        for path in [Some(cache), mirror].into_iter().flatten() {
            let file = DeviceFile::open(path, access)?;
            let superblock = superblock::read(&file)?.superblock;
            found.push((file, superblock));
        }
        let chosen = choose(&found[0].1, found.get(1).map(|(_, superblock)| superblock), false);
        let mut superblock = chosen.map_err(|error| VolumesError::Pairing { cache: cache.to_owned(), error })?;
        failure::mark(state, &mut superblock)?;
        let whole = superblock.pairing.mirror == Mirror::Whole;
        let counts = |number: u8| whole || number == superblock.pairing.member;
        let members = found.into_iter().map(|(file, it)| (file, it.pairing.member)).filter(|(_, it)| counts(*it));
        Ok(Self { cache: cache.to_owned(), members: members.collect(), superblock, state: state.map(Path::to_owned) })
    }

    /// What is known of the cache, its volumes among that.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Adds a volume.
    ///
    /// # Errors
    /// [`VolumesError`]
    pub fn add(&mut self, options: &AddOptions) -> Result<OriginId, VolumesError> {
        let name = &options.name;
        let refuse = |error| self.refuse(name, error);
        self.check_name(name, None)?;
        let id = self.superblock.next_id().ok_or_else(|| refuse(VolumeError::IdsUsedUp))?;
        let most = self.superblock.volumes_max();
        if self.superblock.origins.len() >= most {
            return Err(refuse(VolumeError::TooMany { most }));
        }
        for (member, _) in &self.members {
            if let Some(shared) = storage::shared(member.path(), &options.origin) {
                let (one, other) = (member.path().to_owned(), options.origin.clone());
                return Err(Mixup::SameDevice { one, other, shared }.into());
            }
        }
        let origin = DeviceFile::open(&options.origin, Access::Exclusive)?;
        let read = |source| VolumesError::Read { path: options.origin.clone(), source };
        if superblock::is_cache(&origin).map_err(read)? {
            return Err(Mixup::OriginIsCache(options.origin.clone()).into());
        }
        let mut record = OriginRecord {
            id,
            mode: options.mode,
            read_only: options.read_only,
            size_bytes: origin.geometry().size_bytes,
            name: name.clone(),
            origin_path: absolute(&options.origin),
            shares: options.shares,
            ..OriginRecord::default()
        };
        if record.size_bytes == 0 {
            return Err(refuse(VolumeError::BadSize));
        }
        Engine::check_shares(record.shares, None, &self.superblock).map_err(refuse)?;
        stale::record(&origin, &mut record).map_err(read)?;
        let same = |it: &&OriginRecord| {
            let serial = origin.is_block_device() && !it.identity.is_empty() && it.identity == record.identity;
            serial
                || !it.origin_path.is_empty() && storage::shared(&options.origin, Path::new(&it.origin_path)).is_some()
        };
        if let Some(other) = self.superblock.origins.iter().find(same) {
            return Err(VolumesError::OriginTaken { origin: options.origin.clone(), other: other.name.clone() });
        }
        let mut next = self.next_table()?;
        next.origins.push(record);
        if let Some(table) = &mut next.table {
            table.next_id += 1;
        }
        self.write(next).map(|()| id)
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// [`VolumesError`]
    pub fn rename(&mut self, name: &str, new: &str) -> Result<(), VolumesError> {
        let id = self.named(name)?;
        self.check_name(new, Some(id))?;
        self.change(id, |record| record.name = new.to_owned())
    }

    /// Gives a volume the size of its origin, which has grown. `origin`: where the origin is now,
    /// if the cache doesn't know it.
    ///
    /// A file that has grown has a new time of change, too. Then the next start can't tell whether
    /// more was changed, and drops what is clean.
    ///
    /// # Errors
    /// [`VolumesError`]
    pub fn grow(&mut self, name: &str, origin: Option<&Path>) -> Result<u64, VolumesError> {
        let id = self.named(name)?;
        let clean = self.superblock.clean;
        let Some(record) = self.superblock.origin(id).filter(|_| self.superblock.table.is_some()) else {
            return Err(self.refuse(name, VolumeError::NeedsVersion2));
        };
        let before = record.size_bytes;
        let path = origin.map_or_else(|| PathBuf::from(&record.origin_path), Path::to_owned);
        let file = DeviceFile::open(&path, Access::Exclusive)?;
        let read = |source| VolumesError::Read { path: path.clone(), source };
        let found = file.geometry().size_bytes;
        if found < before {
            return Err(VolumesError::OriginShrank { origin: path, size: Size(before), found: Size(found) });
        }
        if found == before {
            return Err(self.refuse(name, VolumeError::NotLarger { size_bytes: before }));
        }
        if !before.is_multiple_of(BLOCK_BYTES) {
            return Err(self.refuse(name, VolumeError::PartOfBlock { size_bytes: before }));
        }
        // The comparison looks at the origin's old size only.
        file.use_bytes(before);
        let verdict = stale::compare(&file, record, clean).map_err(read)?;
        let is_dirty = !clean || self.superblock.dirty_blocks > 0;
        let mut next = record.clone();
        next.size_bytes = found;
        match verdict {
            Verdict::Unchanged => {
                file.use_bytes(found);
                stale::record(&file, &mut next).map_err(read)?;
            }
            // After a crash nothing is compared but by the next start.
            Verdict::Unknown => {
                if let Some(state) = self.state.as_deref().filter(|state| state.exists()) {
                    stale::forget_openings(state, &self.superblock.uuid).map_err(read)?;
                }
            }
            Verdict::Changed if !is_dirty => {}
            Verdict::Changed | Verdict::Other => return Err(VolumesError::OriginChanged { origin: path }),
        }
        if origin.is_some() {
            next.origin_path = absolute(&path);
        }
        self.change(id, |record| *record = next).map(|()| found)
    }

    /// Sets what is said of a volume.
    ///
    /// # Errors
    /// [`VolumesError`]
    pub fn set(&mut self, name: &str, options: &SetOptions) -> Result<(), VolumesError> {
        let id = self.named(name)?;
        let only_mode = options.read_only.is_none() && options.shares.is_none() && options.origin.is_none();
        if !only_mode && self.superblock.table.is_none() {
            return Err(self.refuse(name, VolumeError::NeedsVersion2));
        }
        if let Some(shares) = options.shares {
            Engine::check_shares(shares, Some(id), &self.superblock).map_err(|error| self.refuse(name, error))?;
        }
        self.change(id, |record| {
            record.mode = options.mode.unwrap_or(record.mode);
            record.read_only = options.read_only.unwrap_or(record.read_only);
            record.shares = options.shares.unwrap_or(record.shares);
            if let Some(origin) = &options.origin {
                record.origin_path = absolute(origin);
            }
        })
    }

    /// Removes a volume. Its dirty blocks are counted by reading checkpoint and log; a stopped
    /// cache can't destage them. `progress` hears of steps done and all steps. Returns how many
    /// were given up.
    ///
    /// # Errors
    /// [`VolumesError`]
    pub fn remove(
        &mut self,
        name: &str,
        dirty: DirtyOnRemove,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<u64, VolumesError> {
        let id = self.named(name)?;
        if self.superblock.table.is_none() {
            return Err(self.refuse(name, VolumeError::NeedsVersion2));
        }
        let (blocks, places) =
            dirty_of(self.members.iter().map(|(file, _)| file), &self.superblock, Some(id), progress);
        if dirty != DirtyOnRemove::Discard {
            if places > 0 {
                return Err(VolumesError::Damaged { cache: self.cache.clone(), places });
            }
            if blocks > 0 {
                return Err(self.refuse(name, VolumeError::Dirty { blocks }));
            }
        }
        let mut next = self.next_table()?;
        next.origins.retain(|record| record.id != id);
        self.write(next).map(|()| blocks)
    }

    /// Converts a cache of format version 1. Returns how many volumes it has room for then.
    ///
    /// # Errors
    /// [`VolumesError`]
    pub fn convert(&mut self) -> Result<usize, VolumesError> {
        let Some(next) = converted(&self.superblock) else {
            return Err(VolumesError::Converted { cache: self.cache.clone() });
        };
        self.write(next)?;
        Ok(self.superblock.volumes_max())
    }

    fn refuse(&self, name: &str, error: VolumeError) -> VolumesError {
        VolumesError::Volume { cache: self.cache.clone(), name: name.to_owned(), error }
    }

    fn named(&self, name: &str) -> Result<OriginId, VolumesError> {
        let found = self.superblock.origins.iter().find(|record| record.name == name);
        found.map(|record| record.id).ok_or_else(|| self.refuse(name, VolumeError::NoSuchVolume))
    }

    /// Whether a volume may have this name.
    fn check_name(&self, name: &str, own: Option<OriginId>) -> Result<(), VolumesError> {
        if self.superblock.table.is_none() {
            return Err(self.refuse(name, VolumeError::NeedsVersion2));
        }
        if !config::name_is_usable(name) || name.len() > self.superblock.name_bytes_max() {
            return Err(self.refuse(name, VolumeError::BadName));
        }
        match self.superblock.origins.iter().find(|record| record.name == name && Some(record.id) != own) {
            Some(other) => Err(self.refuse(name, VolumeError::NameTaken(other.id))),
            None => Ok(()),
        }
    }

    fn change(&mut self, id: OriginId, change: impl FnOnce(&mut OriginRecord)) -> Result<(), VolumesError> {
        let mut next = self.next_table()?;
        if let Some(record) = next.origin_mut(id) {
            change(record);
        }
        self.write(next)
    }

    /// What is to be changed, with the next table. All copies name the last one before: a power cut
    /// may have left some that don't.
    fn next_table(&mut self) -> Result<Superblock, VolumesError> {
        self.write(self.superblock.clone())?;
        let mut next = self.superblock.clone();
        next.begin_table();
        Ok(next)
    }

    /// Writes the next update to all members: first the tables, then the superblocks.
    fn write(&mut self, mut next: Superblock) -> Result<(), VolumesError> {
        next.update += 1;
        for step in [superblock::put_table, superblock::put_copies] {
            for (file, number) in &self.members {
                let mut own = next.clone();
                own.pairing.member = *number;
                step(file, &own).map_err(|source| VolumesError::Write { path: file.path().to_owned(), source })?;
            }
        }
        self.superblock = next;
        Ok(())
    }
}

/// The superblock of a cache of version 1 as one of version 2. Its table lies where nothing was.
fn converted(superblock: &Superblock) -> Option<Superblock> {
    if superblock.table.is_some() {
        return None;
    }
    let free = superblock.free_blocks().into_iter().max_by_key(|free| free.end.saturating_sub(free.start))?;
    let blocks = (free.end.saturating_sub(free.start) / 2).min(Table::blocks_for(VOLUMES_MAX).into()) as u32;
    let next_id = superblock.origins.last().map_or(0, |last| last.id.0 + 1);
    let table = Table { first_block: free.start as u32, blocks, number: 0, next_id };
    Some(Superblock { table: Some(table), ..superblock.clone() })
}

#[cfg(test)]
mod tests;

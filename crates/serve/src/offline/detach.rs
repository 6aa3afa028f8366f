// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes a cache away from its origin. The origin is not touched: there is nothing of ours on it.

use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};

use crate::stale::{self, Verdict};
use crate::superblock::{self, SuperblockReadError};

/// Why the cache stays attached. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// A device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The superblock can't be used.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// It was detached already.
    #[error("{cache} has no origin; there is nothing to detach", cache = .0.display())]
    Nothing(PathBuf),
    /// The wrong origin.
    #[error("{origin} is not the origin of the cache {cache}; name the right one", origin = origin.display(), cache = cache.display())]
    OtherOrigin {
        /// The origin named.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
    },
    /// The origin alone is not complete.
    #[error(
        "{cache} holds {dirty} dirty blocks that the origin does not have; start the daemon and run `flashfront drain` first",
        cache = cache.display()
    )]
    Dirty {
        /// The cache device.
        cache: PathBuf,
        /// Dirty blocks.
        dirty: u64,
    },
    /// What is dirty is not known.
    #[error(
        "{cache} was not stopped cleanly, so it may hold dirty data; start the daemon, run `flashfront drain`, and stop it",
        cache = cache.display()
    )]
    NotClean {
        /// The cache device.
        cache: PathBuf,
    },
    /// The kernel refuses.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Which device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Takes the cache away from its origin.
///
/// # Errors
/// See [`DetachError`].
pub fn detach(cache_path: &Path, origin_path: &Path) -> Result<(), DetachError> {
    let cache = DeviceFile::open(cache_path, Access::Exclusive)?;
    let origin = DeviceFile::open(origin_path, Access::Exclusive)?;
    let mut superblock = superblock::read(&cache)?.superblock;
    let Some(record) = superblock.origins.first() else {
        return Err(DetachError::Nothing(cache_path.to_owned()));
    };
    let same_size = origin.geometry().size_bytes == record.size_bytes;
    let verdict = stale::compare(&origin, record, superblock.clean)
        .map_err(|source| DetachError::Io { path: origin_path.to_owned(), source })?;
    if !same_size || verdict == Verdict::Other {
        return Err(DetachError::OtherOrigin { origin: origin_path.to_owned(), cache: cache_path.to_owned() });
    }
    if !superblock.clean {
        return Err(DetachError::NotClean { cache: cache_path.to_owned() });
    }
    if superblock.dirty_blocks > 0 {
        return Err(DetachError::Dirty { cache: cache_path.to_owned(), dirty: superblock.dirty_blocks });
    }
    superblock.origins.clear();
    superblock::write(&cache, &mut superblock)
        .map_err(|source| DetachError::Io { path: cache_path.to_owned(), source })
}

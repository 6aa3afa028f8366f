// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes the superblocks of a stopped cache.
//!
//! Two copies, each whole by itself: the newer sound one counts. A damaged copy is reported, and
//! mended by the next write. Writing does the last copy first, so that one is whole at every moment.
//! A member of a mirrored cache may be larger than the cache: its last copy lies where the cache ends.

use std::io;
use std::path::PathBuf;

use flashfront_device::real::DeviceFile;
use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{Mirror, Superblock, SuperblockError};

/// Why there is no superblock to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockReadError {
    /// The device can't be read.
    #[error("{path}: can't read the superblock: {source}", path = path.display())]
    Read {
        /// The cache device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Neither copy can be used.
    #[error("{path}: {first} at byte 0; {last} at byte {last_offset}{hint}", path = path.display())]
    Unusable {
        /// The cache device.
        path: PathBuf,
        /// What is wrong with the first copy.
        first: SuperblockError,
        /// What is wrong with the last copy.
        last: SuperblockError,
        /// Where the last copy is.
        last_offset: u64,
        /// What to do.
        hint: &'static str,
    },
    /// The device is not as large as it was.
    #[error(
        "{path}: the device has {found} bytes, but the cache was made with {expected}: it was truncated, grown or copied in part; restore it, or make a new cache with `flashfront format`",
        path = path.display()
    )]
    Resized {
        /// The cache device.
        path: PathBuf,
        /// What the superblock says.
        expected: u64,
        /// What the device has.
        found: u64,
    },
}

/// What was read.
#[derive(Debug)]
pub struct Stored {
    /// The newer sound copy.
    pub superblock: Superblock,
    /// Where a copy is damaged or older, and how.
    pub damaged: Option<(u64, SuperblockError)>,
}

/// Reads the superblock of a cache device.
///
/// # Errors
/// See [`SuperblockReadError`].
pub fn read(device: &DeviceFile) -> Result<Stored, SuperblockReadError> {
    let path = || device.path().to_owned();
    let size = device.geometry().size_bytes;
    if size < 2 * BLOCK_BYTES {
        return Err(SuperblockReadError::Unusable {
            path: path(),
            first: SuperblockError::Foreign,
            last: SuperblockError::Foreign,
            last_offset: 0,
            hint: "; the device is too small for a cache",
        });
    }
    let mut offsets = Superblock::offsets(size);
    let mut copies = [const { Err(SuperblockError::Foreign) }; 2];
    for nth in 0..2 {
        let mut block = vec![0; BLOCK_BYTES as usize];
        device
            .read_at(offsets[nth], &mut block)
            .map_err(|source| SuperblockReadError::Read { path: path(), source })?;
        copies[nth] = Superblock::decode(&block);
        if let Ok(superblock) = &copies[nth]
            && may_be_larger(superblock)
            && superblock.cache_bytes < size
        {
            offsets = Superblock::offsets(superblock.cache_bytes);
        }
    }
    let stored = match copies {
        // A newer program may have written one of them: that one is not damaged, this program is old.
        [Err(first @ SuperblockError::Newer { .. }), last] => return Err(unusable(path(), first, last, offsets[1])),
        [first, Err(last @ SuperblockError::Newer { .. })] => {
            return Err(unusable(path(), last, first, offsets[1]));
        }
        [Ok(first), Ok(last)] if last.update > first.update => Stored { superblock: last, damaged: None },
        [Ok(superblock), Ok(_)] => Stored { superblock, damaged: None },
        [Ok(superblock), Err(error)] => Stored { superblock, damaged: Some((offsets[1], error)) },
        [Err(error), Ok(superblock)] => Stored { superblock, damaged: Some((offsets[0], error)) },
        [Err(first), Err(last)] => return Err(unusable(path(), first, Err(last), offsets[1])),
    };
    let fits = stored.superblock.cache_bytes == size
        || may_be_larger(&stored.superblock) && stored.superblock.cache_bytes < size;
    if !fits {
        let expected = stored.superblock.cache_bytes;
        return Err(SuperblockReadError::Resized { path: path(), expected, found: size });
    }
    Ok(stored)
}

/// A device that was never half of a mirrored cache is used as a whole.
fn may_be_larger(superblock: &Superblock) -> bool {
    superblock.pairing.mirror != Mirror::None
}

fn unusable(
    path: PathBuf,
    first: SuperblockError,
    last: Result<Superblock, SuperblockError>,
    last_offset: u64,
) -> SuperblockReadError {
    let hint = match first {
        SuperblockError::Foreign => "; this is no Flashfront cache: make one with `flashfront format`",
        SuperblockError::Newer { .. } => "",
        _ => "; run `flashfront check`; if the cache held no dirty data, `flashfront format --force` makes a new one",
    };
    let last = last.err().unwrap_or(first);
    SuperblockReadError::Unusable { path, first, last, last_offset, hint }
}

/// Writes both copies, durably, as the next update.
///
/// # Errors
/// When the device refuses.
pub fn write(device: &DeviceFile, superblock: &mut Superblock) -> io::Result<()> {
    superblock.update += 1;
    put(device, superblock)
}

/// Writes both copies, durably, as they are.
///
/// # Errors
/// When the device refuses.
pub(crate) fn put(device: &DeviceFile, superblock: &Superblock) -> io::Result<()> {
    let block = superblock.encode();
    for offset in Superblock::offsets(superblock.cache_bytes).into_iter().rev() {
        device.write_at(offset, &block)?;
        device.sync()?;
    }
    Ok(())
}

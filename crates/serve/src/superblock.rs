// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes the superblocks of a stopped cache.
//!
//! There are two copies, each whole by itself: the newer sound one counts. A copy that is damaged
//! or can't be read is reported, and mended by the next write. The last copy is written first, so
//! that one is whole at every moment. A member of a mirrored cache may be larger than the cache.
//! Its last copy lies where the cache ends, as the first copy says, even if that is damaged
//! elsewhere.

use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::DeviceFile;
use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{Superblock, SuperblockError, TableError};

/// Why one copy can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The device can't read it.
    #[error("unreadable superblock ({0})")]
    Unreadable(String),
    /// The device holds no superblock for this program.
    #[error(transparent)]
    Unusable(#[from] SuperblockError),
}

/// Why there is no superblock to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockReadError {
    /// Neither copy can be read.
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
        /// The fault of the first copy.
        first: CopyError,
        /// The fault of the last copy.
        last: CopyError,
        /// The place of the last copy.
        last_offset: u64,
        /// The advice.
        hint: &'static str,
    },
    /// The table of volumes can't be read.
    #[error("{path}: can't read the table of volumes: {source}; see `dmesg`", path = path.display())]
    TableUnreadable {
        /// The cache device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The table of volumes is damaged.
    #[error("{path}: the table of volumes at byte {offset} is damaged, so it is not known to which origins the blocks of this cache belong. If it is half of a mirrored cache, serve the other half with --without-mirror; else what was dirty is lost, and `flashfront format --force` makes a new cache", path = path.display())]
    TableDamaged {
        /// The cache device.
        path: PathBuf,
        /// The first byte of the table.
        offset: u64,
    },
    /// The device is not as large as it was.
    #[error(
        "{path}: the device has {found}, but the cache was made with {expected}: it was truncated or copied in part; give it that size again and all of its bytes. `flashfront format --force` makes a new cache, and gives up what was dirty in this one",
        path = path.display(), found = crate::config::Size(*found).told(), expected = crate::config::Size(*expected).told()
    )]
    Resized {
        /// The cache device.
        path: PathBuf,
        /// The size in the superblock.
        expected: u64,
        /// The size of the device.
        found: u64,
    },
}

/// A superblock that was read.
#[derive(Debug)]
pub struct Stored {
    /// The newer sound copy.
    pub superblock: Superblock,
    /// The place and the fault of a copy that can't be used. A copy that is whole and older has
    /// none: a crash leaves that.
    pub damaged: Option<(u64, CopyError)>,
}

/// Reads the superblock of a cache device.
///
/// # Errors
/// See [`SuperblockReadError`].
pub fn read(device: &DeviceFile) -> Result<Stored, SuperblockReadError> {
    read_with(device.path(), device.geometry().size_bytes, |offset, block| device.read_at(offset, block))
}

/// Reads the copies from any bytes: one bad sector must not take the other copy along (test:
/// `either_copy_may_be_unreadable`).
pub(crate) fn read_with(
    path: &Path,
    size: u64,
    mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> Result<Stored, SuperblockReadError> {
    let path = || path.to_owned();
    if size < 2 * BLOCK_BYTES {
        return Err(SuperblockReadError::Unusable {
            path: path(),
            first: SuperblockError::Foreign.into(),
            last: SuperblockError::Foreign.into(),
            last_offset: 0,
            hint: "; the device is too small for a cache",
        });
    }
    let mut offsets = Superblock::offsets(size);
    let mut copies = [const { Err(CopyError::Unusable(SuperblockError::Foreign)) }; 2];
    let mut refused = Vec::new();
    for nth in 0..2 {
        let mut block = vec![0; BLOCK_BYTES as usize];
        copies[nth] = match read_at(offsets[nth], &mut block) {
            Ok(()) => Superblock::decode(&block).map_err(CopyError::from),
            Err(error) => {
                let copy = CopyError::Unreadable(error.to_string());
                refused.push(error);
                Err(copy)
            }
        };
        if nth == 0
            && matches!(copies[0], Err(CopyError::Unusable(SuperblockError::Damaged { .. })))
            && let Some(bytes) = Superblock::size_said(&block).filter(|it| (2 * BLOCK_BYTES..size).contains(it))
        {
            // Where the cache ends only the damaged copy says; that it is true the other one has to
            // say.
            let mut last = vec![0; BLOCK_BYTES as usize];
            let read = read_at(Superblock::offsets(bytes)[1], &mut last);
            let is_copy = |it: Superblock| it.cache_bytes == bytes;
            if read.is_ok() && Superblock::decode(&last).is_ok_and(is_copy) {
                offsets = Superblock::offsets(bytes);
            }
        }
        if let Ok(superblock) = &copies[nth]
            && superblock.cache_bytes < size
        {
            offsets = Superblock::offsets(superblock.cache_bytes);
        }
    }
    if refused.len() == 2 {
        return Err(SuperblockReadError::Read { path: path(), source: refused.swap_remove(0) });
    }
    let mut stored = match copies {
        // A newer program may have written one of them: that copy is not damaged, but this program
        // is old.
        [Err(first @ CopyError::Unusable(SuperblockError::Newer { .. })), last] => {
            return Err(unusable(path(), first, last, offsets[1]));
        }
        [first, Err(last @ CopyError::Unusable(SuperblockError::Newer { .. }))] => {
            return Err(unusable(path(), last, first, offsets[1]));
        }
        [Ok(first), Ok(last)] if last.update > first.update => Stored { superblock: last, damaged: None },
        [Ok(superblock), Ok(_)] => Stored { superblock, damaged: None },
        [Ok(superblock), Err(error)] => Stored { superblock, damaged: Some((offsets[1], error)) },
        [Err(error), Ok(superblock)] => Stored { superblock, damaged: Some((offsets[0], error)) },
        [Err(first), Err(last)] => return Err(unusable(path(), first, Err(last), offsets[1])),
    };
    // A device may be larger than its cache: `flashfront cache grow` uses the rest.
    if stored.superblock.cache_bytes > size {
        let expected = stored.superblock.cache_bytes;
        return Err(SuperblockReadError::Resized { path: path(), expected, found: size });
    }
    match stored.superblock.read_table(read_at) {
        Ok(()) => Ok(stored),
        Err(TableError::Unreadable(source)) => Err(SuperblockReadError::TableUnreadable { path: path(), source }),
        Err(TableError::Damaged { offset }) => Err(SuperblockReadError::TableDamaged { path: path(), offset }),
    }
}

/// Whether a device begins with the superblock of a cache, so that it is no origin.
///
/// To write to it, or to make a cache for it, would destroy what only it holds. A device whose last
/// copy alone is left has been put to another use.
///
/// # Errors
/// When the device refuses.
pub(crate) fn is_cache(device: &DeviceFile) -> io::Result<bool> {
    if device.geometry().size_bytes < BLOCK_BYTES {
        return Ok(false);
    }
    let mut block = vec![0; BLOCK_BYTES as usize];
    device.read_at(0, &mut block)?;
    Ok(matches!(Superblock::decode(&block), Ok(_) | Err(SuperblockError::Newer { .. })))
}

fn unusable(
    path: PathBuf,
    first: CopyError,
    last: Result<Superblock, CopyError>,
    last_offset: u64,
) -> SuperblockReadError {
    let last = last.err().unwrap_or_else(|| first.clone());
    let hint = match (&first, &last) {
        // A copy that can't be read may have been a superblock.
        (CopyError::Unusable(SuperblockError::Foreign), CopyError::Unusable(_)) => {
            // Not that it be formatted: the device may only be misspelt, and hold something else.
            "; this is no Flashfront cache (another device, never formatted, or detached); name the cache device, which `flashfront format` has made; after a detach the origin is used without one"
        }
        (CopyError::Unusable(SuperblockError::Newer { .. }), _) => "",
        _ => "; run `flashfront check`; if the cache held no dirty data, `flashfront format --force` makes a new one",
    };
    SuperblockReadError::Unusable { path, first, last, last_offset, hint }
}

/// Writes both copies, durably, as the next update. If volumes have changed, the caller has begun
/// their next table.
///
/// # Errors
/// When the device refuses.
pub fn write(device: &DeviceFile, superblock: &mut Superblock) -> io::Result<()> {
    superblock.update += 1;
    put(device, superblock)
}

/// Writes the table of volumes and both copies, durably, as they are.
///
/// # Errors
/// When the device refuses.
pub(crate) fn put(device: &DeviceFile, superblock: &Superblock) -> io::Result<()> {
    put_table(device, superblock)?;
    put_copies(device, superblock)
}

/// Writes the table of volumes, durably: before both copies. With format version 1 there is none.
///
/// # Errors
/// When the device refuses.
pub(crate) fn put_table(device: &DeviceFile, superblock: &Superblock) -> io::Result<()> {
    let Some((offset, bytes)) = superblock.encode_table() else { return Ok(()) };
    let mut there = vec![0; bytes.len()];
    // A superblock may name it already: then it stays as it is.
    if device.read_at(offset, &mut there).is_err() || there != bytes {
        device.write_at(offset, &bytes)?;
    }
    device.sync()
}

/// Writes both copies, durably.
///
/// # Errors
/// When the device refuses.
pub(crate) fn put_copies(device: &DeviceFile, superblock: &Superblock) -> io::Result<()> {
    let block = superblock.encode();
    for offset in Superblock::offsets(superblock.cache_bytes).into_iter().rev() {
        device.write_at(offset, &block)?;
        device.sync()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::FormatOptions;
    use crate::rig::Bench;

    #[test]
    fn either_copy_may_be_unreadable() {
        let bench = Bench::formatted();
        let bytes = std::fs::read(bench.cache()).unwrap();
        let size = bytes.len() as u64;
        let read = |bad: &[u64]| {
            read_with(&bench.cache(), size, |offset, block| {
                if bad.contains(&offset) {
                    return Err(io::Error::from_raw_os_error(libc::EIO));
                }
                block.copy_from_slice(&bytes[offset as usize..][..block.len()]);
                Ok(())
            })
        };
        let sound = read(&[]).unwrap();
        assert!(sound.damaged.is_none());
        let offsets = Superblock::offsets(size);
        for bad in offsets {
            let found = read(&[bad]).unwrap();
            assert_eq!(found.superblock, sound.superblock);
            assert!(matches!(found.damaged, Some((at, CopyError::Unreadable(_))) if at == bad), "{:?}", found.damaged);
        }
        let said = read(&offsets).unwrap_err();
        assert!(matches!(said, SuperblockReadError::Read { .. }), "{said}");
    }

    /// The larger member of a mirrored cache: its last copy lies where the cache ends.
    #[test]
    fn the_last_copy_of_a_larger_member_is_found_by_a_damaged_first_one() {
        let bench = Bench::new();
        let mirror = bench.path("mirror");
        std::fs::File::create(&mirror).unwrap().set_len(crate::rig::CACHE_BYTES + (2 << 20)).unwrap();
        let options = FormatOptions { mirror: Some(mirror.clone()), ..bench.options() };
        crate::offline::format(&options).unwrap();
        let mut bytes = std::fs::read(&mirror).unwrap();
        let size = bytes.len() as u64;
        let read = |bytes: &[u8]| {
            read_with(&mirror, size, |offset, block| {
                block.copy_from_slice(&bytes[offset as usize..][..block.len()]);
                Ok(())
            })
        };
        let sound = read(&bytes).unwrap().superblock;
        // Torn in its middle, as a power cut may leave it.
        bytes[600..1100].fill(0xee);
        let found = read(&bytes).unwrap();
        assert_eq!(found.superblock, sound);
        assert!(matches!(found.damaged, Some((0, CopyError::Unusable(SuperblockError::Damaged { .. })))));
        // Its word about the size is not believed if no copy is there.
        let last = Superblock::offsets(sound.cache_bytes)[1] as usize;
        bytes[last] ^= 1;
        assert!(matches!(read(&bytes), Err(SuperblockReadError::Unusable { .. })));
    }

    #[test]
    fn what_cannot_be_read_is_not_called_no_cache() {
        let size = 1 << 20;
        let read = |bad: &[u64]| {
            let read_at = |offset, _: &mut [u8]| {
                let bad = bad.contains(&offset);
                if bad { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
            };
            read_with(Path::new("x"), size, read_at).unwrap_err().to_string()
        };
        assert!(read(&[]).contains("this is no Flashfront cache"));
        for bad in Superblock::offsets(size) {
            let said = read(&[bad]);
            assert!(said.contains("unreadable") && !said.contains("this is no Flashfront cache"), "{said}");
        }
    }
}

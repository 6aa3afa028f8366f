// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a stopped cache as large as its device, which has grown.
//!
//! First each lane's checkpoint goes to its new area, in the room that was gained. Then the last
//! copy of the superblock is written, at the new end. Then comes the first copy: until it is
//! written, nothing of what the cache was is touched. So a power cut leaves the cache of before or
//! the grown one, whole (test: `a_power_cut_leaves_the_cache_of_before_or_the_grown_one`).

use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointHeader, GrowError, PARTS_MAX, Superblock,
    decode_checkpoint_ages, decode_checkpoint_entries, decode_checkpoint_eras, encode_checkpoint_ages,
    encode_checkpoint_entries, encode_checkpoint_eras,
};
use flashfront_engine::{BLOCK_BYTES, OpenError as IndexError};

use super::format::index_bytes;
use super::reader::Reader;
use crate::config::Size;
use crate::failure::{self, FailureReadError};
use crate::superblock::{self, SuperblockReadError};

/// Blocks copied at once.
const BATCH: u64 = 256;
const BLOCK_LEN: usize = BLOCK_BYTES as usize;

/// Why a cache did not grow. Nothing was changed, but by [`CacheGrowError::Write`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheGrowError {
    /// Whether the cache failed can't be told.
    #[error(transparent)]
    Failure(#[from] FailureReadError),
    /// The device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device is no cache.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// The last stop was not clean.
    #[error("{cache}: the last stop was not clean, or its device failed; serve the cache once, stop it, and grow it then", cache = .0.display())]
    Unclean(PathBuf),
    /// Mirrored caches don't grow.
    #[error(
        "{cache}: it is one of two cache devices, and a mirrored cache does not grow; serve it with --without-mirror and stop it, grow it, then `flashfront mirror add`", cache = .0.display()
    )]
    Mirrored(PathBuf),
    /// The format is too old.
    #[error("{cache}: the cache has format version 1; run `flashfront volume convert` first", cache = .0.display())]
    Version1(PathBuf),
    /// The device is as large as its cache.
    #[error("{cache}: the cache uses all of its device, {}; make the device larger first", Size(*bytes).told(), cache = cache.display())]
    NotLarger {
        /// The cache device.
        cache: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The device has grown by too little.
    #[error("{cache}: the device has {} more than its cache, too little for a segment of each lane and their checkpoints; make it larger", Size(*more).told(), cache = cache.display())]
    TooLittle {
        /// The cache device.
        cache: PathBuf,
        /// How much.
        more: u64,
    },
    /// The cache has grown as often as a cache can.
    #[error("{cache}: a cache can grow {PARTS_MAX} times, and this one has; `flashfront destage`, then `flashfront format --force` makes a new one", cache = .0.display())]
    TooOften(PathBuf),
    /// The cache would be too large.
    #[error("{cache}: the cache can't be larger: {why}", cache = cache.display())]
    TooLarge {
        /// The cache device.
        cache: PathBuf,
        /// Why.
        why: String,
    },
    /// A checkpoint is damaged.
    #[error("{cache}: the checkpoint of lane {lane} is damaged at byte {offset}; see `flashfront check`", cache = cache.display())]
    Damaged {
        /// The cache device.
        cache: PathBuf,
        /// The lane.
        lane: u32,
        /// Where.
        offset: u64,
    },
    /// The device can't be read.
    #[error("{cache}: can't be read: {source}", cache = cache.display())]
    Read {
        /// The cache device.
        cache: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The device can't be written.
    #[error("{cache}: can't be written: {source}; the cache has grown or not, and is whole in both cases", cache = cache.display())]
    Write {
        /// The cache device.
        cache: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// How a cache has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheGrown {
    /// The size of the cache before.
    pub from_bytes: u64,
    /// Its size now.
    pub to_bytes: u64,
    /// Memory of its index from the next start on.
    pub index_bytes: u64,
}

/// Makes a stopped cache as large as its device. `state` is the folder that remembers failures of
/// caches that could not be marked.
///
/// # Errors
/// [`CacheGrowError`]
pub fn grow(cache: &Path, state: Option<&Path>) -> Result<CacheGrown, CacheGrowError> {
    let device = DeviceFile::open(cache, Access::Exclusive)?;
    let mut before = superblock::read(&device)?.superblock;
    failure::mark(state, &mut before)?;
    if !before.clean || before.failed {
        return Err(CacheGrowError::Unclean(device.path().to_owned()));
    }
    if !before.pairing.is_the_one() {
        return Err(CacheGrowError::Mirrored(device.path().to_owned()));
    }
    let mut next = grown(cache, &before, device.geometry().size_bytes)?;
    next.update += 1;
    let too_large = |why: IndexError| CacheGrowError::TooLarge { cache: cache.to_owned(), why: why.to_string() };
    let index_bytes = index_bytes(&next).map_err(too_large)?;
    for lane in 0..before.lanes {
        move_checkpoint(&device, &before, &next, lane)?;
    }
    let write = |source| CacheGrowError::Write { cache: device.path().to_owned(), source };
    device.sync().map_err(write)?;
    superblock::put_copies(&device, &next).map_err(write)?;
    // Nobody looks for the copy at the old end any more.
    let [_, old] = Superblock::offsets(before.cache_bytes);
    device.write_at(old, &[0; BLOCK_LEN]).and_then(|()| device.sync()).map_err(write)?;
    Ok(CacheGrown { from_bytes: before.cache_bytes, to_bytes: next.cache_bytes, index_bytes })
}

/// The superblock of a cache that has grown to a device of `bytes`.
///
/// # Errors
/// [`CacheGrowError`]
pub(crate) fn grown(cache: &Path, before: &Superblock, bytes: u64) -> Result<Superblock, CacheGrowError> {
    let cache = || cache.to_owned();
    if !before.pairing.is_on_one() {
        return Err(CacheGrowError::Mirrored(cache()));
    }
    if before.table.is_none() {
        return Err(CacheGrowError::Version1(cache()));
    }
    if bytes / BLOCK_BYTES <= before.cache_bytes / BLOCK_BYTES {
        return Err(CacheGrowError::NotLarger { cache: cache(), bytes });
    }
    before.grown_to(bytes).map_err(|error| match error {
        GrowError::TooLittle => CacheGrowError::TooLittle { cache: cache(), more: bytes - before.cache_bytes },
        GrowError::TooOften => CacheGrowError::TooOften(cache()),
        GrowError::TooLarge => {
            let why = "each lane has as many blocks as there are numbers for".to_owned();
            CacheGrowError::TooLarge { cache: cache(), why }
        }
    })
}

/// Writes a lane's checkpoint to where the grown cache has it.
fn move_checkpoint(
    device: &DeviceFile,
    before: &Superblock,
    next: &Superblock,
    lane: u32,
) -> Result<(), CacheGrowError> {
    let cache = || device.path().to_owned();
    let damaged = |offset| CacheGrowError::Damaged { cache: cache(), lane, offset };
    let read = |source| CacheGrowError::Read { cache: cache(), source };
    let write = |source| CacheGrowError::Write { cache: cache(), source };
    let reader = Reader { device, superblock: before, damage: Vec::new() };
    let mut found: Option<CheckpointHeader> = None;
    for area in 0..2 {
        let offset = before.checkpoint_offset(lane, area);
        let block = reader.blocks(offset, 1).map_err(read)?;
        match reader.decode_head(lane, area, &block) {
            Some(head) if found.is_none_or(|it| it.generation < head.generation) => found = Some(head),
            Some(_) => {}
            // Replay looks more closely where a head has decayed. So must somebody do before.
            None if block.iter().any(|byte| *byte != 0) => return Err(damaged(offset)),
            None => {}
        }
    }
    let head = found.ok_or_else(|| damaged(before.checkpoint_offset(lane, 0)))?;
    // Both areas say the same then. A cache that was never opened has nothing in the other one.
    for generation in head.generation.saturating_sub(1)..=head.generation {
        copy_checkpoint(&reader, next, lane, head, generation)?;
    }
    if head.generation == 0 {
        device.write_at(next.checkpoint_offset(lane, 1), &[0; BLOCK_LEN]).map_err(write)?;
    }
    Ok(())
}

/// Writes a checkpoint to the area of this generation of the grown cache.
fn copy_checkpoint(
    reader: &Reader<'_>,
    next: &Superblock,
    lane: u32,
    head: CheckpointHeader,
    generation: u64,
) -> Result<(), CacheGrowError> {
    let (device, before) = (reader.device, reader.superblock);
    let cache = || device.path().to_owned();
    let damaged = |offset| CacheGrowError::Damaged { cache: cache(), lane, offset };
    let read = |source| CacheGrowError::Read { cache: cache(), source };
    let write = |source| CacheGrowError::Write { cache: cache(), source };
    let from = before.checkpoint_offset(lane, (head.generation % 2) as u32);
    let to = next.checkpoint_offset(lane, (generation % 2) as u32);
    let mut block = vec![0; BLOCK_LEN];
    if head.seq > 0 {
        let entry_blocks = head.entries.div_ceil(CHECKPOINT_ENTRIES_MAX as u64);
        let (old_ages, new_ages) = (u64::from(before.age_blocks()), u64::from(next.age_blocks()));
        let eras = u64::from(head.eras_blocks);
        if 1 + new_ages + entry_blocks + eras > u64::from(next.checkpoint_blocks) {
            return Err(CacheGrowError::TooLittle { cache: cache(), more: next.cache_bytes - before.cache_bytes });
        }
        let mut ages = Vec::new();
        for nth in 1..=old_ages {
            let bytes = reader.blocks(from + nth * BLOCK_BYTES, 1).map_err(read)?;
            let more = decode_checkpoint_ages(head.generation, &bytes);
            ages.extend(more.ok_or_else(|| damaged(from + nth * BLOCK_BYTES))?);
        }
        if ages.len() != before.segments_per_lane as usize {
            return Err(damaged(from));
        }
        // Nothing was ever written in the segments that are new.
        ages.resize(next.segments_per_lane as usize, 0);
        for (nth, ages) in (1..).zip(ages.chunks(CHECKPOINT_AGES_MAX)) {
            encode_checkpoint_ages(generation, ages, &mut block);
            device.write_at(to + nth * BLOCK_BYTES, &block).map_err(write)?;
        }
        // The rest says the same there, block by block.
        let copy = |first: u64, new_first: u64, blocks: u64, again: &dyn Fn(&mut [u8]) -> Option<()>| {
            for nth in (0..blocks).step_by(BATCH as usize) {
                let offset = from + (first + nth) * BLOCK_BYTES;
                let mut bytes = reader.blocks(offset, BATCH.min(blocks - nth) as u32).map_err(read)?;
                bytes.chunks_mut(BLOCK_LEN).try_for_each(again).ok_or_else(|| damaged(offset))?;
                device.write_at(to + (new_first + nth) * BLOCK_BYTES, &bytes).map_err(write)?;
            }
            Ok::<(), CacheGrowError>(())
        };
        copy(1 + old_ages, 1 + new_ages, entry_blocks, &|block| {
            let entries = decode_checkpoint_entries(head.generation, block)?;
            encode_checkpoint_entries(generation, &entries, block);
            Some(())
        })?;
        let [old_end, new_end] = [before, next].map(|it| u64::from(it.checkpoint_blocks));
        copy(old_end - eras, new_end - eras, eras, &|block| {
            let entries = decode_checkpoint_eras(head.generation, block)?;
            encode_checkpoint_eras(generation, &entries, block);
            Some(())
        })?;
    }
    CheckpointHeader { generation, ..head }.encode_into(&mut block);
    device.write_at(to, &block).map_err(write)
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a cache on a device: lays it out, records its origins, writes it.
//!
//! Everything is checked before the first byte is written. The origin is only read.

use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::probe::{Found, probe_device};
use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::format::{OriginRecord, Superblock, checkpoint_blocks};
use flashfront_engine::{BLOCK_BYTES, Mode, OriginId};

use crate::config::Size;
use crate::{stale, superblock};

/// The segment of a cache that is large enough for many: a large sequential write for any SSD.
const SEGMENT_BYTES: u64 = 1 << 20;
/// The smallest one: 32 blocks, one of which is the header.
const SEGMENT_BYTES_MIN: u64 = 128 << 10;
/// Where the largest one ends: 4096 blocks.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// Fewer segments than this in a lane and its segments are made smaller.
const SEGMENTS_WANTED: u64 = 128;
/// Fewer than this and a lane can't work: six belong to its streams, eight are kept free.
const SEGMENTS_MIN: u64 = 32;
/// Each lane of a large cache is at least this large.
const LANE_BYTES: u64 = 1 << 30;
const LANES_MAX: u32 = 4;
/// Wide, so that the runs that destage writes stay whole.
const STRIPE_BYTES: u64 = 4 << 20;
/// The first lane starts here: what lies before is the superblock and room for later formats.
const FIRST_BLOCK: u32 = (1 << 20) / BLOCK_BYTES as u32;
/// An origin smaller than this has nothing to gain.
const ORIGIN_BYTES_MIN: u64 = 1 << 20;

/// What to make.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The cache device.
    pub cache: PathBuf,
    /// The origin.
    pub origin: PathBuf,
    /// Its name.
    pub name: String,
    /// How writes to it are treated.
    pub mode: Mode,
    /// Overwrite what is on the cache device.
    pub force: bool,
    /// Bytes of a segment; chosen by the size of the cache if absent.
    pub segment_bytes: Option<u64>,
    /// Independent logs; chosen by the size of the cache if absent.
    pub lanes: Option<u32>,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatReport {
    /// Names the cache.
    pub uuid: [u8; 16],
    /// Blocks the log has room for.
    pub capacity_blocks: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments of all lanes.
    pub segments: u64,
    /// Lanes.
    pub lanes: u32,
    /// Size of the origin.
    pub origin_bytes: u64,
    /// What was there before and is overwritten.
    pub overwritten: Vec<String>,
}

/// Why nothing was made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Cache and origin are one.
    #[error("{cache} and {origin} are the same device; a cache needs a device of its own", cache = cache.display(), origin = origin.display())]
    SameDevice {
        /// The cache device.
        cache: PathBuf,
        /// The origin.
        origin: PathBuf,
    },
    /// Something is on the cache device.
    #[error("{path} holds {what}; formatting would destroy it. If that is what you want, say --force", path = path.display())]
    NotEmpty {
        /// The cache device.
        path: PathBuf,
        /// What was recognised.
        what: String,
    },
    /// The cache device is too small.
    #[error("{path} has {size}; a cache of {lanes} lane(s) needs at least {least}", path = path.display())]
    CacheSmall {
        /// The cache device.
        path: PathBuf,
        /// Its size.
        size: Size,
        /// What is needed.
        least: Size,
        /// With so many lanes.
        lanes: u32,
    },
    /// The origin is too small.
    #[error("{path} has {size}; an origin of less than {least} has nothing to gain from a cache", path = path.display(), least = Size(ORIGIN_BYTES_MIN))]
    OriginSmall {
        /// The origin.
        path: PathBuf,
        /// Its size.
        size: Size,
    },
    /// A segment size that can't be used.
    #[error("a segment of {given} can't be used; take a power of two from {least} to {most}", least = Size(SEGMENT_BYTES_MIN), most = Size(SEGMENT_BYTES_MAX))]
    Segment {
        /// What was asked for.
        given: Size,
    },
    /// A lane count that can't be used.
    #[error("{given} lanes can't be used; take 1 to 16")]
    Lanes {
        /// What was asked for.
        given: u32,
    },
    /// The name can't be stored.
    #[error("the volume name `{0}` is longer than 32 bytes; choose a shorter one")]
    Name(String),
    /// The kernel refuses.
    #[error("{path}: {doing}: {source}", path = path.display())]
    Io {
        /// Which device.
        path: PathBuf,
        /// Doing what.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> FormatError {
    let path = path.to_owned();
    move |source| FormatError::Io { path, doing, source }
}

/// Makes a cache.
///
/// # Errors
/// See [`FormatError`]; only [`FormatError::Io`] can come after the first write.
pub fn format(options: &FormatOptions) -> Result<FormatReport, FormatError> {
    let same = || FormatError::SameDevice { cache: options.cache.clone(), origin: options.origin.clone() };
    if std::fs::canonicalize(&options.cache).is_ok_and(|cache| {
        std::fs::canonicalize(&options.origin).is_ok_and(|origin| origin == cache)
    }) {
        return Err(same());
    }
    let hard_linked = |a: &Path, b: &Path| {
        use std::os::unix::fs::MetadataExt;
        let (a, b) = (std::fs::metadata(a), std::fs::metadata(b));
        a.is_ok_and(|a| b.is_ok_and(|b| a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino())))
    };
    if hard_linked(&options.cache, &options.origin) {
        return Err(same());
    }
    let cache = DeviceFile::open(&options.cache, Access::Exclusive)?;
    let origin = DeviceFile::open(&options.origin, Access::Exclusive)?;
    if cache.identity().same_device(origin.identity()) {
        return Err(same());
    }
    let origin_bytes = origin.geometry().size_bytes;
    if origin_bytes < ORIGIN_BYTES_MIN {
        return Err(FormatError::OriginSmall { path: options.origin.clone(), size: Size(origin_bytes) });
    }
    if options.name.len() > 32 {
        return Err(FormatError::Name(options.name.clone()));
    }
    let found = probe_device(&cache).map_err(failed(&options.cache, "looking for what is on it"))?;
    if !found.is_empty() && !options.force {
        return Err(FormatError::NotEmpty { path: options.cache.clone(), what: describe(&found) });
    }
    let mut superblock = lay_out(options, cache.geometry().size_bytes)?;
    let mut record = OriginRecord {
        id: OriginId(0),
        mode: options.mode,
        size_bytes: origin_bytes,
        name: options.name.clone(),
        identity: String::new(),
        fingerprint: 0,
        changed_ns: 0,
    };
    stale::record(&origin, &mut record).map_err(failed(&options.origin, "reading samples"))?;
    superblock.origins.push(record);
    for (offset, block) in superblock.empty_checkpoints() {
        cache.write_at(offset, &block).map_err(failed(&options.cache, "writing"))?;
    }
    cache.sync().map_err(failed(&options.cache, "writing"))?;
    superblock::write(&cache, &mut superblock).map_err(failed(&options.cache, "writing the superblock"))?;
    let segments = u64::from(superblock.lanes) * u64::from(superblock.segments_per_lane);
    Ok(FormatReport {
        uuid: superblock.uuid,
        capacity_blocks: segments * u64::from(superblock.segment_blocks),
        segment_bytes: u64::from(superblock.segment_blocks) * BLOCK_BYTES,
        segments,
        lanes: superblock.lanes,
        origin_bytes,
        overwritten: found.into_iter().map(|found| found.what).collect(),
    })
}

fn describe(found: &[Found]) -> String {
    let each = found.iter().map(|found| format!("{} (at byte {})", found.what, found.offset));
    each.collect::<Vec<_>>().join(", ")
}

fn lay_out(options: &FormatOptions, cache_bytes: u64) -> Result<Superblock, FormatError> {
    if let Some(bytes) = options.segment_bytes
        && !(bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes))
    {
        return Err(FormatError::Segment { given: Size(bytes) });
    }
    if let Some(given) = options.lanes.filter(|lanes| !(1..=16).contains(lanes)) {
        return Err(FormatError::Lanes { given });
    }
    let lanes = options.lanes.unwrap_or((cache_bytes / LANE_BYTES).clamp(1, u64::from(LANES_MAX)) as u32);
    let blocks = (cache_bytes / BLOCK_BYTES).saturating_sub(u64::from(FIRST_BLOCK) + 1) / u64::from(lanes);
    let fit = |segment_blocks: u64| {
        let mut segments = blocks / segment_blocks;
        while segments > 0
            && segments * segment_blocks + 2 * checkpoint_blocks(segments as u32, segment_blocks as u32) > blocks
        {
            segments -= 1;
        }
        segments
    };
    let mut segment_blocks = options.segment_bytes.unwrap_or(SEGMENT_BYTES) / BLOCK_BYTES;
    while options.segment_bytes.is_none()
        && fit(segment_blocks) < SEGMENTS_WANTED
        && segment_blocks * BLOCK_BYTES > SEGMENT_BYTES_MIN
    {
        segment_blocks /= 2;
    }
    let segments = fit(segment_blocks);
    if segments < SEGMENTS_MIN {
        let lane = SEGMENTS_MIN * segment_blocks + 2 * checkpoint_blocks(SEGMENTS_MIN as u32, segment_blocks as u32);
        let least = (u64::from(FIRST_BLOCK) + 1 + u64::from(lanes) * lane) * BLOCK_BYTES;
        let (path, least) = (options.cache.clone(), Size(least.next_multiple_of(1 << 20)));
        return Err(FormatError::CacheSmall { path, size: Size(cache_bytes), least, lanes });
    }
    let mut uuid = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| io::Read::read_exact(&mut random, &mut uuid))
        .map_err(failed(Path::new("/dev/urandom"), "reading"))?;
    Ok(Superblock {
        uuid,
        update: 0,
        epoch: 0,
        clean: true,
        dirty_blocks: 0,
        cache_bytes,
        lanes,
        segment_blocks: segment_blocks as u32,
        segments_per_lane: segments as u32,
        checkpoint_blocks: checkpoint_blocks(segments as u32, segment_blocks as u32) as u32,
        stripe_blocks: (STRIPE_BYTES / BLOCK_BYTES) as u32,
        first_block: FIRST_BLOCK,
        origins: Vec::new(),
    })
}

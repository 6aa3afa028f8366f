// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a cache: divides the cache device and remembers which origin it belongs to.
//!
//! The origin is only read. Nothing is written before everything that can be refused has been
//! checked. Anything recognisable on the cache device is a refusal that names it, and `force` is
//! the operator's word that it may go. The superblocks are written last, so that a power cut on the
//! way leaves no cache that looks whole.

use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::probe::{first_data, probe_device, void};
use flashfront_device::real::{Access, DeviceFile, OpenError, discard};
use flashfront_engine::format::{Mirror, NAME_BYTES_MAX, OriginRecord, Superblock, Table};
use flashfront_engine::{BLOCK_BYTES, Engine, Mode, Options, OriginId, Time};
use serde::Serialize;

use super::layout::{Layout, LayoutError, STRIPE_BLOCKS};
use crate::config::Size;
use crate::mixup::Mixup;
use crate::report::counted;
use crate::storage;
use crate::superblock::{self, SuperblockReadError};
use crate::uuid::uuid_text;
use crate::{config, stale};

/// Signatures of other formats lie this close to the ends; `probe` looks as far. Less than the
/// smallest cache (see `layout`).
const WIPE_BYTES: u64 = 512 << 10;

/// The options of a format.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The cache device.
    pub cache: PathBuf,
    /// A second cache device for copies of dirty data.
    pub mirror: Option<PathBuf>,
    /// The origin.
    pub origin: PathBuf,
    /// The volume's name.
    pub name: String,
    /// How writes are treated.
    pub mode: Mode,
    /// Destroy what is on the cache device.
    pub force: bool,
    /// Segment size; chosen for the device if there is none.
    pub segment: Option<Size>,
    /// Lanes; chosen for the device if there is none.
    pub lanes: Option<u32>,
    /// Tell a block device that nothing on it is needed any more.
    pub discard: bool,
}

/// The cache that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FormatReport {
    /// Names the cache.
    pub uuid: String,
    /// The cache device.
    #[serde(serialize_with = "super::shown::shown")]
    pub cache: PathBuf,
    /// The bytes of the device that the cache uses: its size, or that of the mirror if that is
    /// smaller.
    pub cache_bytes: u64,
    /// The mirror.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::shown::shown_if_any")]
    pub mirror: Option<PathBuf>,
    /// The origin.
    #[serde(serialize_with = "super::shown::shown")]
    pub origin: PathBuf,
    /// The size of the origin.
    pub origin_bytes: u64,
    /// The volume's name.
    pub name: String,
    /// How writes are treated.
    pub mode: String,
    /// Independent logs.
    pub lanes: u32,
    /// Segment size.
    pub segment_bytes: u64,
    /// Segments of all lanes.
    pub segments: u64,
    /// Blocks the log has room for.
    pub capacity_blocks: u64,
    /// RAM that the index will take.
    pub index_bytes: u64,
    /// Bytes discarded (TRIM); 0 on files, and on devices that can't.
    pub discarded_bytes: u64,
    /// The contents that were destroyed.
    pub destroyed: Vec<String>,
    /// Notices for the operator.
    pub notices: Vec<String>,
}

/// Why nothing was made. Nothing was changed, but by [`FormatError::Write`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Devices are not what they are named as.
    #[error(transparent)]
    Mixup(#[from] Mixup),
    /// The device can't be divided as asked.
    #[error("{path}: {error}", path = path.display())]
    Layout {
        /// The cache device.
        path: PathBuf,
        /// Why.
        error: LayoutError,
    },
    /// A name no client could ask for.
    #[error("the volume name `{0}` can't be used; take 1 to 32 letters, digits, `.`, `_` or `-`")]
    BadName(String),
    /// The cache device holds something.
    #[error("{path} holds something: {found}. It would be destroyed; say --force if that is wanted", path = path.display())]
    Occupied {
        /// The cache device.
        path: PathBuf,
        /// The content of the device.
        found: String,
    },
    /// The engine could not open such a cache.
    #[error("{path}: {error}", path = path.display())]
    Engine {
        /// The cache device.
        path: PathBuf,
        /// Why.
        error: flashfront_engine::OpenError,
    },
    /// A device can't be read.
    #[error("{path}: can't be read: {source}", path = path.display())]
    Read {
        /// The device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The cache device can't be written; it may be changed in part.
    #[error("{path}: can't be written: {source}; the device is no whole cache now, format it again", path = path.display())]
    Write {
        /// The cache device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading back gives other data than was written.
    #[error("{path}: what was written does not come back ({error}); the device is broken", path = path.display())]
    Verify {
        /// The cache device.
        path: PathBuf,
        /// Why.
        error: Box<SuperblockReadError>,
    },
}

/// Makes a cache.
///
/// # Errors
/// [`FormatError`]; nothing was changed then, but by a failed write.
pub fn format(options: &FormatOptions) -> Result<FormatReport, FormatError> {
    if !config::name_is_usable(&options.name) || options.name.len() > NAME_BYTES_MAX {
        return Err(FormatError::BadName(options.name.clone()));
    }
    let paths: Vec<&Path> = [&options.cache].into_iter().chain(&options.mirror).map(PathBuf::as_path).collect();
    // Before the locks, which would only say "busy".
    for (at, path) in paths.iter().enumerate() {
        let others = paths[at + 1..].iter().copied().chain([options.origin.as_path()]);
        for other in others {
            if let Some(shared) = storage::shared(path, other) {
                return Err(Mixup::SameDevice { one: path.into(), other: other.into(), shared }.into());
            }
        }
    }
    let members = paths.iter().map(|path| DeviceFile::open(path, Access::Exclusive)).collect::<Result<Vec<_>, _>>()?;
    let origin = DeviceFile::open(&options.origin, Access::Exclusive)?;
    let is_cache = superblock::is_cache(&origin);
    if is_cache.map_err(|source| FormatError::Read { path: origin.path().to_owned(), source })? {
        return Err(Mixup::OriginIsCache(options.origin.clone()).into());
    }
    let smallest = members.iter().min_by_key(|member| member.geometry().size_bytes).expect("there is at least one");
    let cache_bytes = smallest.geometry().size_bytes;
    let layout = Layout::new(cache_bytes, options.segment.map(|size| size.0), options.lanes)
        .map_err(|error| FormatError::Layout { path: smallest.path().to_owned(), error })?;
    let mut destroyed = Vec::new();
    for member in &members {
        let found = occupants(member);
        if !options.force && !found.is_empty() {
            return Err(FormatError::Occupied { path: member.path().to_owned(), found: found.join("; ") });
        }
        destroyed.extend(found);
    }
    let mut superblock = new_superblock(options, &layout, &origin, cache_bytes)?;
    let index_bytes =
        index_bytes(&superblock).map_err(|error| FormatError::Engine { path: options.cache.clone(), error })?;

    let write_error = |member: &DeviceFile| {
        let path = member.path().to_owned();
        move |source| FormatError::Write { path, source }
    };
    // All are empty before one of them says that it is a cache.
    for member in &members {
        wipe(member).map_err(write_error(member))?;
    }
    let (mut discarded_bytes, mut failed) = (0, Vec::new());
    for member in members.iter().filter(|_| options.discard) {
        let (bytes, notice) = discard_log(member, &superblock);
        discarded_bytes += bytes;
        failed.extend(notice);
    }
    for member in &members {
        write_checkpoints(member, &superblock).map_err(write_error(member))?;
    }
    superblock.update += 1;
    for (number, member) in (0..).zip(&members) {
        superblock.pairing.member = number;
        superblock::put(member, &superblock).map_err(write_error(member))?;
        let back = superblock::read(member)
            .map_err(|error| FormatError::Verify { path: member.path().to_owned(), error: Box::new(error) })?;
        debug_assert_eq!(back.superblock, superblock);
    }
    let mut notices: Vec<String> =
        members.iter().chain([&origin]).filter_map(DeviceFile::notice).map(str::to_owned).collect();
    notices.extend(failed);
    notices.extend(members.iter().filter_map(sparse));
    notices.extend(options.mirror.as_ref().and_then(|mirror| storage::same_disk(&options.cache, mirror)));
    for member in members.iter().filter(|member| member.geometry().size_bytes > cache_bytes) {
        let rest = Size(member.geometry().size_bytes - cache_bytes);
        notices
            .push(format!("{}: {rest} stay unused, since the other cache device is smaller", member.path().display()));
    }
    if origin.geometry().size_bytes < cache_bytes {
        notices.push("the cache device is larger than the origin; the rest of it will stay unused".to_owned());
    }
    Ok(FormatReport {
        uuid: uuid_text(&superblock.uuid),
        cache: options.cache.clone(),
        cache_bytes,
        mirror: options.mirror.clone(),
        origin: options.origin.clone(),
        origin_bytes: origin.geometry().size_bytes,
        name: options.name.clone(),
        mode: options.mode.name().to_owned(),
        lanes: layout.lanes,
        segment_bytes: u64::from(layout.segment_blocks) * BLOCK_BYTES,
        segments: u64::from(layout.lanes) * u64::from(layout.segments_per_lane),
        capacity_blocks: layout.capacity_blocks(),
        index_bytes,
        discarded_bytes,
        destroyed,
        notices,
    })
}

/// Makes an empty cache for volumes as another cache knew them, each with its origin.
///
/// # Errors
/// When the device is not fit, or one can't be opened, read or written.
pub(crate) fn format_for(
    path: &Path,
    force: bool,
    known: &[OriginRecord],
    origins: &[PathBuf],
) -> Result<(), FormatError> {
    let device = DeviceFile::open(path, Access::Exclusive)?;
    is_fit(&device, force)?;
    let cache_bytes = device.geometry().size_bytes;
    let layout =
        Layout::new(cache_bytes, None, None).map_err(|error| FormatError::Layout { path: path.to_owned(), error })?;
    let mut records = known.to_vec();
    for (record, path) in records.iter_mut().zip(origins) {
        let origin = DeviceFile::open(path, Access::Exclusive)?;
        origin.use_bytes(record.size_bytes);
        record.dirty_blocks = 0;
        let read = |source| FormatError::Read { path: path.clone(), source };
        stale::record(&origin, record).map_err(read)?;
    }
    let uuid = new_uuid().map_err(|source| FormatError::Read { path: "random source".into(), source })?;
    let mut superblock = empty_superblock(uuid, &layout, cache_bytes, records);
    index_bytes(&superblock).map_err(|error| FormatError::Engine { path: path.to_owned(), error })?;
    let write = |source| FormatError::Write { path: path.to_owned(), source };
    wipe(&device).map_err(write)?;
    write_checkpoints(&device, &superblock).map_err(write)?;
    superblock.update += 1;
    superblock::put(&device, &superblock).map_err(write)
}

/// Refuses a device that is too small for a cache, or that holds anything, but by `force`. Returns
/// how many blocks would have room.
pub(crate) fn is_fit(device: &DeviceFile, force: bool) -> Result<u64, FormatError> {
    let path = || device.path().to_owned();
    let layout = Layout::new(device.geometry().size_bytes, None, None)
        .map_err(|error| FormatError::Layout { path: path(), error })?;
    let found = if force { Vec::new() } else { occupants(device) };
    match found.is_empty() {
        true => Ok(layout.capacity_blocks()),
        false => Err(FormatError::Occupied { path: path(), found: found.join("; ") }),
    }
}

/// Overwrites the superblocks of a cache: the device holds none from now on, and counts as blank.
/// The first copy goes last, so that the cache is whole until then.
pub(crate) fn make_void(device: &DeviceFile, superblock: &Superblock) -> io::Result<()> {
    let [_, last] = Superblock::offsets(superblock.cache_bytes);
    device.write_at(last, &[0; BLOCK_BYTES as usize])?;
    device.sync()?;
    void(device)?;
    device.write_at(device.geometry().size_bytes - WIPE_BYTES, &vec![0; WIPE_BYTES as usize])?;
    device.sync()
}

/// Lists the contents of the device. What is of no known kind is listed if there is nothing else.
pub(crate) fn contents(device: &DeviceFile) -> Vec<String> {
    let mut found: Vec<String> = probe_device(device).into_iter().map(|found| found.what).collect();
    found.dedup();
    if found.is_empty() {
        found.extend(first_data(device).map(|at| format!("data of no known kind, from byte {at} on")));
    }
    found
}

/// Lists the contents of the device, with a word about dirty data if it is a cache of ours.
pub(crate) fn occupants(cache: &DeviceFile) -> Vec<String> {
    let mut found = contents(cache);
    if let Ok(stored) = superblock::read(cache) {
        match (stored.superblock.clean, stored.superblock.dirty_blocks) {
            (true, 0) => {}
            (_, 0) if stored.superblock.failed => {
                found.push("its device failed in the last run, after all data had reached the origin".to_owned());
            }
            (_, dirty) if stored.superblock.failed => found.push(format!(
                "its device failed in the last run, and {} ({}) had not reached the origin",
                counted(dirty, "block"),
                Size(dirty * BLOCK_BYTES)
            )),
            (true, dirty) => found.push(format!(
                "{} ({}) that its origin does not have (serve and drain it first)",
                counted(dirty, "dirty block"),
                Size(dirty * BLOCK_BYTES)
            )),
            (false, _) => found.push(
                "it was not stopped cleanly and may hold data that its origin does not have (serve and drain it first)"
                    .to_owned(),
            ),
        }
    }
    found
}

/// Warns of a file that is smaller than it seems.
fn sparse(member: &DeviceFile) -> Option<String> {
    let unallocated = member.unallocated_bytes().ok().filter(|bytes| *bytes > 0)?;
    let (path, size_bytes) = (member.path().display(), member.geometry().size_bytes);
    Some(format!(
        "{path}: a sparse file, it seems: {} of it have no place yet, and the cache fails when the file system is full; `fallocate --length {}` on it takes that now",
        Size(unallocated).told(),
        Size(size_bytes).to_string().replace(" B", "").replace(' ', "")
    ))
}

fn new_superblock(
    options: &FormatOptions,
    layout: &Layout,
    origin: &DeviceFile,
    cache_bytes: u64,
) -> Result<Superblock, FormatError> {
    let read = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| FormatError::Read { path, source }
    };
    let uuid = new_uuid().map_err(read(Path::new("random source")))?;
    let mut record = OriginRecord {
        id: OriginId(0),
        mode: options.mode,
        size_bytes: origin.geometry().size_bytes,
        name: options.name.clone(),
        origin_path: absolute(&options.origin),
        ..OriginRecord::default()
    };
    stale::record(origin, &mut record).map_err(read(origin.path()))?;
    let mut superblock = empty_superblock(uuid, layout, cache_bytes, vec![record]);
    if options.mirror.is_some() {
        superblock.pairing.mirror = Mirror::Whole;
    }
    Ok(superblock)
}

/// A name for a new cache.
fn new_uuid() -> io::Result<[u8; 16]> {
    let mut uuid = [0; 16];
    // Only fails on kernels without getrandom (before 3.17).
    rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty())?;
    // Version 4, variant 1 (RFC 9562).
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// The path that a later start finds the origin by; empty if it is no text. The address of an
/// export stays as it is.
pub(super) fn absolute(origin: &Path) -> String {
    let path = std::path::absolute(origin).ok().filter(|_| !flashfront_device::real::is_uri(origin));
    path.as_deref().unwrap_or(origin).to_str().unwrap_or_default().to_owned()
}

fn empty_superblock(uuid: [u8; 16], layout: &Layout, cache_bytes: u64, origins: Vec<OriginRecord>) -> Superblock {
    let next_id = origins.last().map_or(0, |last| last.id.0 + 1);
    Superblock {
        uuid,
        update: 0,
        epoch: 0,
        clean: true,
        failed: false,
        dirty_blocks: 0,
        pairing: Default::default(),
        cache_bytes,
        lanes: layout.lanes,
        segment_blocks: layout.segment_blocks,
        segments_per_lane: layout.segments_per_lane,
        checkpoint_blocks: layout.checkpoint_blocks,
        stripe_blocks: STRIPE_BLOCKS,
        first_block: layout.first_block,
        grown: None,
        table: Some(Table { first_block: 1, blocks: layout.table_blocks, number: 0, next_id }),
        origins,
    }
}

/// Makes the superblock of an empty cache in RAM, with one lane and epoch 0.
///
/// # Errors
/// This many bytes can't be divided.
pub(crate) fn superblock_in_ram(cache_bytes: u64, origins: Vec<OriginRecord>) -> Result<Superblock, LayoutError> {
    let superblock = empty_superblock([0; 16], &Layout::new(cache_bytes, None, Some(1))?, cache_bytes, origins);
    // Nobody reads it again.
    Ok(Superblock { table: None, ..superblock })
}

/// Lets the engine say whether it could open this cache, and how much RAM it would take.
pub(super) fn index_bytes(superblock: &Superblock) -> Result<u64, flashfront_engine::OpenError> {
    let engine = Engine::new(superblock.clone(), Options::default(), Time(0))?;
    Ok(engine.status().index_bytes)
}

/// Wipes the signatures of the old content, so that a power cut from here on leaves nothing that
/// looks whole.
pub(crate) fn wipe(cache: &DeviceFile) -> io::Result<()> {
    let zeroes = vec![0; WIPE_BYTES as usize];
    cache.write_at(0, &zeroes)?;
    cache.write_at(cache.geometry().size_bytes - WIPE_BYTES, &zeroes)?;
    cache.sync()
}

/// Discards all between the superblocks of a block device: an SSD writes faster and wears less when
/// it knows which blocks are free.
///
/// Returns the number of bytes, and the error if there was one, which is no reason to stop. A file
/// stays as it is, since a cache that was made whole (`fallocate`) must not become sparse.
fn discard_log(cache: &DeviceFile, superblock: &Superblock) -> (u64, Option<String>) {
    if !cache.is_block_device() {
        return (0, None);
    }
    let [_, last] = Superblock::offsets(superblock.cache_bytes);
    let first = superblock.checkpoint_offset(0, 0);
    match discard(cache, first, last - first) {
        Ok(true) => (last - first, None),
        Ok(false) => (0, None),
        Err(error) => {
            (0, Some(format!("{}: discard (TRIM) failed: {error}; the cache works without", cache.path().display())))
        }
    }
}

/// Writes the checkpoints, durably: before the superblocks.
fn write_checkpoints(cache: &DeviceFile, superblock: &Superblock) -> io::Result<()> {
    for (offset, block) in superblock.empty_checkpoints() {
        cache.write_at(offset, &block)?;
    }
    cache.sync()
}

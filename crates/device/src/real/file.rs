// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open device, with its geometry, lock and identity. It is a regular file, a block device, an
//! export of an NBD server or a volume in an object store.
//!
//! It uses O_DIRECT wherever the file system can. So the page cache neither doubles the cache nor
//! hides what a device really does. Where that can't be (tmpfs), it uses buffered I/O and gives a
//! notice. The synchronous helpers here serve `format`, `check` and the superblock, before the pump
//! runs; they take any memory and, for reads, any range.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flashfront_bucket::Pages;
use flashfront_nbd_proto::uri::Uri;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::direct::direct;
use super::error::OpenError;
use super::holder::who_has;
use super::lock::{Access, Identity, lock, sysfs};
use super::placement::Placement;
use super::remote::{LinkState, LinkWatch, Mark, Remote};
use super::storage::guard::{self, Guard, Refused};
use super::storage::{Storage, Store};
use super::watched::asking;
use super::{nbd, objects};
use crate::Geometry;
use crate::real::aligned::AlignedBuf;

/// Bytes that the synchronous helpers move at a time.
const BOUNCE_BYTES: usize = 1 << 20;
/// Memory for direct I/O begins at a multiple of it.
const DIRECT_ALIGN: usize = 4096;

/// How long a device may be busy before that is an error. The kernel takes a killed daemon's ring
/// down after the process is gone, when its I/O has ended. The ring holds the lock until then.
const BUSY_WAIT: Duration = Duration::from_secs(2);
const BUSY_STEP: Duration = Duration::from_millis(10);

/// Where a device is.
#[derive(Debug)]
enum Medium {
    Here {
        file: File,
        /// Locks on what lies below.
        _below: Guard,
    },
    Remote(Remote),
}

/// An open and locked device.
#[derive(Debug)]
pub struct DeviceFile {
    medium: Medium,
    path: PathBuf,
    access: Access,
    /// As it was found. Its size is that of the part in use: [`Self::use_bytes`].
    geometry: Geometry,
    used_bytes: AtomicU64,
    identity: Identity,
    is_block: bool,
    placement: Placement,
    notice: Option<String>,
    storage: Storage,
}

impl DeviceFile {
    /// Opens and locks a regular file or block device. If the path is a URI, it connects to an NBD
    /// server, or opens a volume in an object store. Nothing locks these.
    ///
    /// # Errors
    /// [`OpenError`]: absent, in use by this path or another one, not a device, of a size that
    /// isn't whole sectors.
    pub fn open(path: &Path, access: Access) -> Result<Self, OpenError> {
        match path.to_str() {
            Some(url) if flashfront_bucket::is_url(url) => asking(path, || {
                let objects::Opened { remote, serial, notice } = objects::open(path, url)?;
                Ok(Self::of_remote(path, access, remote, Some(serial), notice.as_deref()))
            }),
            Some(uri) if Uri::is_uri(uri) => {
                let notice = "nothing keeps other clients of the server from writing this export: see to that yourself";
                asking(path, || Ok(Self::of_remote(path, access, nbd::open(path, uri, access)?, None, Some(notice))))
            }
            _ => asking(path, || Self::open_now(path, access)),
        }
    }

    fn of_remote(path: &Path, access: Access, remote: Remote, serial: Option<String>, notice: Option<&str>) -> Self {
        let abilities = remote.abilities();
        let (geometry, storage) = (abilities.geometry, abilities.storage.clone());
        let identity = Identity::of_remote(&storage, geometry.size_bytes, serial);
        let notice = notice.filter(|_| access == Access::Exclusive);
        let notice = notice.map(|notice| format!("{}: {notice}", path.display()));
        let placement = Placement { by_threads: true, places: abilities.places };
        let (medium, path, used_bytes) = (Medium::Remote(remote), path.into(), geometry.size_bytes.into());
        Self { medium, path, access, geometry, used_bytes, identity, is_block: false, placement, notice, storage }
    }

    fn open_now(path: &Path, access: Access) -> Result<Self, OpenError> {
        let fail = |doing| move |error: io::Error| OpenError::Io { path: path.into(), doing, error };
        let meta = std::fs::metadata(path).map_err(fail("open"))?;
        let is_block = meta.file_type().is_block_device();
        if !is_block && !meta.is_file() {
            return Err(OpenError::Kind { path: path.into() });
        }
        let Locked { file, locked, storage, below } =
            open_soon(path, Store::of_meta(&meta), is_block, access).map_err(|why| refusal(path, why))?;
        if is_block && access == Access::Exclusive && is_read_only(&file) {
            return Err(OpenError::ReadOnly { path: path.into() });
        }
        let size_bytes = size_bytes(&file).map_err(fail("get the size of"))?;
        if size_bytes == 0 || size_bytes % 512 != 0 {
            return Err(OpenError::Size { path: path.into(), size_bytes });
        }
        let identity = Identity::of(&file, size_bytes).map_err(fail("stat"))?;
        let direct = direct(&file, is_block, size_bytes).map_err(fail("set up direct I/O on"))?;
        let notice = notice(path, direct.is_some(), locked);
        let rotational = is_block.then(|| rotational(&file)).flatten();
        let geometry = Geometry { size_bytes, logical_block_bytes: direct.unwrap_or(512), rotational };
        let placement = Placement::of(&file, is_block);
        let path = path.into();
        let (medium, used_bytes) = (Medium::Here { file, _below: below }, size_bytes.into());
        Ok(Self { medium, path, access, geometry, used_bytes, identity, is_block, placement, notice, storage })
    }

    /// The geometry of the part that is in use: of all, but for [`Self::use_bytes`].
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry { size_bytes: self.used_bytes.load(Ordering::Relaxed), ..self.geometry }
    }

    /// Uses the first bytes only, whole logical blocks. No I/O beyond them must be under way.
    pub fn use_bytes(&self, bytes: u64) {
        self.used_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The size of the whole device at this moment. The connections to an NBD server keep the size
    /// that they found.
    ///
    /// # Errors
    /// The errors of `lseek`.
    pub fn size_now(&self) -> io::Result<u64> {
        match &self.medium {
            Medium::Here { file, .. } => asking(&self.path, || size_bytes(file)),
            Medium::Remote(_) => Ok(self.geometry.size_bytes),
        }
    }

    /// As [`Self::size_now`], where the kernel knows the size without asking anybody else.
    #[must_use]
    pub fn size_at_hand(&self) -> Option<u64> {
        let is_near = self.is_block || !self.placement.by_threads;
        self.file().filter(|_| is_near).and_then(|file| size_bytes(file).ok())
    }

    /// The identity of the device.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What lies behind it.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// By which path it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it was opened.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether it is a block device.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.is_block
    }

    /// How many I/Os it takes at a time without letting another one wait in the kernel.
    #[must_use]
    pub fn places(&self) -> usize {
        self.placement.places
    }

    /// Whether its I/O may sleep in the system call that starts it, so that threads of its own do
    /// it.
    pub(super) fn is_by_threads(&self) -> bool {
        self.placement.by_threads
    }

    /// What the operator should know about it, if anything.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// The open file, unless the device is behind a thread.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &self.medium {
            Medium::Here { file, .. } => Some(file),
            Medium::Remote(_) => None,
        }
    }

    /// The device behind a thread, if it is one.
    pub(super) fn remote(&self) -> Option<&Remote> {
        match &self.medium {
            Medium::Here { .. } => None,
            Medium::Remote(remote) => Some(remote),
        }
    }

    /// The link to the server of an export, or to an object store.
    #[must_use]
    pub fn link(&self) -> Option<LinkState> {
        self.remote().map(|it| it.server().link())
    }

    /// Lets somebody look after the link to the server of an export, or to an object store: once.
    pub fn watch_link(&self, watch: LinkWatch) {
        if let Some(remote) = self.remote() {
            remote.server().watch(watch);
        }
    }

    /// Tells the content of a volume in an object store; `None` of all other devices.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        self.remote().and_then(|it| it.server().mark())
    }

    /// Whether the device is a snapshot in an object store: nobody may write it, ever.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.remote().is_some_and(|it| it.server().is_read_only())
    }

    /// Opens a volume in an object store to write: any other writer of it is fenced. Nothing is
    /// done to other devices, and nothing if that was done before. `cache` is the UUID of the cache
    /// in front, if there is one.
    ///
    /// # Errors
    /// The volume was changed since it was opened, or the store refuses or is silent.
    pub fn take_over(&self, cache: Option<[u8; 16]>) -> io::Result<()> {
        self.remote().map_or(Ok(()), |it| it.server().take_over(cache))
    }

    /// Keeps pages of the map of a volume in an object store in a file, from now on. Other devices
    /// have none.
    pub fn keep_pages(&self, pages: &Pages) {
        if let Some(remote) = self.remote() {
            remote.server().keep_pages(pages);
        }
    }

    /// Notes whether the cache in front holds what a volume in an object store lacks. The store is
    /// told so when the device is closed, and then no other cache opens it unasked.
    pub fn owe(&self, owes: bool) {
        if let Some(remote) = self.remote() {
            remote.server().owe(owes);
        }
    }

    /// The path without links, or the URI of what is no file.
    ///
    /// # Errors
    /// As `realpath`.
    pub fn whole_path(&self) -> io::Result<String> {
        let path = if self.remote().is_some() { self.path.clone() } else { std::fs::canonicalize(&self.path)? };
        Ok(path.to_string_lossy().into_owned())
    }

    /// The inode of a regular file.
    ///
    /// # Errors
    /// As `fstat`.
    pub fn inode(&self) -> io::Result<Option<u64>> {
        let Some(file) = self.file().filter(|_| !self.is_block) else { return Ok(None) };
        Ok(Some(file.metadata()?.ino()))
    }

    /// Bytes of a regular file that have no place on their file system yet; 0 of a block device.
    ///
    /// # Errors
    /// As `fstat`.
    pub fn unallocated_bytes(&self) -> io::Result<u64> {
        let Some(file) = self.file() else { return Ok(0) };
        let meta = asking(&self.path, || file.metadata())?;
        // In units of 512 bytes, whatever the file system's are (stat(2)).
        Ok(if self.is_block { 0 } else { meta.len().saturating_sub(meta.blocks() * 512) })
    }

    /// When the content of a regular file was last changed, in nanoseconds since 1970.
    ///
    /// # Errors
    /// As `fstat`.
    pub fn changed_ns(&self) -> io::Result<Option<u64>> {
        let Some(file) = self.file() else { return Ok(None) };
        let meta = asking(&self.path, || file.metadata())?;
        let ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Ok(if self.is_block { None } else { u64::try_from(ns).ok() })
    }

    /// Reads a range of any alignment, at once.
    ///
    /// # Errors
    /// As `pread`; `UnexpectedEof` if the range isn't all there.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let block = u64::from(self.geometry.logical_block_bytes);
        let read = |into: &mut [u8], at: u64| {
            asking(&self.path, || match &self.medium {
                Medium::Here { file, .. } => file.read_exact_at(into, at),
                Medium::Remote(remote) => remote.read(at, into),
            })
        };
        let is_aligned = out.as_ptr().align_offset(DIRECT_ALIGN) == 0;
        if is_aligned && offset.is_multiple_of(block) && (out.len() as u64).is_multiple_of(block) {
            return read(out, offset);
        }
        let mut bounce = AlignedBuf::new(BOUNCE_BYTES.min(out.len().next_multiple_of(4096) + 8192));
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let start = at - at % block;
            let skip = (at - start) as usize;
            let len = rest.len().min(bounce.len() - skip);
            let whole = (skip + len).next_multiple_of(block as usize);
            read(&mut bounce[..whole], start)?;
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&bounce[skip..skip + len]);
            rest = later;
            at += len as u64;
        }
        Ok(())
    }

    /// Writes a range of whole logical blocks, at once. Not durable before [`DeviceFile::sync`].
    ///
    /// # Errors
    /// As `pwrite`; `InvalidInput` if the range isn't aligned or goes beyond the device.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.take_over(None)?;
        let block = u64::from(self.geometry.logical_block_bytes);
        let len = data.len() as u64;
        let end = offset.checked_add(len).filter(|end| *end <= self.geometry().size_bytes);
        if end.is_none() || !(offset | len).is_multiple_of(block) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes at {offset} are not whole blocks of {block} bytes within {}", self.path.display()),
            ));
        }
        let mut bounce = AlignedBuf::new(BOUNCE_BYTES.min(data.len().max(4096)));
        let mut at = offset;
        for part in data.chunks(bounce.len()) {
            bounce[..part.len()].copy_from_slice(part);
            asking(&self.path, || match &self.medium {
                Medium::Here { file, .. } => file.write_all_at(&bounce[..part.len()], at),
                Medium::Remote(remote) => remote.write(at, &bounce[..part.len()]),
            })?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// As `fdatasync`.
    pub fn sync(&self) -> io::Result<()> {
        asking(&self.path, || match &self.medium {
            Medium::Here { file, .. } => file.sync_data(),
            Medium::Remote(remote) => remote.flush(),
        })
    }

    /// Flushes as `fsync` does, and a file's time of change with it, which `fdatasync` may leave
    /// behind (fsync(2)). A volume in an object store is left as the next opening will find it.
    ///
    /// # Errors
    /// As `fsync`.
    pub fn sync_all(&self) -> io::Result<()> {
        asking(&self.path, || match &self.medium {
            Medium::Here { file, .. } => file.sync_all(),
            Medium::Remote(remote) => {
                remote.server().settle();
                remote.flush()
            }
        })
    }
}

/// An open file, and what keeps others from it.
struct Locked {
    file: File,
    /// False on a file system without locks.
    locked: bool,
    storage: Storage,
    below: Guard,
}

/// Opens and locks, and waits a little for a process that is on its way out.
fn open_soon(path: &Path, store: Store, is_block: bool, access: Access) -> Result<Locked, Refused> {
    let start = Instant::now();
    loop {
        match open_now(path, store, is_block, access) {
            Err(Refused::Busy { .. }) if start.elapsed() < BUSY_WAIT => std::thread::sleep(BUSY_STEP),
            result => return result,
        }
    }
}

fn open_now(path: &Path, store: Store, is_block: bool, access: Access) -> Result<Locked, Refused> {
    let mode = match access {
        // O_EXCL without O_CREAT has a meaning on block devices only (open(2)).
        Access::Exclusive if is_block => OFlags::RDWR | OFlags::EXCL,
        Access::Exclusive => OFlags::RDWR,
        Access::ReadOnly => OFlags::RDONLY,
    };
    let refused = |doing| {
        move |errno| match errno {
            Errno::BUSY | Errno::WOULDBLOCK => {
                Refused::Busy { at: guard::Location { store, name: path.into(), way: String::new() } }
            }
            errno => Refused::Failed(doing, errno),
        }
    };
    let opened = rustix::fs::open(path, mode | OFlags::CLOEXEC, rustix::fs::Mode::empty());
    let file = File::from(opened.map_err(refused("open"))?);
    let storage = guard::storage(&file, path)
        .map_err(|error| Refused::Failed("stat", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    // Before the locks, which would only say "busy".
    guard::check_beside(&storage, access)?;
    let locked = lock(&file, is_block, access).map_err(refused("lock"))?;
    let below = guard::lock_below(&storage, access)?;
    Ok(Locked { file, locked, storage, below })
}

fn refusal(path: &Path, why: Refused) -> OpenError {
    let path = path.into();
    match why {
        Refused::Busy { at } => OpenError::Busy { path, way: at.way, place: at.name, by: who_has(at.store) },
        Refused::Attached { device, shared } => OpenError::Attached { path, device, shared },
        Refused::Failed(doing, errno) => OpenError::Io { path, doing, error: errno.into() },
    }
}

/// What the operator should know of a file that can't be used as it should.
fn notice(path: &Path, direct: bool, locked: bool) -> Option<String> {
    let slow = "no direct I/O here; going through the page cache, which costs memory and speed";
    let open = "no locks here (flock), so nothing keeps another daemon from it: see to that yourself";
    let told: Vec<&str> = [(direct, slow), (locked, open)].into_iter().filter(|it| !it.0).map(|it| it.1).collect();
    (!told.is_empty()).then(|| format!("{}: {}", path.display(), told.join("; ")))
}

/// Size of a file or block device: where its end is.
fn size_bytes(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?)
}

/// Whether a block device takes no writes, as far as the kernel tells.
fn is_read_only(file: &File) -> bool {
    let text = file.metadata().and_then(|meta| std::fs::read_to_string(sysfs(meta.rdev()).join("ro")));
    text.is_ok_and(|text| text.trim() == "1")
}

/// Whether a block device has a head to move, as the kernel sees it.
fn rotational(file: &File) -> Option<bool> {
    let folder = sysfs(file.metadata().ok()?.rdev());
    let places = [folder.join("queue/rotational"), folder.join("../queue/rotational")];
    let text = places.iter().find_map(|place| std::fs::read_to_string(place).ok())?;
    Some(text.trim() == "1")
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder and its files, as fuser's thread shows them to the kernel.
//!
//! Names, sizes and rights are answered here; requests for data go to the pump. Volumes come and
//! go, and get other names. So the kernel asks for a name each time, and the number of a file
//! follows from that of its origin. Files are as block devices are: of fixed size, written in whole
//! sectors (reads may be of any bytes). PUNCH_HOLE promises zeroes, and the loop driver counts on
//! it: the driver uses that for WRITE_ZEROES as well as for discard. So PUNCH_HOLE is refused for
//! origins whose discard does not leave zeroes; the kernel then writes them.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use flashfront_engine::{REQUEST_BYTES_MAX, RequestOp, SECTOR_BYTES};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};

use super::super::inlet::{Feed, Want};
use super::super::visit::{self, Visit};
use super::super::{Export, export_of};
use super::ask::{FuseAsk, Reply};
use super::{Opened, Shared, place_of};

/// How long the kernel may keep what it knows of a file: until it is told that the file has grown.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// How long the kernel may keep a name.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Requests of the kernel's own at a time (asynchronous direct I/O counts as such); a loop device
/// has 128.
const BACKGROUND_MAX: u16 = 128;
/// The number of the first file; the folder itself is 1.
const FIRST_FILE: u64 = 2;

/// The volumes, as fuser's thread knows them.
#[derive(Debug)]
pub(super) struct Volumes {
    feed: Feed<FuseAsk>,
    shared: Arc<Shared>,
    folder: PathBuf,
    since: SystemTime,
    owner: (u32, u32),
}

impl Volumes {
    pub(super) fn new(feed: Feed<FuseAsk>, shared: Arc<Shared>, folder: PathBuf) -> Self {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { feed, shared, folder, since: SystemTime::now(), owner }
    }

    /// The volume that a file shows.
    fn volume(&self, ino: INodeNo) -> Option<Export> {
        let volumes = self.shared.volumes();
        let at = volumes.binary_search_by_key(&ino.0, |export| file_of(export).0).ok()?;
        Some(volumes[at].clone())
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match self.volume(ino) {
            Some(export) => (FileType::RegularFile, if export.read_only { 0o400 } else { 0o600 }, export.size_bytes),
            None if ino == INodeNo::ROOT => (FileType::Directory, 0o500, 0),
            None => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / SECTOR_BYTES,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn put(&self, want: Want, payload: Box<[u8]>, reply: Reply) {
        self.feed.put(FuseAsk { want, since: Instant::now(), payload, reply });
    }
}

/// The number of a volume's file.
fn file_of(export: &Export) -> INodeNo {
    INodeNo(u64::from(export.origin.0) + FIRST_FILE)
}

/// The volumes that have another size than before, and their files. Both lists are sorted.
pub(super) fn resized<'a>(before: &'a [Export], now: &'a [Export]) -> impl Iterator<Item = (&'a Export, INodeNo)> {
    let differs = |export: &&Export| {
        export_of(before, export.origin).is_some_and(|before| before.size_bytes != export.size_bytes)
    };
    now.iter().filter(differs).map(|export| (export, file_of(export)))
}

/// Returns the error of a change of these bytes, if it is to be refused.
fn refusal(export: &Export, offset: u64, len: u64) -> Option<Errno> {
    let unit = u64::from(export.block_bytes);
    let end = offset.checked_add(len);
    if export.read_only {
        Some(Errno::EPERM)
    } else if end.is_none_or(|end| end > export.size_bytes) {
        Some(Errno::ENOSPC)
    } else if !offset.is_multiple_of(unit) || !len.is_multiple_of(unit) {
        Some(Errno::EINVAL)
    } else {
        None
    }
}

impl Filesystem for Volumes {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel without it waits for each direct I/O, which is slow and not wrong.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let bounds =
            [config.set_max_write(REQUEST_BYTES_MAX as u32).is_ok(), config.set_max_background(BACKGROUND_MAX).is_ok()];
        debug_assert_eq!(bounds, [true; 2], "fuser knows these");
        Ok(())
    }

    fn destroy(&mut self) {
        if !self.shared.leaving.load(Ordering::SeqCst) {
            tracing::warn!(
                "{}: somebody else has unmounted it; nobody is served there until the daemon is restarted",
                self.folder.display()
            );
        }
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let volumes = self.shared.volumes();
        let named = volumes.iter().find(|export| OsStr::new(&export.name) == name && parent == INodeNo::ROOT);
        match named.and_then(|export| self.attr(file_of(export))) {
            Some(attr) => reply.entry(&NOT_AT_ALL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attr(ino) {
            None => reply.error(Errno::ENOENT),
            // Times are accepted and not kept.
            Some(attr) if (mode, uid, gid) == (None, None, None) && size.is_none_or(|size| size == attr.size) => {
                reply.attr(&FOREVER, &attr);
            }
            Some(_) => reply.error(Errno::EPERM),
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let dots = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name));
        let volumes = self.shared.volumes();
        let files = volumes.iter().map(|export| (file_of(export), FileType::RegularFile, export.name.as_str()));
        for (next, (ino, kind, name)) in (1..).zip(dots.into_iter().chain(files)).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let volumes = self.shared.volumes();
        let blocks = volumes.iter().map(|export| export.size_bytes / 4096).sum();
        // The block size is what the loop driver says is the granularity of discards.
        reply.statfs(blocks, 0, 0, volumes.len() as u64, 0, 4096, 255, 4096);
        // Whoever holds the clients asks this last.
        self.shared.rest.pass(|| self.feed.ring());
    }

    fn open(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let Some(export) = self.volume(ino) else {
            return reply.error(Errno::ENOENT);
        };
        let who = visit::process(req.uid(), req.pid());
        let mut visit = Visit::begin(place_of(&self.folder), who);
        if !visit.open(&export) {
            return reply.error(Errno::ENOENT);
        }
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.visits().insert(number, Opened { origin: export.origin, visit });
        // Nothing is cached, and writers don't wait for each other: order is the client's affair,
        // as on a disk.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(number), flags);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        drop(self.shared.visits().remove(&fh.0));
        reply.ok();
    }

    /// A close. What was written is as durable as on a disk: by FSYNC.
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(Export { origin, size_bytes, block_bytes, .. }) = self.volume(ino) else {
            return reply.error(Errno::EISDIR);
        };
        let unit = u64::from(block_bytes);
        let start = offset - offset % unit;
        let room = (start + REQUEST_BYTES_MAX).min(size_bytes);
        let end = offset.saturating_add(u64::from(size)).min(room);
        if end <= offset {
            return reply.data(&[]);
        }
        let want = Want {
            origin,
            op: RequestOp::Read,
            offset: start,
            len: end.next_multiple_of(unit) - start,
            fua: false,
            zeroed: false,
        };
        let (skip, len) = ((offset - start) as usize, (end - offset) as usize);
        if let Some(Opened { visit, .. }) = self.shared.visits().get_mut(&fh.0) {
            visit.send(end - offset);
        }
        self.put(want, Box::default(), Reply::Data { reply, skip, len });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(export) = self.volume(ino) else {
            return reply.error(Errno::EISDIR);
        };
        // The kernel cuts a long write where its memory has 256 pages: in the middle of a sector,
        // if that is not aligned. A short count makes the client go on at the sector's start (test:
        // `memory_of_any_alignment_will_do`).
        let unit = export.block_bytes as usize;
        let data = if data.len() > unit { &data[..data.len() - data.len() % unit] } else { data };
        let len = data.len() as u64;
        if len == 0 {
            return reply.written(0);
        }
        if let Some(errno) = refusal(&export, offset, len) {
            return reply.error(errno);
        }
        if let Some(Opened { visit, .. }) = self.shared.visits().get_mut(&fh.0) {
            visit.receive(len);
        }
        // O_SYNC and O_DSYNC of the file, or of this one write (RWF_DSYNC).
        let fua = OFlags::from_bits_retain(flags.0 as u32).intersects(OFlags::DSYNC | OFlags::SYNC);
        let want = Want { origin: export.origin, op: RequestOp::Write, offset, len, fua, zeroed: false };
        self.put(want, data.into(), Reply::Written(reply));
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let Some(Export { origin, .. }) = self.volume(ino) else {
            return reply.error(Errno::EINVAL);
        };
        let want = Want { origin, op: RequestOp::Flush, offset: 0, len: 0, fua: false, zeroed: false };
        self.put(want, Box::default(), Reply::Empty(reply));
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(export) = self.volume(ino) else {
            return reply.error(Errno::EINVAL);
        };
        if let Some(errno) = refusal(&export, offset, length) {
            return reply.error(errno);
        }
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let kind = mode.difference(FallocateFlags::KEEP_SIZE);
        let (op, zeroed) = if kind.is_empty() {
            // Space for all of it is there.
            return reply.ok();
        } else if kind == FallocateFlags::PUNCH_HOLE && export.discard_zeroes {
            (RequestOp::Discard, true)
        } else if kind == FallocateFlags::ZERO_RANGE {
            (RequestOp::WriteZeroes { may_discard: false }, false)
        } else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        let want = Want { origin: export.origin, op, offset, len: length, fua: false, zeroed };
        self.put(want, Box::default(), Reply::Empty(reply));
    }
}

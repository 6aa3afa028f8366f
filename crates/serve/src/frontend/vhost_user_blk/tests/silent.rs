// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file on a file system of the client's own making, which answers nothing: not even what closing
//! the file asks.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    PollEvents, PollFlags, PollNotifier, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll,
    ReplyStatfs, Request, Session,
};
use vhost::VhostBackend;

use super::driver::{MEMORY_BYTES, Machine, Wire, usual};
use super::files::as_eventfd;
use super::hostile::assert_serves;
use super::requests::serve;
use crate::rig::Bench;

const FILE: INodeNo = INodeNo(2);

/// Long for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Objects that are kept and never answered; `None`: the daemon answers.
type Kept = Arc<Mutex<Option<Vec<Box<dyn std::any::Any + Send>>>>>;

/// A file system of a single file, `file`.
struct Silent(Kept);

impl Silent {
    /// Keeps the reply to itself, if it is silent; it is dropped with an error otherwise.
    fn keep(&self, reply: impl Send + 'static) {
        if let Some(kept) = &mut *self.0.lock().unwrap() {
            kept.push(Box::new(reply));
        }
    }

    fn is_silent(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

fn attr(ino: INodeNo) -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    let (kind, perm) = if ino == FILE { (FileType::RegularFile, 0o600) } else { (FileType::Directory, 0o700) };
    FileAttr {
        ino,
        size: MEMORY_BYTES,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Silent {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "file" {
            reply.entry(&Duration::ZERO, &attr(FILE), Generation(0))
        } else {
            reply.error(Errno::ENOENT)
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if self.is_silent() { self.keep(reply) } else { reply.attr(&Duration::ZERO, &attr(ino)) }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock: LockOwner, reply: ReplyEmpty) {
        self.keep(reply);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        self.keep(reply);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _size: u32,
        _flags: OpenFlags,
        _lock: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.keep(reply);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.keep(reply);
    }
}

#[test]
fn hostile_files_that_never_answer_stop_nobody() {
    let bench = Bench::formatted();
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::default();
    let mounted = Session::new(Silent(Arc::clone(&kept)), folder.path(), &fuser::Config::default());
    let mounted = match mounted.and_then(Session::spawn) {
        Ok(mounted) => mounted,
        Err(error) => return eprintln!("SKIPPED: no FUSE here: {error}"),
    };
    let file = File::options().read(true).write(true).open(folder.path().join("file")).unwrap();
    let copies: Vec<File> = (0..3).map(|_| file.try_clone().unwrap()).collect();
    let served = serve(&bench);
    *kept.lock().unwrap() = Some(Vec::new());
    // A daemon that waits for it would wait for ever, and this process could not even be killed.
    let (_over, is_over) = channel::<()>();
    let unkept = Arc::clone(&kept);
    std::thread::spawn(move || {
        let _ = is_over.recv_timeout(PATIENCE);
        unkept.lock().unwrap().take();
    });
    // As memory, and as what is polled, written to, or only closed.
    let wire = Wire::hello(&bench.path("guest"), usual());
    let region = vhost::VhostUserMemoryRegionInfo { mmap_handle: file.as_raw_fd(), ..Machine::new().region() };
    wire.frontend.set_mem_table(&[region]).unwrap_err();
    assert_serves(&bench);
    let mut held = Vec::new();
    for (nth, copy) in copies.into_iter().enumerate() {
        let mut machine = Machine::new();
        let wire = machine.connect(&bench.path("guest"), usual());
        let bad = as_eventfd(copy);
        let sent = match nth {
            0 => wire.frontend.set_vring_call(0, &bad),
            1 => wire.frontend.set_vring_kick(0, &bad),
            _ => wire.frontend.set_vring_err(0, &bad),
        };
        sent.unwrap_err();
        assert!(wire.is_hung_up_on());
        // Closing it would wait.
        held.push(bad);
        assert_serves(&bench);
    }
    // The daemon has to close the files it got. Other threads do that (`closing`), and these are
    // kept as well.
    let is_asked = || !kept.lock().unwrap().as_ref().expect("the daemon has not waited for it").is_empty();
    while !is_asked() {
        std::thread::yield_now();
    }
    // It answers again, so that all of it can be closed.
    drop(kept.lock().unwrap().take());
    drop((held, file));
    served.stop();
    drop(mounted);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volume as a file of the daemon's own, by FUSE. It is read and written past the page cache.
//! A loop device with a file system also lies on the file, over the death of the daemon.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::block_device::{BlockDevice, Mount, skip_without_block_devices};
use crate::filesystem::check;
use crate::harness::{Daemon, MIB, Random, Volume, assert_same, is_root, must, output, show, skip, skip_without, tool};

const CACHE_MIB: u64 = 32;
const ORIGIN_MIB: u64 = 256;
/// The time limit for what the kernel does in its own time.
const LIMIT: Duration = Duration::from_secs(20);

/// Whether the running test must be skipped, since nothing can be mounted here. Tells it if so.
pub(crate) fn skip_without_fuse() -> bool {
    if !is_root() {
        skip("only root may mount without help");
        return true;
    }
    if !Path::new("/dev/fuse").exists() {
        skip("this machine has no /dev/fuse");
        return true;
    }
    false
}

/// A volume, and the folder that it is shown in.
pub(crate) struct Shown {
    pub(crate) volume: Volume,
    pub(crate) folder: PathBuf,
    daemon: Option<Daemon>,
}

impl Shown {
    #[track_caller]
    pub(crate) fn new(mode: &str) -> Self {
        Self::of(Volume::new(CACHE_MIB, ORIGIN_MIB), mode)
    }

    #[track_caller]
    pub(crate) fn of(volume: Volume, mode: &str) -> Self {
        must(volume.format().args(["--mode", mode]));
        let folder = volume.place.socket("disk");
        std::fs::create_dir(&folder).expect("a folder can be made");
        let mut shown = Self { volume, folder, daemon: None };
        shown.start();
        shown
    }

    fn serve(&self) -> Command {
        let mut command = self.volume.serve_nowhere();
        command.arg("--fuse").arg(&self.folder);
        if self.volume.threads > 1 {
            // Only clients of NBD have work for them.
            command.arg(format!("--nbd=unix:{}", self.volume.socket.display()));
            command.arg(format!("--threads={}", self.volume.threads));
        }
        command
    }

    #[track_caller]
    pub(crate) fn start(&mut self) {
        let daemon = Daemon::spawn(&mut self.serve(), &self.volume.log);
        let (uris, own) = (daemon.ready(), format!("file://{}", self.file().display()));
        assert!(uris.split(' ').any(|uri| uri == own), "the URIs of the ready line: {uris}");
        self.daemon = Some(daemon);
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("data")
    }

    #[track_caller]
    fn open(&self, flags: OFlags) -> File {
        let opened = File::options().read(true).write(true).custom_flags(flags.bits() as i32).open(self.file());
        opened.unwrap_or_else(|error| panic!("{error}\n{}", self.volume.stderr()))
    }

    /// Stops the daemon by SIGTERM. Then the folder is an empty one again.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.daemon.take().expect("it is served").stop();
        let left = std::fs::read_dir(&self.folder).expect("the folder is no dead mount").count();
        assert_eq!(left, 0, "the volume is still shown\n{}", self.volume.stderr());
    }

    /// Sends the daemon a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.daemon.as_ref().expect("it is served").signal(signal);
    }

    pub(crate) fn kill9(&mut self) {
        self.daemon.take().expect("it is served").kill9();
    }

    /// Waits for a daemon that ends by itself.
    pub(crate) fn ended(&mut self) {
        self.daemon.take().expect("it is served").ended();
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // After a failure a mount would keep the folder of the test.
        drop(self.daemon.take());
        output(tool("umount").arg("--lazy").arg("--quiet").arg(&self.folder));
    }
}

/// Memory at a 4 KiB border, as O_DIRECT wants it from other files.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + 4096];
        let skip = bytes.as_ptr().align_offset(4096);
        Self(bytes, skip)
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        &mut self.0[self.1..][..len]
    }
}

#[test]
fn the_file_holds_what_was_written() {
    if skip_without_fuse() {
        return;
    }
    let mut shown = Shown::new("writeback");
    let bytes = ORIGIN_MIB * MIB;
    assert_eq!(std::fs::metadata(shown.file()).expect("it is shown").len(), bytes);
    // The volume must hold the same as this plain file, which is treated alike.
    let model_path = shown.volume.place.sparse("model.img", bytes);
    let model = File::options().read(true).write(true).open(&model_path).expect("it was made just now");
    let holes = has_holes(&shown);
    std::thread::scope(|scope| {
        // Each writer has its own quarter, so that the order between them doesn't matter.
        for nth in 0..4 {
            let (file, model) = (shown.open(OFlags::DIRECT), &model);
            scope.spawn(move || {
                let mut random = Random::new(nth);
                let (first, len) = (nth * bytes / 4, bytes / 4);
                let mut memory = Aligned::new(MIB as usize);
                for _ in 0..300 {
                    let longest = if random.below(8) == 0 { 2048 } else { 64 };
                    let sectors = 1 + random.below(longest);
                    let at = first + random.below((len - sectors * 512) / 512) * 512;
                    let part = memory.bytes((sectors * 512) as usize);
                    let range = (at, sectors * 512);
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let zeroes = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                    match random.below(6) {
                        0 if holes => {
                            fallocate(&file, hole, range.0, range.1).expect("a hole");
                            fallocate(model, hole, range.0, range.1).expect("a hole in the model");
                        }
                        1 => {
                            fallocate(&file, zeroes, range.0, range.1).expect("zeroes");
                            fallocate(model, hole, range.0, range.1).expect("zeroes in the model");
                        }
                        2 => {
                            file.read_exact_at(part, at).expect("a read");
                            let mut expected = vec![0; part.len()];
                            model.read_exact_at(&mut expected, at).expect("a read of the model");
                            assert!(part == expected, "{} bytes at {at}", part.len());
                        }
                        _ => {
                            part.copy_from_slice(&random.bytes(part.len()));
                            file.write_all_at(part, at).expect("a write");
                            model.write_all_at(part, at).expect("a write to the model");
                        }
                    }
                }
                file.sync_all().expect("an fsync");
            });
        }
    });
    // The file is also read as other programs read it: in pieces of any size, and with a page cache
    // elsewhere.
    assert_same(&shown.file(), &model_path);
    must(tool("cmp").args(["--bytes=100003", "--ignore-initial=777"]).arg(shown.file()).arg(&model_path));
    assert!(!holes || shown.volume.gauge("discards") > 0, "holes are discards: {}", shown.volume.status());
    assert!(shown.volume.gauge("flushes") >= 4, "each fsync is a FLUSH: {}", shown.volume.status());
    shown.volume.drain();
    shown.stop();
    shown.volume.assert_sound();
    assert_same(&shown.volume.origin, &model_path);
}

/// Whether holes can be made in the file. Tells it if not: then the origin's file system isn't
/// known to make holes.
fn has_holes(shown: &Shown) -> bool {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(shown.open(OFlags::empty()), hole, 0, 512) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP) => {
            skip("holes, as the origin's file system makes none");
            false
        }
        Err(errno) => panic!("a hole: {errno}"),
    }
}

#[test]
fn memory_of_any_alignment_will_do() {
    if skip_without_fuse() {
        return;
    }
    let mut shown = Shown::new("writeback");
    let file = shown.open(OFlags::empty());
    let content = Random::new(1).bytes(3 * MIB as usize + 4096);
    let (len, mut read) = (3 * MIB as usize, vec![0; 3 * MIB as usize + 4096]);
    // These are longer than any request of the kernel. The kernel cuts requests where its pages
    // end.
    for (nth, skipped) in (0..).zip([1, 16, 511, 512, 4095]) {
        let at = nth * 8 * MIB + 512;
        file.write_all_at(&content[skipped..][..len], at).expect("a write");
        file.read_exact_at(&mut read[4095 - skipped..][..len], at).expect("a read");
        assert!(read[4095 - skipped..][..len] == content[skipped..][..len], "memory that starts {skipped} bytes later");
    }
    drop(file);
    shown.stop();
    shown.volume.assert_sound();
}

#[test]
fn a_hole_gives_space_back() {
    if skip_without_fuse() {
        return;
    }
    let mut shown = Shown::new("writeback");
    if !has_holes(&shown) {
        return;
    }
    let file = shown.open(OFlags::empty());
    for nth in 0..8 {
        file.write_all_at(&[0x55; MIB as usize], nth * MIB).expect("a write");
    }
    shown.volume.drain();
    let sectors = |path: &Path| std::fs::metadata(path).expect("it is there").blocks();
    assert!(sectors(&shown.volume.origin) >= 8 * MIB / 512, "it was drained");
    // The hole leaves half a block at either end.
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, hole, 512, 8 * MIB - 1024).expect("a hole");
    let mut content = vec![1; 8 * MIB as usize];
    file.read_exact_at(&mut content, 0).expect("a read");
    let (first, rest) = content.split_at(512);
    let (middle, last) = rest.split_at(rest.len() - 512);
    assert!(first == [0x55; 512] && last == [0x55; 512] && middle.iter().all(|byte| *byte == 0));
    shown.volume.drain();
    assert!(sectors(&shown.volume.origin) < MIB / 512, "the origin still takes the space");
    drop(file);
    shown.stop();
}

#[test]
fn fio_verifies_the_file() {
    if skip_without_fuse() || skip_without(&["fio"]) {
        return;
    }
    let mut shown = Shown::new("writeback");
    // The load is asynchronous, so that many requests are in flight, and four times as large as the
    // cache.
    let mut fio = tool("fio");
    fio.args(["--name=fuse", "--ioengine=libaio", "--direct=1", "--iodepth=32", "--rw=randwrite"]);
    fio.args([
        "--bssplit=512/20:4k/50:64k/20:1m/10",
        "--verify=crc32c",
        "--verify_backlog=512",
        "--verify_state_save=0",
        "--fsync=64",
    ]);
    fio.arg(format!("--size={}m", CACHE_MIB * 4)).arg("--filename").arg(shown.file());
    must(&mut fio);
    assert_eq!(shown.volume.gauge("corrupt_blocks"), 0);
    shown.stop();
    shown.volume.assert_sound();
}

#[test]
fn what_a_disk_could_not_do_is_refused() {
    if skip_without_fuse() {
        return;
    }
    let shown = Shown::new("writeback");
    let file = shown.open(OFlags::empty());
    let end = ORIGIN_MIB * MIB;
    let refused = |result: std::io::Result<()>| result.expect_err("it must be refused").kind();
    assert_eq!(refused(file.write_all_at(b"half a sector", 0)), ErrorKind::InvalidInput);
    assert_eq!(refused(file.write_all_at(&[1; 512], 100)), ErrorKind::InvalidInput);
    assert_eq!(refused(file.write_all_at(&[1; 512], end)), ErrorKind::StorageFull);
    assert_eq!(refused(file.set_len(0)), ErrorKind::PermissionDenied);
    assert_eq!(refused(File::create(shown.folder.join("new")).map(drop)), ErrorKind::Unsupported);
    assert_eq!(refused(std::fs::remove_file(shown.file())), ErrorKind::Unsupported);
    let mut nothing = [0; 16];
    assert_eq!(file.read_at(&mut nothing, end).expect("the end is no error"), 0);
    assert_eq!(file.read_at(&mut nothing, end - 5).expect("a short read"), 5);
    assert_eq!(nothing, [0; 16], "nothing of all that was written");
    assert_eq!(shown.volume.gauge("writes"), 0);
}

#[test]
fn what_is_synchronous_survives_a_kill() {
    if skip_without_fuse() {
        return;
    }
    let mut shown = Shown::new("writeback");
    let dsync = shown.open(OFlags::DSYNC);
    dsync.write_all_at(&[0x11; 4096], 0).expect("a synchronous write");
    let file = shown.open(OFlags::empty());
    file.write_all_at(&[0x22; 4096], MIB).expect("a write");
    file.sync_data().expect("an fdatasync");
    shown.kill9();
    let error = file.write_all_at(&[0x33; 4096], 0).expect_err("nobody is there");
    assert!(matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::ConnectionAborted), "{error}");
    drop((file, dsync));

    shown.start();
    let file = shown.open(OFlags::DIRECT);
    let mut memory = Aligned::new(4096);
    for (at, content) in [(0, 0x11), (MIB, 0x22)] {
        file.read_exact_at(memory.bytes(4096), at).expect("a read");
        assert_eq!(memory.bytes(4096), [content; 4096], "at {at}");
    }
    drop(file);
    shown.stop();
}

#[test]
fn a_mount_that_a_crash_left_is_cleared() {
    if skip_without_fuse() {
        return;
    }
    let mut shown = Shown::new("writethrough");
    // Another daemon, with a cache of its own, uses the same folder.
    let other = Volume::new(CACHE_MIB, ORIGIN_MIB);
    must(&mut other.format());
    let mut intruder = other.serve_nowhere();
    intruder.arg("--fuse").arg(&shown.folder);
    let refused = output(&mut intruder);
    let said = show(&refused);
    assert!(!refused.status.success() && said.contains("a flashfront serves there"), "{said}");
    assert_eq!(std::fs::metadata(shown.file()).expect("still shown").len(), ORIGIN_MIB * MIB);

    shown.kill9();
    let dead = std::fs::read_dir(&shown.folder).expect_err("a dead mount is left");
    assert_eq!(dead.kind(), ErrorKind::NotConnected);
    shown.start();
    assert!(shown.volume.stderr().contains("cleared the mount that a killed daemon left"));
    shown.stop();

    // A mount would hide what is in the folder.
    std::fs::write(shown.folder.join("precious"), b"kept").expect("the folder is an ordinary one again");
    let refused = output(&mut shown.serve());
    assert!(!refused.status.success() && show(&refused).contains("not empty"), "{}", show(&refused));
    std::fs::remove_file(shown.folder.join("precious")).expect("nothing is mounted over it");
}

#[test]
fn an_open_file_keeps_nobody_from_stopping() {
    if skip_without_fuse() {
        return;
    }
    let mut shown = Shown::new("writeback");
    let file = shown.open(OFlags::empty());
    file.write_all_at(&[0x44; 4096], 0).expect("a write");
    shown.stop();
    let said = shown.volume.stderr();
    assert!(said.contains("were in use") && said.contains("1 client still there"), "{said}");
    assert!(!said.contains("the origin is complete"), "{said}");
    file.read_at(&mut [0; 512], 0).expect_err("the daemon is gone");
    drop(file);
    shown.start();
    let mut content = [0; 4096];
    shown.open(OFlags::empty()).read_exact_at(&mut content, 0).expect("a read");
    assert_eq!(content, [0x44; 4096], "acknowledged before a clean stop");
    shown.stop();
}

#[test]
fn ext4_on_the_loop_device() {
    file_system("ext4", 4096);
}

#[test]
fn xfs_on_the_loop_device() {
    file_system("xfs", 512);
}

fn file_system(kind: &str, block_bytes: u32) {
    let mkfs = format!("mkfs.{kind}");
    let fsck = if kind == "ext4" { "e2fsck" } else { "xfs_repair" };
    if skip_without_fuse() || skip_without_block_devices() || skip_without(&[&mkfs, fsck, "tar", "diff", "fstrim"]) {
        return;
    }
    // xfs needs at least 300 MiB.
    let mut shown = Shown::of(Volume::new(CACHE_MIB, 2 * ORIGIN_MIB), "writeback");
    let device = BlockDevice::of_file(&shown.file(), block_bytes);
    must(tool(&mkfs).arg(if kind == "ext4" { "-F" } else { "-f" }).arg(&device.path));

    let mount = Mount::new(&device, &shown.volume);
    let (tree, gone) = (mount.dir.join("tree"), mount.dir.join("gone"));
    for copy in [&tree, &gone] {
        must(tool("cp").arg("--recursive").arg(crate::existing_data::sources()).arg(copy));
    }
    must(tool("sync").arg("--file-system").arg(&tree));
    must(tool("rm").arg("--recursive").arg(&gone));
    let discards = shown.volume.gauge("discards");
    let trimmed = output(tool("fstrim").arg(&mount.dir));
    if !trimmed.status.success() {
        skip(&format!("fstrim, as the origin's file system makes no holes: {}", show(&trimmed)));
    }
    // xfs lets fstrim return before its discards have come.
    let end = Instant::now() + LIMIT;
    while trimmed.status.success() && shown.volume.gauge("discards") <= discards {
        assert!(Instant::now() < end, "fstrim discards nothing: {}", shown.volume.status());
        std::thread::sleep(Duration::from_millis(5)); // pacing: a poll
    }

    // The daemon dies under it. What was fsynced must be there afterwards.
    let precious = mount.dir.join("precious");
    std::fs::write(&precious, Random::new(7).bytes(300_000)).expect("the file system is writable");
    File::open(&precious).and_then(|file| file.sync_all()).expect("an fsync");
    File::open(&mount.dir).and_then(|dir| dir.sync_all()).expect("an fsync of the folder");
    shown.kill9();
    // The result of the unmount doesn't matter: the device below is gone.
    drop(mount);
    drop(device);

    shown.start();
    let device = BlockDevice::of_file(&shown.file(), block_bytes);
    let mount = Mount::new(&device, &shown.volume);
    let content = std::fs::read(mount.dir.join("precious")).expect("it was fsynced");
    assert!(content == Random::new(7).bytes(300_000));
    must(tool("diff").arg("-r").arg(crate::existing_data::sources()).arg(mount.dir.join("tree")));
    mount.unmount();
    must(&mut check(kind, &device.path));
    drop(device);

    // The origin is also read without the cache.
    shown.volume.drain();
    shown.stop();
    shown.volume.assert_sound();
    must(&mut check(kind, &shown.volume.origin));
    let device = BlockDevice::of_file(&shown.volume.origin, block_bytes);
    let mount = Mount::new(&device, &shown.volume);
    assert!(std::fs::read(mount.dir.join("precious")).expect("the origin has it") == content);
    must(tool("diff").arg("-r").arg(crate::existing_data::sources()).arg(mount.dir.join("tree")));
    mount.unmount();
}

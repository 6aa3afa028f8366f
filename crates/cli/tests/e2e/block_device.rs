// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volume as a real block device: nbdfuse makes it a file, the loop driver that file a device.
//!
//! Everything is undone when the guards are dropped, also after a failure: the mount first, then
//! the loop device, then FUSE.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Volume, is_root, must, output, skip, skip_without, tool};

/// nbdfuse answers within milliseconds; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(20);

/// The longest that a test beside this one may keep a mount namespace.
const OTHERS_LIMIT: Duration = Duration::from_secs(120);
/// Asks for the device alone.
const O_EXCL: i32 = rustix::fs::OFlags::EXCL.bits() as i32;

/// A loop device on a served volume.
pub(crate) struct BlockDevice {
    pub(crate) path: PathBuf,
    // Dropped after our own Drop has detached the loop device.
    _fuse: Option<Fuse>,
}

/// Whether the running test must be skipped, since no block device can be made here; says so.
pub(crate) fn skip_without_block_devices() -> bool {
    if !is_root() {
        skip("only root may attach loop devices and mount");
        return true;
    }
    for node in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(node).exists() {
            skip(&format!("this machine has no {node}"));
            return true;
        }
    }
    skip_without(&["nbdfuse", "losetup", "mount", "umount", "fusermount3"])
}

impl BlockDevice {
    /// Attaches the served volume with logical blocks of that size and direct I/O.
    #[track_caller]
    pub(crate) fn attach(volume: &Volume, block_bytes: u32) -> Self {
        let fuse = Fuse::mount(volume);
        Self { path: losetup(&fuse.file(), block_bytes), _fuse: Some(fuse) }
    }

    /// Makes a block device of a file that is there already.
    #[track_caller]
    pub(crate) fn of_file(file: &Path, block_bytes: u32) -> Self {
        Self { path: losetup(file, block_bytes), _fuse: None }
    }
}

#[track_caller]
fn losetup(file: &Path, block_bytes: u32) -> PathBuf {
    let mut losetup = tool("losetup");
    losetup.args(["--find", "--show", "--direct-io=on", "--sector-size", &block_bytes.to_string()]);
    must(losetup.arg(file)).trim().into()
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        output(tool("losetup").arg("--detach").arg(&self.path));
    }
}

/// The volume as a file in a FUSE file system.
struct Fuse {
    dir: PathBuf,
    child: Child,
}

impl Fuse {
    #[track_caller]
    fn mount(volume: &Volume) -> Self {
        let dir = volume.place.socket("fuse");
        let pid_file = volume.place.socket("fuse.pid");
        std::fs::remove_file(&pid_file).ok();
        std::fs::create_dir_all(&dir).expect("a mount point can be made");
        let mut nbdfuse = tool("nbdfuse");
        nbdfuse.arg("--pidfile").arg(&pid_file).arg(dir.join("disk")).arg(volume.uri());
        let child = nbdfuse.stdin(Stdio::null()).spawn().expect("nbdfuse can be started");
        let mut fuse = Self { dir, child };
        let end = Instant::now() + LIMIT;
        while !(pid_file.exists() && fuse.file().exists()) {
            let ended = fuse.child.try_wait().expect("our own child can be waited for");
            assert!(ended.is_none(), "nbdfuse has ended: {ended:?}");
            assert!(Instant::now() < end, "nbdfuse is not ready after {LIMIT:?}");
            thread::sleep(Duration::from_millis(5)); // pacing: a poll; nbdfuse has no other sign
        }
        fuse
    }

    fn file(&self) -> PathBuf {
        self.dir.join("disk")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Lazily: a loop device that udev still looks at holds the file a moment longer.
        output(tool("fusermount3").args(["-u", "-z"]).arg(&self.dir));
        let end = Instant::now() + LIMIT;
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > end {
                self.child.kill().ok();
            }
            thread::sleep(Duration::from_millis(5)); // pacing: a poll of a child that ends by itself
        }
    }
}

/// A mounted file system.
pub(crate) struct Mount {
    pub(crate) dir: PathBuf,
    device: PathBuf,
    mounted: bool,
}

impl Mount {
    #[track_caller]
    pub(crate) fn new(device: &BlockDevice, volume: &Volume) -> Self {
        let dir = volume.place.socket("mnt");
        std::fs::create_dir_all(&dir).expect("a mount point can be made");
        must(tool("mount").arg(&device.path).arg(&dir));
        Self { dir, device: device.path.clone(), mounted: true }
    }

    /// Unmounts, which writes back everything; must succeed.
    ///
    /// Tests beside this one have mount namespaces of their own. A namespace that began while this
    /// file system was mounted keeps it mounted until it ends, and `umount` doesn't wait for that.
    #[track_caller]
    pub(crate) fn unmount(mut self) {
        must(tool("umount").arg(&self.dir));
        self.mounted = false;
        let end = Instant::now() + OTHERS_LIMIT;
        // The kernel refuses this as long as a file system is mounted from the device.
        while let Err(error) = File::options().read(true).custom_flags(O_EXCL).open(&self.device) {
            assert!(Instant::now() < end, "{} is still in use: {error}", self.device.display());
            thread::sleep(Duration::from_millis(20)); // pacing: a poll; the kernel has no sign for this
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            output(tool("umount").arg("--lazy").arg(&self.dir));
        }
    }
}

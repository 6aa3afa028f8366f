// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptor by which the kernel and fuser's thread talk, and that thread.
//!
//! A kernel says hello once for each mount. The crate wants to hear that, also of a descriptor that
//! another program has used before. So [`Session::take_over`] says it by a socket, and puts the
//! descriptor into the socket's place afterwards (ADR 0068).

#![expect(unsafe_code, reason = "the crate hands its descriptor's number out, and nothing else")]

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use fuser::{BackgroundSession, Config, MountOption, Notifier, SessionACL};
use rustix::io::DupFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::SOURCE;
use super::volumes::Volumes;

/// The kernel's hello, `FUSE_INIT`: opcode 26, from process 0, protocol 7.31, without any wish.
const HELLO: [u32; 14] = [HELLO_BYTES as u32, 26, 1, 0, 0, 0, 0, 0, 0, 0, 7, 31, 0, 0];
const HELLO_BYTES: usize = 14 * size_of::<u32>();

/// A mount's descriptor and its thread. Dropping it unmounts, if the mount is of this process.
#[derive(Debug)]
pub(super) struct Session {
    background: BackgroundSession,
    /// A copy of the descriptor.
    device: OwnedFd,
    /// The number of the thread's own descriptor.
    number: RawFd,
}

impl Session {
    /// Mounts.
    pub(super) fn mount(volumes: Volumes, folder: &Path) -> io::Result<Self> {
        Self::begin(fuser::Session::new(volumes, folder, &config())?)
    }

    /// Goes on by the descriptor of a program that takes no more requests from it.
    pub(super) fn take_over(volumes: Volumes, device: &OwnedFd) -> io::Result<Self> {
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (kernel, own) = pair?;
        let hello: Vec<u8> = HELLO.iter().flat_map(|word| word.to_ne_bytes()).collect();
        rustix::io::write(&kernel, &hello)?;
        let session = fuser::Session::from_fd(volumes, own, SessionACL::default(), config())?;
        replace(session.as_fd().as_raw_fd(), device)?;
        Self::begin(session)
    }

    fn begin(session: fuser::Session<Volumes>) -> io::Result<Self> {
        let (device, number) = (session.as_fd().try_clone_to_owned()?, session.as_fd().as_raw_fd());
        Ok(Self { background: session.spawn()?, device, number })
    }

    /// The way to tell the kernel something.
    pub(super) fn notifier(&self) -> Notifier {
        self.background.notifier()
    }

    /// Whether the kernel has ended the mount.
    pub(super) fn is_over(&self) -> bool {
        self.background.guard.is_finished()
    }

    /// Leaves the mount to another program, which has a copy of the descriptor. The thread must
    /// rest; it reads the end of its file next.
    pub(super) fn leave(self) {
        let cut = File::open("/dev/null").and_then(|nothing| replace(self.number, &nothing));
        if let Err(error) = cut {
            tracing::warn!("the descriptor of /dev/fuse can't be closed before this process ends: {error}");
        }
        // Dropped, it would unmount.
        std::mem::forget(self.background);
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Lets a number of an open descriptor stand for another file.
fn replace(number: RawFd, with: impl AsFd) -> io::Result<()> {
    // SAFETY: the session's sender keeps the number open, also after its thread has ended. This
    // second owner is never dropped.
    let mut descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(rustix::io::dup3(with, &mut descriptor, DupFlags::CLOEXEC)?)
}

fn config() -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(SOURCE.to_owned()),
        MountOption::Subtype(SOURCE.to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::NoAtime,
    ];
    config
}

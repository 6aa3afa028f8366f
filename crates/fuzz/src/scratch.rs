// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file in RAM that is written anew for each input. It has no name, so that nothing stays behind
//! when a bug ends the process.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file.
pub(crate) struct Scratch(File);

impl Scratch {
    pub(crate) fn new() -> Self {
        let file = memfd_create("flashfront-fuzz", MemfdFlags::CLOEXEC).expect("Linux has files in RAM");
        Self(file.into())
    }

    /// By which this process can open it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Makes it hold this and nothing else.
    pub(crate) fn put(&self, bytes: &[u8]) {
        let put = self.0.write_all_at(bytes, 0).and_then(|()| self.0.set_len(bytes.len() as u64));
        put.expect("a file in RAM can be written");
    }

    pub(crate) fn bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, 0).expect("a file in RAM can be read");
        bytes
    }
}

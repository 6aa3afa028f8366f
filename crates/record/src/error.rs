// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why nothing can be recorded, and what to run instead.

use std::io;
use std::path::PathBuf;

use flashfront_serve::control::ClientError;

/// Why nothing was recorded, or no more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file is there already.
    #[error("{path}: exists already, and is not overwritten; choose another --out, or remove it first", path = .0.display())]
    Exists(PathBuf),
    /// The file can't be written.
    #[error("{path}: can't write the recording: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path is no block device.
    #[error("{path}: no block device; name the disk, partition or logical volume that is to be recorded. For a file that `flashfront serve` serves say --volume", path = .0.display())]
    NotADevice(PathBuf),
    /// The device can't be opened, or not looked at.
    #[error("{path}: {source}{advice}", path = path.display(), advice = advice(path, source))]
    Device {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process of ours records the device.
    #[error("{path}: another `flashfront record` records this device now; wait for it, or stop it", path = path.display())]
    Busy {
        /// The device.
        path: PathBuf,
    },
    /// The kernel offers neither way.
    #[error("{path}: the kernel can't be asked for requests. By blktrace's interface: {blktrace}. By tracefs: {tracefs}. {instead}", path = path.display(), instead = instead(path))]
    NoWay {
        /// The device.
        path: PathBuf,
        /// Why not by blktrace's interface.
        blktrace: String,
        /// Why not by tracefs.
        tracefs: String,
    },
    /// The kernel's files can't be read any more.
    #[error("{path}: can't go on recording: {source}; what was recorded until then is in the file", path = path.display())]
    Source {
        /// The kernel's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The daemon can't be asked, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
}

fn advice(path: &std::path::Path, source: &io::Error) -> String {
    if source.kind() == io::ErrorKind::PermissionDenied {
        format!("; recording a device takes root. {}", instead(path))
    } else {
        String::new()
    }
}

/// Names ways to record by other programs, which we can read.
fn instead(path: &std::path::Path) -> String {
    format!(
        "Another machine's or container's root may run `blktrace -d {path} -a queue -o - > FILE`, or bpftrace's `biosnoop.bt > FILE`; `flashfront advise FILE` reads both. A volume that `flashfront serve` serves needs no root: --volume NAME",
        path = path.display()
    )
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the requests of a block device, or of a volume of a running daemon, into a file.
//!
//! The file is what blktrace writes, packed with gzip (`event`, `file`): places, sizes and times,
//! never data. [`device`] asks the kernel (`kernel/`), [`volume`] asks a daemon through its control
//! socket. Both end by a [`Watch`], after [`Order::limit`], or at [`Order::bytes_max`]; the file is
//! complete then, and [`Summary`] says what is in it.
#![deny(unsafe_code)]

mod error;
mod event;
mod file;
mod held;
mod kernel;
mod pace;
mod summary;
mod volume;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

pub use error::RecordError;
pub use file::BYTES_MIN;
pub use kernel::device;
pub use pace::processor;
pub use summary::{Ended, Summary, Way};
pub use volume::volume;

/// An order for a recording.
#[derive(Clone, Debug)]
pub struct Order {
    /// The new file. A file that exists is refused.
    pub out: PathBuf,
    /// How long to record; `None`: until the user says stop.
    pub limit: Option<Duration>,
    /// The recording ends before its file is larger; at least [`BYTES_MIN`].
    pub bytes_max: u64,
    /// Whether the names and numbers of the processes are recorded, too.
    pub processes: bool,
}

/// A recording that is under way, as another thread sees it.
#[derive(Debug, Default)]
pub struct Watch {
    /// Set by that thread: the recording is to end now.
    pub stop: AtomicBool,
    /// Set once requests are noted.
    pub began: AtomicBool,
    /// Requests so far.
    pub requests: AtomicU64,
    /// Bytes of the file so far.
    pub file_bytes: AtomicU64,
    /// Events that were lost so far.
    pub lost: AtomicU64,
}

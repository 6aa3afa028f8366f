// SPDX-License-Identifier: MIT OR Apache-2.0
//! The summary of a recording, and how it ended.

use std::path::PathBuf;

use serde::Serialize;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The time was over.
    Time,
    /// The user said stop.
    Stopped,
    /// The file had its largest size.
    MaxSize,
    /// The daemon whose volume was recorded has ended.
    DaemonEnded,
}

/// The way by which requests were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The kernel's interface for blktrace.
    Blktrace,
    /// The kernel's block events in tracefs.
    Tracefs,
    /// The daemon that serves the volume.
    Daemon,
}

/// The summary of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Reads, writes, discards and flushes.
    pub requests: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Discards among them, with writes of zeroes that bring no data.
    pub discards: u64,
    /// Flushes among them; they have no place and no length.
    pub flushes: u64,
    /// Bytes that the reads asked for.
    pub bytes_read: u64,
    /// Bytes that the writes brought.
    pub bytes_written: u64,
    /// How long it lasted.
    pub seconds: f64,
    /// Events that were dropped because earlier ones had not been taken in time.
    ///
    /// With [`Way::Blktrace`] other events than requests are among them: at most this many requests
    /// are missing.
    pub lost: u64,
    /// Time that this process has spent on a processor meanwhile.
    pub processor_seconds: f64,
    /// The file.
    pub file: PathBuf,
    /// The size of the file.
    pub file_bytes: u64,
    /// Why it ended.
    pub ended: Ended,
    /// The way by which requests were seen.
    pub way: Way,
}

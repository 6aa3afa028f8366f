// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a recording holds, and how it ended.

use std::path::PathBuf;

use serde::Serialize;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// After the time that was asked for.
    Time,
    /// Somebody said stop.
    Stopped,
    /// At the largest size that the file may have.
    MaxSize,
    /// The daemon whose volume was recorded has ended.
    DaemonEnded,
}

/// Where the requests were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// By the kernel's interface for blktrace.
    Blktrace,
    /// By the kernel's block events in tracefs.
    Tracefs,
    /// By the daemon that serves the volume.
    Daemon,
}

/// What a recording holds.
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
    /// Events that were dropped because nobody had taken those before them in time. With
    /// [`Way::Blktrace`] other events than requests are among them: at most that many requests are
    /// missing.
    pub lost: u64,
    /// Time that this process has spent on a processor meanwhile.
    pub processor_seconds: f64,
    /// The file.
    pub file: PathBuf,
    /// Its size.
    pub file_bytes: u64,
    /// Why it ended.
    pub ended: Ended,
    /// Where the requests were seen.
    pub way: Way,
}

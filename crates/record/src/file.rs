// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a recording: events of blktrace, packed with gzip, never larger than was asked for.
//!
//! It is a row of gzip's members. Each is packed in RAM and written as a whole. So a recording that
//! is killed leaves a file that can be read, and loses only requests after the last member. Members
//! end after [`MEMBER_EVENTS`] requests or [`MEMBER_TIME`]. `zcat FILE | blkparse -i -` shows it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::RecordError;
use crate::event::{EVENT_BYTES, Event, Op, put_name};

/// A member with that many events has 3 MiB before it is packed.
const MEMBER_EVENTS: u64 = 1 << 16;
/// The time after which a member ends: a kill loses no more than that of a quiet device.
const MEMBER_TIME: Duration = Duration::from_secs(10);
/// Bytes that a member may still grow by when it ends: the packer holds some back, and adds its
/// trailer.
const TAIL_BYTES: u64 = 192 << 10;
/// The smallest bound for a file: room for some ten thousand requests beside the tail.
pub const BYTES_MIN: u64 = 1 << 20;
/// The effort of the packer (docs/adr/0039-a-recording-is-a-file-of-blktraces.md).
const LEVEL: Compression = Compression::new(3);

/// The counts of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) discards: u64,
    pub(crate) flushes: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

impl Counts {
    pub(crate) const fn requests(&self) -> u64 {
        self.reads + self.writes + self.discards + self.flushes
    }

    fn add(&mut self, op: Op, bytes: u32) {
        match op {
            Op::Read => {
                self.reads += 1;
                self.bytes_read += u64::from(bytes);
            }
            Op::Write => {
                self.writes += 1;
                self.bytes_written += u64::from(bytes);
            }
            Op::Discard => self.discards += 1,
            Op::Flush => self.flushes += 1,
        }
    }
}

/// A file that is being written.
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    member: GzEncoder<Vec<u8>>,
    member_events: u64,
    member_began: Instant,
    /// Bytes of the file.
    written: u64,
    bytes_max: u64,
    full: bool,
    /// The device in every event.
    device: u32,
    /// Times are told from here on.
    start_ns: u64,
    last_ns: u64,
    /// How many events there are.
    events: u32,
    /// Names of processes that were written; none unless they are asked for.
    names: Option<HashMap<u32, Vec<u8>>>,
    counts: Counts,
    buffer: Vec<u8>,
}

impl Writer {
    /// Makes the file. Refuses a file that exists.
    pub(crate) fn create(path: &Path, bytes_max: u64, processes: bool) -> Result<Self, RecordError> {
        let file = File::options().write(true).create_new(true).open(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => RecordError::Exists(path.to_owned()),
            _ => RecordError::File { path: path.to_owned(), source },
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            member: member(),
            member_events: 0,
            member_began: Instant::now(),
            written: 0,
            bytes_max,
            full: false,
            device: 0,
            start_ns: 0,
            last_ns: 0,
            events: 0,
            names: processes.then(HashMap::new),
            counts: Counts::default(),
            buffer: Vec::with_capacity(2 * EVENT_BYTES),
        })
    }

    /// The device that the events name, and the time that they begin at.
    pub(crate) fn begin(&mut self, device: u32, start_ns: u64) {
        (self.device, self.start_ns, self.last_ns) = (device, start_ns, start_ns);
    }

    /// Removes the file: there is nothing to record.
    pub(crate) fn discard(self) {
        // If that fails an empty file is left, which says nothing wrong.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Whether there is no room for more.
    pub(crate) const fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the bytes of the file, with those that are still being packed.
    pub(crate) fn bytes(&self) -> u64 {
        self.written + self.member.get_ref().len() as u64
    }

    pub(crate) const fn wants_names(&self) -> bool {
        self.names.is_some()
    }

    /// Notes the name of a process, if names are recorded and this one is new.
    pub(crate) fn name(&mut self, pid: u32, name: &[u8]) -> Result<(), RecordError> {
        let Some(names) = &mut self.names else { return Ok(()) };
        if self.full || names.get(&pid).is_some_and(|known| known == name) {
            return Ok(());
        }
        names.insert(pid, name.to_owned());
        self.buffer.clear();
        self.events = self.events.wrapping_add(1);
        put_name(pid, name, self.last_ns - self.start_ns, self.events, self.device, &mut self.buffer);
        self.pack()
    }

    /// Takes a request, unless the file is full. Times never go back: what comes late counts as of
    /// the request before it.
    pub(crate) fn put(&mut self, event: &Event) -> Result<(), RecordError> {
        let Some(op) = event.op().filter(|_| !self.full) else { return Ok(()) };
        self.last_ns = self.last_ns.max(event.time_ns);
        let pid = if self.wants_names() { event.pid } else { 0 };
        let told = Event { time_ns: self.last_ns - self.start_ns, pid, ..*event };
        self.buffer.clear();
        self.events = self.events.wrapping_add(1);
        told.put(op, self.events, self.device, &mut self.buffer);
        self.counts.add(op, event.bytes);
        self.pack()
    }

    /// Packs what is in the buffer.
    fn pack(&mut self) -> Result<(), RecordError> {
        if self.member_events == 0 {
            self.member_began = Instant::now();
        }
        self.member_events += 1;
        self.member.write_all(&self.buffer).map_err(|source| self.failed(source))?;
        self.full = self.bytes() + TAIL_BYTES > self.bytes_max;
        if self.full || self.member_events >= MEMBER_EVENTS { self.end_member() } else { Ok(()) }
    }

    /// Writes what a quiet device has asked for, if that is some time ago.
    pub(crate) fn tick(&mut self) -> Result<(), RecordError> {
        if self.member_events > 0 && self.member_began.elapsed() >= MEMBER_TIME { self.end_member() } else { Ok(()) }
    }

    /// Writes the member, and begins another one.
    fn end_member(&mut self) -> Result<(), RecordError> {
        self.member_events = 0;
        let packed = mem::replace(&mut self.member, member()).finish().map_err(|source| self.failed(source))?;
        self.file.write_all(&packed).map_err(|source| self.failed(source))?;
        self.written += packed.len() as u64;
        Ok(())
    }

    /// Writes all, and sees that it is on the disk.
    pub(crate) fn end(&mut self) -> Result<(), RecordError> {
        if self.member_events > 0 || self.written == 0 {
            self.end_member()?;
        }
        self.file.sync_all().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> RecordError {
        RecordError::File { path: self.path.clone(), source }
    }
}

fn member() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), LEVEL)
}

#[cfg(test)]
mod tests;

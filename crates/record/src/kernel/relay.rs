// SPDX-License-Identifier: MIT OR Apache-2.0
//! blktrace's interface: the kernel notes events in a buffer for each processor, which are files in
//! debugfs (`block/NAME/trace0` ...).
//!
//! The kernel notes more than requests there, as no mask lets Q through alone. A look reads also
//! the buffer that the kernel is writing to. So the last event of a look may be half written:
//! events carry numbers, and an event that can't come next counts as lost.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::lock::Lock;
use super::target::Target;
use super::{Source, ioctl, mounts};
use crate::error::RecordError;
use crate::event::{EVENT_BYTES, Event, MAGIC, is_note, names_a_process};
use crate::file::Writer;
use crate::held::Held;
use crate::summary::Way;

/// Each processor's buffers have this size. The kernel allocates all of them at once.
const BUFFER_BYTES: u32 = 128 << 10;
/// Buffers of all processors: 64 MiB hold a million events, but for machines with more than 128
/// processors, which have the least.
const ALL_BYTES: u64 = 64 << 20;
/// Buffers of a processor, at least: one is read while the next ones fill.
const BUFFERS_MIN: u64 = 4;
/// Buffers of a processor, at most: they hold 349,000 events. A busy machine may let a recording
/// wait for seconds.
const BUFFERS_MAX: u64 = 128;

/// More events are never missing between two: what says so was not whole.
const GAP_MAX: u32 = 1 << 20;

/// The trace of a device.
pub(super) struct Relay {
    device: File,
    folder: PathBuf,
    processors: Vec<Processor>,
    buffer: Vec<u8>,
}

impl Relay {
    /// Sets it up. The error says why that is not possible here.
    pub(super) fn open(target: &Target, lock: &Lock) -> Result<Self, String> {
        let debugfs = mounts::of("debugfs", "/sys/kernel/debug")?;
        let device = target.file.try_clone().map_err(|error| error.to_string())?;
        let name = set_up(&device, lock).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => {
                "somebody else traces this device by it (`blktrace -d DEVICE -k` ends that)".to_owned()
            }
            Some(libc::ENOTTY) => "the kernel was built without it (CONFIG_BLK_DEV_IO_TRACE)".to_owned(),
            _ => error.to_string(),
        })?;
        let folder = debugfs.join("block").join(name.replace('/', "!"));
        // From here on it is taken down again by `drop`.
        let mut relay = Self { device, folder, processors: Vec::new(), buffer: vec![0; BUFFER_BYTES as usize] };
        relay.processors = processors(&relay.folder).map_err(|error| {
            // Root may all, but where Secure Boot has locked the kernel down.
            let locked = if error.raw_os_error() == Some(libc::EPERM) { "; the kernel is locked down" } else { "" };
            format!("{}: {error}{locked}", relay.folder.display())
        })?;
        if relay.processors.is_empty() {
            return Err(format!("{}: no buffers are there", relay.folder.display()));
        }
        Ok(relay)
    }

    fn failed(&self, source: io::Error) -> RecordError {
        RecordError::Source { path: self.folder.clone(), source }
    }
}

impl Source for Relay {
    fn way(&self) -> Way {
        Way::Blktrace
    }

    fn start(&mut self) -> Result<(), RecordError> {
        ioctl::start(&self.device).map_err(|source| self.failed(source))
    }

    fn read(&mut self, target: &Target, held: &mut Held, writer: &mut Writer) -> Result<(), RecordError> {
        for at in 0..self.processors.len() {
            let processor = &mut self.processors[at];
            loop {
                let bytes = match processor.file.read(&mut self.buffer) {
                    Ok(0) => break,
                    Ok(bytes) => bytes,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(source) => return Err(self.failed(source)),
                };
                processor.bytes.extend_from_slice(&self.buffer[..bytes]);
                processor.parse(target, held, writer)?;
            }
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), RecordError> {
        ioctl::stop(&self.device).map_err(|source| self.failed(source))
    }

    fn lost(&mut self) -> u64 {
        let dropped = fs::read_to_string(self.folder.join("dropped")).unwrap_or_default();
        let unread: u64 = self.processors.iter().map(|it| it.unread).sum();
        dropped.trim().parse::<u64>().unwrap_or(0) + unread
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Closed first: open files keep the buffers alive.
        self.processors.clear();
        let _ = ioctl::stop(&self.device);
        let _ = ioctl::tear_down(&self.device);
    }
}

/// Sets the trace up; removes that of a killed recording before.
fn set_up(device: &File, lock: &Lock) -> io::Result<String> {
    let processors = std::thread::available_parallelism().map_or(1, |it| it.get() as u64);
    let buffers = (ALL_BYTES / u64::from(BUFFER_BYTES) / processors).clamp(BUFFERS_MIN, BUFFERS_MAX);
    match ioctl::set_up(device, BUFFER_BYTES, buffers as u32) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) && lock.is_leftover => {
            // It may be stopped already; then only the second one is of use.
            let _ = ioctl::stop(device);
            ioctl::tear_down(device)?;
            ioctl::set_up(device, BUFFER_BYTES, buffers as u32)
        }
        done => done,
    }
}

fn processors(folder: &Path) -> io::Result<Vec<Processor>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("trace")).map(str::parse::<u32>);
        if matches!(number, Some(Ok(_))) {
            let nonblock = OFlags::NONBLOCK.bits() as i32;
            let file = File::options().read(true).custom_flags(nonblock).open(entry.path())?;
            all.push(Processor { file, bytes: Vec::new(), next: 1, unread: 0 });
        }
    }
    Ok(all)
}

/// The events of one processor.
struct Processor {
    file: File,
    /// Bytes that are read and not parsed yet: the beginning of an event.
    bytes: Vec<u8>,
    /// The number of the next event.
    next: u32,
    /// Events that could not be read.
    unread: u64,
}

impl Processor {
    fn parse(&mut self, target: &Target, held: &mut Held, writer: &mut Writer) -> Result<(), RecordError> {
        let bytes = std::mem::take(&mut self.bytes);
        let mut rest = &bytes[..];
        while let Some(raw) = Raw::of(rest) {
            if !raw.is_whole(self.next) {
                // To where the next one may begin.
                let next = rest[1..].windows(4).position(|it| it == MAGIC.to_ne_bytes());
                rest = next.map_or(&[][..], |at| &rest[1 + at..]);
                continue;
            }
            let Some(payload) = rest[EVENT_BYTES..].get(..raw.payload_bytes()) else { break };
            if names_a_process(raw.action()) {
                let end = payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len());
                writer.name(raw.pid(), &payload[..end])?;
            } else if !is_note(raw.action()) {
                self.unread += u64::from(raw.number().wrapping_sub(self.next));
                self.next = raw.number().wrapping_add(1);
                if let Some(event) = raw.request(target) {
                    held.push(event);
                }
            }
            rest = &rest[EVENT_BYTES + payload.len()..];
        }
        self.bytes = rest.to_vec();
        Ok(())
    }
}

/// The first 48 bytes of an event, in the order of this machine.
struct Raw<'a>(&'a [u8; EVENT_BYTES]);

impl<'a> Raw<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Self)
    }

    fn u16(&self, at: usize) -> u16 {
        self.0[at..].first_chunk().map_or(0, |it| u16::from_ne_bytes(*it))
    }

    fn u32(&self, at: usize) -> u32 {
        self.0[at..].first_chunk().map_or(0, |it| u32::from_ne_bytes(*it))
    }

    fn u64(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |it| u64::from_ne_bytes(*it))
    }

    /// Whether this can be what follows, up to events that were not whole. Notes have no numbers.
    fn is_whole(&self, next: u32) -> bool {
        self.u32(0) == MAGIC && (is_note(self.action()) || self.number().wrapping_sub(next) < GAP_MAX)
    }

    fn number(&self) -> u32 {
        self.u32(4)
    }

    fn action(&self) -> u32 {
        self.u32(28)
    }

    fn pid(&self) -> u32 {
        self.u32(32)
    }

    fn payload_bytes(&self) -> usize {
        usize::from(self.u16(46))
    }

    /// The request of this device; `None`: something else.
    fn request(&self, target: &Target) -> Option<Event> {
        let categories = Event::of_action(self.action())?;
        let bytes = self.u32(24);
        let sector = target.place(self.u64(16), bytes)?;
        Some(Event { time_ns: self.u64(8), sector, bytes, categories, pid: self.pid() })
    }
}

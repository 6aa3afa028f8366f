// SPDX-License-Identifier: MIT OR Apache-2.0
//! tracefs: the block event `block_bio_queue`, the Q of blktrace, in an instance of our own.
//!
//! The kernel filters by device, and prints the events that are read from `trace_pipe`. That costs
//! more for each request than blktrace's interface, but nothing for other events. An instance has
//! buffers and switches of its own, so other tracers are not disturbed, and don't disturb.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::target::Target;
use super::{Source, mounts};
use crate::error::RecordError;
use crate::event::{AHEAD, DISCARD, Event, FLUSH, FUA, META, READ, SYNC, WRITE};
use crate::file::Writer;
use crate::held::Held;
use crate::summary::Way;

const EVENT: &str = "events/block/block_bio_queue";
/// Buffers of all processors, in KiB: an event takes some 70 bytes there.
const ALL_KIB: usize = 64 << 10;
/// The least and the most KiB of a processor's buffer.
///
/// A recording waited for seconds on a machine with two processors and a load of 15. With 4 MiB it
/// lost 72,624 of 262,144 requests.
const BUFFER_KIB: (usize, usize) = (256, 16 << 10);
/// More than a line has: a name, and what the block layer prints.
const LINE_BYTES_MAX: usize = 4096;

/// An instance of tracefs.
pub(super) struct Tracefs {
    folder: PathBuf,
    pipe: Option<File>,
    buffer: Vec<u8>,
    /// The beginning of a line.
    rest: Vec<u8>,
    /// Lines that are not understood.
    unread: u64,
}

impl Tracefs {
    /// Sets it up. The error says why that is not possible here.
    pub(super) fn open(target: &Target) -> Result<Self, String> {
        let tracing = tracing()?;
        if !tracing.join(EVENT).exists() {
            return Err(format!("the kernel has no such event ({})", tracing.join(EVENT).display()));
        }
        let folder = instance(&tracing, target);
        if folder.exists() {
            // The folder is of a killed recording: a live one holds the lock.
            fs::remove_dir(&folder)
                .map_err(|error| format!("{} is left and can't be removed: {error}", folder.display()))?;
        }
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // From here on it is taken down again by `drop`.
        let mut tracefs = Self { folder, pipe: None, buffer: vec![0; 64 << 10], rest: Vec::new(), unread: 0 };
        tracefs.set_up(target).map_err(|(name, error)| format!("{}: {error}", tracefs.folder.join(name).display()))?;
        Ok(tracefs)
    }

    fn set_up(&mut self, target: &Target) -> Result<(), (&'static str, io::Error)> {
        let put =
            |name: &'static str, text: &str| fs::write(self.folder.join(name), text).map_err(|error| (name, error));
        put("trace_clock", "mono")?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        put("buffer_size_kb", &(ALL_KIB / processors).clamp(BUFFER_KIB.0, BUFFER_KIB.1).to_string())?;
        // An operator may have changed how the kernel prints events; what it lacks is off.
        for option in ["noraw", "nohex", "nobin", "context-info", "overwrite"] {
            let _ = put("trace_options", option);
        }
        let devices: Vec<String> = target.devices.iter().map(|device| format!("dev == {device}")).collect();
        put("events/block/block_bio_queue/filter", &devices.join(" || "))?;
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let pipe = File::options().read(true).custom_flags(nonblock).open(self.folder.join("trace_pipe"));
        self.pipe = Some(pipe.map_err(|error| ("trace_pipe", error))?);
        Ok(())
    }

    fn switch(&self, on: &str) -> Result<(), RecordError> {
        let path = self.folder.join(EVENT).join("enable");
        fs::write(&path, on).map_err(|source| RecordError::Source { path, source })
    }

    fn parse(&mut self, target: &Target, held: &mut Held, writer: &mut Writer) -> Result<(), RecordError> {
        let bytes = std::mem::take(&mut self.rest);
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_none() {
                self.rest = line.to_vec();
                break;
            }
            match Line::of(line) {
                Some(line) => {
                    if writer.wants_names() {
                        writer.name(line.event.pid, line.name)?;
                    }
                    if let Some(sector) = target.place(line.event.sector, line.event.bytes) {
                        held.push(Event { sector, ..line.event });
                    }
                }
                // The kernel's own lines; what they say is in `per_cpu`, too.
                None if line.is_empty() || line.starts_with(b"#") || line.starts_with(b"CPU:") => {}
                None => self.unread += 1,
            }
        }
        if self.rest.len() > LINE_BYTES_MAX {
            self.rest.clear();
            self.unread += 1;
        }
        Ok(())
    }
}

impl Source for Tracefs {
    fn way(&self) -> Way {
        Way::Tracefs
    }

    fn start(&mut self) -> Result<(), RecordError> {
        self.switch("1")
    }

    fn read(&mut self, target: &Target, held: &mut Held, writer: &mut Writer) -> Result<(), RecordError> {
        loop {
            let Some(pipe) = &mut self.pipe else { return Ok(()) };
            match pipe.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(bytes) => self.rest.extend_from_slice(&self.buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(RecordError::Source { path: self.folder.join("trace_pipe"), source }),
            }
            self.parse(target, held, writer)?;
        }
    }

    fn stop(&mut self) -> Result<(), RecordError> {
        self.switch("0")
    }

    fn lost(&mut self) -> u64 {
        let Ok(processors) = fs::read_dir(self.folder.join("per_cpu")) else { return self.unread };
        let stats = processors.flatten().map(|it| fs::read_to_string(it.path().join("stats")).unwrap_or_default());
        self.unread + stats.map(|text| lost_by(&text)).sum::<u64>()
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let _ = self.switch("0");
        // An instance with an open file can't be removed.
        self.pipe = None;
        let _ = fs::remove_dir(&self.folder);
    }
}

fn tracing() -> Result<PathBuf, String> {
    let in_debugfs = || mounts::of("debugfs", "/sys/kernel/debug").map(|debugfs| debugfs.join("tracing"));
    mounts::of("tracefs", "/sys/kernel/tracing").or_else(|why| in_debugfs().map_err(|_| why))
}

fn instance(tracing: &Path, target: &Target) -> PathBuf {
    tracing.join("instances").join(format!("flashfront-record-{}", target.numbers.replace(':', "-")))
}

/// Removes what a killed recording has left, where another way is taken now.
pub(super) fn remove_leftover(target: &Target) {
    if let Ok(tracing) = tracing() {
        // There may be none.
        let _ = fs::remove_dir(instance(&tracing, target));
    }
}

/// Returns the lost events in a processor's `stats`.
fn lost_by(stats: &str) -> u64 {
    let lost = stats.lines().filter_map(|line| {
        let (name, number) = line.split_once(':')?;
        ["overrun", "commit overrun", "dropped events"].contains(&name).then(|| number.trim().parse::<u64>().ok())?
    });
    lost.sum()
}

/// A line of `trace_pipe`, as in
/// ` git-1234  [001] ..... 5.123456: block_bio_queue: 8,0 WS 2048 + 8 [git]`.
struct Line<'a> {
    event: Event,
    name: &'a [u8],
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        const MARK: &[u8] = b": block_bio_queue: ";
        // The name of a process is shorter than the mark, so that none can hold it.
        let at = line.windows(MARK.len()).position(|it| it == MARK)?;
        let (before, told) =
            (std::str::from_utf8(line.get(..at)?.rsplit(|it| *it == b' ').next()?).ok()?, &line[at + MARK.len()..]);
        let time_ns = nanoseconds(before)?;
        let open = told.iter().position(|byte| *byte == b'[')?;
        let name = told.get(open + 1..told.len().checked_sub(1)?)?;
        let mut words = std::str::from_utf8(&told[..open]).ok()?.split_ascii_whitespace().skip(1);
        let categories = categories(words.next()?);
        let sector = words.next()?.parse().ok()?;
        let sectors: u32 = words.nth(1)?.parse().ok()?;
        let event = Event { time_ns, sector, bytes: sectors.checked_mul(512)?, categories, pid: pid(&line[..at])? };
        Some(Self { event, name })
    }
}

/// `12.345678` seconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|it| *it <= 9)?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()? * 10_u64.pow(9 - digits))
}

/// The number between the name that the line begins with and the processor.
fn pid(before: &[u8]) -> Option<u32> {
    let at = before.windows(2).rposition(|it| it[0] == b' ' && it[1] == b'[')?;
    let words = std::str::from_utf8(before[..at].rsplit(|it| *it == b'-').next()?).ok()?;
    words.trim().parse().ok()
}

/// The letters that the kernel prints of an operation: `R`, `WS`, `FWS`, `DS`, `RA`.
fn categories(letters: &str) -> u32 {
    let mut all = 0;
    let mut letters = letters.chars();
    let mut operation = letters.next();
    if operation == Some('F') {
        all |= FLUSH;
        operation = letters.next();
    }
    all |= match operation {
        Some('R') => READ,
        Some('W') => WRITE,
        // Discards, and writes of zeroes, for which older kernels have no letter.
        Some('D' | 'N') => WRITE | DISCARD,
        _ => 0,
    };
    for letter in letters {
        all |= match letter {
            'F' => FUA,
            'S' => SYNC,
            'A' => AHEAD,
            'M' => META,
            'Z' | 'E' => DISCARD,
            _ => 0,
        };
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Op;

    fn read(line: &str) -> Option<Event> {
        Line::of(line.as_bytes()).map(|line| line.event)
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let event =
            read("             fio-1234    [001] .....  1234.567890: block_bio_queue: 7,0 RA 2048 + 8 [fio]").unwrap();
        assert_eq!((event.time_ns, event.sector, event.bytes, event.pid), (1_234_567_890_000, 2048, 4096, 1234));
        assert_eq!((event.op(), event.categories), (Some(Op::Read), READ | AHEAD));
        // Names with all that may confuse.
        for name in ["a b-1 [0]: ", "x-y", "kworker/u8:3-ev", "[x] 9.9: y"] {
            let line = format!(" {name}-77 [000] d..1. 5.000001: block_bio_queue: 8,16 FWFS 0 + 0 [{name}]");
            let event = read(&line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((event.time_ns, event.pid, event.op()), (5_000_001_000, 77, Some(Op::Flush)), "{line}");
            assert_eq!(Line::of(line.as_bytes()).unwrap().name, name.as_bytes());
        }
        for (letters, op) in [
            ("W", Op::Write),
            ("WFS", Op::Write),
            ("FWS", Op::Write),
            ("D", Op::Discard),
            ("DE", Op::Discard),
            ("N", Op::Discard),
            ("WZ", Op::Discard),
        ] {
            let line = format!("a-1 [000] ..... 1.0: block_bio_queue: 8,0 {letters} 8 + 8 [a]");
            assert_eq!(read(&line).unwrap().op(), Some(op), "{letters}");
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "CPU:1 [LOST 12 EVENTS]",
            "a-1 [000] ..... 1.0: block_bio_queue: 8,0 R",
            "a-1 [000] x: block_bio_queue: 8,0 R 8 + 8 [a]",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn losses_are_read_of_stats() {
        let stats = "entries: 5\noverrun: 3\ncommit overrun: 1\nbytes: 400\noldest event ts: 1.2\nnow ts: 2.0\ndropped events: 2\nread events: 9\n";
        assert_eq!(lost_by(stats), 6);
    }
}

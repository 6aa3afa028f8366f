// SPDX-License-Identifier: MIT OR Apache-2.0
//! The phases on a real device: reads past the page cache, from a descriptor that can't write.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::{COUNT, DEVICE_BYTES_MIN, PARTS, PHASES, Phase, Times};
use crate::Rng;
use crate::real::AlignedBuf;

/// Requests of others beside ours are worth a word from this part on.
const BUSY_PART: u64 = 20;

/// Why a device could not be measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum PaceError {
    /// The device can't be opened.
    Open(PathBuf, io::Error),
    /// The path is no device and no file.
    Kind(PathBuf),
    /// The device has so few bytes.
    Small(PathBuf, u64),
    /// A read at that byte failed.
    Read(PathBuf, u64, io::Error),
    /// The caller said stop.
    Stopped(PathBuf),
}

impl fmt::Display for PaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = DEVICE_BYTES_MIN >> 20;
        match self {
            Self::Open(path, error) => {
                let path = path.display();
                write!(f, "{path}: can't be opened for reads past the page cache (O_DIRECT): {error}")
            }
            Self::Kind(path) => {
                write!(f, "{}: neither a block device nor a regular file: its reads can't be measured", path.display())
            }
            Self::Small(path, bytes) => {
                write!(f, "{}: {bytes} bytes; a device whose reads are measured has {mib} MiB or more", path.display())
            }
            Self::Read(path, offset, error) => {
                write!(f, "{}: a read at byte {offset} failed: {error}", path.display())
            }
            Self::Stopped(path) => write!(f, "{}: its reads were not measured to the end", path.display()),
        }
    }
}

impl std::error::Error for PaceError {}

/// Hints of the kernel about a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Whether it has a volatile write cache that is on; none if the kernel doesn't say.
    pub write_cache: Option<bool>,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Bytes of the device.
    pub device_bytes: u64,
    /// The times of its reads.
    pub times: Times,
    /// The hints of the kernel.
    pub hints: Hints,
    /// Our reads of 4 KiB, and the requests that others made of the device meanwhile; none if the
    /// kernel doesn't count them.
    pub ours: u64,
    /// See there.
    pub others: Option<u64>,
}

impl Measured {
    /// Whether others kept the device busy, so that its times are too long.
    #[must_use]
    pub fn was_busy(&self) -> bool {
        self.others.is_some_and(|others| others > self.ours / BUSY_PART)
    }
}

/// How far it is, and whether to go on.
#[derive(Debug, Default)]
pub struct Progress {
    /// Milliseconds of reading so far.
    pub done_ms: AtomicU64,
    /// The time of all phases.
    pub whole_ms: AtomicU64,
}

/// Measures a block device or a file for this time: only reads.
///
/// # Errors
/// If it can't be read, is too small, or `stop` is set.
pub fn measure(path: &Path, time: Duration, progress: &Progress, stop: &AtomicBool) -> Result<Measured, PaceError> {
    let (file, device_bytes) = open(path)?;
    let stat = Stat::of(&file);
    progress.whole_ms.store(time.as_millis() as u64, Ordering::Relaxed);
    let mut measured = Measured {
        device_bytes,
        times: Times([0.0; COUNT]),
        hints: Hints { write_cache: stat.as_ref().and_then(Stat::write_cache) },
        ours: 0,
        others: stat.as_ref().map(|_| 0),
    };
    for (nth, phase) in PHASES.iter().enumerate() {
        let before = stat.as_ref().and_then(Stat::requests);
        let reading = Reading { path, file: &file, device_bytes, phase, progress, stop };
        let (reads, took) = reading.run(time * phase.parts / PARTS)?;
        measured.times.0[nth] = took.as_nanos() as f64 / reads.max(1) as f64;
        // The kernel cuts large reads, so they can't be compared with its counts.
        if phase.depth > 1 || phase.len == PHASES[0].len {
            measured.ours += reads;
            let now = stat.as_ref().and_then(Stat::requests);
            let all = before.zip(now).map(|(before, now)| now.saturating_sub(before));
            measured.others = measured.others.zip(all).map(|(others, all)| others + all.saturating_sub(reads));
        }
    }
    Ok(measured)
}

fn open(path: &Path) -> Result<(File, u64), PaceError> {
    let failed = |error: io::Error| PaceError::Open(path.to_owned(), error);
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(PaceError::Kind(path.to_owned()));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let mut file = File::from(fd);
    let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
    if bytes < DEVICE_BYTES_MIN {
        return Err(PaceError::Small(path.to_owned(), bytes));
    }
    Ok((file, bytes))
}

struct Reading<'a> {
    path: &'a Path,
    file: &'a File,
    device_bytes: u64,
    phase: &'a Phase,
    progress: &'a Progress,
    stop: &'a AtomicBool,
}

impl Reading<'_> {
    /// Reads for this time; returns how often, and how long it was.
    fn run(&self, time: Duration) -> Result<(u64, Duration), PaceError> {
        let begin = Instant::now();
        let told = self.progress.done_ms.load(Ordering::Relaxed);
        let each = thread::scope(|scope| {
            let one = |nth: usize| scope.spawn(move || self.read(nth as u64, begin, time, told));
            let all: Vec<_> = (0..self.phase.depth).map(one).collect();
            let joined = all.into_iter().map(|it| it.join().unwrap_or_else(|it| std::panic::resume_unwind(it)));
            joined.collect::<Result<Vec<u64>, PaceError>>()
        })?;
        self.progress.done_ms.fetch_max(told + time.as_millis() as u64, Ordering::Relaxed);
        Ok((each.iter().sum(), begin.elapsed()))
    }

    /// Reads in one of the threads that read at the same time.
    fn read(&self, thread: u64, begin: Instant, time: Duration, told: u64) -> Result<u64, PaceError> {
        let mut buffer = AlignedBuf::new(self.phase.len as usize);
        let (mut rng, mut reads) = (Rng::new(1 + thread), 0);
        while begin.elapsed() < time || reads == 0 {
            if self.stop.load(Ordering::Relaxed) {
                return Err(PaceError::Stopped(self.path.to_owned()));
            }
            let offset = self.phase.offset(reads, self.device_bytes, &mut rng);
            let read = self.file.read_exact_at(&mut buffer, offset);
            read.map_err(|error| PaceError::Read(self.path.to_owned(), offset, error))?;
            reads += 1;
            let now_ms = begin.elapsed().min(time).as_millis() as u64;
            self.progress.done_ms.fetch_max(told + now_ms, Ordering::Relaxed);
        }
        Ok(reads)
    }
}

/// The kernel's folder about a device: its own, or that of the device that a file is on.
struct Stat(PathBuf);

impl Stat {
    fn of(file: &File) -> Option<Self> {
        let about = file.metadata().ok()?;
        let number = if about.file_type().is_block_device() { about.rdev() } else { about.dev() };
        let folder = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        Some(Self(folder.into())).filter(|it| it.0.join("stat").exists())
    }

    /// Requests that have ended: fields 1 and 5 of Documentation/block/stat.rst.
    fn requests(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.0.join("stat")).ok()?;
        let fields: Vec<u64> = text.split_whitespace().map_while(|it| it.parse().ok()).collect();
        Some(fields.first()? + fields.get(4)?)
    }

    fn write_cache(&self) -> Option<bool> {
        // A partition has none of its own: that of its disk.
        let places = ["queue/write_cache", "../queue/write_cache"];
        let text = places.iter().find_map(|place| std::fs::read_to_string(self.0.join(place)).ok())?;
        Some(text.trim() == "write back")
    }
}

#[cfg(test)]
mod tests;

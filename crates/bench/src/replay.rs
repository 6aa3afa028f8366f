// SPDX-License-Identifier: MIT OR Apache-2.0
//! `replay TRACE`: the requests of a trace, asked again of a device, a file or an NBD export.
//!
//! The player is our own, though fio replays logs as well. fio 3.33 ends a replay without waiting
//! for the requests in flight and drops discards, and with NBD it counted no time at all. fio holds
//! the log in memory, where this player reads a trace as a stream.
//!
//! A request that waits because the target is too slow has its whole wait counted here. Times run
//! from the moment at which the trace asked. A recording holds no data, so writes write random
//! bytes. They need `--destroy-data` as all writes do.

mod blocks;
mod nbd;
mod play;
mod survey;

use std::path::PathBuf;
use std::time::Duration;

use flashfront_sim::trace::{self, Format, Reader, Record};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::figures::Measured;
use crate::suite::{Act, Group, Headline, Job, Site, Suite, Work};
use survey::Survey;

/// A trace, and how it is replayed. `--resume` asks for the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The trace's file.
    pub trace: PathBuf,
    /// The trace's format, if it shall not be guessed.
    pub format: Option<String>,
    /// Requests are asked at the trace's own times; otherwise as fast as possible.
    pub timed: bool,
    /// Requests in flight, unless they are timed.
    pub in_flight: u32,
    /// Places beyond the target's end begin at its start again. Otherwise such a trace is refused.
    pub wrap: bool,
}

/// The suite's name on the command line.
pub const NAME: &str = "replay";
/// The suite in a line.
pub const SUMMARY: &str = "the requests of a trace, at its own times or as fast as possible";

/// A trace that was read once, to know what it asks for.
#[derive(Clone, Debug)]
pub struct Replay {
    options: Options,
    survey: Survey,
}

/// The suite: the trace once.
///
/// # Errors
/// The trace can't be read, holds no requests, or has no times though they are asked for.
pub fn suite(options: &Options) -> Result<Suite, BenchError> {
    let (replay, path) = (Replay::of(options)?, &options.trace);
    // A cache of a tenth of the trace's range is a usual one.
    let survey_bytes = replay.survey.end_bytes() / 10;
    let name = path.file_name().map_or_else(|| "trace".to_owned(), |it| it.to_string_lossy().into_owned());
    let job = Job {
        name: name.clone(),
        headline: Headline::Iops,
        idle_before: Duration::ZERO,
        counts_from: Some(0),
        published: Vec::new(),
        work: Work::Act(std::sync::Arc::new(replay)),
    };
    Ok(Suite {
        name: NAME.to_owned(),
        summary: format!("{SUMMARY}: {name}"),
        source: None,
        groups: vec![Group { jobs: vec![job] }],
        scaling: Vec::new(),
        cache_bytes: survey_bytes,
    })
}

impl Replay {
    /// Reads the trace once.
    ///
    /// # Errors
    /// See [`suite`].
    fn of(options: &Options) -> Result<Self, BenchError> {
        let path = &options.trace;
        let survey =
            Survey::of(open(options)?).map_err(|error| BenchError::Failed(format!("{}: {error}", path.display())))?;
        if survey.requests == 0 {
            return Err(BenchError::Failed(format!("{}: no requests; there is nothing to replay", path.display())));
        }
        if options.timed && survey.span.is_none() {
            return Err(BenchError::Wrong(format!(
                "--timed: {}: the trace has no times; leave --timed out to replay it as fast as possible",
                path.display()
            )));
        }
        Ok(Self { options: options.clone(), survey })
    }
}

fn open(options: &Options) -> Result<Reader, BenchError> {
    let path = &options.trace;
    let failed = |error: &dyn std::fmt::Display| BenchError::Failed(format!("{}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let format = options.format.as_deref().and_then(Format::named);
    let read = trace::Options { format, strict: false, ..trace::Options::default() };
    Reader::new(file, &read).map_err(|error| failed(&error))
}

impl Act for Replay {
    fn needs_folder(&self) -> bool {
        false
    }

    fn writes(&self) -> bool {
        self.survey.writes > 0 || self.survey.discards > 0
    }

    fn needs_bytes(&self) -> u64 {
        // With `wrap` any target that has room for the longest request will do.
        if self.options.wrap { self.survey.longest_bytes } else { self.survey.end_bytes() }
    }

    fn programs(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    fn estimate(&self) -> Duration {
        match self.survey.span.filter(|_| self.options.timed) {
            Some(span) => span,
            // A disk answers 200 random requests a second, or 100 MB/s, whichever is slower.
            None => Duration::from_secs_f64(self.survey.requests as f64 / 200.0 + self.survey.bytes as f64 / 1e8),
        }
    }

    fn commands(&self, place: &Site) -> Vec<Vec<String>> {
        let pace = if self.options.timed {
            "timed".to_owned()
        } else {
            format!("as fast as possible, {} in flight", self.options.in_flight)
        };
        let wrap = if self.options.wrap { ", wrapped at the target's end" } else { "" };
        let place = match place {
            Site::Device(path) | Site::File(path) | Site::Folder(path) => path.display().to_string(),
            Site::Nbd(uri) => uri.clone(),
        };
        vec![vec![
            "flashfront".to_owned(),
            "replay".to_owned(),
            self.options.trace.display().to_string(),
            place,
            format!("({pace}{wrap})"),
        ]]
    }

    fn run(&self, place: &Site, stop: &dyn Fn() -> bool) -> Result<Measured, BenchError> {
        let blocks = blocks::open(place, self.writes())?;
        let (size, needed) = (blocks.size_bytes(), self.needs_bytes());
        if size < needed {
            return Err(BenchError::Failed(format!(
                "{}: the trace goes to byte {}, and the target has {size}; take a larger target, or --wrap to begin at \
                 its start again",
                self.options.trace.display(),
                self.survey.end_bytes(),
            )));
        }
        let reader = open(&self.options)?;
        let places = Places { survey: &self.survey, size, unit: blocks.unit_bytes(), wrap: self.options.wrap };
        play::play(&*blocks, reader, &places, &self.options, stop).map_err(|error| match error {
            BenchError::Failed(why) => BenchError::Failed(format!("{}: {why}", self.options.trace.display())),
            other => other,
        })
    }
}

/// Maps the requests of a trace to a target: the disks of a trace lie one after the other.
struct Places<'a> {
    survey: &'a Survey,
    size: u64,
    /// Requests begin and end at multiples of it.
    unit: u64,
    wrap: bool,
}

impl Places<'_> {
    /// The first byte of a request, its length, and whether it was wrapped.
    fn of(&self, record: &Record) -> (u64, u64, bool) {
        let len = u64::from(record.sectors) * trace::SECTOR_BYTES;
        let at = record.sector.saturating_mul(trace::SECTOR_BYTES);
        let at = at.saturating_add(self.survey.first_byte(record.device));
        if !self.wrap || at.saturating_add(len) <= self.size {
            return (at, len, false);
        }
        // The last place at which a request of this length ends on the target.
        let room = self.size - len.min(self.size);
        let sectors = room / trace::SECTOR_BYTES + 1;
        (at / trace::SECTOR_BYTES % sectors * trace::SECTOR_BYTES, len.min(self.size), true)
    }
}

#[cfg(test)]
mod tests;

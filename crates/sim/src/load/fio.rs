// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads fio's job files into phases of jobs. It knows the options that published comparisons of
//! caches use, with fio's meaning.
//!
//! All requests go to one volume. A `filename` under /dev/ is that volume, or a part of it if jobs
//! name several. Other files lie on the volume one after the other. If a job names no file, each of
//! its clones has one, as in fio. `stonewall` begins a phase. Three things are listed by name:
//! options without effect, options that the simulation leaves out, and jobs that ask for nothing.
//! docs/laboratory/scenarios.md lists the options.

mod distribution;
mod engine;
mod lengths;
mod names;
mod options;
mod sections;
mod units;

use std::fmt;

use flashfront_engine::BLOCK_BYTES;
use flashfront_units::Size;
use hashbrown::HashMap;

use self::engine::Engine;
use self::options::Direction;
use self::sections::Section;
use super::job::Job;

/// The jobs of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// The phases, one after the other.
    pub phases: Vec<JobPhase>,
    /// Options that have no effect here, in their order.
    pub without_effect: Vec<String>,
    /// Options that would change the load, and that the simulation leaves out, in their order.
    pub left_out: Vec<String>,
    /// Other differences from fio, a sentence each.
    pub notes: Vec<String>,
    /// Jobs that would go through the page cache (`direct=0`, which is fio's default).
    pub buffered: Vec<String>,
}

/// Jobs that run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPhase {
    /// The names of its sections.
    pub name: String,
    /// The time before the phase in which nothing is asked for.
    pub idle_ns: u64,
    /// The jobs, clones under one name.
    pub jobs: Vec<Job>,
}

/// The reason why a file can't be simulated as a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FioError {
    /// The line, counted from 1; 0: no line.
    pub line: usize,
    /// The option or section.
    pub about: String,
    /// The error, and what can be done about it.
    pub what: String,
}

impl fmt::Display for FioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}, {}: {}", self.about, self.what),
        }
    }
}

impl std::error::Error for FioError {}

/// The most clones of all jobs together. Each clone is a stream of its own in every event of a run.
const CLONES_MAX: u64 = 512;

/// The longest request. Longer ones are hardly ever meant.
const REQUEST_BYTES_MOST: u64 = 128 << 20;

/// Reads a job file for a volume of `volume_bytes` bytes. `variable` knows the variables that
/// `${NAME}` stands for.
///
/// # Errors
/// [`FioError`] says where the file is wrong, or which part of it can't be simulated.
pub fn read(text: &str, volume_bytes: u64, variable: &dyn Fn(&str) -> Option<String>) -> Result<JobFile, FioError> {
    let volumes = volumes(text);
    let share = volume_bytes / volumes.len().max(1) as u64 / BLOCK_BYTES * BLOCK_BYTES;
    let read = sections::read(text, share, variable)?;
    let (without_effect, left_out) = (read.without_effect, read.left_out);
    let mut file = JobFile { phases: Vec::new(), without_effect, left_out, notes: Vec::new(), buffered: Vec::new() };
    if read.sections.is_empty() {
        return Err(FioError { line: 0, about: String::new(), what: "no job: a section `[NAME]` is one".to_owned() });
    }
    if volumes.len() > 1 {
        let what = format!("filename: {} are equal parts of the volume, one after the other", volumes.join(", "));
        file.notes.push(what);
    }
    let clones: u64 = read.sections.iter().map(|section| u64::from(section.options.numjobs)).sum();
    if clones > CLONES_MAX {
        let last = &read.sections[read.sections.len() - 1];
        return Err(last.wrong(&format!("numjobs: {clones} clones of all jobs together; {CLONES_MAX} at most")));
    }
    let mut begins = true;
    let mut sections = Vec::new();
    for section in read.sections {
        begins |= section.options.stonewall;
        match section.asks_for_nothing() {
            Some(why) => file.notes.push(format!("job `{}` is left out: {why}", section.name)),
            None => sections.push((std::mem::take(&mut begins), section)),
        }
    }
    if sections.is_empty() {
        let what = format!("nothing is left to simulate: {}", file.notes.join("; "));
        return Err(FioError { line: 0, about: String::new(), what });
    }
    let places = lay_out(&sections, &volumes, share, volume_bytes)?;
    let mut clone = 0;
    for (nth, (begins, section)) in sections.iter().enumerate() {
        let options = &section.options;
        if !options.direct {
            file.buffered.push(section.name.clone());
        }
        file.notes.extend(section.notes());
        if *begins {
            let (name, idle_ns) = (String::new(), options.startdelay_ns);
            file.phases.push(JobPhase { name, idle_ns, jobs: Vec::new() });
        }
        let phase = file.phases.last_mut().expect("the first job begins one");
        phase.name.push_str(if *begins { "" } else { " + " });
        phase.name.push_str(&section.name);
        for own in 0..options.numjobs {
            let place = places[nth][own as usize];
            phase.jobs.push(section.job(place, u64::from(own), clone)?);
            clone += 1;
        }
    }
    for phase in &mut file.phases {
        begin_with_the_first(phase);
    }
    file.notes.dedup();
    Ok(file)
}

/// Makes the time before the first job of a phase idle time. The other jobs begin later by the
/// difference.
fn begin_with_the_first(phase: &mut JobPhase) {
    phase.idle_ns = phase.jobs.iter().map(|job| job.start_ns).min().unwrap_or(0);
    for job in &mut phase.jobs {
        job.start_ns -= phase.idle_ns;
    }
}

/// The volumes that a file names, in their order.
fn volumes(text: &str) -> Vec<&str> {
    let mut volumes = Vec::new();
    for line in text.lines().map(sections::without_comment) {
        let name = line.split_once('=').filter(|it| it.0.trim() == "filename").map(|it| it.1.trim());
        if let Some(name) = name.filter(|name| is_volume(name) && !volumes.contains(name)) {
            volumes.push(name);
        }
    }
    volumes
}

fn is_volume(name: &str) -> bool {
    name.starts_with("/dev/")
}

/// The place of a clone's file on the volume.
#[derive(Clone, Copy)]
struct FileRange {
    begin: u64,
    /// The size of its volume or file; `None`: the job says how long its file is.
    volume_bytes: Option<u64>,
}

/// The place on the volume of the file of each clone of each section.
fn lay_out(
    sections: &[(bool, Section)],
    volumes: &[&str],
    share: u64,
    volume_bytes: u64,
) -> Result<Vec<Vec<FileRange>>, FioError> {
    // A named file is as long as the longest job on it, also for jobs without a length of their
    // own.
    let mut lengths: HashMap<&str, u64> = HashMap::new();
    for (_, section) in sections {
        if let Some(name) = section.file_name().filter(|_| section.has_size()) {
            for own in 0..section.options.numjobs {
                let length = lengths.entry(name).or_default();
                *length = (*length).max(section.end(u64::from(own), None)?);
            }
        }
    }
    let mut named: HashMap<&str, u64> = HashMap::new();
    let mut next = 0_u64;
    let mut take = |section: &Section, bytes: u64| {
        let place = next;
        let end = place.checked_add(bytes.next_multiple_of(BLOCK_BYTES)).filter(|end| *end <= volume_bytes);
        next = end.ok_or_else(|| {
            section.wrong(&format!(
                "its files end behind the volume, which has {}; make them smaller",
                Size(volume_bytes).told()
            ))
        })?;
        Ok(place)
    };
    let mut places = Vec::new();
    for (_, section) in sections {
        let mut own_places = Vec::new();
        for own in 0..u64::from(section.options.numjobs) {
            own_places.push(match section.file_name() {
                _ if section.is_on_volume() => {
                    let end = section.end(own, Some(share))?;
                    if end > share {
                        let what = format!(
                            "offset, size, filesize: it ends at {}, and the volume has {}; make it smaller",
                            Size(end).told(),
                            Size(share).told()
                        );
                        return Err(section.wrong(&what));
                    }
                    let name = section.options.filename.as_deref();
                    let nth = volumes.iter().position(|volume| Some(*volume) == name).unwrap_or(0);
                    FileRange { begin: nth as u64 * share, volume_bytes: Some(share) }
                }
                Some(name) => {
                    let length = lengths.get(name).copied();
                    let begin = match (named.get(name), length) {
                        (Some(begin), _) => *begin,
                        (None, Some(length)) => take(section, length)?,
                        (None, None) => return Err(section.wrong("size: how long is its file? give it a `size`")),
                    };
                    named.insert(name, begin);
                    FileRange { begin, volume_bytes: length.filter(|_| !section.has_size()) }
                }
                None => FileRange { begin: take(section, section.end(own, None)?)?, volume_bytes: None },
            });
        }
        places.push(own_places);
    }
    Ok(places)
}

impl Section {
    fn wrong(&self, what: &str) -> FioError {
        FioError { line: self.line, about: format!("job `{}`", self.name), what: what.to_owned() }
    }

    /// Whether the section's job goes to the volume itself, not to a file on it.
    fn is_on_volume(&self) -> bool {
        let options = &self.options;
        let elsewhere = options.engine_name.as_deref().is_some_and(engine::is_elsewhere);
        let fills = options.fills && !self.has_size();
        elsewhere || fills || options.filename.as_deref().is_some_and(is_volume)
    }

    /// The name of the file on the volume that the section's job goes to.
    fn file_name(&self) -> Option<&str> {
        self.options.filename.as_deref().filter(|_| !self.is_on_volume())
    }

    /// Whether the section says how long its file is.
    fn has_size(&self) -> bool {
        self.options.size.is_some() || self.options.filesize.is_some()
    }

    /// The reason why the section's job asks the volume for nothing.
    fn asks_for_nothing(&self) -> Option<String> {
        let options = &self.options;
        if options.engine == Engine::AsksNothing {
            let name = options.engine_name.as_deref().unwrap_or_default();
            return Some(format!("ioengine={name} reads and writes no data of a device"));
        }
        if options.create_only {
            return Some("create_only=1 makes a file, and the volume is there already".to_owned());
        }
        (options.direction == Direction::Trim).then(|| "the models of devices know no trims".to_owned())
    }

    /// The differences between the section's job and fio's.
    fn notes(&self) -> Vec<String> {
        let options = &self.options;
        let mut notes = Vec::new();
        let (block, reads, writes) = options.lengths();
        let parts = [block, reads.least(block), writes.least(block)];
        if parts.iter().any(|bytes| !bytes.is_multiple_of(BLOCK_BYTES)) {
            notes.push(format!("job `{}`: parts of blocks of 4 KiB are asked for as whole blocks", self.name));
        }
        if options.direction == Direction::TrimWrite {
            notes.push(format!("job `{}`: its trims are left out, its writes are not", self.name));
        }
        notes
    }

    /// The offset in its file at which a clone begins.
    fn begin(&self, own: u64) -> Option<u64> {
        self.options.offset.checked_add(self.options.offset_increment.checked_mul(own)?)
    }

    /// The offset in its file at which a clone ends. This function checks all that a job has to
    /// keep. Without `filesize` a job is `size` bytes long. With `filesize` it goes from its offset
    /// to that size, and `size` only says how much is asked for.
    fn end(&self, own: u64, volume_bytes: Option<u64>) -> Result<u64, FioError> {
        let options = &self.options;
        let (block, reads, writes) = options.lengths();
        let most = reads.most(block).max(writes.most(block));
        if most > REQUEST_BYTES_MOST {
            return Err(self.wrong(&format!("bs = {}; requests have at most 128 MiB", Size(most).told())));
        }
        let begin = self.begin(own);
        let begin = begin.ok_or_else(|| self.wrong("offset, offset_increment: they end behind any volume"))?;
        let end = match (options.filesize, options.size, volume_bytes) {
            (Some(filesize), _, None) if options.files > 1 => filesize.checked_mul(u64::from(options.files)),
            (Some(filesize), _, _) => Some(filesize),
            (None, Some(size), _) => begin.checked_add(size),
            (None, None, Some(volume_bytes)) => Some(volume_bytes),
            (None, None, None) => return Err(self.wrong("size: how long is its file? give it a `size`")),
        };
        let least = block.saturating_mul(u64::from(options.files));
        let end = end.filter(|end| end.checked_sub(begin).is_some_and(|span| span >= least));
        let end =
            end.ok_or_else(|| self.wrong("offset, size, filesize: there is no block of `bs` bytes between them"))?;
        if options.time_based && options.runtime_ns == 0 {
            return Err(self.wrong("time_based: for how long? give it a `runtime`"));
        }
        if self.total_bytes(end - begin) == 0 && !options.time_based {
            return Err(self.wrong("size, io_size: it asks for nothing"));
        }
        Ok(end)
    }

    /// The bytes that a clone asks for if it ends by bytes.
    fn total_bytes(&self, span: u64) -> u64 {
        let options = &self.options;
        options.io_size.or(options.size).unwrap_or(span).saturating_mul(options.loops)
    }

    fn job(&self, place: FileRange, own: u64, clone: u64) -> Result<Job, FioError> {
        let options = &self.options;
        let begin = self.begin(own).unwrap_or_default();
        let span = self.end(own, place.volume_bytes)? - begin;
        let (block_bytes, read_lengths, write_lengths) = options.lengths();
        let job = Job {
            name: self.name.clone(),
            pattern: options.pattern(),
            read_percent: options.reads(),
            block_bytes,
            read_lengths,
            write_lengths,
            zones: options.zones.clone(),
            run_requests: options.run_requests,
            random_percent: options.random_percent,
            gap_bytes: options.gap_bytes,
            offset_bytes: place.begin + begin,
            span_bytes: span,
            total_bytes: if options.time_based { 0 } else { self.total_bytes(span) },
            total_requests: options.number_ios,
            rereads: options.rereads(),
            time_ns: if options.runtime_ns == 0 { 0 } else { options.runtime_ns.saturating_add(options.ramp_ns) },
            start_ns: options.startdelay_ns,
            ramp_ns: options.ramp_ns,
            think_ns: options.think_ns,
            think_requests: options.think_requests,
            depth: options.depth(),
            streams: options.files,
            writes_per_flush: options.writes_per_flush(),
            rate_per_s: options.rate_per_s(),
            poisson: options.poisson,
            seed: u64::from(options.seed),
            ..Job::default()
        };
        Ok(Job { seed: job.clone_seed(clone), ..job })
    }
}

#[cfg(test)]
mod tests;

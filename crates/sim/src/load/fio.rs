// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio's job files, read into phases of jobs: the options that published comparisons of caches use, with fio's meaning.
//!
//! All is asked of one volume. A `filename` under /dev/ is that volume; other files (one for each clone of a job that names none, as fio
//! has it) lie on it one after the other. `stonewall` begins a phase. What means nothing without real time and data is accepted and
//! listed; what would change the load and isn't there is an error, never ignored. docs/scenarios.md lists the options.

mod options;
mod units;

use std::fmt;

use flashfront_engine::{BLOCK_BYTES, REQUEST_BYTES_MAX};
use hashbrown::HashMap;

use self::options::{Options, Taken};
use super::Job;

/// The jobs of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// One after the other.
    pub phases: Vec<JobPhase>,
    /// Options that have no effect here, in their order.
    pub without_effect: Vec<String>,
    /// Jobs that would go through the page cache (`direct=0`, which is fio's default).
    pub buffered: Vec<String>,
}

/// Jobs that run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPhase {
    /// The names of its sections.
    pub name: String,
    /// Nothing is asked for so long before it.
    pub idle_ns: u64,
    /// Its jobs, clones under one name.
    pub jobs: Vec<Job>,
}

/// Why a file is no job for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FioError {
    /// Where, counted from 1; 0: in no line.
    pub line: usize,
    /// The option or section.
    pub about: String,
    /// What is wrong, and what can be done.
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

/// A section without `[global]`s.
struct Section {
    line: usize,
    name: String,
    options: Options,
}

/// All clones of all jobs are no more than that: each is a stream of its own in every event of a run.
const CLONES_MAX: u64 = 512;

/// Reads a job file for a volume of so many bytes.
pub fn read(text: &str, volume_bytes: u64) -> Result<JobFile, FioError> {
    let mut file = JobFile { phases: Vec::new(), without_effect: Vec::new(), buffered: Vec::new() };
    let sections = sections(text, &mut file.without_effect)?;
    if sections.is_empty() {
        return Err(FioError { line: 0, about: String::new(), what: "no job: a section `[NAME]` is one".to_owned() });
    }
    let clones: u64 = sections.iter().map(|section| u64::from(section.options.numjobs)).sum();
    if clones > CLONES_MAX {
        let last = &sections[sections.len() - 1];
        return Err(last.wrong(&format!("numjobs: {clones} clones of all jobs together; {CLONES_MAX} at most")));
    }
    let places = lay_out(&sections, volume_bytes)?;
    let mut clone = 0;
    for (nth, section) in sections.iter().enumerate() {
        let options = &section.options;
        if !options.direct {
            file.buffered.push(section.name.clone());
        }
        let begins = options.stonewall || file.phases.is_empty();
        if begins {
            let (name, idle_ns) = (String::new(), options.startdelay_ns);
            file.phases.push(JobPhase { name, idle_ns, jobs: Vec::new() });
        }
        let phase = file.phases.last_mut().expect("one was begun");
        if phase.idle_ns != options.startdelay_ns {
            return Err(section.wrong("startdelay: jobs of a phase begin together; give all of them the same, or none"));
        }
        phase.name.push_str(if begins { "" } else { " + " });
        phase.name.push_str(&section.name);
        for own in 0..options.numjobs {
            let base = places[nth][own as usize];
            phase.jobs.push(section.job(base, u64::from(own), clone, volume_bytes)?);
            clone += 1;
        }
    }
    Ok(file)
}

/// The file's lines, as sections with all that holds for them.
fn sections(text: &str, without_effect: &mut Vec<String>) -> Result<Vec<Section>, FioError> {
    let mut global = Options::default();
    let mut sections: Vec<Section> = Vec::new();
    let mut in_global = false;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for (at, content) in lines.iter().enumerate() {
        let line = at + 1;
        let error = |about: String, what: &str| FioError { line, about, what: what.to_owned() };
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = content.strip_prefix('[') {
            let name = name.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| error(format!("`{content}`"), "a section is written `[NAME]`"))?;
            in_global = name == "global";
            let options = if in_global {
                &mut global
            } else {
                sections.push(Section { line, name: name.to_owned(), options: global.clone() });
                &mut sections.last_mut().expect("it was pushed").options
            };
            // It holds for the sizes before it too.
            let own = lines[line..].iter().take_while(|it| !it.starts_with('['));
            for (key, value) in own.filter_map(|it| it.split_once('=')).filter(|it| it.0.trim() == "kb_base") {
                // A wrong one is told at its line.
                let _ = options.take(key.trim(), value.trim());
            }
            continue;
        }
        let (key, value) = content.split_once('=').map_or((*content, ""), |(key, value)| (key.trim(), value.trim()));
        let about = format!("`{key}`");
        if key.starts_with("include ") {
            return Err(error("`include`".to_owned(), "unknown here; write its options into this file"));
        }
        if value.contains("${") {
            return Err(error(about, "variables are not replaced here; write the value"));
        }
        let options = match sections.last_mut() {
            _ if in_global => &mut global,
            Some(section) => &mut section.options,
            None => return Err(error(about, "it is in no section; `[global]` or `[NAME]` begins one")),
        };
        match options.take(key, value) {
            Ok(Taken::Meant) => {}
            Ok(Taken::NoEffect) => {
                if !without_effect.iter().any(|it| it == key) {
                    without_effect.push(key.to_owned());
                }
            }
            Err(what) => return Err(error(about, &what)),
        }
    }
    Ok(sections)
}

/// Where on the volume the file of each clone of each section begins.
fn lay_out(sections: &[Section], volume_bytes: u64) -> Result<Vec<Vec<u64>>, FioError> {
    let is_volume = |name: &str| name.starts_with("/dev/");
    let mut volumes = sections.iter().filter_map(|it| it.options.filename.as_deref().filter(|name| is_volume(name)));
    let volume = volumes.next();
    if let Some(other) = volumes.find(|name| Some(*name) != volume) {
        let section = sections.iter().find(|it| it.options.filename.as_deref() == Some(other));
        let what = format!("filename: `{other}` is a second volume; all jobs go to one");
        return Err(section.map_or_else(
            || FioError { line: 0, about: String::new(), what: what.clone() },
            |section| section.wrong(&what),
        ));
    }
    // A named file is as long as the longest job on it.
    let mut named: HashMap<&str, u64> = HashMap::new();
    let mut places: Vec<Vec<u64>> = Vec::new();
    let mut lengths: HashMap<&str, u64> = HashMap::new();
    for section in sections {
        if let Some(name) = section.options.filename.as_deref().filter(|name| !is_volume(name)) {
            for own in 0..section.options.numjobs {
                let length = lengths.entry(name).or_default();
                *length = (*length).max(section.end(u64::from(own), None)?);
            }
        }
    }
    let mut next = 0_u64;
    let mut take = |section: &Section, bytes: u64| {
        let place = next;
        let end = next.checked_add(bytes).filter(|end| *end <= volume_bytes);
        next = end.ok_or_else(|| {
            section
                .wrong(&format!("its files end behind the volume, which has {volume_bytes} bytes; make them smaller"))
        })?;
        Ok(place)
    };
    for section in sections {
        let name = section.options.filename.as_deref();
        let mut own_places = Vec::new();
        for own in 0..section.options.numjobs {
            let own = u64::from(own);
            own_places.push(match name {
                Some(name) if is_volume(name) => {
                    let end = section.end(own, Some(volume_bytes))?;
                    if end > volume_bytes {
                        let what = format!(
                            "offset, size, filesize: it ends at byte {end}, and the volume has {volume_bytes}; make it smaller"
                        );
                        return Err(section.wrong(&what));
                    }
                    0
                }
                Some(name) => match named.get(name) {
                    Some(place) => *place,
                    None => {
                        let place = take(section, lengths[name])?;
                        named.insert(name, place);
                        place
                    }
                },
                None => take(section, section.end(own, None)?)?,
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

    /// Where a clone begins within its file.
    fn begin(&self, own: u64) -> Option<u64> {
        self.options.offset.checked_add(self.options.offset_increment.checked_mul(own)?)
    }

    /// Where a clone ends within its file; all is checked here that a job has to keep. Without `filesize` a job is `size` bytes long; with it
    /// goes from its offset to there, and `size` is only how much is asked for.
    fn end(&self, own: u64, volume_bytes: Option<u64>) -> Result<u64, FioError> {
        let options = &self.options;
        let block = options.block_bytes;
        if block == 0 || block > REQUEST_BYTES_MAX || !block.is_multiple_of(BLOCK_BYTES) {
            return Err(self.wrong(&format!("bs = {block}; requests are whole blocks of 4 KiB, at most 1 MiB")));
        }
        let begin = self.begin(own).filter(|begin| begin.is_multiple_of(BLOCK_BYTES));
        let begin = begin.ok_or_else(|| self.wrong("offset, offset_increment: they must be multiples of 4 KiB"))?;
        let end = match (options.filesize, options.size, volume_bytes) {
            (Some(filesize), _, _) => Some(filesize),
            (None, Some(size), _) => begin.checked_add(size),
            (None, None, Some(volume_bytes)) => Some(volume_bytes),
            (None, None, None) => return Err(self.wrong("size: how long is its file? give it a `size`")),
        };
        let end = end.filter(|end| end.checked_sub(begin).is_some_and(|span| span >= block));
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

    /// What a clone asks for that ends by bytes.
    fn total_bytes(&self, span: u64) -> u64 {
        let options = &self.options;
        options.io_size.or(options.size).unwrap_or(span).saturating_mul(options.loops)
    }

    fn job(&self, base: u64, own: u64, clone: u64, volume_bytes: u64) -> Result<Job, FioError> {
        let options = &self.options;
        let begin = self.begin(own).unwrap_or_default();
        // Without any size it is a volume's, else it has no place.
        let span = self.end(own, Some(volume_bytes))? - begin;
        let rate_per_s = options.rate_per_s().ok_or_else(|| {
            self.wrong("rate_iops: with `rwmixread` it is two numbers in that ratio, reads and writes, as in 70,30")
        })?;
        if rate_per_s > 0.0 && options.writes_per_flush > 0 {
            return Err(
                self.wrong("rate_iops, fsync: FLUSHes are no part of fio's rate, and are of ours; leave one out")
            );
        }
        let job = Job {
            name: self.name.clone(),
            pattern: options.pattern(),
            read_percent: options.reads(),
            block_bytes: options.block_bytes,
            offset_bytes: base + begin,
            span_bytes: span,
            total_bytes: if options.time_based { 0 } else { self.total_bytes(span) },
            time_ns: options.runtime_ns,
            depth: options.depth(),
            writes_per_flush: options.writes_per_flush,
            rate_per_s,
            seed: u64::from(options.seed),
            ..Job::default()
        };
        Ok(Job { seed: job.clone_seed(clone), ..job })
    }
}

#[cfg(test)]
mod tests;

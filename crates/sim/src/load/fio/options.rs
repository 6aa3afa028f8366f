// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the options of a section, which say what its job does.

use super::engine::Engine;
use super::names::{INSTEAD, LEFT_OUT, NO_EFFECT};
use super::units::{self, KbBase};
use super::{distribution, lengths};
use crate::load::{Lengths, Pattern, Zone};

/// What a job does with the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The job reads, writes, or both.
    Data,
    /// The job trims and then writes.
    TrimWrite,
    /// The job only trims.
    Trim,
}

/// What the options of a section say, `[global]` before it.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// The volume's size, of which percents are.
    volume_bytes: u64,
    pub(super) direction: Direction,
    pub(super) random: bool,
    pub(super) read_percent: u32,
    /// What follows the colon of `rw`: requests in a row of a random job.
    pub(super) run_requests: u32,
    /// The gap of a sequential job: the bytes that it leaves out.
    pub(super) gap_bytes: i64,
    pub(super) random_percent: u32,
    /// The part of reads, of `rw` and `randrw`.
    mix_percent: u32,
    mixed: bool,
    lengths: [Lengths; 2],
    /// What requests of a random job are aligned to.
    align: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) io_size: Option<u64>,
    pub(super) filesize: Option<u64>,
    pub(super) offset: u64,
    pub(super) offset_increment: u64,
    depth: u32,
    pub(super) engine: Engine,
    pub(super) engine_name: Option<String>,
    pub(super) numjobs: u32,
    pub(super) direct: bool,
    pub(super) runtime_ns: u64,
    pub(super) time_based: bool,
    distribution: Pattern,
    pub(super) zones: Vec<Zone>,
    map: bool,
    pub(super) number_ios: u64,
    pub(super) files: u32,
    pub(super) ramp_ns: u64,
    pub(super) think_ns: u64,
    pub(super) think_requests: u32,
    verify: bool,
    do_verify: bool,
    verify_only: bool,
    synchronous_writes: bool,
    pub(super) create_only: bool,
    pub(super) fills: bool,
    pub(super) poisson: bool,
    writes_per_flush: u32,
    pub(super) filename: Option<String>,
    pub(super) startdelay_ns: u64,
    pub(super) stonewall: bool,
    pub(super) loops: u64,
    pub(super) seed: u32,
    /// Requests a second of a clone, of reads and of writes; 0 = as fast as they are answered.
    rate_iops: [u64; 2],
    /// Bytes a second, likewise.
    rate_bytes: [u64; 2],
    kb_base: KbBase,
}

/// fio's default length.
const BS: u64 = 4096;

impl Options {
    /// fio's defaults, for a volume of this size.
    pub(super) fn new(volume_bytes: u64) -> Self {
        let bs = || Lengths::Split(vec![(BS, 1)]);
        Self {
            volume_bytes,
            direction: Direction::Data,
            random: false,
            read_percent: 100,
            run_requests: 1,
            gap_bytes: 0,
            random_percent: 100,
            mix_percent: 50,
            mixed: false,
            lengths: [bs(), bs()],
            align: None,
            size: None,
            io_size: None,
            filesize: None,
            offset: 0,
            offset_increment: 0,
            depth: 1,
            engine: Engine::Synchronous,
            engine_name: None,
            numjobs: 1,
            direct: false,
            runtime_ns: 0,
            time_based: false,
            distribution: Pattern::Random,
            zones: Vec::new(),
            map: true,
            number_ios: 0,
            files: 1,
            ramp_ns: 0,
            think_ns: 0,
            think_requests: 1,
            verify: false,
            do_verify: true,
            verify_only: false,
            synchronous_writes: false,
            create_only: false,
            fills: false,
            poisson: false,
            writes_per_flush: 0,
            filename: None,
            startdelay_ns: 0,
            stonewall: false,
            loops: 1,
            seed: 1,
            rate_iops: [0, 0],
            rate_bytes: [0, 0],
            kb_base: KbBase::Compatible,
        }
    }
}

/// The fate of an option.
pub(super) enum Taken {
    /// The option is known.
    Meant,
    /// The option is known, and means nothing here.
    NoEffect,
    /// The option is known, would change the load, and is left out.
    LeftOut,
}

fn number(text: &str) -> Option<u32> {
    units::bytes(text, KbBase::Compatible).and_then(|it| u32::try_from(it).ok())
}

/// What `one` reads, of reads and of writes; one value is for both, a third one is for trims.
fn both(text: &str, one: impl Fn(&str) -> Option<u64>) -> Option<[u64; 2]> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let of = |part: &str| if part.is_empty() { Some(0) } else { one(part) };
    match *parts {
        [all] => one(all).map(|it| [it, it]),
        [reads, writes] | [reads, writes, _] => Some([of(reads)?, of(writes)?]),
        _ => None,
    }
}

/// What becomes of an option whatever its value is.
pub(super) fn without_value(key: &str) -> Option<Taken> {
    match key {
        _ if NO_EFFECT.contains(&key) => Some(Taken::NoEffect),
        _ if LEFT_OUT.contains(&key) => Some(Taken::LeftOut),
        _ => None,
    }
}

/// Names of files, separated by colons; a colon that belongs to a name has a backslash before it.
fn names(text: &str) -> Option<(String, u32)> {
    let count = 1 + text.replace("\\:", "").matches(':').count();
    (!text.is_empty()).then(|| (text.replace("\\:", ":"), count as u32))
}

impl Options {
    /// Requests in flight of one clone.
    pub(super) fn depth(&self) -> u32 {
        if self.engine == Engine::Asynchronous { self.depth } else { 1 }
    }

    /// Requests of a hundred that are reads. Rates of both directions decide, if there are any: fio
    /// keeps both.
    pub(super) fn reads(&self) -> u32 {
        let percent = match (self.mixed, self.verify_only) {
            (_, true) => 100,
            (true, _) => self.mix_percent,
            (false, _) => self.read_percent,
        };
        match self.rates() {
            [reads, writes] if (1..100).contains(&percent) && reads > 0.0 && writes > 0.0 => {
                (reads * 100.0 / (reads + writes)).round() as u32
            }
            _ => percent,
        }
    }

    /// Requests that come in a second; 0 = as they are answered.
    pub(super) fn rate_per_s(&self) -> f64 {
        let [reads, writes] = self.rates();
        match self.reads() {
            100 => reads,
            0 => writes,
            _ if reads > 0.0 && writes > 0.0 => reads + writes,
            // A rate of one direction holds back the other in the ratio of the mix.
            percent if reads > 0.0 => reads * 100.0 / f64::from(percent),
            percent if writes > 0.0 => writes * 100.0 / f64::from(100 - percent),
            _ => 0.0,
        }
    }

    /// Requests a second, of reads and of writes.
    fn rates(&self) -> [f64; 2] {
        let of = |direction: usize| {
            let (requests, bytes) = (self.rate_iops[direction] as f64, self.rate_bytes[direction] as f64);
            let by_bytes = bytes / self.lengths[direction].mean(BS);
            if requests > 0.0 { requests } else { by_bytes }
        };
        [of(0), of(1)]
    }

    pub(super) const fn pattern(&self) -> Pattern {
        match self.distribution {
            _ if !self.random => Pattern::Sequential,
            Pattern::Random if !self.map => Pattern::Uniform,
            other => other,
        }
    }

    /// The unit of places, the lengths of reads and those of writes.
    pub(super) fn lengths(&self) -> (u64, Lengths, Lengths) {
        let [reads, writes] = self.lengths.clone();
        // A direction that the job doesn't have does not count.
        match self.reads() {
            100 => lengths::with_unit(reads.clone(), reads, self.align),
            0 => lengths::with_unit(writes.clone(), writes, self.align),
            _ => lengths::with_unit(reads, writes, self.align),
        }
    }

    /// Whether what was written is read afterwards.
    pub(super) fn rereads(&self) -> bool {
        self.verify && self.do_verify && self.reads() < 100 && !self.time_based
    }

    /// Writes between two FLUSHes.
    pub(super) const fn writes_per_flush(&self) -> u32 {
        if self.synchronous_writes { 1 } else { self.writes_per_flush }
    }

    /// Takes an option; or says what it may be instead.
    pub(super) fn take(&mut self, key: &str, value: &str) -> Result<Taken, String> {
        let known = self.set(key, value);
        known.ok_or_else(|| instead(key))?.map(|()| Taken::Meant).ok_or_else(|| {
            let value = if value.is_empty() { "nothing" } else { value };
            format!("`{value}`; {}", values(key))
        })
    }

    /// `None`: no such option; `Some(None)`: no such value.
    fn set(&mut self, key: &str, value: &str) -> Option<Option<()>> {
        let base = self.kb_base;
        let size = || self.size_of(value);
        let count = || number(value).filter(|it| *it > 0);
        let switch = || units::switch(value);
        Some(match key {
            "rw" | "readwrite" => self.set_direction(value),
            "rwmixread" => percent(value).map(|it| self.mix_percent = it),
            "rwmixwrite" => percent(value).map(|it| self.mix_percent = 100 - it),
            "bs" | "blocksize" => lengths::fixed(value, &self.lengths, base).map(|it| self.lengths = it),
            "bsrange" | "blocksize_range" => lengths::range(value, &self.lengths, base).map(|it| self.lengths = it),
            "bssplit" => lengths::split(value, &self.lengths, base).map(|it| self.lengths = it),
            "ba" | "blockalign" => units::bytes(value, base).filter(|it| *it > 0).map(|it| self.align = Some(it)),
            "size" => size().map(|it| self.size = Some(it)),
            "io_size" | "io_limit" => size().map(|it| self.io_size = Some(it)),
            "filesize" => size().map(|it| self.filesize = Some(it)),
            "number_ios" => count().map(|it| self.number_ios = u64::from(it)),
            "nrfiles" | "nr_files" => count().filter(|it| *it <= 1 << 16).map(|it| self.files = it),
            "percentage_random" => percent(value).map(|it| self.random_percent = it),
            "offset" => size().map(|it| self.offset = it),
            "offset_increment" => size().map(|it| self.offset_increment = it),
            "iodepth" => count().map(|it| self.depth = it),
            "numjobs" => count().filter(|it| *it <= 512).map(|it| self.numjobs = it),
            "direct" => switch().map(|it| self.direct = it),
            "buffered" => switch().map(|it| self.direct = !it),
            "sync" => synchronous(value).map(|it| self.synchronous_writes = it),
            "ioengine" => Engine::named(value).map(|it| (self.engine, self.engine_name) = (it, Some(value.to_owned()))),
            "runtime" | "timeout" => units::ns(value).map(|it| self.runtime_ns = it),
            "ramp_time" => units::ns(value).map(|it| self.ramp_ns = it),
            "time_based" => switch().map(|it| self.time_based = it),
            "thinktime" => units::ns_of_us(value).map(|it| self.think_ns = it),
            "thinktime_blocks" => count().map(|it| self.think_requests = it),
            "random_distribution" => distribution::read(value, self.volume_bytes, base)
                .map(|(pattern, zones)| (self.distribution, self.zones) = (pattern, zones)),
            "norandommap" => switch().map(|it| self.map = !it),
            "verify" => Some(!matches!(value, "0" | "null")).map(|it| self.verify = it),
            "do_verify" => switch().map(|it| self.do_verify = it),
            "verify_only" => switch().map(|it| self.verify_only = it),
            "create_only" => switch().map(|it| self.create_only = it),
            "fill_device" | "fill_fs" => switch().map(|it| self.fills = it),
            "fsync" | "fdatasync" => number(value).map(|it| self.writes_per_flush = it),
            "filename" => names(value).map(|(name, files)| (self.filename, self.files) = (Some(name), files)),
            "startdelay" | "start_delay" => units::ns(value).map(|it| self.startdelay_ns = it),
            "stonewall" | "wait_for_previous" => switch().map(|it| self.stonewall = it),
            "loops" => count().map(|it| self.loops = u64::from(it)),
            "randseed" => number(value).map(|it| self.seed = it),
            "rate_iops" => both(value, |it| number(it).map(u64::from)).map(|it| self.rate_iops = it),
            "rate" => both(value, |it| units::bytes(it, base)).map(|it| self.rate_bytes = it),
            "rate_process" => process(value).map(|it| self.poisson = it),
            "kb_base" => KbBase::read(value).map(|it| self.kb_base = it),
            _ => return None,
        })
    }

    /// A size, or percent of the volume.
    fn size_of(&self, text: &str) -> Option<u64> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse::<u64>().ok().filter(|it| *it <= 100)?;
                Some((u128::from(self.volume_bytes) * u128::from(percent) / 100) as u64)
            }
            None => units::bytes(text, self.kb_base),
        }
    }

    fn set_direction(&mut self, value: &str) -> Option<()> {
        let (name, behind) = value.split_once(':').map_or((value, None), |(name, behind)| (name.trim(), Some(behind)));
        let (random, mixed, reads, direction) = match name {
            "read" => (false, false, 100, Direction::Data),
            "write" => (false, false, 0, Direction::Data),
            "rw" | "readwrite" => (false, true, 0, Direction::Data),
            "randread" => (true, false, 100, Direction::Data),
            "randwrite" => (true, false, 0, Direction::Data),
            "randrw" => (true, true, 0, Direction::Data),
            "trimwrite" => (false, false, 0, Direction::TrimWrite),
            "randtrimwrite" => (true, false, 0, Direction::TrimWrite),
            "trim" => (false, false, 0, Direction::Trim),
            "randtrim" => (true, false, 0, Direction::Trim),
            _ => return None,
        };
        let (mut run_requests, mut gap_bytes) = (1, 0);
        if let Some(behind) = behind {
            let (sign, bytes) = behind.strip_prefix('-').map_or((1, behind), |bytes| (-1, bytes));
            if random {
                run_requests = number(behind).filter(|it| *it > 0)?;
            } else {
                gap_bytes = sign * i64::try_from(units::bytes(bytes, self.kb_base)?).ok()?;
            }
        }
        (self.random, self.mixed, self.read_percent, self.direction) = (random, mixed, reads, direction);
        (self.run_requests, self.gap_bytes) = (run_requests, gap_bytes);
        Some(())
    }
}

fn percent(text: &str) -> Option<u32> {
    number(text.split(',').next()?).filter(|it| *it <= 100)
}

/// Whether each write is to be durable before it is answered.
fn synchronous(text: &str) -> Option<bool> {
    match text {
        "sync" | "dsync" => Some(true),
        "none" => Some(false),
        _ => units::switch(text),
    }
}

/// Whether requests arrive as a Poisson process.
fn process(text: &str) -> Option<bool> {
    match text {
        "poisson" => Some(true),
        "linear" => Some(false),
        _ => None,
    }
}

fn instead(key: &str) -> String {
    let begins =
        |known: &&(&str, &str)| key == known.0 || key.strip_prefix(known.0).is_some_and(|it| it.starts_with('_'));
    let advice = INSTEAD.iter().find(begins).map(|known| known.1);
    let advice =
        advice.unwrap_or("docs/laboratory/scenarios.md lists what is; leave it out if the job is the same without");
    format!("unknown here; {advice}")
}

fn values(key: &str) -> &'static str {
    match key {
        "rw" | "readwrite" => {
            "there are read, write, rw, randread, randwrite, randrw, and with trims trim, randtrim, trimwrite, \
             randtrimwrite; behind a colon randread:8 has requests in a row, read:64k bytes to leave out"
        }
        "rwmixread" | "rwmixwrite" | "percentage_random" => "percent, 0 to 100",
        "iodepth" | "loops" | "number_ios" | "thinktime_blocks" => "a number, at least 1",
        "numjobs" => "a number, 1 to 512",
        "nrfiles" | "nr_files" => "a number, 1 to 65536",
        "ioengine" => "no engine of fio's has this name; libaio and io_uring are usual",
        "runtime" | "timeout" | "startdelay" | "start_delay" | "ramp_time" => {
            "a time as in 30 (seconds), 500ms, 5m, 24h"
        }
        "thinktime" => "a time as in 2000 (microseconds), 5ms",
        "random_distribution" => {
            "there are random, zipf:THETA (more than 0, not 1), pareto:H (between 0 and 1), normal:PERCENT, \
             zoned:50/5:30/15:20/ and zoned_abs:60/20G:40/"
        }
        "filename" => "the name of a volume or file, or several with colons between them",
        "kb_base" => "1024 or 1000",
        "rate_iops" => "requests a second of each clone, or of reads and of writes: 70,30",
        "rate" => "bytes a second of each clone, as in 10m, or of reads and of writes: 10m,1m",
        "rate_process" => "linear or poisson",
        "direct" | "buffered" | "time_based" | "norandommap" | "stonewall" | "wait_for_previous" | "do_verify"
        | "verify_only" | "create_only" | "fill_device" | "fill_fs" => "0 or 1",
        "sync" => "0, 1, none, sync or dsync",
        "fsync" | "fdatasync" | "randseed" => "a number",
        "bs" | "blocksize" => "a size as in 4k, or one for reads and one for writes: 4k,64k",
        "bsrange" | "blocksize_range" => "the shortest and the longest request, as in 4k-64k",
        "bssplit" => "sizes and percents, as in 4k/60:64k/40",
        _ => "one size as in 4096, 128k, 8g, or percent of the volume",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_known_in_one_way_only() {
        let instead = INSTEAD.iter().map(|known| &known.0);
        let all: Vec<_> = NO_EFFECT.iter().chain(LEFT_OUT).chain(instead).collect();
        for key in &all {
            assert!(Options::new(1).set(key, "1").is_none(), "{key}");
            assert_eq!(all.iter().filter(|other| *other == key).count(), 1, "{key}");
        }
        assert!(NO_EFFECT.is_sorted() && LEFT_OUT.is_sorted());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio's options: those that say what a job asks for, those that mean nothing here, and what can be done about the others.

use super::units::{self, KbBase};
use crate::load::Pattern;

/// What the options of a section say, `[global]` before it.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) random: bool,
    pub(super) read_percent: u32,
    /// Of `rw` and `randrw`.
    mix_percent: u32,
    mixed: bool,
    pub(super) block_bytes: u64,
    pub(super) size: Option<u64>,
    pub(super) io_size: Option<u64>,
    pub(super) filesize: Option<u64>,
    pub(super) offset: u64,
    pub(super) offset_increment: u64,
    depth: u32,
    asynchronous: bool,
    pub(super) numjobs: u32,
    pub(super) direct: bool,
    pub(super) runtime_ns: u64,
    pub(super) time_based: bool,
    distribution: Pattern,
    map: bool,
    pub(super) writes_per_flush: u32,
    pub(super) filename: Option<String>,
    pub(super) startdelay_ns: u64,
    pub(super) stonewall: bool,
    pub(super) loops: u64,
    pub(super) seed: u32,
    /// Requests a second of a clone, of reads and of writes; 0 = as fast as they are answered.
    rate_iops: (u32, u32),
    kb_base: KbBase,
}

impl Default for Options {
    /// fio's.
    fn default() -> Self {
        Self {
            random: false,
            read_percent: 100,
            mix_percent: 50,
            mixed: false,
            block_bytes: 4096,
            size: None,
            io_size: None,
            filesize: None,
            offset: 0,
            offset_increment: 0,
            depth: 1,
            asynchronous: false,
            numjobs: 1,
            direct: false,
            runtime_ns: 0,
            time_based: false,
            distribution: Pattern::Random,
            map: true,
            writes_per_flush: 0,
            filename: None,
            startdelay_ns: 0,
            stonewall: false,
            loops: 1,
            seed: 1,
            rate_iops: (0, 0),
            kb_base: KbBase::Compatible,
        }
    }
}

/// What came of an option.
pub(super) enum Taken {
    /// It is known.
    Meant,
    /// It is known, and means nothing here.
    NoEffect,
}

/// They say how fio measures and reports, how it makes its files and buffers, or which processor it runs on.
const NO_EFFECT: &[&str] = &[
    "allow_file_create",
    "allrandrepeat",
    "buffer_compress_chunk",
    "buffer_compress_percentage",
    "buffer_pattern",
    "bwavgtime",
    "clat_percentiles",
    "clocksource",
    "continue_on_error",
    "cpumask",
    "cpus_allowed",
    "cpus_allowed_policy",
    "create_fsync",
    "create_on_open",
    "create_serialize",
    "dedupe_percentage",
    "description",
    "disable_bw",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "exitall_on_error",
    "fallocate",
    "fixedbufs",
    "group_reporting",
    "gtod_cpu",
    "gtod_reduce",
    "hipri",
    "invalidate",
    "iomem",
    "iopsavgtime",
    "lat_percentiles",
    "log_avg_msec",
    "log_hist_msec",
    "log_max_value",
    "log_unix_epoch",
    "mem",
    "name",
    "new_group",
    "nice",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "overwrite",
    "per_job_logs",
    "percentile_list",
    "prio",
    "prioclass",
    "random_generator",
    "randrepeat",
    "refill_buffers",
    "registerfiles",
    "scramble_buffers",
    "significant_figures",
    "sqthread_poll",
    "thread",
    "unified_rw_reporting",
    "unlink",
    "unlink_each_loop",
    "userspace_reap",
    "write_bw_log",
    "write_hist_log",
    "write_iops_log",
    "write_lat_log",
    "zero_buffers",
];

/// Options that change what is asked for and that the simulation doesn't have: what to do instead.
const INSTEAD: &[(&str, &str)] = &[
    ("rate", "`rate_iops` says how many requests come in a second, evenly; nothing else about rates is known"),
    ("thinktime", "a scenario (docs/scenarios.md) has requests that arrive at a `rate`"),
    ("ramp_time", "put a job before it, and `stonewall` into this one"),
    ("bsrange", "requests of a job have one length: `bs`, and a job for each length"),
    ("bssplit", "requests of a job have one length: `bs`, and a job for each length"),
    ("verify", "no data is moved, so that nothing can be verified: leave it out"),
    ("nrfiles", "a job has one file: `numjobs` makes several"),
    ("opendir", "name one volume with `filename`"),
    ("include", "write its options into this file"),
    ("read_iolog", "`flashfront sim replay` takes fio's logs of I/O"),
    ("end_fsync", "a FLUSH comes after every so many writes: `fsync`"),
    ("fsync_on_close", "a FLUSH comes after every so many writes: `fsync`"),
    ("percentage_random", "a job is sequential or random: two jobs side by side are both"),
    ("create_only", "the volume is there already: leave that job out"),
];

fn number(text: &str) -> Option<u32> {
    units::bytes(text, KbBase::Compatible).and_then(|it| u32::try_from(it).ok())
}

/// Of reads and of writes; one number is for both.
fn rates(text: &str) -> Option<(u32, u32)> {
    let rate = |text: &str| text.parse().ok().filter(|it| (1..=1_000_000).contains(it));
    match text.split_once(',') {
        Some((reads, writes)) => Some((rate(reads)?, rate(writes)?)),
        None => rate(text).map(|both| (both, both)),
    }
}

fn distribution(text: &str) -> Option<Pattern> {
    let (name, parameter) = text.split_once(':').unwrap_or((text, ""));
    let parameter = || parameter.parse::<f64>().ok().filter(|it| it.is_finite() && *it > 0.0);
    match name {
        "random" => Some(Pattern::Random),
        "zipf" => Some(Pattern::Zipf(parameter().filter(|it| *it != 1.0)?)),
        "pareto" => Some(Pattern::Pareto(parameter().filter(|it| *it < 1.0)?)),
        _ => None,
    }
}

impl Options {
    /// Requests in flight of one clone.
    pub(super) const fn depth(&self) -> u32 {
        if self.asynchronous { self.depth } else { 1 }
    }

    pub(super) const fn reads(&self) -> u32 {
        if self.mixed { self.mix_percent } else { self.read_percent }
    }

    /// Requests that come in a second, 0 = as they are answered; `None`: reads and writes at rates that don't make the mix.
    pub(super) fn rate_per_s(&self) -> Option<f64> {
        let ((reads, writes), percent) = (self.rate_iops, self.reads());
        let all = match percent {
            100 => reads,
            0 => writes,
            _ => reads + writes,
        };
        let mixes = percent == 0 || percent == 100 || reads * (100 - percent) == writes * percent;
        mixes.then_some(f64::from(all))
    }

    pub(super) const fn pattern(&self) -> Pattern {
        match self.distribution {
            _ if !self.random => Pattern::Sequential,
            Pattern::Random if !self.map => Pattern::Uniform,
            other => other,
        }
    }

    /// Takes an option; or says what it may be instead.
    pub(super) fn take(&mut self, key: &str, value: &str) -> Result<Taken, String> {
        if NO_EFFECT.contains(&key) {
            return Ok(Taken::NoEffect);
        }
        let known = self.set(key, value);
        known.ok_or_else(|| instead(key))?.map(|()| Taken::Meant).ok_or_else(|| {
            let value = if value.is_empty() { "nothing" } else { value };
            format!("`{value}`; {}", values(key))
        })
    }

    /// `None`: no such option; `Some(None)`: no such value.
    fn set(&mut self, key: &str, value: &str) -> Option<Option<()>> {
        let base = self.kb_base;
        let size = || units::bytes(value, base);
        let count = || number(value).filter(|it| *it > 0);
        let put = |place: &mut Option<u64>| size().map(|it| *place = Some(it));
        Some(match key {
            "rw" | "readwrite" => self.set_direction(value),
            "rwmixread" => number(value).filter(|it| *it <= 100).map(|it| self.mix_percent = it),
            "rwmixwrite" => number(value).filter(|it| *it <= 100).map(|it| self.mix_percent = 100 - it),
            "bs" | "blocksize" => size().map(|it| self.block_bytes = it),
            "size" => put(&mut self.size),
            "io_size" | "io_limit" => put(&mut self.io_size),
            "filesize" => put(&mut self.filesize),
            "offset" => size().map(|it| self.offset = it),
            "offset_increment" => size().map(|it| self.offset_increment = it),
            "iodepth" => count().map(|it| self.depth = it),
            "numjobs" => count().filter(|it| *it <= 512).map(|it| self.numjobs = it),
            "direct" => units::switch(value).map(|it| self.direct = it),
            // One volume: in which folder its file would be doesn't matter.
            "directory" => Some(()),
            "ioengine" => engine(value).map(|it| self.asynchronous = it),
            "runtime" | "timeout" => units::ns(value).map(|it| self.runtime_ns = it),
            "time_based" => units::switch(value).map(|it| self.time_based = it),
            "random_distribution" => distribution(value).map(|it| self.distribution = it),
            "norandommap" => units::switch(value).map(|it| self.map = !it),
            "fsync" | "fdatasync" => number(value).map(|it| self.writes_per_flush = it),
            "filename" => {
                Some(value).filter(|it| !it.is_empty() && !it.contains(':')).map(|it| self.filename = Some(it.into()))
            }
            "startdelay" | "start_delay" => units::ns(value).map(|it| self.startdelay_ns = it),
            "stonewall" | "wait_for_previous" => units::switch(value).map(|it| self.stonewall = it),
            "loops" => count().map(|it| self.loops = u64::from(it)),
            "randseed" => number(value).map(|it| self.seed = it),
            "rate_iops" => rates(value).map(|it| self.rate_iops = it),
            "kb_base" => KbBase::read(value).map(|it| self.kb_base = it),
            _ => return None,
        })
    }

    fn set_direction(&mut self, value: &str) -> Option<()> {
        let (random, mixed, reads) = match value {
            "read" => (false, false, 100),
            "write" => (false, false, 0),
            "rw" | "readwrite" => (false, true, 0),
            "randread" => (true, false, 100),
            "randwrite" => (true, false, 0),
            "randrw" => (true, true, 0),
            _ => return None,
        };
        (self.random, self.mixed, self.read_percent) = (random, mixed, reads);
        Some(())
    }
}

/// Whether an engine has more than one request in flight.
fn engine(value: &str) -> Option<bool> {
    match value {
        "libaio" | "io_uring" | "posixaio" | "windowsaio" | "solarisaio" => Some(true),
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => Some(false),
        _ => None,
    }
}

fn instead(key: &str) -> String {
    let begins =
        |known: &&(&str, &str)| key == known.0 || key.strip_prefix(known.0).is_some_and(|it| it.starts_with('_'));
    let advice = INSTEAD.iter().find(begins).map(|known| known.1);
    let advice = advice.unwrap_or("docs/scenarios.md lists what is; leave it out if the job is the same without");
    format!("unknown here; {advice}")
}

fn values(key: &str) -> &'static str {
    match key {
        "rw" | "readwrite" => "there are read, write, rw, randread, randwrite, randrw",
        "rwmixread" | "rwmixwrite" => "percent, 0 to 100",
        "iodepth" | "loops" => "a number, at least 1",
        "numjobs" => "a number, 1 to 512",
        "ioengine" => "there are libaio, io_uring, posixaio, and with one request in flight sync, psync, vsync, pvsync",
        "runtime" | "timeout" | "startdelay" | "start_delay" => "a time as in 30 (seconds), 500ms, 5m, 24h",
        "random_distribution" => "there are random, zipf:THETA (more than 0, not 1) and pareto:H (between 0 and 1)",
        "filename" => "the name of one volume or file, without a colon",
        "kb_base" => "1024 or 1000",
        "rate_iops" => "requests a second of each clone, 1 to 1000000, or of reads and of writes: 70,30",
        "direct" | "time_based" | "norandommap" | "stonewall" | "wait_for_previous" => "0 or 1",
        "fsync" | "fdatasync" | "randseed" => "a number",
        _ => "one size as in 4096, 128k, 8g",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_known_in_one_way_only() {
        for key in NO_EFFECT.iter().chain(INSTEAD.iter().map(|known| &known.0)) {
            assert!(Options::default().set(key, "1").is_none(), "{key}");
        }
        assert!(NO_EFFECT.is_sorted() && NO_EFFECT.iter().all(|key| !INSTEAD.iter().any(|known| known.0 == *key)));
    }
}

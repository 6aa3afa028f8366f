// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront advise`: before one buys, whether a cache would help, how large it must be, and in
//! which mode.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use flashfront_serve::config::{Age, Size};
use flashfront_sim::advise::{Advice, CACHE_BYTES_MIN, Progress, Question, advise};
use flashfront_sim::rival;
use indicatif::ProgressBar;

use self::devices::{DeviceArgs, Devices};
use crate::sim::report::{self, ReportArgs};
use crate::trace::{TraceArgs, told as reading};
use crate::usage::misused;
use crate::{human, interrupt, progress};

mod because;
pub(crate) mod devices;
mod fleet;
mod json;
mod recorded;
pub(crate) mod told;

/// Whether a cache would help: plays a trace to a disk, and to the production engine with caches of
/// several sizes.
///
/// In virtual time, on device models that were calibrated against published measurements
/// (docs/laboratory/models.md): no data, no devices. The first half of the trace fills the cache,
/// the second is what is measured; the processor costs nothing. docs/decide/advise.md says what is
/// advised and why.
#[derive(Debug, Args)]
pub(crate) struct Advise {
    /// The trace, as from `flashfront record` or blktrace; its format is found by content, packed
    /// or not. Or a block device, of which --for records a trace.
    #[arg(value_name = "TRACE", required_unless_present = "fleet")]
    trace: Option<PathBuf>,
    /// Advise on each recording below this folder, in one row of a table each; the same command
    /// goes on where it was ended. A file is a fleet of one recording.
    #[arg(long, value_name = "FOLDER", requires = "out", conflicts_with_all = ["trace", "report", "ram", "with"])]
    fleet: Option<PathBuf>,
    /// Record the block device for so long first, as in "1h", and probe it then. Ctrl-C ends the
    /// recording early.
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "fleet")]
    record_for: Option<Age>,
    /// The table of --fleet: a file that ends in .parquet or .csv. Or the new file of the recording
    /// [default: one in the folder for temporary files, which is told].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    devices: DeviceArgs,
    /// Sizes of the cache, separated by commas [default: powers of two up to what the trace
    /// touches, eight at most].
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    cache_size: Vec<Size>,
    /// RAM that could be given instead of an SSD. If it does as much, the advice is to take it; 0
    /// for none.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    ram: Size,
    /// Other caches to compare with at the advised size, separated by commas: models of them
    /// (`lvmcache` is `dm-cache-smq`).
    #[arg(long, value_name = "CACHE", value_delimiter = ',', value_parser = rival())]
    with: Vec<&'static rival::Spec>,
    #[command(flatten)]
    read: TraceArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// The name for people, and its model.
const LVMCACHE: (&str, &str) = ("lvmcache", "dm-cache-smq");

/// A cache to compare with, by its name.
fn rival() -> impl TypedValueParser<Value = &'static rival::Spec> {
    let names = [LVMCACHE.0].into_iter().chain(rival::ALL.iter().map(|it| it.name));
    PossibleValuesParser::new(names).map(|name| {
        let name = if name == LVMCACHE.0 { LVMCACHE.1.to_owned() } else { name };
        rival::ALL.iter().find(|it| it.name == name).expect("the parser accepts names of models only")
    })
}

impl Advise {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.must_make_sense()?;
        if let Some((folder, out)) = self.fleet.as_ref().zip(self.out.as_ref()) {
            return self.fleet(folder, out);
        }
        let report = self.report.open()?;
        // It is there: clap asks for it where there is no fleet.
        let trace = self.trace.clone().unwrap_or_default();
        let is_device = recorded::is_wanted(&trace, self.record_for)?;
        let stop = interrupt::stop_flag()?;
        let (device, trace) = match self.record_for.filter(|_| is_device) {
            Some(time) => {
                let file = recorded::recorded(&trace, time, self.out.as_deref(), &stop)?;
                (Some(trace), file)
            }
            None => (None, trace),
        };
        let devices = self.devices.find(device.as_deref(), &stop)?;
        let question = self.question(&trace, &devices)?;
        let advice = watched(&question, stop)?;
        let name = trace.display().to_string();
        let printed = if self.json {
            human::print_json(&json::object(&name, &question, &devices, &advice))
        } else {
            human::tell(&told::all(&name, &question, &devices, &advice)?)
        };
        reading::remarks(&name, &question.source, &advice.reading);
        if let Some(report) = report {
            report.write("Would a cache help?", &report::advised(&name, &question, &devices, &advice)?)?;
        }
        printed.map(|()| ExitCode::SUCCESS)
    }

    fn fleet(&self, folder: &Path, out: &Path) -> anyhow::Result<ExitCode> {
        let stop = interrupt::stop_flag()?;
        let devices = self.devices.find(None, &stop)?;
        let any = Question { threads: 1, ram_bytes: 0, ..self.question(folder, &devices)? };
        let question = |path: &Path| Question { source: self.read.source(path, 0), ..any.clone() };
        let begun = fleet::Begun { flashfront: env!("CARGO_PKG_VERSION").to_owned(), options: self.words(&any) };
        fleet::fleet(folder, out, &begun, self.json, &question, stop)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Returns all options that change the result, as on a command line.
    fn words(&self, question: &Question) -> Vec<String> {
        let mut words = self.devices.words();
        if !question.sizes.is_empty() {
            let sizes: Vec<String> = question.sizes.iter().map(u64::to_string).collect();
            words.push(format!("--cache-size {}", sizes.join(",")));
        }
        words.extend(self.read.words());
        words
    }

    /// Refuses orders that make no sense whatever the devices are.
    fn must_make_sense(&self) -> anyhow::Result<()> {
        let least = human::bytes(CACHE_BYTES_MIN);
        if (1..CACHE_BYTES_MIN).contains(&self.ram.0) {
            misused!("--ram: {}; it can be 0, or {least} and more", human::bytes(self.ram.0));
        }
        if let Some(small) = self.cache_size.iter().find(|size| size.0 < CACHE_BYTES_MIN) {
            misused!("--cache-size: {}; a cache has {least} or more", human::bytes(small.0));
        }
        if self.out.is_some() && self.fleet.is_none() && self.record_for.is_none() {
            misused!("--out: for the table of --fleet, or for the recording of a device with --for");
        }
        Ok(())
    }

    fn question(&self, trace: &Path, devices: &Devices) -> anyhow::Result<Question> {
        let (origin, cache) = (devices.origin, devices.cache);
        let mut sizes: Vec<u64> = self.cache_size.iter().map(|size| size.0).collect();
        if let Some(&wrong) = sizes.iter().find(|size| **size > cache.size_bytes) {
            let [given, least, most] = [wrong, CACHE_BYTES_MIN, cache.size_bytes].map(human::bytes);
            misused!("--cache-size: {given}; of {} it can be {least} to {most}", cache.name);
        }
        sizes.sort_unstable();
        sizes.dedup();
        let mut rivals: Vec<&'static rival::Spec> = Vec::new();
        for &rival in &self.with {
            if !rivals.iter().any(|it| it.name == rival.name) {
                rivals.push(rival);
            }
        }
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let source = self.read.source(trace, 0);
        Ok(Question { source, origin, cache, sizes, ram_bytes: self.ram.0, rivals, threads })
    }
}

/// Asks while a bar shows how far it is.
fn watched(question: &Question, stop: Arc<AtomicBool>) -> anyhow::Result<Advice> {
    let mut progress = Progress::default();
    progress.reading.stop = stop;
    let (done, ended) = channel::<()>();
    let advice = thread::scope(|scope| {
        scope.spawn(|| show(question, &progress, ended));
        let advice = advise(question, &progress);
        drop(done);
        advice
    });
    Ok(advice?)
}

#[expect(clippy::needless_pass_by_value, reason = "a receiver can't be shared with a thread")]
fn show(question: &Question, progress: &Progress, ended: Receiver<()>) {
    let name = question.source.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file_bytes = std::fs::metadata(&question.source.path).map_or(0, |file| file.len());
    let counting = progress::bar("counting {msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}", file_bytes)
        .with_message(name);
    let mut playing: Option<ProgressBar> = None;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(progress::LOOK_EVERY) {
        let to_play = progress.to_play.load(Ordering::Relaxed);
        if to_play == 0 {
            counting.set_position(progress.reading.bytes.load(Ordering::Relaxed));
            continue;
        }
        let playing = playing.get_or_insert_with(|| {
            counting.finish_and_clear();
            progress::bar("playing {msg} [{bar:30}] {percent} %  {eta} left", to_play).with_message(counting.message())
        });
        playing.set_position(progress.played.load(Ordering::Relaxed));
    }
    playing.unwrap_or(counting).finish_and_clear();
}

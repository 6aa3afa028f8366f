// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront advise`: before one buys, whether a cache would help, how large it must be, and in
//! which mode.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use flashfront_device::sim::{Known, known};
use flashfront_serve::config::Size;
use flashfront_sim::advise::{Advice, CACHE_BYTES_MIN, Progress, Question, advise};
use indicatif::ProgressBar;

use crate::sim::report::{self, ReportArgs};
use crate::trace::{TraceArgs, told as reading};
use crate::usage::misused;
use crate::{human, interrupt, progress};

mod fleet;
mod json;
pub(crate) mod told;

/// Between two looks at how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Whether a cache would help: plays a trace to a disk, and to the production engine with caches of
/// several sizes.
///
/// In virtual time, on device models that were calibrated against published measurements
/// (docs/laboratory/models.md): no data, no devices. The first half of the trace fills the cache,
/// the second is what is measured; the processor costs nothing. docs/decide/advise.md says what is
/// advised and why.
#[derive(Debug, Args)]
pub(crate) struct Advise {
    /// The trace, as from blktrace; its format is found by content, packed or not.
    #[arg(value_name = "TRACE", required_unless_present = "fleet")]
    trace: Option<PathBuf>,
    /// Advise on each recording below this folder, in one row of a table each; the same command
    /// goes on where it was ended. A file is a fleet of one recording.
    #[arg(long, value_name = "FOLDER", requires = "out", conflicts_with_all = ["trace", "report"])]
    fleet: Option<PathBuf>,
    /// The table of --fleet: a file that ends in .parquet or .csv.
    #[arg(long, value_name = "FILE", requires = "fleet")]
    out: Option<PathBuf>,
    /// The disk that it is played to, by its name in docs/laboratory/models.md.
    #[arg(long, value_name = "DEVICE", default_value = "wd-re-4tb", value_parser = devices())]
    origin: String,
    /// The cache device, likewise.
    #[arg(long, value_name = "DEVICE", default_value = "samsung-850-pro", value_parser = devices())]
    cache: String,
    /// Sizes of the cache, separated by commas [default: powers of two up to what the trace
    /// touches, eight at most].
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    cache_size: Vec<Size>,
    #[command(flatten)]
    read: TraceArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    report: ReportArgs,
}

fn devices() -> PossibleValuesParser {
    PossibleValuesParser::new(known().into_iter().map(|it| it.name))
}

fn device(name: &str) -> anyhow::Result<Known> {
    known().into_iter().find(|it| it.name == name).with_context(|| format!("no device is called {name}"))
}

impl Advise {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some((folder, out)) = self.fleet.as_ref().zip(self.out.as_ref()) {
            return self.fleet(folder, out);
        }
        let report = self.report.open()?;
        // It is there: clap asks for it where there is no fleet.
        let trace = self.trace.clone().unwrap_or_default();
        let question = self.question(&trace)?;
        let advice = watched(&question, interrupt::stop_flag()?)?;
        let name = trace.display().to_string();
        let printed = if self.json {
            human::print_json(&json::object(&name, &question, &advice))
        } else {
            human::tell(&told::all(&name, &question, &advice)?)
        };
        reading::remarks(&name, &question.source, &advice.reading);
        if let Some(report) = report {
            report.write("Would a cache help?", &report::advised(&name, &question, &advice)?)?;
        }
        printed.map(|()| ExitCode::SUCCESS)
    }

    fn fleet(&self, folder: &Path, out: &Path) -> anyhow::Result<ExitCode> {
        let any = Question { threads: 1, ..self.question(folder)? };
        let question = |path: &Path| Question { source: self.read.source(path, 0), ..any.clone() };
        let begun = fleet::Begun { flashfront: env!("CARGO_PKG_VERSION").to_owned(), options: self.words(&any) };
        fleet::fleet(folder, out, &begun, self.json, &question, interrupt::stop_flag()?)?;
        Ok(ExitCode::SUCCESS)
    }

    /// All options that change what is found out, as on a command line.
    fn words(&self, question: &Question) -> Vec<String> {
        let mut words = vec![format!("--origin {}", self.origin), format!("--cache {}", self.cache)];
        if !question.sizes.is_empty() {
            let sizes: Vec<String> = question.sizes.iter().map(u64::to_string).collect();
            words.push(format!("--cache-size {}", sizes.join(",")));
        }
        words.extend(self.read.words());
        words
    }

    fn question(&self, trace: &Path) -> anyhow::Result<Question> {
        let (origin, cache) = (device(&self.origin)?, device(&self.cache)?);
        let mut sizes: Vec<u64> = self.cache_size.iter().map(|size| size.0).collect();
        if let Some(&wrong) = sizes.iter().find(|size| !(CACHE_BYTES_MIN..=cache.size_bytes).contains(size)) {
            let [given, least, most] = [wrong, CACHE_BYTES_MIN, cache.size_bytes].map(human::bytes);
            misused!("--cache-size: {given}; of {} it can be {least} to {most}", cache.name);
        }
        sizes.sort_unstable();
        sizes.dedup();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Ok(Question { source: self.read.source(trace, 0), origin, cache, sizes, threads })
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
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
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

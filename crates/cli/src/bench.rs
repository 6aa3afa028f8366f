// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront bench`: suites of jobs on real devices, by fio, targets in turns.
//!
//! The verb reads arguments, tells what is going to happen, and prints what came of it; the crate
//! `flashfront-bench` does the work.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use flashfront_bench::assert::{self, Names};
use flashfront_bench::replay;
use flashfront_bench::suite::{Scale, Suite};
use flashfront_bench::suites;
use flashfront_bench::target::TargetSpec;
use flashfront_bench::{Bench as Runner, BenchError, MayDestroy, Plan, Request, Results, Store};
use flashfront_serve::config::Age;

use self::replay_args::ReplayArgs;
use crate::assert::AssertArgs;
use crate::human;
use crate::interrupt::{self, Interrupted};
use crate::sim::report::{self, ReportArgs};
use crate::usage::{Usage, misused};

mod csv;
mod export;
mod fresh;
mod news;
mod replay_args;
mod text;

/// Measure real devices: the jobs of published comparisons, or two quick minutes.
///
/// fio runs the jobs, on each target in turns. Before anything is run the time is estimated, and
/// everything is checked. Nothing is written to a device without --destroy-data and its name. After
/// each run the results are saved; Ctrl-C ends the bench, and --resume goes on.
/// docs/decide/bench.md shows how to read the figures.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What is run.
    #[arg(value_name = "SUITE", required_unless_present = "resume", value_parser = suites())]
    suite: Option<String>,
    #[command(flatten)]
    replay: ReplayArgs,
    /// What is measured: a block device, a file, a folder, an NBD URI, or `fresh` (`fresh:MODE`), a
    /// Flashfront volume made for the purpose. Ratios are to the first.
    #[arg(long = "target", value_name = "[NAME=]WHAT", required_unless_present = "resume")]
    targets: Vec<String>,
    /// The user's word that all data on this target may go, written as --target, --cache or
    /// --origin has it.
    #[arg(long, value_name = "DEVICE")]
    destroy_data: Vec<String>,
    /// Make the suite smaller: 1/64 of its sizes.
    #[arg(long, value_name = "1/N", default_value = "1", conflicts_with = "resume")]
    scale: Scale,
    /// Run each job so often on each target.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), conflicts_with = "resume")]
    repeats: u32,
    /// Let each timed job take this time [default: what the suite says].
    #[arg(long, value_name = "DURATION", conflicts_with = "resume")]
    runtime: Option<Age>,
    /// Run only this job, and what prepares it; may be given several times.
    #[arg(long = "job", value_name = "JOB", conflicts_with = "resume")]
    jobs: Vec<String>,
    /// Run only jobs that read.
    #[arg(long, conflicts_with = "resume")]
    reads_only: bool,
    /// Run a command of the shell before each turn of a target, to reset or fill its cache. It has
    /// BENCH_TARGET and BENCH_DEVICE in its environment.
    #[arg(long, value_name = "NAME=CMD", conflicts_with = "resume")]
    before: Vec<String>,
    /// Run a command after each turn of a target.
    #[arg(long, value_name = "NAME=CMD", conflicts_with = "resume")]
    after: Vec<String>,
    /// The cache device of `fresh` [default: a file with the pace of an SSD].
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    cache: Option<PathBuf>,
    /// The origin of `fresh` [default: a file with the pace of a disk].
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    origin: Option<PathBuf>,
    /// Save the results in this folder, which must be new or empty [default:
    /// flashfront-bench-SUITE-TIME, here].
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Go on with the bench in this folder, where it was interrupted. The commands of --before and
    /// --after are taken from there, too.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["suite", "targets"])]
    resume: Option<PathBuf>,
    /// Check everything, print the commands and the time that they take, and run nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
    /// Print the results as CSV, a line for each target and job.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    assert: AssertArgs,
    #[command(flatten)]
    report: ReportArgs,
}

fn suites() -> PossibleValuesParser {
    let values = suites::known().into_iter();
    PossibleValuesParser::new(values.map(|(name, summary)| PossibleValue::new(name).help(summary)))
}

impl Bench {
    pub(crate) fn run(self, quiet: bool) -> anyhow::Result<ExitCode> {
        self.assert.code(self.bench(quiet))
    }

    fn bench(&self, quiet: bool) -> anyhow::Result<ExitCode> {
        let report = self.report.open()?;
        let (request, earlier) = match &self.resume {
            Some(folder) => {
                let (store, request, earlier) = Store::open(folder).map_err(told)?;
                (request, Some((store, earlier)))
            }
            None => (self.request()?, None),
        };
        let mut bench = runner(&request, MayDestroy(self.destroy_data.clone()))?;
        let names = bench.targets.iter().map(|target| target.name.clone()).collect();
        let verdict = self.assert.read(&Names::of(&bench.suite, names))?;
        let plan = bench.plan().map_err(told)?;
        export::check(&bench.targets, &bench.suite, bench.scale)?;
        if self.dry_run {
            let folder = earlier.map_or_else(|| self.folder(&request), |(store, _)| store.folder().to_owned());
            human::print(&text::plan(&bench, &plan, &folder))?;
            return Ok(ExitCode::SUCCESS);
        }
        let (store, earlier) = match earlier {
            Some(earlier) => earlier,
            None => (Store::new(&self.folder(&request), &request).map_err(told)?, None),
        };
        note(quiet, &text::begins(&bench, &plan, store.folder()));
        let results = self.measure(&mut bench, &plan, &store, earlier, quiet)?;
        self.tell(&results)?;
        if let Some(report) = report {
            report.write(&format!("Bench {}", results.suite), &report::benched(&results)?)?;
        }
        if !results.complete {
            return Err(Interrupted("what has been measured is kept; --resume goes on").into());
        }
        Ok(verdict.of(|figure| assert::figure(&results, figure)))
    }

    /// Measures; returns all results, or the results up to Ctrl-C.
    fn measure(
        &self,
        bench: &mut Runner,
        plan: &Plan,
        store: &Store,
        earlier: Option<Results>,
        quiet: bool,
    ) -> anyhow::Result<Results> {
        let mut news = news::Told::new(plan.expected(bench), interrupt::stop_flag()?, quiet);
        let done = bench.run(plan, store, earlier, &mut news);
        news.end();
        let partial = match done {
            Ok(results) => return Ok(results),
            Err(error) => match (error, Store::open(store.folder()).map_err(told)?.2) {
                (BenchError::Interrupted, Some(partial)) => partial,
                (error, _) => {
                    note(quiet, &text::go_on(store.folder(), &self.destroy_data));
                    return Err(told(error));
                }
            },
        };
        note(quiet, &text::go_on(store.folder(), &self.destroy_data));
        Ok(partial)
    }

    fn tell(&self, results: &Results) -> anyhow::Result<()> {
        if self.json {
            human::print_json(&results.without_bins())
        } else if self.csv {
            human::print(&csv::text(results)?)
        } else {
            human::print(&text::results(results))
        }
    }

    fn request(&self) -> anyhow::Result<Request> {
        Ok(Request {
            suite: self.suite.clone().unwrap_or_default(),
            scale: self.scale,
            runtime: self.runtime.map(|it| it.0),
            jobs: self.jobs.clone(),
            reads_only: self.reads_only,
            targets: self.targets.clone(),
            repeats: self.repeats,
            before: commands("--before", &self.before)?,
            after: commands("--after", &self.after)?,
            replay: self.replay.options(self.suite.as_deref())?,
            cache: self.cache.clone(),
            origin: self.origin.clone(),
        })
    }

    fn folder(&self, request: &Request) -> PathBuf {
        self.out.clone().unwrap_or_else(|| {
            let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let now: String = now.chars().filter(char::is_ascii_alphanumeric).collect();
            format!("flashfront-bench-{}-{now}", request.suite).into()
        })
    }
}

/// Tells people something beside the result, on stderr.
fn note(quiet: bool, text: &str) {
    if !quiet {
        // A closed stderr has no reader.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Makes the runner for a request on this machine.
fn runner(request: &Request, may_destroy: MayDestroy) -> anyhow::Result<Runner> {
    let mut suite = suite_of(request)?;
    suite.keep_wanted(&request.jobs, request.reads_only).map_err(told)?;
    let targets = request.targets.iter().map(|text| TargetSpec::parse(text).map_err(told));
    let targets = targets.collect::<anyhow::Result<Vec<_>>>()?;
    let maker = fresh::Maker::new(request.cache.clone(), request.origin.clone(), suite.cache_bytes)?;
    let is_fresh = |it: &TargetSpec| matches!(it.what, flashfront_bench::target::What::Fresh(_));
    if (request.cache.is_some() || request.origin.is_some()) && !targets.iter().any(is_fresh) {
        misused!("--cache and --origin are of the target `fresh`, and there is none; say --target fresh");
    }
    Ok(Runner {
        suite,
        scale: request.scale,
        targets,
        repeats: request.repeats,
        before: request.before.clone(),
        after: request.after.clone(),
        may_destroy,
        fresh: Box::new(maker),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn suite_of(request: &Request) -> anyhow::Result<Suite> {
    let suite = any_suite_of(request)?;
    if request.runtime.is_some() && !suite.has_timed_jobs() {
        misused!("--runtime: the jobs of {} end with their work, not after a time; leave --runtime out", suite.name);
    }
    Ok(suite)
}

fn any_suite_of(request: &Request) -> anyhow::Result<Suite> {
    if let Some(replay) = &request.replay {
        if request.scale != Scale::FULL {
            misused!("--scale: a trace has its size; leave --scale out, and take --wrap for a small target");
        }
        return replay::suite(replay).map_err(told);
    }
    let found = suites::find(&request.suite, request.scale, request.runtime);
    found.ok_or_else(|| Usage(format!("no suite is called {}", request.suite)).into())
}

/// `NAME=CMD` of each option.
fn commands(option: &str, given: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for text in given {
        let Some((name, command)) = text.split_once('=') else {
            misused!("{option} {text}: expected NAME=CMD, a target's name and a command of the shell");
        };
        if all.insert(name.to_owned(), command.to_owned()).is_some() {
            misused!("{option} {name}=...: given twice; join both commands with &&");
        }
    }
    Ok(all)
}

/// The crate's errors as the program's: wrong usage has an exit code of its own.
fn told(error: BenchError) -> anyhow::Error {
    match error {
        BenchError::Wrong(message) => Usage(message).into(),
        error => error.into(),
    }
}

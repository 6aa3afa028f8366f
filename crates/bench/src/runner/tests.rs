// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns, what is left, and what is refused; acts stand in for fio.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::figures::{Direction, Figures};
use crate::suite::{Act, Group, Headline, Job, Site};

/// An act that counts how often it ran, and asks for 100 more requests each time.
#[derive(Debug)]
struct Counted(Arc<AtomicU32>);

impl Act for Counted {
    fn needs_folder(&self) -> bool {
        true
    }
    fn writes(&self) -> bool {
        false
    }
    fn needs_bytes(&self) -> u64 {
        0
    }
    fn programs(&self) -> Vec<(&'static str, &'static str)> {
        vec![("sh", "dash")]
    }
    fn estimate(&self) -> Duration {
        Duration::from_secs(4)
    }
    fn commands(&self, place: &Site) -> Vec<Vec<String>> {
        vec![vec![format!("{place:?}")]]
    }
    fn run(&self, _: &Site, _: &dyn Fn() -> bool) -> Result<Measured, BenchError> {
        let requests = u64::from(self.0.fetch_add(1, Ordering::Relaxed) + 1) * 100;
        let read = Figures::of(requests * 4096, 1.0, BTreeMap::from([(1000, requests)]));
        Ok(Measured::new(1.0, BTreeMap::from([(Direction::Read, read)]), Vec::new()))
    }
}

struct NoFresh;

impl FreshMaker for NoFresh {
    fn describe(&self, _: Mode) -> Target {
        Target::default()
    }
    fn overwrites(&self, _: bool) -> Vec<PathBuf> {
        Vec::new()
    }
    fn prepare(&mut self, _: &Suite, _: Scale, _: &Path, _: &mut dyn FnMut(u64) -> bool) -> Result<(), BenchError> {
        Ok(())
    }
    fn make(&self, _: Mode) -> Result<Box<dyn Fresh>, BenchError> {
        Err(BenchError::Failed("none here".to_owned()))
    }
}

/// Notes the runs, and asks for an end after `at_most` of them.
#[derive(Default)]
struct Noted {
    runs: Vec<(u32, String, String)>,
    left: Vec<Duration>,
    at_most: Option<usize>,
    asked: Cell<u32>,
}

impl News for Noted {
    fn stop(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.at_most.is_some_and(|at_most| self.runs.len() >= at_most)
    }
    fn filled(&mut self, _: u64) {}
    fn begins(&mut self, _: &Step, left: Duration) {
        self.left.push(left);
    }
    fn ended(&mut self, step: &Step, _: &Measured, _: &[String]) {
        self.runs.push((step.repeat, step.target_name.clone(), step.job_name.clone()));
    }
}

fn job(name: &str, ran: &Arc<AtomicU32>, counts_from: Option<usize>) -> Job {
    Job {
        name: name.to_owned(),
        work: Work::Act(Arc::new(Counted(Arc::clone(ran)))),
        headline: Headline::Iops,
        idle_before: Duration::ZERO,
        counts_from,
        published: Vec::new(),
    }
}

/// Two targets; a job that prepares, two that are measured, the second of which counts from the
/// first.
fn bench(ran: &Arc<AtomicU32>, folders: &[&Path]) -> Bench {
    let jobs = vec![job("prepare", ran, None), job("one", ran, Some(1)), job("both", ran, Some(1))];
    let targets = folders
        .iter()
        .zip(["a", "b"])
        .map(|(folder, name)| TargetSpec::parse(&format!("{name}={}", folder.display())).unwrap());
    Bench {
        suite: Suite {
            name: "test".to_owned(),
            summary: String::new(),
            source: None,
            groups: vec![Group { jobs }],
            scaling: Vec::new(),
            cache_bytes: 0,
        },
        scale: Scale::FULL,
        targets: targets.collect(),
        repeats: 2,
        before: BTreeMap::new(),
        after: BTreeMap::new(),
        may_destroy: MayDestroy::default(),
        fresh: Box::new(NoFresh),
        version: "1".to_owned(),
    }
}

fn request() -> crate::Request {
    crate::Request {
        suite: "test".to_owned(),
        scale: Scale::FULL,
        runtime: None,
        jobs: Vec::new(),
        reads_only: false,
        targets: Vec::new(),
        repeats: 2,
        before: BTreeMap::new(),
        after: BTreeMap::new(),
        cache: None,
        origin: None,
        replay: None,
    }
}

#[test]
fn an_interrupted_bench_loses_no_finished_run() {
    let folder = tempfile::tempdir().unwrap();
    let (ran, out) = (Arc::new(AtomicU32::new(0)), folder.path().join("out"));
    let mut bench = bench(&ran, &[folder.path(), folder.path()]);
    let log = folder.path().join("log");
    bench.before.insert("a".to_owned(), format!("echo \"$BENCH_TARGET $BENCH_DEVICE\" >> '{}'", log.display()));
    let plan = bench.plan().unwrap();
    assert_eq!(plan.expected(&bench), Duration::from_secs(12 * 5));
    let store = Store::new(&out, &request()).unwrap();
    let mut news = Noted { at_most: Some(3), ..Noted::default() };
    assert!(matches!(bench.run(&plan, &store, None, &mut news), Err(BenchError::Interrupted)));

    let (store, asked, earlier) = Store::open(&out).unwrap();
    let earlier = earlier.unwrap();
    assert_eq!((asked, earlier.complete), (request(), false));
    assert_eq!(earlier.results.iter().map(|row| row.runs.len()).sum::<usize>(), 3);
    let mut later = Noted::default();
    let results = bench.run(&plan, &store, Some(earlier.clone()), &mut later).unwrap();
    let all: Vec<_> = news.runs.iter().chain(&later.runs).map(|(n, t, j)| format!("{n}{t}{}", &j[..1])).collect();
    assert_eq!(all, ["1ao", "1ab", "1bo", "1bb", "2ao", "2ab", "2bo", "2bb"], "targets in turns, none twice");
    assert!(results.complete);
    // Earlier figures are there as they were.
    assert_eq!(results.row("a", "one").unwrap().runs[0], earlier.row("a", "one").unwrap().runs[0]);
    // It prepared once a turn, but not again for the turn that it went on with.
    assert_eq!(ran.load(Ordering::Relaxed), 12);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("a {}\n", folder.path().display()).repeat(2));
    // The second run of the turn counts from the first: 200 and 300 requests in two seconds.
    assert_eq!(results.row("a", "both").unwrap().runs[0].measured.both.iops, 250.0);
    assert_eq!(results.results.iter().map(|row| &*row.job).collect::<Vec<_>>(), ["one", "one", "both", "both"]);
    assert!(later.left.windows(2).all(|pair| pair[1] < pair[0]), "{:?}", later.left);
}

#[test]
fn it_goes_on_only_where_it_began() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = bench(&Arc::new(AtomicU32::new(0)), &[folder.path()]);
    let plan = bench.plan().unwrap();
    let store = Store::new(&folder.path().join("out"), &request()).unwrap();
    let mut earlier = bench.nothing_yet(&plan);
    earlier.environment.kernel = "Linux 2.4".to_owned();
    let error = bench.run(&plan, &store, Some(earlier), &mut Noted::default()).unwrap_err().to_string();
    assert!(error.contains("kernel: Linux 2.4 and Linux"), "{error}");
    let error = Store::new(&folder.path().join("out"), &request()).unwrap_err().to_string();
    assert!(error.contains("not empty") && error.contains("--resume"), "{error}");
}

#[test]
fn a_command_that_fails_ends_the_bench() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = bench(&Arc::new(AtomicU32::new(0)), &[folder.path()]);
    bench.after.insert("a".to_owned(), "echo no room >&2; exit 3".to_owned());
    let plan = bench.plan().unwrap();
    let store = Store::new(&folder.path().join("out"), &request()).unwrap();
    let error = bench.run(&plan, &store, None, &mut Noted::default()).unwrap_err().to_string();
    assert!(error.contains("--after of a failed") && error.contains("no room"), "{error}");
    assert_eq!(Store::open(&folder.path().join("out")).unwrap().2.unwrap().results.len(), 2, "its runs are kept");
}

#[test]
fn wrong_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = bench(&Arc::new(AtomicU32::new(0)), &[folder.path(), folder.path()]);
    bench.before.insert("c".to_owned(), "true".to_owned());
    let error = bench.plan().unwrap_err().to_string();
    assert!(error.contains("no target is called c; the targets are: a, b"), "{error}");
    bench.before.clear();
    bench.targets[1].name = "a".to_owned();
    assert!(bench.plan().unwrap_err().to_string().contains("two targets are called a"));
    bench.targets[1] = TargetSpec::parse("b=nbd://h/x").unwrap();
    assert!(bench.plan().unwrap_err().to_string().contains("needs a folder"));
}

#[test]
fn jobs_that_end_by_bytes_take_what_the_sources_disk_took() {
    let suite = crate::suites::find("caches-2015", Scale::FULL, None).unwrap();
    let of = |name: &str| plan::expected(suite.jobs().find(|job| job.name == name).unwrap()).as_secs();
    // 8 GiB at 173,630 KiB/s, and half a second before, and fio's own.
    assert_eq!(of("1"), 49);
}

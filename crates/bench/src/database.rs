// SPDX-License-Identifier: MIT OR Apache-2.0
//! `database`: pgbench on a PostgreSQL of its own, whose files are in a mounted folder.
//!
//! A cluster is made in the folder, without a port: clients come over a socket in a temporary
//! folder. Each measured job starts the server anew, with nothing of the database in RAM, and stops
//! it. PostgreSQL refuses to run as root; then an unprivileged user runs it.

mod cluster;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cold;
use crate::error::BenchError;
use crate::figures::{Figures, Measured, Point};
use crate::folders::Folders;
use crate::suite::{Act, Group, Headline, Job, Scale, Site, Suite, Work};
use cluster::Cluster;

/// The suite's name on the command line.
pub const NAME: &str = "database";
/// What the suite is, in a line.
pub const SUMMARY: &str = "pgbench on a PostgreSQL of its own, on a mounted file system";

/// The folder that is made in a target.
const FOLDER: &str = "flashfront-bench-database";
/// pgbench's scale at full size: 10 million accounts in 1.5 GiB.
const FULL: u64 = 100;
/// What a scale of 1 takes, with its share of the log.
const BYTES_PER_SCALE: u64 = 20 << 20;
/// What a cluster takes before there is any data.
const CLUSTER_BYTES: u64 = 512 << 20;
const TIME: Duration = Duration::from_secs(120);
const CLIENTS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Make,
    Mixed,
    /// Reads only; then all is removed.
    Reads,
}

#[derive(Debug)]
struct Database {
    step: Step,
    scale: u64,
    time: Duration,
    folders: Arc<Folders>,
}

/// The suite; its timed jobs take `runtime` if that is given.
#[must_use]
pub fn suite(scale: Scale, runtime: Option<Duration>) -> Suite {
    let divided = (FULL / scale.divisor()).max(1);
    let folders = Arc::new(Folders::default());
    let time = runtime.unwrap_or(TIME);
    let job = |(nth, (name, step)): (usize, (&str, Step))| Job {
        name: name.to_owned(),
        work: Work::Act(Arc::new(Database { step, scale: divided, time, folders: Arc::clone(&folders) })),
        headline: if step == Step::Make { Headline::Seconds } else { Headline::Iops },
        idle_before: Duration::ZERO,
        counts_from: (step != Step::Make).then_some(nth),
        published: Vec::new(),
    };
    let steps = [("make the database", Step::Make), ("mixed", Step::Mixed), ("reads only", Step::Reads)];
    let jobs = steps.into_iter().enumerate().map(job).collect();
    let scaling = if divided == FULL {
        Vec::new()
    } else {
        vec![format!("The database has pgbench's scale {divided} instead of {FULL}.")]
    };
    Suite {
        name: NAME.to_owned(),
        summary: SUMMARY.to_owned(),
        source: None,
        groups: vec![Group { jobs }],
        scaling,
        cache_bytes: divided * BYTES_PER_SCALE,
    }
}

impl Database {
    fn folder(place: &Site) -> Result<PathBuf, BenchError> {
        match place {
            Site::Folder(path) => Ok(path.join(FOLDER)),
            _ => Err(BenchError::Wrong("the suite database needs a folder of a mounted file system".to_owned())),
        }
    }

    fn make(&self, folder: &Path, stop: &dyn Fn() -> bool) -> Result<(), BenchError> {
        self.folders.make(folder)?;
        let cluster = Cluster::make(folder, stop)?;
        let server = cluster.start(stop)?;
        server.pgbench(&self.pgbench(Step::Make), stop)?;
        server.stop(stop)
    }

    /// The arguments of pgbench.
    fn pgbench(&self, step: Step) -> Vec<String> {
        let number = |number: u64| number.to_string();
        let (seconds, clients) = (number(self.time.as_secs().max(1)), number(u64::from(CLIENTS)));
        let mut arguments = match step {
            Step::Make => vec!["-i", "-q", "-s"].into_iter().map(str::to_owned).collect::<Vec<_>>(),
            _ => ["-n", "-l", "-c", &clients, "-j", "2", "-T", &seconds].map(str::to_owned).to_vec(),
        };
        match step {
            Step::Make => arguments.push(number(self.scale)),
            Step::Reads => arguments.push("-S".to_owned()),
            Step::Mixed => (),
        }
        arguments.push("postgres".to_owned());
        arguments
    }
}

impl Act for Database {
    fn needs_folder(&self) -> bool {
        true
    }

    fn writes(&self) -> bool {
        false
    }

    fn is_timed(&self) -> bool {
        self.step != Step::Make
    }

    fn needs_bytes(&self) -> u64 {
        CLUSTER_BYTES + self.scale * BYTES_PER_SCALE
    }

    fn programs(&self) -> Vec<(&'static str, &'static str)> {
        vec![("pgbench", "postgresql")]
    }

    fn estimate(&self) -> Duration {
        // A database is made at some 20 MB/s; a server starts and stops in some seconds.
        let make = Duration::from_secs(10 + self.scale);
        if self.step == Step::Make { make } else { self.time + Duration::from_secs(5) }
    }

    fn commands(&self, place: &Site) -> Vec<Vec<String>> {
        let Ok(folder) = Self::folder(place) else { return Vec::new() };
        let data = folder.join("data").display().to_string();
        let pgbench = ["pgbench".to_owned()].into_iter().chain(self.pgbench(self.step)).collect();
        match self.step {
            Step::Make => vec![["initdb", "-D", &data].map(str::to_owned).to_vec(), pgbench],
            _ => vec![cold::command(), ["postgres", "-D", &data].map(str::to_owned).to_vec(), pgbench],
        }
    }

    fn run(&self, place: &Site, stop: &dyn Fn() -> bool) -> Result<Measured, BenchError> {
        let folder = Self::folder(place)?;
        if self.step == Step::Make {
            return cold::timed(|| self.make(&folder, stop));
        }
        // A turn that is gone on with later has nothing left of the jobs before.
        if !folder.exists() {
            self.make(&folder, stop)?;
        }
        let cluster = Cluster::at(&folder)?;
        cold::drop_page_cache(&folder)?;
        let server = cluster.start(stop)?;
        let log = server.pgbench(&self.pgbench(self.step), stop)?;
        server.stop(stop)?;
        if self.step == Step::Reads {
            self.folders.remove(&folder)?;
        }
        measured(&log, self.time).ok_or_else(|| {
            BenchError::Failed("pgbench ended without a transaction; is the target too slow, or full?".to_owned())
        })
    }
}

/// Transactions of pgbench's log: `CLIENT NUMBER MICROSECONDS SCRIPT SECONDS MICROSECONDS`, the
/// time that each took and the moment at which it ended. A transaction is what an operation is
/// here; none is a read or a write.
fn measured(log: &str, time: Duration) -> Option<Measured> {
    let transaction = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let took_us = fields.get(2)?.parse::<u64>().ok()?;
        Some((took_us, fields.get(4)?.parse::<u64>().ok()?))
    };
    let all: Vec<(u64, u64)> = log.lines().filter_map(transaction).collect();
    let first_s = all.iter().map(|it| it.1).min()?;
    let (mut bins, mut course) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, u64>::new());
    for (took_us, at_s) in &all {
        *bins.entry(took_us * 1000).or_default() += 1;
        *course.entry(at_s - first_s).or_default() += 1;
    }
    let seconds = time.as_secs_f64().max(1.0);
    let both = Figures::of(0, seconds, bins);
    let point = |(at, count): (u64, u64)| Point { at_s: (at + 1) as f64, read_iops: count as f64, write_iops: 0.0 };
    let series = course.into_iter().map(point).collect();
    Some(Measured { seconds, both, series, ..Measured::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_log_is_a_transaction() {
        let log = "0 1 2000 0 1700000000 5\n1 1 4000 0 1700000000 9\n0 2 6000 0 1700000001 7\nnonsense\n";
        let found = measured(log, Duration::from_secs(2)).unwrap();
        assert_eq!((found.both.requests, found.both.iops), (3, 1.5));
        assert_eq!((found.both.p50_us, found.both.max_us), (4000.0, 6000.0));
        let course: Vec<(f64, f64)> = found.series.iter().map(|it| (it.at_s, it.read_iops)).collect();
        assert_eq!(course, [(1.0, 2.0), (2.0, 1.0)]);
        assert!(measured("", Duration::from_secs(2)).is_none());
    }

    /// The whole of it, with one client's second of a small database.
    #[test]
    fn a_database_is_made_measured_and_removed() {
        if let Err(why) = cluster::binaries() {
            return println!("skipped: {why}");
        }
        let folder = tempfile::tempdir().unwrap();
        // An unprivileged user has to get there.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let place = Site::Folder(folder.path().to_owned());
        let suite = suite("1/4096".parse().unwrap(), Some(Duration::from_secs(1)));
        for job in &suite.groups[0].jobs {
            let Work::Act(act) = &job.work else { panic!("an act") };
            let measured = act.run(&place, &|| false).unwrap_or_else(|error| panic!("{}: {error}", job.name));
            assert_eq!(measured.both.requests > 0, job.counts_from.is_some(), "{}: {measured:?}", job.name);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published suites, as fio runs them: the jobs that the models of `sim` run, so that both
//! mean the same thing.

use std::time::Duration;

use flashfront_sim::compare::{self, AsFio, Task};
use flashfront_sim::load;

use crate::suite::{FioJob, Group, Headline, Job, Pattern, Published, Scale, Suite, Work};

/// Scaled times are no shorter: fio counts in whole seconds, and a second has its beginning.
const TIME_MIN: Duration = Duration::from_secs(5);
/// Scaled places and lengths are multiples of it: 128 KiB is the longest request.
const UNIT: u64 = 128 << 10;

pub(super) fn suite(name: &str, scale: Scale) -> Option<Suite> {
    let source = compare::ALL.iter().find(|suite| suite.name == name)?;
    let sessions = source.sessions();
    let cache_bytes = sessions.iter().map(|session| session.geometry.cache_bytes).max().unwrap_or(0);
    let headline = if source.by_iops { Headline::Iops } else { Headline::Bandwidth };
    let job = |task: &Task| {
        let figures = source.published_for(&task.name).into_iter();
        let published = figures.map(|(system, metric, value)| Published {
            system: system.to_owned(),
            metric: metric.to_owned(),
            value,
        });
        Job {
            name: task.name.clone(),
            work: Work::Fio(task.jobs.iter().map(|job| fio_job(job, task.fio, scale)).collect()),
            headline,
            idle_before: Duration::from_nanos(task.idle_before_ns),
            counts_from: task.measured_since,
            published: published.collect(),
        }
    };
    let groups = sessions.iter().map(|session| Group { jobs: session.tasks.iter().map(job).collect() });
    Some(Suite {
        name: source.name.to_owned(),
        summary: source.summary.to_owned(),
        source: Some(source.source.to_owned()),
        groups: groups.collect(),
        scaling: if scale == Scale::FULL { Vec::new() } else { scaling(scale) },
        cache_bytes: scale.amount(cache_bytes, 1 << 20),
    })
}

fn scaling(scale: Scale) -> Vec<String> {
    vec![
        format!(
            "Places, ranges, amounts and a cache made for the suite are {scale} of the suite's. Times are, too, but at least {} s.",
            TIME_MIN.as_secs()
        ),
        "Not scaled: the length of requests, how many are in flight, a disk's seeks (which a smaller range shortens), a cache's units, and a device's own cache, into which the range may fit.".to_owned(),
        "Published figures stand beside these at full size: compare the order of systems, not the figures.".to_owned(),
    ]
}

/// The models' job as fio runs it.
fn fio_job(job: &load::Job, fio: AsFio, scale: Scale) -> FioJob {
    let pattern = match job.pattern {
        load::Pattern::Random if fio.norandommap => Pattern::Uniform,
        load::Pattern::Random => Pattern::Random,
        load::Pattern::Uniform => Pattern::Uniform,
        load::Pattern::Zipf(exponent) => Pattern::Zipf(exponent),
        _ => Pattern::Sequential,
    };
    let time = Duration::from_nanos(job.time_ns);
    let scaled = time / u32::try_from(scale.divisor()).unwrap_or(u32::MAX);
    FioJob {
        name: job.name.clone(),
        pattern,
        read_percent: job.read_percent,
        block_bytes: job.block_bytes,
        offset_bytes: scale.place(job.offset_bytes, UNIT),
        span_bytes: scale.amount(job.span_bytes, UNIT),
        total_bytes: scale.amount(job.total_bytes, UNIT) / u64::from(fio.clones),
        time: scaled.max(TIME_MIN).min(time),
        depth: job.depth / fio.clones,
        clones: fio.clones,
        seed: job.seed,
    }
}

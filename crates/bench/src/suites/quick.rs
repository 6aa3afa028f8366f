// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suite `quick`: two minutes for one target. Reads come first, so that a target can be
//! measured without writes.

use std::time::Duration;

use crate::suite::{FioJob, Group, Headline, Job, Pattern, Scale, Suite, Work};

pub(super) const NAME: &str = "quick";
pub(super) const SUMMARY: &str = "two minutes for a target: reads and writes, in order, at random, and by zipf";

const GIB: u64 = 1 << 30;
/// The range of the jobs: more than a disk's own cache holds, and filled in half a minute.
const SPAN_BYTES: u64 = 4 * GIB;
/// A quarter of the span: enough for popular blocks.
const CACHE_BYTES: u64 = GIB;
/// Nine jobs: two minutes, with half a minute to fill a file.
const TIME: Duration = Duration::from_secs(10);
/// fio takes the job apart by it.
const UNIT: u64 = 128 << 10;

pub(super) fn suite(scale: Scale) -> Suite {
    let job = |name: &str, pattern, read_percent, kib: u64, depth| {
        let fio = FioJob {
            name: "job".to_owned(),
            pattern,
            read_percent,
            block_bytes: kib << 10,
            offset_bytes: 0,
            span_bytes: scale.amount(SPAN_BYTES, UNIT),
            total_bytes: 0,
            time: TIME,
            depth,
            clones: 1,
            seed: 1,
        };
        Job {
            name: name.to_owned(),
            work: Work::Fio(vec![fio]),
            headline: if kib > 4 { Headline::Bandwidth } else { Headline::Iops },
            idle_before: Duration::ZERO,
            counts_from: None,
            published: Vec::new(),
        }
    };
    let zipf = Pattern::Zipf(1.2);
    let mut jobs = vec![
        job("read", Pattern::Sequential, 100, 128, 4),
        job("random read", Pattern::Uniform, 100, 4, 1),
        job("random read, 32 deep", Pattern::Uniform, 100, 4, 32),
        job("zipf read", zipf, 100, 4, 16),
        job("zipf read again", zipf, 100, 4, 16),
        job("write", Pattern::Sequential, 0, 128, 4),
        job("random write", Pattern::Uniform, 0, 4, 1),
        job("random write, 32 deep", Pattern::Uniform, 0, 4, 32),
        job("zipf mix", zipf, 70, 4, 16),
    ];
    for (nth, job) in jobs.iter_mut().enumerate() {
        job.counts_from = Some(nth);
    }
    let scaling = if scale == Scale::FULL {
        Vec::new()
    } else {
        vec![format!(
            "Sizes are {scale} of the suite's: the range of the jobs, and a cache made for them. Times are not scaled. A small range shortens a disk's seeks, and may fit into a device's own cache."
        )]
    };
    Suite {
        name: NAME.to_owned(),
        summary: SUMMARY.to_owned(),
        source: None,
        groups: vec![Group { jobs }],
        scaling,
        cache_bytes: scale.amount(CACHE_BYTES, 1 << 20),
    }
}

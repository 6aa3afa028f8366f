// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio's arguments for some jobs that run at the same time.

use std::path::Path;
use std::time::Duration;

use super::Where;
use crate::suite::{FioJob, Pattern, Site};

/// The file in the run's folder that gets fio's JSON.
pub(super) const OUTPUT: &str = "fio.json";
/// The first letters of the names of fio's logs.
pub(super) const LOG: &str = "log";

pub(super) fn arguments(jobs: &[FioJob], at: &Where, folder: &Path, interval: Duration) -> Vec<String> {
    let mut all: Vec<String> = ["fio", "--output-format=json+"].map(str::to_owned).into();
    all.push(format!("--output={}", folder.join(OUTPUT).display()));
    if jobs.iter().all(|job| job.read_percent == 100) {
        // A word of fio's own against writes.
        all.push("--readonly".to_owned());
    }
    for job in jobs {
        all.push(format!("--name={}", job.name));
        all.extend(place(at));
        all.extend(requests(job));
        all.extend([
            // Threads end together with fio, whatever ends it.
            "--thread=1".to_owned(),
            "--lat_percentiles=1".to_owned(),
            "--clat_percentiles=0".to_owned(),
            format!("--write_iops_log={}", folder.join(LOG).display()),
            format!("--log_avg_msec={}", interval.as_millis()),
            "--per_job_logs=1".to_owned(),
        ]);
    }
    all
}

fn place(at: &Where) -> Vec<String> {
    let file = |path: &Path| {
        // A colon would end the name (fio(1), `filename`).
        let name = path.display().to_string().replace('\\', r"\\").replace(':', r"\:");
        vec![
            "--ioengine=libaio".to_owned(),
            format!("--filename={name}"),
            format!("--direct={}", u8::from(at.direct)),
            // A device that has gone would become a file in /dev.
            "--allow_file_create=0".to_owned(),
        ]
    };
    match &at.place {
        Site::Nbd(uri) => vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")],
        Site::Device(path) | Site::File(path) | Site::Folder(path) => file(path),
    }
}

fn requests(job: &FioJob) -> Vec<String> {
    let random = job.pattern != Pattern::Sequential;
    let mix = match (job.read_percent, random) {
        (100, false) => "read",
        (100, true) => "randread",
        (0, false) => "write",
        (0, true) => "randwrite",
        (_, false) => "rw",
        (_, true) => "randrw",
    };
    let mut all = vec![format!("--rw={mix}")];
    if !matches!(job.read_percent, 0 | 100) {
        all.push(format!("--rwmixread={}", job.read_percent));
    }
    all.extend([
        format!("--bs={}", job.block_bytes),
        format!("--offset={}", job.offset_bytes),
        format!("--size={}", job.span_bytes),
        format!("--iodepth={}", job.depth),
        format!("--numjobs={}", job.clones),
        format!("--randseed={}", job.seed),
    ]);
    match job.pattern {
        Pattern::Uniform => all.push("--norandommap=1".to_owned()),
        Pattern::Zipf(exponent) => all.push(format!("--random_distribution=zipf:{exponent}")),
        Pattern::Sequential | Pattern::Random => {}
    }
    if job.total_bytes > 0 {
        all.push(format!("--io_size={}", job.total_bytes));
    }
    if !job.time.is_zero() {
        all.extend(["--time_based=1".to_owned(), format!("--runtime={}ms", job.time.as_millis())]);
    }
    all
}

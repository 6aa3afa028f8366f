// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio's logs of rates, one for each job and clone: merged into one series.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::command::LOG;
use crate::error::BenchError;
use crate::figures::Point;

/// A series has about this many points: more than a picture shows.
const POINTS: u32 = 600;
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Returns how often fio notes its rates in a run that is expected to last this long.
pub(super) fn interval(expected: Duration) -> Duration {
    let even = expected / POINTS;
    Duration::from_millis(even.clamp(INTERVAL_MIN, INTERVAL_MAX).as_millis() as u64)
}

/// Reads the logs in a folder.
pub(super) fn read(folder: &Path, interval: Duration) -> Result<Vec<Point>, BenchError> {
    let fail = |error: std::io::Error| BenchError::Failed(format!("{}: can't be read: {error}", folder.display()));
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!("{LOG}_iops.")) {
            logs.push(std::fs::read_to_string(&path).map_err(fail)?);
        }
    }
    Ok(thinned(merge(&logs, interval)))
}

/// Adds up what jobs did in the same interval. Their moments differ by some ms.
pub(super) fn merge(logs: &[String], interval: Duration) -> Vec<Point> {
    let step_ms = interval.as_millis().max(1) as f64;
    let mut all: BTreeMap<u64, [f64; 2]> = BTreeMap::new();
    for log in logs {
        // Two moments of one job may fall into the same interval. Then their mean counts.
        let mut of_job: BTreeMap<(u64, usize), (f64, f64)> = BTreeMap::new();
        for line in log.lines() {
            let mut fields = line.split(',').map(str::trim);
            let mut next = || fields.next()?.parse::<f64>().ok();
            let (Some(ms), Some(rate), Some(direction)) = (next(), next(), next()) else { continue };
            // Discards are neither.
            if direction <= 1.0 {
                let sum = of_job.entry(((ms / step_ms).round().max(1.0) as u64, direction as usize)).or_default();
                *sum = (sum.0 + rate, sum.1 + 1.0);
            }
        }
        for ((nth, direction), (sum, count)) in of_job {
            all.entry(nth).or_default()[direction] += sum / count;
        }
    }
    let point = |(nth, [read_iops, write_iops]): (u64, [f64; 2])| Point {
        at_s: nth as f64 * step_ms / 1e3,
        read_iops,
        write_iops,
    };
    all.into_iter().map(point).collect()
}

/// Joins neighbours of a run that lasted longer than expected.
fn thinned(mut points: Vec<Point>) -> Vec<Point> {
    while points.len() > 2 * POINTS as usize {
        let join = |pair: &[Point]| {
            let mean = |of: fn(&Point) -> f64| pair.iter().map(of).sum::<f64>() / pair.len() as f64;
            let at_s = pair.last().map_or(0.0, |point| point.at_s);
            Point { at_s, read_iops: mean(|it| it.read_iops), write_iops: mean(|it| it.write_iops) }
        };
        points = points.chunks(2).map(join).collect();
    }
    points
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics of each volume. A label of theirs never changes its value while the daemon runs,
//! since that would begin another time series (test: `no_label_changes_with_the_mode`).

use flashfront_engine::Mode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::signed;
use crate::latency::{Cumulative, Kind};
use crate::report::StatusReport;

/// Volumes with histograms of their own; all others share one.
const HISTOGRAMS_MAX: usize = 64;
/// The label of what they share, which is no name of a volume.
const OTHERS: &str = "(others)";

pub(super) fn register(report: &StatusReport, registry: &mut Registry) {
    let dirty = Family::<[(&str, String); 1], Gauge>::default();
    let size = Family::<[(&str, String); 1], Gauge>::default();
    let mode = Family::<[(&str, String); 2], Gauge>::default();
    let unsent = Family::<[(&str, String); 1], Gauge>::default();
    for volume in &report.volumes {
        let name = [("volume", volume.name.clone())];
        dirty.get_or_create(&name).set(signed(volume.blocks_dirty));
        unsent.get_or_create(&name).set(signed(volume.oldest_unsent_flush_s));
        size.get_or_create(&name).set(signed(volume.size_bytes));
        for known in Mode::ALL.map(Mode::name) {
            let labels = [name[0].clone(), ("mode", known.to_owned())];
            mode.get_or_create(&labels).set(i64::from(volume.mode == known));
        }
    }
    registry.register("volume_blocks_dirty", "Dirty blocks of the volume", dirty);
    registry.register("volume_size_bytes", "Size of the volume", size);
    let help = "Seconds since the oldest FLUSH that the origin alone may lack something of; 0 if it lacks nothing";
    registry.register("volume_oldest_unsent_flush_seconds", help, unsent);
    registry.register("volume_mode", "1 for the mode that the volume is in, 0 for the others", mode);
    payload(report, registry);
    cache(report, registry);
    origin_errors(report, registry);
    registry.register_collector(Box::new(Requests(durations(report))));
}

/// The histograms of the first volumes, and one of all others together: a volume has a hundred
/// series of them.
fn durations(report: &StatusReport) -> Vec<(String, [Cumulative; 4])> {
    let (own, others) = report.volumes.split_at(report.volumes.len().min(HISTOGRAMS_MAX));
    let mut all: Vec<(String, [Cumulative; 4])> =
        own.iter().map(|volume| (volume.name.clone(), volume.durations.clone())).collect();
    if !others.is_empty() {
        let mut sums: [Cumulative; 4] = Default::default();
        for (kind, durations) in others.iter().flat_map(|volume| volume.durations.iter().enumerate()) {
            sums[kind].add(durations);
        }
        all.push((OTHERS.to_owned(), sums));
    }
    all
}

/// What of each volume is in the cache, what the cache spares its origin, and what it wears out.
fn cache(report: &StatusReport, registry: &mut Registry) {
    let cached = Family::<[(&str, String); 1], Gauge>::default();
    let hit = Family::<[(&str, String); 1], Counter>::default();
    let evicted = Family::<[(&str, String); 1], Counter>::default();
    let below_min = Family::<[(&str, String); 1], Counter>::default();
    let at_max = Family::<[(&str, String); 1], Counter>::default();
    let flash = Family::<[(&str, String); 1], Counter>::default();
    for volume in &report.volumes {
        let labels = [("volume", volume.name.clone())];
        cached.get_or_create(&labels).set(signed(volume.blocks_cached));
        hit.get_or_create(&labels).inc_by(volume.hit_bytes);
        evicted.get_or_create(&labels).inc_by(volume.evicted_blocks);
        below_min.get_or_create(&labels).inc_by(volume.evicted_below_min);
        at_max.get_or_create(&labels).inc_by(volume.evicted_at_max);
        flash.get_or_create(&labels).inc_by(volume.flash_written_bytes);
    }
    registry.register("volume_blocks_cached", "Blocks of the volume in the cache", cached);
    registry.register("volume_hit_bytes", "Bytes of reads that the cache answered alone", hit);
    registry.register("volume_evicted_blocks", "Blocks of the volume that reclaim dropped", evicted);
    let help = "Blocks that reclaim dropped although the volume had less than its smallest part";
    registry.register("volume_evicted_below_min", help, below_min);
    let help = "Blocks that were dropped as the volume had its largest part";
    registry.register("volume_evicted_at_max", help, at_max);
    let help = "Bytes of the volume's blocks written to the cache device";
    registry.register("volume_flash_written_bytes", help, flash);
}

/// Bytes that clients read and wrote.
fn payload(report: &StatusReport, registry: &mut Registry) {
    let read = Family::<[(&str, String); 1], Counter>::default();
    let written = Family::<[(&str, String); 1], Counter>::default();
    for volume in &report.volumes {
        let labels = [("volume", volume.name.clone())];
        read.get_or_create(&labels).inc_by(volume.read_bytes);
        written.get_or_create(&labels).inc_by(volume.written_bytes);
    }
    registry.register("volume_read_bytes", "Bytes that clients read from the volume", read);
    registry.register("volume_written_bytes", "Bytes that clients wrote to the volume", written);
}

/// I/Os that origins failed to carry out, and whether one refuses dirty data.
fn origin_errors(report: &StatusReport, registry: &mut Registry) {
    let reads = Family::<[(&str, String); 1], Counter>::default();
    let writes = Family::<[(&str, String); 1], Counter>::default();
    let refuses = Family::<[(&str, String); 1], Gauge>::default();
    for volume in &report.volumes {
        let labels = [("volume", volume.name.clone())];
        reads.get_or_create(&labels).inc_by(volume.origin_read_errors);
        writes.get_or_create(&labels).inc_by(volume.origin_write_errors);
        refuses.get_or_create(&labels).set(i64::from(volume.origin_error.is_some()));
    }
    registry.register("volume_origin_read_errors", "Reads of the volume's origin that failed", reads);
    let help = "Writes, zeroes, discards and flushes of the volume's origin that failed";
    registry.register("volume_origin_write_errors", help, writes);
    registry.register("volume_origin_refuses", "Whether the volume's origin refuses its dirty data", refuses);
}

/// The histograms of all volumes, by name.
#[derive(Debug)]
struct Requests(Vec<(String, [Cumulative; 4])>);

impl Collector for Requests {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Time from a request's arrival to its answer, by volume and kind.";
        let mut metric = encoder.encode_descriptor("request_duration_seconds", help, None, MetricType::Histogram)?;
        for (volume, kinds) in &self.0 {
            for (kind, durations) in Kind::ALL.iter().zip(kinds) {
                let labels = [("volume", volume.as_str()), ("kind", kind.name())];
                let buckets: Vec<(f64, u64)> = durations.buckets().collect();
                let none = None::<&std::collections::HashMap<usize, Exemplar<[(&str, &str); 0], f64>>>;
                metric.encode_family(&labels)?.encode_histogram(
                    durations.sum_s(),
                    durations.count(),
                    &buckets,
                    none,
                )?;
            }
        }
        Ok(())
    }
}

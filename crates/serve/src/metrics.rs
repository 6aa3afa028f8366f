// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status for Prometheus, in the OpenMetrics text format.
//!
//! Names: `flashfront_` + the key of `status --json`, units last, counters with `_total`. The names
//! are a contract with dashboards and alarms; those of `contrib/` are checked against it.

use std::sync::atomic::AtomicU64;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::report::{StatusReport, WhatIfReport};

#[cfg(test)]
mod format;
mod stores;
mod volumes;

/// The report in the OpenMetrics text format.
#[must_use]
pub fn encode(report: &StatusReport) -> String {
    let mut registry = Registry::with_prefix("flashfront");
    registry.register(
        "build",
        "The running program",
        Info::new([("version", report.version.clone()), ("backend", report.backend.clone())]),
    );
    volumes::register(report, &mut registry);
    stores::register(report, &mut registry);
    hangs(report, &mut registry);
    what_if(report, &mut registry);
    registry.register_collector(Box::new(Numbers(report.clone())));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

/// Registers which devices hang.
fn hangs(report: &StatusReport, registry: &mut Registry) {
    let cache = Family::<[(&str, String); 1], Gauge>::default();
    for device in &report.cache_devices {
        let ios = device.hang.map_or(0, |hang| hang.ios);
        cache.get_or_create(&[("path", device.path.clone())]).set(signed(ios));
    }
    registry.register("cache_hanging_ios", "I/Os that the cache device did not answer in time", cache);
    let origins = Family::<[(&str, String); 1], Gauge>::default();
    for volume in &report.volumes {
        let ios = volume.origin_hang.map_or(0, |hang| hang.ios);
        origins.get_or_create(&[("volume", volume.name.clone())]).set(signed(ios));
    }
    let away = Family::<[(&str, String); 1], Gauge>::default();
    for volume in &report.volumes {
        away.get_or_create(&[("volume", volume.name.clone())]).set(i64::from(volume.origin_state == "away"));
    }
    let fenced = Family::<[(&str, String); 1], Gauge>::default();
    let unsent = Family::<[(&str, String); 1], Gauge>::default();
    for volume in &report.volumes {
        fenced.get_or_create(&[("volume", volume.name.clone())]).set(i64::from(volume.fenced));
        unsent.get_or_create(&[("volume", volume.name.clone())]).set(signed(volume.unsent_bytes));
    }
    registry.register("volume_origin_fenced", "1 once another writer has opened the origin", fenced);
    registry.register("volume_unsent_bytes", "Bytes that clients have written and the origin alone lacks", unsent);
    registry.register("volume_origin_away", "1 while the connection to the origin's server is lost", away);
    registry.register("volume_origin_hanging_ios", "I/Os that the volume's origin did not answer in time", origins);
}

/// Registers the figures that other sizes of the cache would have, as shares and as multiples of
/// the present ones.
fn what_if(report: &StatusReport, registry: &mut Registry) {
    type Value = fn(&StatusReport, &WhatIfReport) -> Option<f64>;
    let gauges: [(&str, &str, Value); 5] = [
        ("hit_ratio", "Share of accesses found with a cache of that size", |_, it| it.hit_ratio()),
        ("read_hit_ratio", "Share of blocks read found with a cache of that size", |_, it| it.read_hit_ratio()),
        ("origin_reads_times", "Origin reads with a cache of that size, in those of the present one", |all, it| {
            all.times_present(it, |it| it.origin_read_blocks)
        }),
        ("origin_writes_times", "Origin writes with a cache of that size, in those of the present one", |all, it| {
            all.times_present(it, |it| it.origin_write_blocks)
        }),
        ("flash_writes_times", "Flash writes with a cache of that size, in those of the present one", |all, it| {
            all.times_present(it, |it| it.flash_written_blocks)
        }),
    ];
    for (name, help, value) in gauges {
        let family = Family::<[(&str, String); 1], Gauge<f64, AtomicU64>>::default();
        for it in &report.what_if {
            if let Some(value) = value(report, it) {
                family.get_or_create(&[("size", (f64::from(it.size_percent) / 100.0).to_string())]).set(value);
            }
        }
        registry.register(format!("what_if_{name}"), help, family);
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The plain numbers of a report.
#[derive(Debug)]
struct Numbers(StatusReport);

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let report = &self.0;
        let refused = ("clients_refused", "Clients turned away, since all places were taken.", report.clients_refused);
        for (name, help, value) in report.counters.each().into_iter().chain([refused]) {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let gauges = [
            ("blocks_cached", "Blocks in the cache", report.blocks_cached),
            ("blocks_dirty", "Dirty blocks in the cache", report.blocks_dirty),
            ("dirty_limit_blocks", "The most that may be dirty", report.dirty_limit_blocks),
            ("capacity_blocks", "Blocks the log has room for", report.capacity_blocks),
            ("segments_free", "Segments ready to be written", report.segments_free),
            ("segments", "All segments", report.segments),
            ("lanes", "Independent logs of the cache", report.lanes),
            ("lost_blocks", "Blocks whose only copy is corrupt", report.lost_blocks),
            ("opening", "Whether the log is being replayed and requests wait", u64::from(report.opening)),
            ("draining", "Whether a drain is going on", u64::from(report.draining)),
            ("cache_failed", "Whether the cache device failed", u64::from(report.cache_failed)),
            ("without_cache", "Whether the origins are served without their cache", u64::from(report.without_cache)),
            ("mirror_whole", "Whether both cache devices hold all dirty data", u64::from(report.mirror == "whole")),
            ("mirror_alone", "Whether one of two cache devices is left out", u64::from(report.mirror == "alone")),
            ("mirror_copied_blocks", "Dirty blocks copied to a new mirror", report.mirror_copied_blocks),
            ("mirror_of_blocks", "Dirty blocks that a new mirror needs", report.mirror_of_blocks),
            ("mirror_lacks_blocks", "Dirty blocks that only one of both cache devices has", report.mirror_lacks_blocks),
            ("rss_bytes", "Resident memory of the process, without what it shares with guests", report.rss_bytes),
            ("index_bytes", "Bytes of index, dirty set and ghost", report.index_bytes),
            ("buffer_bytes", "Buffer bytes the engine holds", report.buffer_bytes),
            ("ram_front_bytes", "Bytes of copies in the RAM front", report.ram_front_bytes),
            (
                "flash_writes_per_day_bytes",
                "Bytes that may be written to the cache device in a day, 0 without a limit",
                report.flash_writes_per_day_bytes,
            ),
            (
                "flash_writes_left_bytes",
                "Bytes saved up of these, 0 also in debt",
                u64::try_from(report.flash_writes_left_bytes).unwrap_or(0),
            ),
            ("window_bytes", "Bytes of blocks that wait in RAM to be seen again", report.window_bytes),
            ("shadow_bytes", "Bytes of the models of caches of other sizes", report.shadow_bytes),
            ("request_buffer_bytes", "Buffer bytes held for clients", report.request_buffer_bytes),
            ("requests_in_flight", "Requests not yet answered", report.requests_in_flight),
            ("clients", "Clients connected", report.clients),
            ("threads", "Threads: the engine's, and those that carry clients' bytes", report.threads),
            ("lane_threads", "Threads that do lanes' work, the engine's among them", report.lane_threads),
            ("uptime_seconds", "Time since the daemon was ready", report.uptime_s),
        ];
        for (name, help, value) in gauges {
            let (gauge, help) = (ConstGauge::new(value), format!("{help}."));
            gauge.encode(encoder.encode_descriptor(name, &help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flashfront_engine::shadow::{Totals, WhatIf};
    use flashfront_engine::{Counters, Mode, OriginId, OriginStatus, Status};

    use super::*;
    use crate::report::{Facts, VolumeFacts};

    fn what_if(size_percent: u32, origin_read_blocks: u64) -> WhatIf {
        let totals = Totals { accesses: 800, hits: 200, origin_read_blocks, ..Totals::default() };
        WhatIf { size_percent, totals, filled: true }
    }

    fn report() -> StatusReport {
        let status = Status {
            counters: Counters { read_hits: u64::MAX, writes: 7, ..Counters::default() },
            origins: vec![OriginStatus {
                id: OriginId(0),
                mode: Mode::Writeback,
                size_bytes: 4096,
                blocks_dirty: 5,
                ..OriginStatus::default()
            }],
            blocks_dirty: 5,
            what_if: vec![what_if(50, 400), what_if(100, 200)],
            ..Status::default()
        };
        let volume = VolumeFacts { name: "da\"ta".to_owned(), ..VolumeFacts::default() };
        let facts = Facts { volumes: vec![volume], clients_refused: 3, ..Facts::default() };
        StatusReport::new(&status, &facts)
    }

    #[test]
    fn the_text_has_types_values_and_escaped_labels() {
        let text = encode(&report());
        for line in [
            "# TYPE flashfront_read_hits counter",
            "flashfront_read_hits_total 18446744073709551615",
            "flashfront_writes_total 7",
            "flashfront_clients_refused_total 3",
            "flashfront_blocks_dirty 5",
            "flashfront_without_cache 0",
            "flashfront_what_if_hit_ratio{size=\"0.5\"} 0.25",
            "flashfront_what_if_origin_reads_times{size=\"0.5\"} 2.0",
            "flashfront_what_if_origin_reads_times{size=\"1\"} 1.0",
            "flashfront_volume_blocks_dirty{volume=\"da\\\"ta\"} 5",
            "flashfront_volume_mode{volume=\"da\\\"ta\",mode=\"writeback\"} 1",
            "flashfront_volume_mode{volume=\"da\\\"ta\",mode=\"writethrough\"} 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing from\n{text}");
        }
        // The registry ends its help with a full stop, a collector's comes as it is.
        for line in text.lines().filter(|it| it.starts_with("# HELP")) {
            assert!(line.ends_with('.') && !line.ends_with(".."), "{line}");
        }
    }

    #[test]
    fn no_label_changes_with_the_mode() {
        let mut changed = report();
        changed.volumes[0].mode = "passthrough".to_owned();
        let series = |report| {
            let text = encode(&report);
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<BTreeSet<_>>()
        };
        let (before, after) = (series(report()), series(changed));
        assert!(before == after, "{:?}", before.symmetric_difference(&after).collect::<Vec<_>>());
    }

    #[test]
    fn every_number_of_the_report_is_there() {
        let text = encode(&report());
        let value = serde_json::to_value(report()).unwrap();
        // Nothing is read or written to flash here: no share and no multiple.
        assert!(!text.contains("what_if_read_hit_ratio{") && !text.contains("what_if_flash_writes_times{"));
        for (key, value) in value.as_object().unwrap() {
            if value.is_number() && !["pid", "uptime_s"].contains(&key.as_str()) {
                assert!(text.contains(&format!("flashfront_{key}")), "{key} is missing");
            }
        }
    }
}

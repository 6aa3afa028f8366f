// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics of the requests to object stores, by volume and by the kinds for which stores
//! charge. Volumes on other origins have none.

use flashfront_device::real::{BOUNDS_MS, Tally, Verb};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::report::StatusReport;

pub(super) fn register(report: &StatusReport, registry: &mut Registry) {
    let stores: Vec<(String, [Tally; 4])> = report
        .volumes
        .iter()
        .filter_map(|volume| Some((volume.name.clone(), volume.store.as_ref()?.tallies.clone())))
        .collect();
    type Value = fn(&Tally) -> u64;
    let counters: [(&str, &str, Value); 4] = [
        ("requests", "Requests to the volume's object store, also those that failed", |it| it.requests),
        ("errors", "Requests to the volume's object store that failed", |it| it.errors),
        ("throttled", "Requests that the object store refused as too many (429, 503)", |it| it.throttled),
        ("retries", "Requests that were sent to the object store again after an error", |it| it.retries),
    ];
    for (name, help, value) in counters {
        let family = Family::<[(&str, String); 2], Counter>::default();
        for (volume, tallies) in &stores {
            for (verb, tally) in Verb::ALL.iter().zip(tallies) {
                let labels = [("volume", volume.clone()), ("kind", verb.name().to_owned())];
                family.get_or_create(&labels).inc_by(value(tally));
            }
        }
        registry.register(format!("volume_store_{name}"), help, family);
    }
    let sent = Family::<[(&str, String); 1], Counter>::default();
    let received = Family::<[(&str, String); 1], Counter>::default();
    let hedged = Family::<[(&str, String); 1], Counter>::default();
    for (volume, tallies) in &stores {
        let labels = [("volume", volume.clone())];
        sent.get_or_create(&labels).inc_by(tallies[Verb::Put as usize].bytes);
        received.get_or_create(&labels).inc_by(tallies[Verb::Get as usize].bytes);
        hedged.get_or_create(&labels).inc_by(tallies[Verb::Get as usize].hedged);
    }
    registry.register("volume_store_sent_bytes", "Bytes of objects that were sent to the store", sent);
    registry.register("volume_store_received_bytes", "Bytes of objects that the store sent", received);
    registry.register("volume_store_hedged", "GETs that were sent a second time as the first was slow", hedged);
    registry.register_collector(Box::new(Took(stores)));
    if let Some(file) = &report.map_file {
        let [saved, missed]: [Counter; 2] = Default::default();
        saved.inc_by(file.saved_gets);
        missed.inc_by(file.missed_gets);
        registry.register("map_file_saved_gets", "GETs of pages of maps that the map file has saved", saved);
        registry.register("map_file_missed_gets", "GETs of pages of maps that stores had to answer", missed);
        let bytes = Gauge::<i64>::default();
        bytes.set(i64::try_from(file.page_bytes).unwrap_or(i64::MAX));
        registry.register("map_file_page_bytes", "Bytes of pages of maps in the map file", bytes);
    }
}

/// The requests of all stores, by the names of their volumes.
#[derive(Debug)]
struct Took(Vec<(String, [Tally; 4])>);

impl Collector for Took {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Time of a request to the volume's object store, by kind.";
        let name = "store_request_duration_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (volume, tallies) in &self.0 {
            for (verb, tally) in Verb::ALL.iter().zip(tallies) {
                let labels = [("volume", volume.as_str()), ("kind", verb.name())];
                let bounds = BOUNDS_MS.iter().map(|ms| *ms as f64 / 1e3).chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(tally.buckets).collect();
                let none = None::<&std::collections::HashMap<usize, Exemplar<[(&str, &str); 0], f64>>>;
                metric.encode_family(&labels)?.encode_histogram(
                    tally.sum_us as f64 / 1e6,
                    tally.buckets.iter().sum(),
                    &buckets,
                    none,
                )?;
            }
        }
        Ok(())
    }
}

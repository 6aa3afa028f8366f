// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a daemon since its start, which its next life goes on with: another program, or
//! this one with another cache (ADR 0072).
//!
//! Their time is that since the daemon began, whatever program that was.

use std::time::Duration;

use flashfront_device::real::Tally;
use flashfront_engine::{OriginId, OriginStatus, Time};
use serde::{Deserialize, Serialize};

use super::grown::GrownFigures;
use crate::history::HistoryFigures;
use crate::latency::LatencyFigures;
use crate::origin_errors::OriginErrors;
use crate::report::{CounterReport, LinkReport, StoreReport};
use crate::upgrade::{Bytes, Parcel, shared_clock_ns};

/// Figures since the start.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Figures {
    /// When they were taken, by the clock that all processes share, and by their own.
    pub(super) taken_ns: u64,
    pub(super) at_ns: u64,
    /// For how long the daemon had been ready.
    pub(super) ready_ns: u64,
    pub(super) counters: CounterReport,
    pub(super) volumes: Vec<VolumeFigures>,
    pub(super) latencies: LatencyFigures,
    pub(super) grown: GrownFigures,
    pub(super) history: Option<(HistoryFigures, Bytes)>,
}

/// The counters of a volume, beside its latencies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct VolumeFigures {
    id: u32,
    logged_blocks: u64,
    evicted_blocks: u64,
    evicted_below_min: u64,
    evicted_at_max: u64,
    read_errors: u64,
    write_errors: u64,
    reconnects: u64,
    /// The requests to its object store, if it has one.
    store: Option<[TallyFigures; 4]>,
}

/// Requests of one kind to an object store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct TallyFigures {
    requests: u64,
    errors: u64,
    throttled: u64,
    retries: u64,
    hedged: u64,
    bytes: u64,
    buckets: Vec<u64>,
    sum_us: u64,
}

impl From<&Tally> for TallyFigures {
    fn from(it: &Tally) -> Self {
        Self {
            requests: it.requests,
            errors: it.errors,
            throttled: it.throttled,
            retries: it.retries,
            hedged: it.hedged,
            bytes: it.bytes,
            buckets: it.buckets.to_vec(),
            sum_us: it.sum_us,
        }
    }
}

impl TallyFigures {
    fn add_to(&self, tally: &mut Tally) {
        tally.requests += self.requests;
        tally.errors += self.errors;
        tally.throttled += self.throttled;
        tally.retries += self.retries;
        tally.hedged += self.hedged;
        tally.bytes += self.bytes;
        tally.sum_us += self.sum_us;
        tally.buckets.iter_mut().zip(&self.buckets).for_each(|(sum, count)| *sum += count);
    }
}

impl Figures {
    /// The figures that the life before has put into the parcel.
    pub(super) fn of(parcel: &Parcel) -> Option<Self> {
        let read = serde_json::from_slice(parcel.bytes(parcel.state.figures?).ok()?);
        read.inspect_err(|error| tracing::warn!("upgrade: the figures begin anew, as they can't be read: {error}")).ok()
    }

    /// Puts them into the parcel.
    pub(super) fn put(&self, parcel: &mut Parcel) {
        // What can't be read begins anew.
        let written = serde_json::to_vec(self).unwrap_or_default();
        parcel.state.figures = Some(parcel.put_bytes(|bytes| bytes.extend(written)));
    }

    /// For how long the daemon had served when a clock began that shows this now.
    pub(super) fn before_ns(&self, now: Time) -> u64 {
        (self.at_ns + self.passed_ns()).saturating_sub(now.0)
    }

    fn passed_ns(&self) -> u64 {
        shared_clock_ns().saturating_sub(self.taken_ns)
    }

    /// The counters of the origins, for the engine.
    pub(super) fn origins(&self) -> Vec<OriginStatus> {
        let origin = |it: &VolumeFigures| OriginStatus {
            id: OriginId(it.id),
            logged_blocks: it.logged_blocks,
            evicted_blocks: it.evicted_blocks,
            evicted_below_min: it.evicted_below_min,
            evicted_at_max: it.evicted_at_max,
            ..OriginStatus::default()
        };
        self.volumes.iter().map(origin).collect()
    }

    /// How often I/Os of the origins failed.
    pub(super) fn errors(&self) -> impl Iterator<Item = (OriginId, OriginErrors)> {
        let errors = |it: &VolumeFigures| OriginErrors { reads: it.read_errors, writes: it.write_errors };
        self.volumes.iter().map(move |it| (OriginId(it.id), errors(it)))
    }
}

impl VolumeFigures {
    pub(super) fn new(id: OriginId, origin: &OriginStatus, errors: OriginErrors, link: LinkReport) -> Self {
        Self {
            id: id.0,
            logged_blocks: origin.logged_blocks,
            evicted_blocks: origin.evicted_blocks,
            evicted_below_min: origin.evicted_below_min,
            evicted_at_max: origin.evicted_at_max,
            read_errors: errors.reads,
            write_errors: errors.writes,
            reconnects: link.reconnects,
            store: link.requests.map(|store| store.tallies.each_ref().map(TallyFigures::from)),
        }
    }
}

/// What was before this life of the daemon, of which nothing else keeps count.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// For how long the daemon had served before the clock began, and had been ready.
    pub(super) before_ns: u64,
    pub(super) ready: Duration,
    volumes: Vec<VolumeFigures>,
    /// The history, until it goes on.
    pub(super) history: Option<(HistoryFigures, Bytes)>,
}

impl Earlier {
    /// What is left of the figures, when all others have theirs.
    pub(super) fn new(figures: Figures, before_ns: u64) -> Self {
        let ready = Duration::from_nanos(figures.ready_ns + figures.passed_ns());
        Self { before_ns, ready, volumes: figures.volumes, history: figures.history }
    }

    /// The link of a volume to its origin's server, with what was counted before.
    pub(super) fn link(&self, id: OriginId, now: LinkReport) -> LinkReport {
        let Some(before) = self.volumes.iter().find(|it| it.id == id.0) else { return now };
        let requests = now.requests.map(|store| match &before.store {
            Some(before) => {
                let mut tallies = store.tallies;
                before.iter().zip(&mut tallies).for_each(|(before, tally)| before.add_to(tally));
                StoreReport::new(tallies)
            }
            None => store,
        });
        LinkReport { reconnects: now.reconnects + before.reconnects, requests, ..now }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fills the history once a second from the daemon's counters.
//!
//! Only a daemon with an HTTP port does so. Then an idle daemon wakes once a second; without the
//! port it does not wake for this at all.

use std::time::Duration;

use flashfront_engine::{OriginId, Status, Time};

use crate::config::{Config, Volume};
use crate::history::{Fresh, History, HistoryFigures, Moment, SeenKinds, SharedHistory, Traffic, Whole};
use crate::origin_errors::AllOriginErrors;
use crate::pump::Pump;

/// How long the daemon waits if the history is being read while it is to be filled.
const AGAIN: Duration = Duration::from_millis(1);

/// The parts of a daemon that the history is filled from.
pub(super) struct Sampled<'a> {
    pub(super) config: &'a Config,
    pub(super) pump: &'a Pump,
    pub(super) origin_errors: &'a AllOriginErrors,
}

/// Fills the history of the HTTP port.
#[derive(Debug)]
pub(super) struct Sampler {
    history: SharedHistory,
    /// For how long the daemon had served before the clock began.
    before_ns: u64,
    /// When to record next.
    due: Time,
    /// The volumes that are followed.
    volumes: Vec<(OriginId, String)>,
    /// The requests of each volume that were recorded before.
    seen: Vec<SeenKinds>,
}

impl Sampler {
    /// Begins the history, or goes on with that of a daemon before this one. That had served for
    /// `before_ns` when the clock of this one began.
    pub(super) fn begin(
        shared: SharedHistory,
        sampled: &Sampled<'_>,
        before_ns: u64,
        earlier: Option<(&HistoryFigures, &[u8])>,
    ) -> Self {
        let volumes = sampled.volumes();
        let mut seen: Vec<SeenKinds> = vec![SeenKinds::default(); volumes.len()];
        let (moment, _) = sampled.moment(&mut seen);
        let now = Time(sampled.pump.now().0 + before_ns);
        let known: Vec<(u32, String)> = volumes.iter().map(|(id, name)| (id.0, name.clone())).collect();
        let gone_on = earlier.and_then(|(figures, values)| History::go_on(now, &moment, &known, figures, values));
        let history = gone_on.unwrap_or_else(|| History::new(&names(&volumes), now, &moment));
        let due = history.due();
        shared.begin(history, sampled.pump.clock(), before_ns);
        Self { history: shared, before_ns, due, volumes, seen }
    }

    /// How long a turn may wait at most, so that no second is missed.
    pub(super) fn patience(&self, now: Time) -> Duration {
        Duration::from_nanos(self.due.since_ns(Time(now.0 + self.before_ns))).max(AGAIN)
    }

    /// What another program goes on with.
    pub(super) fn figures(&self) -> Option<(HistoryFigures, Vec<u8>)> {
        let ids: Vec<u32> = self.volumes.iter().map(|it| it.0.0).collect();
        self.history.look(|history| history.figures(&ids))
    }

    /// Records what is due.
    pub(super) fn record(&mut self, sampled: &Sampled<'_>) {
        let now = Time(sampled.pump.now().0 + self.before_ns);
        if now < self.due {
            return;
        }
        let Self { volumes, seen, .. } = self;
        let recorded = self.history.record(|history| {
            let from = follow(volumes, seen, sampled.volumes());
            let (moment, fresh) = sampled.moment(seen);
            if let Some(from) = from {
                history.follow(&names(volumes), &from, &moment);
            }
            history.record(now, &moment, &fresh);
            history.due()
        });
        self.due = recorded.unwrap_or(self.due);
    }
}

/// Follows other volumes, if they are others now. Returns the place that each of them had before.
fn follow(
    volumes: &mut Vec<(OriginId, String)>,
    seen: &mut Vec<SeenKinds>,
    now: Vec<(OriginId, String)>,
) -> Option<Vec<Option<usize>>> {
    if *volumes == now {
        return None;
    }
    let from = now.iter().map(|(id, _)| volumes.binary_search_by_key(id, |it| it.0).ok());
    let from: Vec<Option<usize>> = from.collect();
    *seen = from.iter().map(|at| at.map(|at| seen[at].clone()).unwrap_or_default()).collect();
    *volumes = now;
    Some(from)
}

fn names(volumes: &[(OriginId, String)]) -> Vec<String> {
    volumes.iter().map(|(_, name)| name.clone()).collect()
}

impl Sampled<'_> {
    /// The volumes, sorted by their origins.
    fn volumes(&self) -> Vec<(OriginId, String)> {
        self.config.volumes.iter().map(|volume| (volume.id, volume.name.clone())).collect()
    }

    /// How the daemon is now, and what each volume did since it was `seen`.
    fn moment(&self, seen: &mut [SeenKinds]) -> (Moment, Vec<Fresh>) {
        let status = self.pump.engine().status();
        let mut fresh: Vec<Fresh> = Vec::new();
        let traffic = |(volume, seen): (&Volume, &mut SeenKinds)| {
            let mut took = Fresh::default();
            let counted = self.pump.latencies().observe(volume.id, seen, &mut took);
            fresh.push(took);
            let errors = self.origin_errors.of(volume.id);
            let at = status.origins.binary_search_by_key(&volume.id, |origin| origin.id);
            Traffic {
                requests: counted.map(|it| it.0),
                bytes: counted.map(|it| it.1),
                blocks_dirty: at.map_or(0, |at| status.origins[at].blocks_dirty),
                origin_errors: errors.reads + errors.writes,
            }
        };
        let volumes = self.config.volumes.iter().zip(seen).map(traffic).collect();
        (Moment { whole: self.whole(&status), volumes }, fresh)
    }

    fn whole(&self, status: &Status) -> Whole {
        let at = |percent| status.what_if.iter().find(|it| it.size_percent == percent);
        let whole = Whole {
            counters: status.counters,
            blocks_cached: status.blocks_cached,
            dirty_limit_blocks: status.dirty_limit_blocks,
            lost_blocks: status.lost.len() as u64,
            requests_in_flight: status.requests_in_flight,
            clients: self.pump.clients(),
            what_if: [50, 100, 200, 400]
                .map(|percent| at(percent).map(|it| it.totals).filter(|it| it.reads > 0).map(|it| it.read_hit_ratio())),
        };
        // Without a cache the engine has one in RAM, which is not told.
        if self.config.without_cache { whole.without_cache() } else { whole }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fills the history once a second, from what is counted anyway.
//!
//! Only a daemon with an HTTP port does so. Then an idle daemon wakes once a second; without the
//! port it does not wake for this at all.

use std::time::Duration;

use flashfront_engine::{OriginStatus, Status, Time};

use super::Daemon;
use crate::history::{Fresh, History, Moment, SeenKinds, SharedHistory, Traffic, Whole};

/// How long to wait if somebody reads the history while it is to be filled.
const AGAIN: Duration = Duration::from_millis(1);

/// What fills the history.
#[derive(Debug)]
pub(super) struct Sampler {
    history: SharedHistory,
    /// When to record next.
    due: Time,
    /// What was seen of each volume.
    seen: Vec<SeenKinds>,
}

impl Daemon<'_> {
    /// Begins the history.
    pub(super) fn begin_history(&mut self, shared: SharedHistory) {
        let names: Vec<String> = self.config.volumes.iter().map(|volume| volume.name.clone()).collect();
        let mut seen: Vec<SeenKinds> = vec![SeenKinds::default(); names.len()];
        let (moment, _) = self.moment(&mut seen);
        let history = History::new(&names, self.pump.now(), &moment);
        let due = history.due();
        shared.begin(history, self.pump.clock());
        self.sampler = Some(Sampler { history: shared, due, seen });
    }

    /// How long a turn may wait at most, so that no second is missed.
    pub(super) fn until_sample(&self) -> Duration {
        let due = self.sampler.as_ref().map(|it| Duration::from_nanos(it.due.since_ns(self.pump.now())));
        due.map_or(Duration::MAX, |due| due.max(AGAIN))
    }

    /// Records what is due.
    pub(super) fn sample(&mut self) {
        let now = self.pump.now();
        let Some(mut sampler) = self.sampler.take_if(|it| now >= it.due) else { return };
        let recorded = sampler.history.record(|history| {
            let (moment, fresh) = self.moment(&mut sampler.seen);
            history.record(now, &moment, &fresh);
            history.due()
        });
        sampler.due = recorded.unwrap_or(sampler.due);
        self.sampler = Some(sampler);
    }

    /// How it is now, and what each followed volume did since it was `seen`.
    fn moment(&self, seen: &mut [SeenKinds]) -> (Moment, Vec<Fresh>) {
        let status = self.pump.engine().status();
        let mut fresh: Vec<Fresh> = Vec::new();
        let traffic = |(origin, seen): (&OriginStatus, &mut SeenKinds)| {
            let mut took = Fresh::default();
            let counted = self.pump.latencies().observe(origin.id, seen, &mut took);
            fresh.push(took);
            let errors = self.origin_errors.of(origin.id);
            Traffic {
                requests: counted.map(|it| it.0),
                bytes: counted.map(|it| it.1),
                blocks_dirty: origin.blocks_dirty,
                origin_errors: errors.reads + errors.writes,
            }
        };
        let volumes = status.origins.iter().zip(seen).map(traffic).collect();
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
        // Without a cache its place is taken by one in RAM, of which nothing is told.
        if self.config.without_cache { whole.without_cache() } else { whole }
    }
}

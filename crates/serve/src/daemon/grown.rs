// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reclaim dropped lately and what was written to the cache device, of each volume and of all.

use flashfront_engine::{BLOCK_BYTES, OriginId, OriginStatus, Status, Time};
use serde::{Deserialize, Serialize};

use crate::growth::{Growth, Marks};
use crate::report::Grown;

/// The evicted blocks, and the bytes written to the cache device.
type Counters = [u64; 2];

/// The growth of all counters, for the hand-over to another program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GrownFigures {
    all: Marks<2>,
    volumes: Vec<(u32, Marks<2>)>,
}

/// The growth of a daemon's counters.
#[derive(Debug)]
pub(super) struct AllGrown {
    /// For how long the daemon had served before the clock began.
    before_ns: u64,
    /// When the counters are to be noted next.
    due: Time,
    all: Growth<2>,
    /// The growth of each volume's counters, sorted by the origins.
    volumes: Vec<(OriginId, Growth<2>)>,
}

impl Default for AllGrown {
    fn default() -> Self {
        Self { before_ns: 0, due: Time(0), all: Growth::default(), volumes: Vec::new() }
    }
}

impl AllGrown {
    /// Goes on with what a daemon before this one had noted. That had served for `before_ns` when
    /// the clock of this one began.
    pub(super) fn go_on(&mut self, figures: GrownFigures, before_ns: u64) {
        self.before_ns = before_ns;
        self.all = figures.all.into();
        self.volumes = figures.volumes.into_iter().map(|(id, marks)| (OriginId(id), marks.into())).collect();
        self.volumes.sort_unstable_by_key(|it| it.0);
    }

    /// What another program goes on with.
    pub(super) fn figures(&self) -> GrownFigures {
        let volumes = self.volumes.iter().map(|(id, growth)| (id.0, growth.marks().clone()));
        GrownFigures { all: self.all.marks().clone(), volumes: volumes.collect() }
    }

    /// The time since the daemon began to serve, whatever program that was.
    const fn since_begin(&self, now: Time) -> Time {
        Time(now.0 + self.before_ns)
    }

    /// Notes the counters, when that is due.
    pub(super) fn note_due(&mut self, now: Time, status: impl FnOnce() -> Status) {
        let now = self.since_begin(now);
        if now < self.due {
            return;
        }
        let status = status();
        self.due = Growth::<2>::due_after(now);
        self.all.note(now, of_all(&status));
        self.volumes.retain(|(id, _)| status.origins.binary_search_by_key(id, |origin| origin.id).is_ok());
        for origin in status.origins.iter().filter(|origin| of_origin(origin) != [0, 0]) {
            let at = match self.volumes.binary_search_by_key(&origin.id, |it| it.0) {
                Ok(at) => at,
                Err(at) => {
                    self.volumes.insert(at, (origin.id, Growth::default()));
                    at
                }
            };
            self.volumes[at].1.note(now, of_origin(origin));
        }
    }

    /// How much the counters of all volumes grew in the last minute, hour and day.
    pub(super) fn of_all(&self, now: Time, status: &Status) -> [Grown; 3] {
        self.all.of(self.since_begin(now), of_all(status)).map(grown)
    }

    /// How much the counters of a volume grew.
    pub(super) fn of(&self, now: Time, origin: &OriginStatus) -> [Grown; 3] {
        let at = self.volumes.binary_search_by_key(&origin.id, |it| it.0);
        let own = at.map_or_else(|_| Growth::default(), |at| self.volumes[at].1.clone());
        own.of(self.since_begin(now), of_origin(origin)).map(grown)
    }
}

fn of_all(status: &Status) -> Counters {
    [status.counters.evicted_blocks, status.counters.cache_writes_bytes]
}

fn of_origin(origin: &OriginStatus) -> Counters {
    [origin.evicted_blocks, origin.logged_blocks * BLOCK_BYTES]
}

fn grown([evicted_blocks, flash_written_bytes]: Counters) -> Grown {
    Grown { evicted_blocks, flash_written_bytes }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The history of a daemon's figures: the last 24 hours, at a resolution that falls with age.
//!
//! Once a second the daemon hands over a [`Moment`], which it copies from counters that it keeps
//! anyway. Requests are not slower for it. The history knows neither the engine nor the clock. Its
//! RAM has a bound that does not depend on how long the daemon runs: [`BYTES_MAX`] (test:
//! `ram_has_a_bound`). A restart begins a new history; an upgrade goes on with it.

use std::time::Duration;

use flashfront_engine::Time;
use serde::{Deserialize, Serialize};

use crate::latency::{Counts, Seen};

mod read;
mod ring;
mod series;
mod shared;
#[cfg(test)]
mod tests;

pub use read::{HistoryReport, Query, Refused};
use ring::{Ring, RingFigures};
pub use series::{Moment, Traffic, Whole};
pub use shared::SharedHistory;

/// The resolutions, and how long each is kept: the seconds of a step, and the number of steps.
const RINGS: [(u64, usize); 3] = [(1, 600), (10, 720), (60, 1440)];
/// The longest time that the history covers.
pub const RANGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The volumes that have a history of their own: the first ones of the configuration.
pub const VOLUMES_MAX: usize = 32;
/// The most RAM that a history takes, with [`VOLUMES_MAX`] volumes.
pub const BYTES_MAX: usize = 9 << 20;

const NS_PER_S: u64 = 1_000_000_000;

/// Durations that were counted since the last look, by kind of request.
pub(crate) type Fresh = [Counts; 4];
/// The part of a volume's counts that an observer has seen, by kind of request.
pub(crate) type SeenKinds = [Seen; 4];

/// The history, for the hand-over to another program. The values go beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HistoryFigures {
    /// The series that each row has, of the daemon and of a volume.
    series: Vec<String>,
    /// The volumes that are followed, by their origins.
    volumes: Vec<u32>,
    rings: Vec<RingFigures>,
}

/// The history.
#[derive(Debug)]
pub struct History {
    volumes: Vec<String>,
    rings: Vec<Ring>,
}

impl History {
    /// An empty history of these volumes, of which at most [`VOLUMES_MAX`] are followed. `first` is
    /// how it is when it begins.
    #[must_use]
    pub fn new(volumes: &[String], now: Time, first: &Moment) -> Self {
        let volumes: Vec<String> = volumes.iter().take(VOLUMES_MAX).cloned().collect();
        let ring = |(step_s, steps)| Ring::new(step_s * NS_PER_S, steps, now, first.clone());
        Self { rings: RINGS.into_iter().map(ring).collect(), volumes }
    }

    /// What another program goes on with, and the values that go beside it. `volumes`: the ids of
    /// those that are followed.
    pub(crate) fn figures(&self, volumes: &[u32]) -> (HistoryFigures, Vec<u8>) {
        let mut values = Vec::new();
        let rings = self.rings.iter().map(|ring| ring.figures(&mut values)).collect();
        let volumes = volumes.iter().take(VOLUMES_MAX).copied().collect();
        (HistoryFigures { series: series::names(), volumes, rings }, values)
    }

    /// Goes on with the history of a daemon before this one. `volumes`: the ids and names of those
    /// that there are now, and `moment` is how it is now. Returns `None`, with an empty history, if
    /// that one had other series.
    pub(crate) fn go_on(
        now: Time,
        moment: &Moment,
        volumes: &[(u32, String)],
        earlier: &HistoryFigures,
        mut values: &[u8],
    ) -> Option<Self> {
        let names: Vec<String> = volumes.iter().map(|it| it.1.clone()).collect();
        let mut history = Self::new(&names, now, moment);
        if earlier.series != series::names() || earlier.rings.len() != history.rings.len() {
            return None;
        }
        for (ring, earlier_ring) in history.rings.iter_mut().zip(&earlier.rings) {
            ring.go_on(earlier_ring, earlier.volumes.len(), &mut values)?;
        }
        let place = |id: u32| earlier.volumes.iter().position(|it| *it == id);
        let from: Vec<Option<usize>> = volumes.iter().map(|it| place(it.0)).collect();
        history.follow(&names, &from, moment);
        Some(history)
    }

    /// When the next moment is wanted: at the end of the second that is running.
    #[must_use]
    pub fn due(&self) -> Time {
        self.rings.first().map_or(Time(u64::MAX), Ring::ends)
    }

    /// Takes how it is now, and how long the requests of each followed volume took since the last
    /// time.
    pub(crate) fn record(&mut self, now: Time, moment: &Moment, fresh: &[Fresh]) {
        for ring in &mut self.rings {
            ring.record(now, moment, fresh);
        }
    }

    /// Follows other volumes from now on, or the same ones by other names; `from` says at which
    /// place each was before. `moment` is how it is now. The history of a volume that is gone is
    /// forgotten.
    pub(crate) fn follow(&mut self, volumes: &[String], from: &[Option<usize>], moment: &Moment) {
        self.rings.iter_mut().for_each(|ring| ring.follow(from, moment));
        self.volumes = volumes.iter().take(VOLUMES_MAX).cloned().collect();
    }

    /// Bytes of RAM.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rings.iter().map(Ring::bytes).sum()
    }
}

/// A number of the history: none where nothing was recorded, or nothing happened that has such a
/// number.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Value(
    /// A value; not a number stands for none, and is written as null.
    pub f32,
);

impl Value {
    const NONE: Self = Self(f32::NAN);

    fn of(value: f64) -> Self {
        Self(value as f32)
    }
}

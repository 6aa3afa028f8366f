// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the requests to the store of a volume: by kind, with their bytes and durations.
//!
//! Stores charge by requests of these kinds. Each try counts, also one that failed: it may have
//! been carried out, and charged.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flashfront_object::Fault;

/// The longest duration of each bucket in milliseconds; there is one more for all that is longer.
pub const BOUNDS_MS: [u64; 15] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 120_000];
/// The newest durations, of which percentiles are told.
const RECENT: usize = 512;
/// A GET of at most so many bytes may be sent twice. The time of longer ones tells the link's rate.
pub(crate) const SHORT_BYTES: u64 = 1 << 20;
/// Short GETs before it is known how long they take, and between two looks at that.
const KNOWN: usize = 128;
const LOOKS: u64 = 32;
/// A GET that ends sooner is not slow, however fast the others were.
const SLOW_MIN: Duration = Duration::from_millis(10);
/// The GETs among which one may be sent twice: 5 %.
const HEDGES: u64 = 20;

/// The kind of a request, as stores charge for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Fetches an object, or a part of it.
    Get,
    /// Stores an object.
    Put,
    /// Lists names.
    List,
    /// Deletes an object.
    Delete,
}

impl Verb {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Get, Self::Put, Self::List, Self::Delete];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }
}

/// The requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The tries that have ended.
    pub requests: u64,
    /// Requests that failed. An absent object, or a name in use, is an answer and no failure.
    pub errors: u64,
    /// The errors by which the store asked for fewer requests: 429 and 503.
    pub throttled: u64,
    /// Requests that were sent again after an error.
    pub retries: u64,
    /// GETs that were sent a second time as the first one was slow; they are requests, too.
    pub hedged: u64,
    /// Bytes of objects that were sent, or received; without heads and lists.
    pub bytes: u64,
    /// How many took how long, by [`BOUNDS_MS`]; the last one has no bound.
    pub buckets: [u64; BOUNDS_MS.len() + 1],
    /// How long all took together, in microseconds.
    pub sum_us: u64,
    /// How long the newest ones took.
    pub recent: Recent,
}

/// How long the newest requests of a kind took, in microseconds; 0 if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// Half of them took this long at most.
    pub p50_us: u64,
    /// The time that 99 of 100 took at most.
    pub p99_us: u64,
    /// The longest one.
    pub max_us: u64,
    /// How many they are.
    pub count: u64,
}

impl Recent {
    fn of(durations: &VecDeque<u64>) -> Self {
        let mut sorted: Vec<u64> = durations.iter().copied().collect();
        sorted.sort_unstable();
        let at = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        let [p50_us, p99_us, max_us] = [50, 99, 100].map(|percent| at(percent).unwrap_or(0));
        Self { p50_us, p99_us, max_us, count: sorted.len() as u64 }
    }
}

#[derive(Default)]
struct Kind {
    tally: Tally,
    newest: VecDeque<u64>,
    /// The newest durations of short GETs, how many there were, and when one is slow.
    short: VecDeque<u64>,
    shorts: u64,
    slow_us: Option<u64>,
}

impl Kind {
    fn note_short(&mut self, us: u64) {
        push(&mut self.short, us);
        self.shorts += 1;
        if self.short.len() >= KNOWN && self.shorts.is_multiple_of(LOOKS) {
            self.slow_us = Some(Recent::of(&self.short).p99_us);
        }
    }
}

fn push(newest: &mut VecDeque<u64>, us: u64) {
    if newest.len() == RECENT {
        newest.pop_front();
    }
    newest.push_back(us);
}

/// The requests to the store of a volume.
#[derive(Default)]
pub struct Meter {
    kinds: [Mutex<Kind>; 4],
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meter")
    }
}

impl Meter {
    /// Nothing that could be half done is done under these locks.
    fn kind(&self, verb: Verb) -> MutexGuard<'_, Kind> {
        self.kinds[verb as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a try that has ended, which was `requests` requests, and brought or took bytes.
    pub(crate) fn ended(&self, verb: Verb, took: Duration, outcome: Result<(u64, u64), &Fault>) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mut kind = self.kind(verb);
        push(&mut kind.newest, us);
        if verb == Verb::Get && matches!(outcome, Ok((_, bytes)) if bytes <= SHORT_BYTES) {
            kind.note_short(us);
        }
        let tally = &mut kind.tally;
        let bucket = BOUNDS_MS.iter().position(|bound| us <= bound * 1_000).unwrap_or(BOUNDS_MS.len());
        tally.buckets[bucket] += 1;
        tally.sum_us = tally.sum_us.saturating_add(us);
        match outcome {
            Ok((requests, bytes)) => {
                tally.requests += requests;
                tally.bytes += bytes;
            }
            Err(fault) => {
                tally.requests += 1;
                if let Fault::Away(what) | Fault::Refused(what) = fault {
                    tally.errors += 1;
                    tally.throttled += u64::from(matches!(code(what), Some(429 | 503)));
                }
            }
        }
    }

    /// Counts a request that is sent again after an error.
    pub(crate) fn repeats(&self, verb: Verb) {
        self.kind(verb).tally.retries += 1;
    }

    /// The time after which a short GET is slow: 99 of 100 took less lately. `None` if too few were
    /// seen.
    #[must_use]
    pub fn slow_after(&self) -> Option<Duration> {
        let slow_us = self.kind(Verb::Get).slow_us?;
        Some(Duration::from_micros(slow_us).max(SLOW_MIN))
    }

    /// Whether a GET may be sent a second time, which is counted then.
    pub fn may_hedge(&self) -> bool {
        let tally = &mut self.kind(Verb::Get).tally;
        let may = (tally.hedged + 1) * HEDGES <= tally.requests;
        tally.hedged += u64::from(may);
        tally.requests += u64::from(may);
        may
    }

    /// The requests so far, in the order of [`Verb::ALL`].
    #[must_use]
    pub fn tallies(&self) -> [Tally; 4] {
        Verb::ALL.map(|verb| {
            let kind = self.kind(verb);
            Tally { recent: Recent::of(&kind.newest), ..kind.tally.clone() }
        })
    }
}

/// The code by which a server has answered. The crate `object_store` has these codes in its texts
/// alone.
pub(crate) fn code(told: &str) -> Option<u16> {
    told.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_newest_requests() {
        let meter = Meter::default();
        for ms in 1..=10_000 {
            meter.ended(Verb::Get, Duration::from_millis(ms), Ok((1, 10)));
        }
        let [get, put, ..] = meter.tallies();
        assert_eq!((get.requests, get.bytes, get.errors), (10_000, 100_000, 0));
        let Recent { p50_us, p99_us, max_us, count } = get.recent;
        assert_eq!((p50_us, p99_us, max_us, count), (9_744_000, 9_995_000, 10_000_000, 512));
        assert_eq!(get.buckets.iter().sum::<u64>(), 10_000);
        assert_eq!(get.buckets[..4], [1, 1, 3, 5]);
        assert_eq!(put, Tally::default());
    }

    #[test]
    fn an_absent_object_is_no_error_and_a_busy_store_is_one() {
        let meter = Meter::default();
        let busy = |code: u16| Fault::Away(format!("Server returned non-2xx status code: {code} Weather"));
        for fault in [Fault::Absent, Fault::Taken, busy(500), busy(429), busy(503), Fault::Refused("no".to_owned())] {
            meter.ended(Verb::Put, Duration::ZERO, Err(&fault));
        }
        meter.repeats(Verb::Put);
        let [_, put, ..] = meter.tallies();
        assert_eq!((put.requests, put.errors, put.throttled, put.retries), (6, 4, 2, 1));
    }
}

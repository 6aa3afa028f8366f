// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays a trace to a system in virtual time.
//!
//! Requests come when they came in the trace, as long as fewer than [`IN_FLIGHT_MAX`] are in
//! flight: a disk that can't keep up has as many waiting as Linux queues for it, and clients that
//! ask later. How much later is told. (A. Anderson et al., "Buttress", FAST 2004, on what a replay
//! that asks late is worth.) In a trace without times each answer brings the next request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use flashfront_engine::{BLOCK_BYTES, REQUEST_BYTES_MAX, Time};
use hashbrown::HashMap;
use hdrhistogram::Histogram;

use super::Survey;
use crate::load::idle;
use crate::policy::Access;
use crate::replay::{Blocks, SourceError};
use crate::system::{Ask, System, SystemRequest, Traffic};

/// Requests in flight at most: Linux' `nr_requests` of a disk.
pub const IN_FLIGHT_MAX: usize = 128;
/// Before the first request: a cache opens meanwhile.
const OPENING_NS: u64 = 1_000_000_000;
/// Requests between two words of progress.
const TOLD_EVERY: u64 = 1 << 10;

/// What requests of one kind took.
#[derive(Clone, Debug)]
pub struct Times {
    /// How many.
    pub requests: u64,
    /// All together.
    pub sum_ns: u128,
    /// Each, to 1 in 100.
    pub ns: Histogram<u64>,
}

impl Default for Times {
    fn default() -> Self {
        let ns = Histogram::new_with_bounds(1_000, 1_200_000_000_000, 2).expect("bounds that a histogram takes");
        Self { requests: 0, sum_ns: 0, ns }
    }
}

impl Times {
    fn record(&mut self, ns: u64) {
        self.requests += 1;
        self.sum_ns += u128::from(ns);
        self.ns.saturating_record(ns);
    }

    /// The mean; nothing of no requests.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        (self.requests > 0).then(|| (self.sum_ns / u128::from(self.requests)) as u64)
    }

    /// What all but one in a hundred took at most.
    #[must_use]
    pub fn p99_ns(&self) -> Option<u64> {
        (self.requests > 0).then(|| self.ns.value_at_quantile(0.99))
    }
}

/// How a trace went on a system. All but `late_ns` is of its second half.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// What reads took.
    pub reads: Times,
    /// What writes took.
    pub writes: Times,
    /// By how much the last request came later than in the trace.
    pub late_ns: u64,
    /// From its first request to its last answer.
    pub took_ns: u64,
    /// What the devices moved meanwhile.
    pub traffic: Traffic,
}

impl Played {
    /// What a request took, of both kinds, in the mean.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        let requests = u128::from(self.reads.requests + self.writes.requests);
        ((self.reads.sum_ns + self.writes.sum_ns) / requests.max(1)) as u64
    }

    /// The share of the blocks read that the disk wasn't asked for.
    #[must_use]
    pub fn read_hit_ratio(&self) -> Option<f64> {
        let blocks = self.traffic.read_blocks;
        (blocks > 0).then(|| self.traffic.read_hit_blocks as f64 / blocks as f64)
    }
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    write: bool,
    key: u64,
    blocks: u64,
    time_ns: u64,
}

/// The accesses of a trace, put together to requests again.
struct Requests {
    blocks: Blocks,
    batch: vec::IntoIter<Access>,
    /// The beginning of the next one.
    next: Option<Access>,
}

impl Requests {
    fn access(&mut self) -> Result<Option<Access>, SourceError> {
        if let Some(access) = self.next.take().or_else(|| self.batch.next()) {
            return Ok(Some(access));
        }
        self.batch = self.blocks.batch()?.into_iter();
        Ok(self.batch.next())
    }

    fn next(&mut self) -> Result<Option<Asked>, SourceError> {
        let Some(Access { key, write, time_ns, .. }) = self.access()? else { return Ok(None) };
        let mut blocks = 1;
        while let Some(access) = self.access()? {
            if access.first || access.key != key + blocks {
                self.next = Some(access);
                break;
            }
            blocks += 1;
        }
        Ok(Some(Asked { write, key, blocks, time_ns }))
    }
}

/// A request that is not answered.
struct Flying {
    since: Time,
    write: bool,
    /// Of the second half.
    counts: bool,
    /// Parts that the system has got and not answered.
    parts: u32,
}

struct Player<'a> {
    system: &'a mut dyn System,
    survey: &'a Survey,
    now: Time,
    next_number: u64,
    /// Which request a part belongs to.
    parts: HashMap<u64, u64>,
    flying: HashMap<u64, Flying>,
    answered: Vec<u64>,
    asked: u64,
    played: Played,
}

/// Plays it to its end; `told` hears of the requests that were played.
pub(super) fn play(
    system: &mut dyn System,
    blocks: Blocks,
    survey: &Survey,
    told: &AtomicU64,
) -> Result<Played, SourceError> {
    let mut requests = Requests { blocks, batch: Vec::new().into_iter(), next: None };
    let mut now = Time(0);
    idle(system, &mut now, OPENING_NS, &mut |_| true);
    let mut player = Player {
        system,
        survey,
        now,
        next_number: 0,
        parts: HashMap::new(),
        flying: HashMap::new(),
        answered: Vec::new(),
        asked: 0,
        played: Played::default(),
    };
    let half = survey.requests() / 2;
    let (mut first_ns, mut before, mut half_at) = (None, player.system.traffic(), now);
    while let Some(asked) = requests.next()? {
        // What is recorded is when it would come if none had been late.
        let begin = now.plus_ns(player.played.late_ns);
        let due = begin.plus_ns(asked.time_ns - *first_ns.get_or_insert(asked.time_ns));
        let at_once = if survey.span_ns.is_some() { IN_FLIGHT_MAX } else { 1 };
        player.until(due, at_once, survey.span_ns.is_some());
        if player.asked == half {
            (before, half_at) = (player.system.traffic(), player.now);
        }
        player.ask(asked, player.asked >= half);
        if player.asked.is_multiple_of(TOLD_EVERY) {
            told.fetch_add(TOLD_EVERY, Ordering::Relaxed);
        }
    }
    told.fetch_add(player.asked % TOLD_EVERY, Ordering::Relaxed);
    while !player.flying.is_empty() {
        player.step();
    }
    let mut played = player.played;
    played.took_ns = player.now.since_ns(half_at);
    played.traffic = player.system.traffic().since(&before);
    Ok(played)
}

impl Player<'_> {
    /// Lets time pass until a request is due, and until there is room for it.
    fn until(&mut self, due: Time, at_once: usize, timed: bool) {
        while timed && self.system.next_event().is_some_and(|next| next <= due) {
            self.step();
        }
        if timed {
            self.now = self.now.max(due);
        }
        while self.flying.len() >= at_once {
            self.step();
        }
        if timed {
            self.played.late_ns += self.now.since_ns(due);
        }
    }

    /// Goes on to the next moment at which something happens.
    fn step(&mut self) {
        let next = self.system.next_event().expect("a system answers in the end");
        self.now = self.now.max(next);
        self.system.advance(self.now, &mut self.answered);
        for number in self.answered.drain(..) {
            let request = self.parts.remove(&number).expect("a system answers each part once");
            let Some(flying) = self.flying.get_mut(&request) else { continue };
            flying.parts -= 1;
            if flying.parts > 0 {
                continue;
            }
            if flying.counts {
                let times = if flying.write { &mut self.played.writes } else { &mut self.played.reads };
                times.record(self.now.since_ns(flying.since));
            }
            self.flying.remove(&request);
        }
    }

    fn ask(&mut self, asked: Asked, counts: bool) {
        let request = self.asked;
        self.asked += 1;
        let ask = if asked.write { Ask::Write } else { Ask::Read };
        let (mut offset, mut left, mut parts) = (self.survey.offset(asked.key), asked.blocks * BLOCK_BYTES, 0);
        while left > 0 {
            let len = left.min(REQUEST_BYTES_MAX);
            self.next_number += 1;
            self.parts.insert(self.next_number, request);
            self.system.submit(self.now, SystemRequest { number: self.next_number, ask, offset, len });
            (offset, left, parts) = (offset + len, left - len, parts + 1);
        }
        self.flying.insert(request, Flying { since: self.now, write: asked.write, counts, parts });
    }
}

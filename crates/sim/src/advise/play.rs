// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays a trace to a system in virtual time.
//!
//! Requests come when they came in the trace, as long as fewer than [`IN_FLIGHT_MAX`] are in
//! flight. A disk that can't keep up has as many requests waiting as Linux queues for it, and its
//! clients ask later. The delay is told. (A. Anderson et al., "Buttress", FAST 2004, say what a
//! replay that asks late is worth.) In a trace without times each answer brings the next request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use flashfront_engine::{BLOCK_BYTES, REQUEST_BYTES_MAX, SECTOR_BYTES, Time};
use hashbrown::HashMap;

use super::played::Played;
use super::survey::Survey;
use crate::load::idle;
use crate::policy::Access;
use crate::replay::{Blocks, SourceError};
use crate::system::{Ask, System, SystemRequest};

/// The most requests in flight: Linux' `nr_requests` of a disk.
pub const IN_FLIGHT_MAX: usize = 128;
/// The time before the first request. A cache opens meanwhile.
const OPENING_NS: u64 = 1_000_000_000;
/// The number of requests between two reports of progress.
const TOLD_EVERY: u64 = 1 << 10;
/// The number of requests between two looks at the dirty blocks.
const LOOK_EVERY: u64 = 1 << 4;
/// The part of the dirty limit from which on it counts as full, since writers are slowed there.
const FULL: f64 = 0.9;

/// A request of a trace. A FLUSH has no blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    ask: Ask,
    key: u64,
    blocks: u64,
    /// Sectors of the first block, and of the last block, that are not asked for.
    left_out: (u64, u64),
    time_ns: u64,
}

/// The requests of a trace, put together again from its accesses, and its FLUSHes.
struct Requests {
    blocks: Blocks,
    batch: vec::IntoIter<Access>,
    /// The number of accesses of the batch that were taken so far.
    taken: usize,
    /// FLUSHes of the batch. Each comes before the access of that number.
    flushes: VecDeque<(usize, u64)>,
    /// Requests of the batch that don't consist of whole blocks.
    ragged: VecDeque<(usize, u64, u64)>,
    /// The beginning of the next request.
    next: Option<Access>,
}

impl Requests {
    fn of(blocks: Blocks) -> Self {
        Self {
            blocks,
            batch: Vec::new().into_iter(),
            taken: 0,
            flushes: VecDeque::new(),
            ragged: VecDeque::new(),
            next: None,
        }
    }

    fn access(&mut self) -> Result<Option<Access>, SourceError> {
        if let Some(access) = self.next.take() {
            return Ok(Some(access));
        }
        if self.batch.len() == 0 {
            self.batch = self.blocks.batch()?.into_iter();
            self.taken = 0;
            // FLUSHes behind the last access of the batch before are still to be sent.
            self.flushes.iter_mut().for_each(|it| it.0 = 0);
            self.flushes.extend(self.blocks.flushed.drain(..));
            self.ragged.extend(self.blocks.ragged.drain(..));
        }
        let access = self.batch.next();
        self.taken += usize::from(access.is_some());
        Ok(access)
    }

    fn next(&mut self) -> Result<Option<Asked>, SourceError> {
        // The first batch, or the next one, may begin with a FLUSH.
        self.next = self.access()?;
        let at = self.taken - usize::from(self.next.is_some());
        if let Some((_, time_ns)) = self.flushes.pop_front_if(|it| it.0 <= at) {
            return Ok(Some(Asked { ask: Ask::Flush, key: 0, blocks: 0, left_out: (0, 0), time_ns }));
        }
        let Some(Access { key, write, time_ns, .. }) = self.next.take() else { return Ok(None) };
        while self.ragged.pop_front_if(|it| it.0 < at).is_some() {}
        let ragged = self.ragged.pop_front_if(|it| it.0 == at);
        let left_out = ragged.map_or((0, 0), |(_, before, behind)| (before, behind));
        let mut blocks = 1;
        while let Some(access) = self.access()? {
            if access.first || access.key != key + blocks {
                self.next = Some(access);
                break;
            }
            blocks += 1;
        }
        Ok(Some(Asked { ask: if write { Ask::Write } else { Ask::Read }, key, blocks, left_out, time_ns }))
    }
}

/// The part of a trace that a request belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quarter {
    /// The first quarter is not counted, and FLUSHes are not either.
    First,
    Second,
    Later,
}

/// A request that is not answered.
struct Flying {
    since: Time,
    write: bool,
    quarter: Quarter,
    /// Parts that the system has got and not answered.
    parts: u32,
}

struct Player<'a> {
    system: &'a mut dyn System,
    survey: &'a Survey,
    now: Time,
    next_number: u64,
    /// The request that each part belongs to.
    parts: HashMap<u64, u64>,
    flying: HashMap<u64, Flying>,
    answered: Vec<u64>,
    asked: u64,
    /// The time at which the last look found the dirty limit full.
    full_since: Option<Time>,
    played: Played,
}

/// Plays the trace to its end. `told` counts the requests that were played.
pub(super) fn play(
    system: &mut dyn System,
    blocks: Blocks,
    survey: &Survey,
    told: &AtomicU64,
) -> Result<Played, SourceError> {
    let mut requests = Requests::of(blocks);
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
        full_since: None,
        played: Played::default(),
    };
    let half = survey.requests() / 2;
    let (mut first_ns, mut before, mut half_at) = (None, player.system.traffic(), now);
    while let Some(asked) = requests.next()? {
        // The recorded time is when the request would come if no request had been late.
        let begin = now.plus_ns(player.played.late_ns);
        let due = begin.plus_ns(asked.time_ns - *first_ns.get_or_insert(asked.time_ns));
        let at_once = if survey.span_ns.is_some() { IN_FLIGHT_MAX } else { 1 };
        player.until(due, at_once, survey.span_ns.is_some());
        if asked.ask == Ask::Flush {
            player.submit(asked, Quarter::First);
            continue;
        }
        if player.asked == half {
            (before, half_at) = (player.system.traffic(), player.now);
        }
        if player.asked >= half && player.asked.is_multiple_of(LOOK_EVERY) {
            player.look();
        }
        player.ask(asked, half);
        if player.asked.is_multiple_of(TOLD_EVERY) {
            told.fetch_add(TOLD_EVERY, Ordering::Relaxed);
        }
    }
    told.fetch_add(player.asked % TOLD_EVERY, Ordering::Relaxed);
    while !player.flying.is_empty() {
        player.step();
    }
    let after = player.system.traffic();
    player.played.took_ns = player.now.since_ns(half_at);
    player.played.traffic = after.since(&before);
    let backlog = &mut player.played.backlog;
    backlog.dirtied_bytes =
        (after.dirty_bytes + player.played.traffic.origin_write_bytes).saturating_sub(before.dirty_bytes);
    backlog.left_bytes = after.dirty_bytes;
    player.drain();
    Ok(player.played)
}

impl Player<'_> {
    /// Notes whether the dirty limit is full, and for how long since the last look.
    fn look(&mut self) {
        let traffic = self.system.traffic();
        let full =
            traffic.dirty_limit_bytes > 0 && traffic.dirty_bytes as f64 >= traffic.dirty_limit_bytes as f64 * FULL;
        if let Some(since) = self.full_since.take() {
            self.played.backlog.full_ns += self.now.since_ns(since);
        }
        self.full_since = full.then_some(self.now);
    }

    /// Lets the disk take all dirty blocks, and notes how long that takes.
    fn drain(&mut self) {
        let begin = self.now;
        if self.played.backlog.left_bytes == 0 || !self.system.drain(begin) {
            return;
        }
        // After that a timer may be the next event.
        while self.system.traffic().dirty_bytes > 0 {
            let Some(next) = self.system.next_event() else { break };
            self.now = self.now.max(next);
            self.system.advance(self.now, &mut self.answered);
        }
        self.played.backlog.drain_ns = self.now.since_ns(begin);
    }

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
            let took_ns = self.now.since_ns(flying.since);
            let times = if flying.write { &mut self.played.writes } else { &mut self.played.reads };
            match flying.quarter {
                Quarter::First => {}
                Quarter::Second => {
                    self.played.before.0 += 1;
                    self.played.before.1 += u128::from(took_ns);
                }
                Quarter::Later => times.record(took_ns),
            }
            self.flying.remove(&request);
        }
    }

    fn ask(&mut self, asked: Asked, half: u64) {
        let quarter = match self.asked {
            it if it >= half => Quarter::Later,
            it if it >= half / 2 => Quarter::Second,
            _ => Quarter::First,
        };
        self.asked += 1;
        self.submit(asked, quarter);
    }

    /// Hands a request over in parts that the system takes. A FLUSH is one part.
    fn submit(&mut self, asked: Asked, quarter: Quarter) {
        let request = self.next_number + 1;
        let (before, behind) = if self.system.takes_sectors() { asked.left_out } else { (0, 0) };
        let mut left = asked.blocks * BLOCK_BYTES - (before + behind) * SECTOR_BYTES;
        let mut offset = if left > 0 { self.survey.offset(asked.key) + before * SECTOR_BYTES } else { 0 };
        let mut parts = 0;
        while left > 0 || parts == 0 {
            let len = left.min(REQUEST_BYTES_MAX);
            self.next_number += 1;
            self.parts.insert(self.next_number, request);
            self.system.submit(self.now, SystemRequest { number: self.next_number, ask: asked.ask, offset, len });
            (offset, left, parts) = (offset + len, left - len, parts + 1);
        }
        self.flying.insert(request, Flying { since: self.now, write: asked.ask == Ask::Write, quarter, parts });
    }
}

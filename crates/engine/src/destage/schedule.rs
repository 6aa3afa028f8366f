// SPDX-License-Identifier: MIT OR Apache-2.0
//! When and where runs start, and when their origin is flushed: the coordinator's part of destage.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::order::{self, DirtyView, Order};
use super::rate::{Pace, RUNS_MAX, View, pace};
use super::readers::Credit;
use crate::index::Flat;
use crate::lane::{Lane, Lanes};
use crate::router::Router;
use crate::shared::{Cx, FlushWaiter, Origin, Shared};
use crate::throttle::{self, Cost};
use crate::types::{Mode, Time};

/// No request for this long is idle; no I/O for a client at an origin for this long, and destage needs not yield.
const IDLE_AFTER_NS: u64 = 100_000_000;
/// The first pause after a failed destage; doubled up to the last.
const RETRY_FIRST_NS: u64 = 1_000_000_000;
const RETRY_LAST_NS: u64 = 60_000_000_000;
/// Candidates that one step looks at: a bound on its time when many can't be taken.
const TRIES_PER_STEP: u32 = 64;
/// Assumed before anything was measured: a disk's sorted random writes, about 400 a second.
const NS_PER_RUN_FIRST: u64 = 2_500_000;
/// Taken for a run at most: a disk's longest seek, a turn, and 1 MiB of its inner tracks. A batch of few runs among reads of clients takes longer, but
/// says nothing about what comes after them.
const NS_PER_RUN_MAX: u64 = 35_000_000;
/// Taken for a batch at most when the pause after it is measured out: one flush that timed out must not stop destage for an hour.
const BATCH_NS_MAX: u64 = 1_000_000_000;
/// Runs of a batch, at least: the way there and back is paid once for them.
const BATCH_RUNS_MIN: u64 = 8;
/// And at most: what a flush has to wait for on a device that answers writes faster than it does them.
const BATCH_RUNS_MAX: u64 = 4096;
/// Blocks of a batch, at most: 32 MiB, a fifth of a second of a disk's sequential writes; it bounds what one flush makes clean, and so what waits to be
/// recorded as clean.
const BATCH_BLOCKS_MAX: u64 = 8192;
/// Rewritten blocks that are passed over one after the other before one is taken all the same.
const PASSED_OVER_MAX: u32 = 64;

/// State of the coordinator's destage.
pub(crate) struct Destager {
    order: Box<dyn Order>,
    /// Runs gathered or written right now.
    runs: u32,
    /// Runs written, waiting for a flush: (origin, lane, run).
    written: Vec<(usize, usize, usize)>,
    written_blocks: u64,
    /// Runs whose flush is asked for.
    flushing: u32,
    last_request: Time,
    sweep_began: Time,
    /// Since when runs have been under way without a pause.
    busy_since: Option<Time>,
    /// When the last batch ended, and what it took.
    batch_ended: Option<Time>,
    last_batch_ns: u64,
    /// A pause for the sake of clients ends then.
    resume_at: Option<Time>,
    /// What may be read from the cache device beside clients that read it.
    credit: Credit,
    /// The places of origins that rest now.
    rest: Vec<Range<u64>>,
    /// Rewritten blocks passed over since the last run was started.
    passed_over: u32,
    /// What the runs and blocks of the last batches took, in the mean.
    ns_per_run: u64,
    ns_per_block: u64,
}

/// The dirty blocks but those of origins that rest: (lanes, places of those origins).
struct DirtyBlocks<'a>(&'a Lanes, &'a [Range<u64>]);

impl DirtyView for DirtyBlocks<'_> {
    fn next(&self, mut from: u64) -> Option<u64> {
        loop {
            let at = self.0.iter().filter_map(|lane| lane.dirty.next(Flat(from))).min()?.0;
            match resting(self.1, at) {
                Some(end) => from = end,
                None => return Some(at),
            }
        }
    }
}

/// Where the origin ends that this place is of, if that rests.
fn resting(rest: &[Range<u64>], at: u64) -> Option<u64> {
    rest.iter().find(|places| places.contains(&at)).map(|places| places.end)
}

impl Destager {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            order: (order::ALL[0].build)(),
            runs: 0,
            written: Vec::new(),
            written_blocks: 0,
            flushing: 0,
            last_request: now,
            sweep_began: now,
            busy_since: None,
            batch_ended: None,
            last_batch_ns: 0,
            resume_at: None,
            credit: Credit::default(),
            rest: Vec::new(),
            passed_over: 0,
            ns_per_run: NS_PER_RUN_FIRST,
            ns_per_block: NS_PER_RUN_FIRST,
        }
    }

    pub(crate) fn request_seen(&mut self, now: Time) {
        self.last_request = now;
    }

    pub(crate) fn run_written(&mut self, origin: usize, lane: usize, run: usize, blocks: u32) {
        self.runs -= 1;
        self.written.push((origin, lane, run));
        self.written_blocks += u64::from(blocks);
    }

    pub(crate) fn run_dropped(&mut self) {
        self.runs -= 1;
        if self.idle() {
            // What failed says nothing about what the next batch takes.
            self.busy_since = None;
        }
    }

    /// A flush of an origin is over that so many runs waited for; it made so many blocks clean.
    pub(crate) fn flushed(&mut self, origin: &mut Origin, runs: u32, blocks: u64, now: Time) {
        self.flushing -= runs;
        if blocks > 0 {
            origin.retry = None;
        }
        let Some(since) = self.busy_since else { return };
        let took = now.since_ns(since);
        let mean = |old: u64, count: u64| (old * 3 + (took / count.max(1)).clamp(1, NS_PER_RUN_MAX)) / 4;
        self.ns_per_run = mean(self.ns_per_run, u64::from(runs));
        if blocks > 0 {
            self.ns_per_block = mean(self.ns_per_block, blocks);
        }
        let more = self.runs > 0 || self.flushing > 0 || !self.written.is_empty();
        self.busy_since = more.then_some(now);
        (self.batch_ended, self.last_batch_ns) = (Some(now), took.min(BATCH_NS_MAX));
    }

    /// A run for this origin failed: that is left alone for a while. The others are not.
    pub(crate) fn failed(&mut self, origin: &mut Origin, now: Time) {
        // Runs that were in flight together fail together.
        if !origin.rests(now) {
            let pause = origin.retry.map_or(RETRY_FIRST_NS, |(_, pause)| (pause * 2).min(RETRY_LAST_NS));
            origin.retry = Some((now.plus_ns(pause), pause));
        }
    }

    /// What destage took lately.
    pub(crate) const fn cost(&self) -> Cost {
        Cost { ns_per_run: self.ns_per_run, ns_per_block: self.ns_per_block }
    }

    /// When this step should run again although nothing happens.
    pub(crate) fn next_timer(&self, shared: &Shared, now: Time) -> Option<Time> {
        if shared.dirty == shared.lost.len() as u64 || self.runs > 0 {
            return None;
        }
        let idle = self.last_request.plus_ns(IDLE_AFTER_NS);
        let retries = shared.origins.iter().filter_map(|origin| origin.retry).map(|(at, _)| at);
        // What is past was looked at then, and must not hide what is to come.
        retries.chain([idle]).chain(self.resume_at).filter(|at| *at > now).min()
    }

    fn aged(&self, cx: &Cx<'_>) -> bool {
        cx.now.since_ns(self.sweep_began) >= cx.shared.options.dirty_age_max_ns / 2
    }

    fn pace(&self, lanes: &Lanes, requests: usize, starved: bool, cx: &Cx<'_>) -> Option<Pace> {
        let shared = &*cx.shared;
        let rest = |origin: &Origin| origin.rests(cx.now);
        let nothing = shared.dirty == shared.lost.len() as u64;
        if nothing || shared.stopping || (shared.origins.iter().any(rest) && shared.to_drain().all(rest)) {
            return None;
        }
        let leaves = |origin: &Origin| origin.mode != Mode::Writeback && origin.dirty > 0 && !rest(origin);
        let leaving = shared.origins.iter().any(leaves);
        let leaving = leaving || shared.cache_failed;
        let recent = |at: Time| cx.now.since_ns(at) < IDLE_AFTER_NS;
        pace(View {
            dirty: shared.dirty,
            limit: shared.dirty_limit,
            idle: requests == 0 && !recent(self.last_request),
            urgent: shared.draining
                || leaving
                || starved
                || lanes.iter().any(|lane| lane.next_urgent(Flat(0), &self.rest).is_some()),
            aged: self.aged(cx),
            behind: lanes.iter().any(|lane| lane.reclaim.is_behind(cx.now)),
            readers: shared.cache_reads.until(self.aged(cx), cx.now).is_some(),
            clients: shared.origins.iter().any(|it| it.foreground_ios > 0 || it.last_foreground.is_some_and(recent)),
        })
    }

    /// Starts runs and flushes. `requests`: clients' requests in flight; `starved`: a write waits for it.
    pub(crate) fn step(&mut self, lanes: &mut Lanes, router: &Router, requests: usize, starved: bool, cx: &mut Cx<'_>) {
        if cx.shared.dirty == 0 {
            // What becomes dirty next is as old as this.
            self.sweep_began = cx.now;
        }
        cx.shared.cache_reads.no_room = throttle::no_room(cx.shared);
        self.rest.clear();
        self.rest.extend(cx.shared.origins.iter().filter(|origin| origin.rests(cx.now)).map(Origin::places));
        let pace = self.pace(lanes, requests, starved, cx);
        let batch = pace.map_or(0, |pace| pace.batch_ns / self.ns_per_run);
        let batch = batch.clamp(BATCH_RUNS_MIN, BATCH_RUNS_MAX) as u32;
        let blocks = BATCH_BLOCKS_MAX.min(cx.shared.dirty_limit / 8);
        if let Some(pace) = pace {
            self.start_runs(pace, (batch, blocks), lanes, router, cx);
        }
        // A small limit is not to be reached by what is written and only waits for its flush.
        let enough = self.written.len() >= batch as usize || self.written_blocks >= blocks;
        // One flush at a time, and one batch written meanwhile: else a slow flush would find more and more behind it.
        if !self.written.is_empty() && self.flushing == 0 && (self.runs == 0 || enough) {
            self.flushing += self.written.len() as u32;
            for (origin, lane, run) in self.written.drain(..) {
                cx.shared.origins[origin].flush.join(FlushWaiter::Run(lane, run));
            }
            self.written_blocks = 0;
        }
    }

    /// Starts runs of this batch, and while that is being flushed, of the next.
    fn start_runs(
        &mut self,
        pace: Pace,
        (batch, blocks): (u32, u64),
        lanes: &mut Lanes,
        router: &Router,
        cx: &mut Cx<'_>,
    ) {
        let under_way = |it: &Self| it.runs + it.written.len() as u32;
        let mut paused_until = None;
        if pace.pause_permille > 0 {
            let pause = self.last_batch_ns / 1000 * pace.pause_permille;
            let resume = self.batch_ended.map_or(cx.now, |at| at.plus_ns(pause));
            if self.flushing > 0 || cx.now < resume {
                let gap = cx.shared.cache_reads.until(self.aged(cx), cx.now).filter(|_| pace.patient);
                self.resume_at = (self.flushing == 0).then_some(gap.map_or(resume, |gap| gap.min(resume)));
                if !pace.patient {
                    return;
                }
                paused_until = Some(self.resume_at);
            }
        }
        self.resume_at = None;
        let (mut tries, mut sweeps_ended) = (0, 0);
        // With nothing in flight nobody would come back here: then all is looked at, from the place of the
        // sweep to its end and once more from the start.
        let room = |it: &Self| under_way(it) < batch && it.written_blocks < blocks;
        while self.runs < RUNS_MAX && room(self) && (tries < TRIES_PER_STEP || self.idle()) {
            let earned = self.credit.allows(&cx.shared.cache_reads, (cx.shared.dirty, cx.shared.dirty_limit), cx.now);
            // Who waits for room, or for age, waits for more than a reader does.
            match (earned, paused_until) {
                (Err(_), Some(resume_at)) => {
                    self.resume_at = resume_at;
                    break;
                }
                (Err(until), None) if !pace.hurry => {
                    self.resume_at = Some(until);
                    break;
                }
                _ => {}
            }
            tries += 1;
            if !self.start_urgent(lanes, router, cx) && !self.start_next(pace.hurry, lanes, router, cx) {
                sweeps_ended += 1;
                if !self.idle() || sweeps_ended == 2 {
                    break;
                }
            }
        }
        self.busy_since = self.busy_since.or((self.runs > 0).then_some(cx.now));
    }

    /// Whether nothing is under way.
    fn idle(&self) -> bool {
        self.runs == 0 && self.written.is_empty() && self.flushing == 0
    }

    fn start_urgent(&mut self, lanes: &mut Lanes, router: &Router, cx: &mut Cx<'_>) -> bool {
        for lane in lanes {
            let mut from = Flat(0);
            while let Some(flat) = lane.next_urgent(from, &self.rest) {
                from = Flat(flat.0 + 1);
                if let Some(end) = lane.run_end(flat) {
                    from = end;
                } else if lane.start_run(flat, router.run_end(flat, cx.shared), cx) > 0 {
                    self.runs += 1;
                    return true;
                } else {
                    lane.seal_for_destage(flat, cx);
                }
            }
        }
        false
    }

    /// Starts the run that the order wants, or passes over one that can't be taken now, or without `hurry` over a block that was
    /// rewritten since the last sweep; false if there is nothing more in this sweep.
    fn start_next(&mut self, hurry: bool, lanes: &mut Lanes, router: &Router, cx: &mut Cx<'_>) -> bool {
        let Some(at) = self.order.next(&DirtyBlocks(lanes, &self.rest)) else {
            self.sweep_began = cx.now;
            return false;
        };
        let flat = Flat(at);
        let lane = &mut lanes[router.lane_of(flat)];
        let end = if let Some(end) = lane.run_end(flat) {
            end
        } else {
            if hurry || self.passed_over >= PASSED_OVER_MAX || !lane.pass_over(flat) {
                self.passed_over = 0;
                let end = router.run_end(flat, cx.shared);
                let mut blocks = lane.start_run(flat, end, cx);
                if blocks == 0 && lane.seal_for_destage(flat, cx) {
                    blocks = lane.start_run(flat, end, cx);
                }
                self.runs += u32::from(blocks > 0);
                Flat(at + u64::from(blocks.max(1)))
            } else {
                self.passed_over += 1;
                Flat(at + 1)
            }
        };
        self.order.taken(end.0);
        true
    }
}

impl Lane {
    /// The first urgent block from there on, but those of origins that rest.
    fn next_urgent(&self, mut from: Flat, rest: &[Range<u64>]) -> Option<Flat> {
        loop {
            let flat = *self.urgent.range(from..).next()?;
            match resting(rest, flat.0) {
                Some(end) => from = Flat(end),
                None => return Some(flat),
            }
        }
    }

    /// Whether a dirty block was rewritten since the last sweep came by: then it may be again, and is better left for the next one. (A
    /// recency bit as in B. Gill and D. Modha, "WOW: Wise Ordering for Writes", FAST 2005, for a block instead of a stripe.)
    fn pass_over(&mut self, flat: Flat) -> bool {
        let rewritten = self.rewritten.next(flat) == Some(flat);
        if rewritten {
            self.rewritten.remove(flat);
        }
        rewritten
    }

    /// A block that should be destaged is still in an open commit: seal that. Whether it was.
    fn seal_for_destage(&mut self, flat: Flat, cx: &mut Cx<'_>) -> bool {
        let unsealed = self.index.get(flat).is_some_and(|found| self.log.unsealed(found.slot));
        if unsealed {
            self.seal(crate::format::Stream::Writes, cx);
        }
        unsealed
    }
}

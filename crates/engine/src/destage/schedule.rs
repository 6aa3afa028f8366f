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
use crate::places;
use crate::router::Router;
use crate::shared::{Cx, FlushWaiter, Origin, Shared};
use crate::throttle::{Cost, Room, Rooms, Throttle};
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
/// So much of a batch a disk should have done by itself before it is flushed: less than all, so that too high an estimate of what that takes gets lower.
const DONE_PERCENT: u64 = 75;
/// However little time clients leave it then: so many times that time at most.
const PUT_OFF_MAX: u64 = 4;
/// Runs of a batch, at least: the way there and back is paid once for them.
const BATCH_RUNS_MIN: u64 = 8;
/// And at most: what a flush has to wait for on a device that answers writes faster than it does them.
const BATCH_RUNS_MAX: u64 = 4096;
/// Blocks of a batch, at most: 32 MiB, a fifth of a second of a disk's sequential writes; it bounds what one flush makes clean, and so what waits to be
/// recorded as clean.
const BATCH_BLOCKS_MAX: u64 = 8192;
/// An origin that has ended neither a run nor a flush for so long answers nothing at the moment: ten times what a whole batch is meant to take.
const AWAY_NS: u64 = 3_000_000_000;
/// Rewritten blocks that are passed over one after the other before one is taken all the same.
const PASSED_OVER_MAX: u32 = 64;

/// Destage of all origins. Each has its own batches: one that is slow, or answers nothing for minutes, stops no other.
pub(crate) struct Destager {
    origins: Vec<Batches>,
    /// Which has its turn first.
    turn: usize,
    last_request: Time,
    /// What may be read from the cache device beside clients that read it.
    credit: Credit,
    stopping: bool,
}

/// Destage of one origin.
struct Batches {
    order: Box<dyn Order>,
    /// Runs gathered or written right now.
    runs: u32,
    /// Runs written, waiting for a flush: (lane, run).
    written: Vec<(usize, usize)>,
    written_blocks: u64,
    /// Runs whose flush is asked for.
    flushing: u32,
    sweep_began: Time,
    /// Since when runs have been under way without a pause.
    busy_since: Option<Time>,
    /// The batch is written, and could be flushed: since when, and the origin's free time then.
    flushable: Option<(Time, u64)>,
    /// It is flushed by then at last, if nothing else happens.
    flush_by: Option<Time>,
    /// How long that was put off, and how much of it the origin was free; of the last batch how long.
    put_off: (u64, u64),
    last_put_off_ns: u64,
    /// The origin's free time when the last batch ended.
    free_ns: u64,
    /// While any are: when the first began, or a run or a flush last ended.
    answered: Option<Time>,
    /// When the last batch ended, and what it took.
    batch_ended: Option<Time>,
    last_batch_ns: u64,
    /// A pause for the sake of clients ends then.
    resume_at: Option<Time>,
    /// Rewritten blocks passed over since the last run was started.
    passed_over: u32,
    /// What the runs and blocks of the last batches took, in the mean.
    ns_per_run: u64,
    ns_per_block: u64,
}

/// The dirty blocks of one origin: (lanes, its places).
struct DirtyBlocks<'a>(&'a Lanes, Range<u64>);

impl DirtyView for DirtyBlocks<'_> {
    fn next(&self, from: u64) -> Option<u64> {
        let from = Flat(from.max(self.1.start));
        self.0.iter().filter_map(|lane| lane.dirty.next(from)).min().map(|flat| flat.0).filter(|at| *at < self.1.end)
    }
}

impl Destager {
    pub(crate) fn new(origins: usize, now: Time) -> Self {
        let origins = (0..origins).map(|_| Batches::new(now)).collect();
        Self { origins, turn: 0, last_request: now, credit: Credit::default(), stopping: false }
    }

    /// From now on no flush is put off.
    pub(crate) const fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) fn request_seen(&mut self, now: Time) {
        self.last_request = now;
    }

    pub(crate) fn run_written(&mut self, origin: usize, lane: usize, run: usize, blocks: u32, now: Time) {
        let batches = &mut self.origins[origin];
        batches.answered = Some(now);
        batches.runs -= 1;
        batches.written.push((lane, run));
        batches.written_blocks += u64::from(blocks);
    }

    pub(crate) fn run_dropped(&mut self, origin: usize, now: Time) {
        let batches = &mut self.origins[origin];
        batches.runs -= 1;
        batches.answered = Some(now);
        if batches.idle() {
            // What failed says nothing about what the next batch takes.
            (batches.busy_since, batches.answered) = (None, None);
        }
    }

    /// A flush of an origin is over that so many runs waited for; it made so many blocks clean.
    pub(crate) fn flushed(&mut self, at: usize, runs: u32, blocks: u64, cx: &mut Cx<'_>) {
        if blocks > 0 {
            cx.shared.origins[at].retry = None;
        }
        self.origins[at].flushed(runs, blocks, cx.shared.origins[at].free_ns(cx.now), cx.now);
    }

    /// A run for this origin failed: that is left alone for a while.
    pub(crate) fn failed(origin: &mut Origin, now: Time) {
        // Runs that were in flight together fail together.
        if !origin.rests(now) {
            let pause = origin.retry.map_or(RETRY_FIRST_NS, |(_, pause)| (pause * 2).min(RETRY_LAST_NS));
            origin.retry = Some((now.plus_ns(pause), pause));
        }
    }

    /// What destage of an origin took lately.
    pub(crate) fn cost(&self, origin: usize) -> Cost {
        let Batches { ns_per_run, ns_per_block, .. } = self.origins[origin];
        Cost { ns_per_run, ns_per_block }
    }

    /// When this step should run again although nothing happens.
    pub(crate) fn next_timer(&self, shared: &Shared, now: Time) -> Option<Time> {
        let idle = self.last_request.plus_ns(IDLE_AFTER_NS);
        let all = self.origins.iter().zip(&shared.origins);
        let away = self.origins.iter().filter_map(|batches| batches.answered).map(|since| since.plus_ns(AWAY_NS));
        let waiting = all.filter(|(batches, origin)| batches.runs == 0 && shared.undrained(origin) > 0);
        let times =
            waiting.flat_map(|(batches, origin)| [Some(idle), batches.resume_at, origin.retry.map(|(at, _)| at)]);
        // What is past was looked at then, and must not hide what is to come.
        let flushes = self.origins.iter().filter_map(|batches| batches.flush_by);
        times.flatten().chain(away).chain(flushes).filter(|at| *at > now).min()
    }

    /// Whether an origin takes nothing at the moment: it refuses, or has answered nothing for long.
    pub(crate) fn is_away(&self, at: usize, cx: &Cx<'_>) -> bool {
        let silent = self.origins[at].answered.is_some_and(|since| cx.now.since_ns(since) >= AWAY_NS);
        silent || cx.shared.origins[at].retry.is_some()
    }

    /// Whether one is that has something dirty.
    pub(crate) fn is_any_away(&self, cx: &Cx<'_>) -> bool {
        (0..self.origins.len()).any(|at| cx.shared.origins[at].dirty > 0 && self.is_away(at, cx))
    }

    /// Starts runs and flushes. `requests`: clients' requests in flight.
    pub(crate) fn step(
        &mut self,
        lanes: &mut Lanes,
        router: &Router,
        requests: usize,
        throttle: &Throttle,
        cx: &mut Cx<'_>,
    ) {
        let origins = self.origins.len();
        let rooms = Rooms::new(self, cx);
        cx.shared.cache_reads.no_room = (0..origins).any(|at| rooms.of(at, self, cx).is_scarce());
        self.turn = (self.turn + 1) % origins.max(1);
        let crowded = throttle.is_crowded(self, cx);
        for nth in 0..origins {
            let at = (self.turn + nth) % origins;
            if cx.shared.origins[at].dirty == 0 {
                // What becomes dirty next is as old as this.
                self.origins[at].sweep_began = cx.now;
            }
            let starved = throttle.is_starved(at, crowded, self, cx);
            let pace = self.pace(at, lanes, requests, rooms.of(at, self, cx), starved, cx);
            self.step_of(at, pace, lanes, router, cx);
        }
    }

    fn step_of(&mut self, at: usize, pace: Option<Pace>, lanes: &mut Lanes, router: &Router, cx: &mut Cx<'_>) {
        let batch = pace.map_or(0, |pace| pace.batch_ns / self.origins[at].ns_per_run);
        let batch = batch.clamp(BATCH_RUNS_MIN, BATCH_RUNS_MAX) as u32;
        let blocks = BATCH_BLOCKS_MAX.min(cx.shared.dirty_limit / 8 / self.origins.len() as u64);
        if let Some(pace) = pace {
            self.start_runs(at, pace, (batch, blocks), lanes, router, cx);
        }
        let pressed = pace.is_some_and(|pace| pace.pressed) || self.is_flush_waited_for(at, lanes, cx);
        self.origins[at].flush_written((batch, blocks), pressed, &mut cx.shared.origins[at], cx.now);
    }

    /// Whether somebody waits for what is written to become clean, or the origin is flushed anyway.
    fn is_flush_waited_for(&self, at: usize, lanes: &Lanes, cx: &Cx<'_>) -> bool {
        let origin = &cx.shared.origins[at];
        let awaited = || lanes.iter().any(|lane| lane.any_awaits_clean(&origin.places()));
        self.stopping || cx.shared.draining || origin.rests(cx.now) || origin.flush.due() || awaited()
    }

    fn pace(&self, at: usize, lanes: &Lanes, requests: usize, room: Room, starved: bool, cx: &Cx<'_>) -> Option<Pace> {
        let (shared, origin, batches) = (&*cx.shared, &cx.shared.origins[at], &self.origins[at]);
        if shared.stopping || origin.rests(cx.now) || shared.undrained(origin) == 0 {
            return None;
        }
        let leaving = origin.mode != Mode::Writeback || shared.cache_failed;
        let waited_for = || lanes.iter().any(|lane| lane.next_urgent(origin.places()).is_some());
        let recent = |at: Time| cx.now.since_ns(at) < IDLE_AFTER_NS;
        let aged = batches.aged(cx);
        pace(View {
            // Destage is at full speed where this origin's writers have to stop.
            dirty: room.taken,
            limit: room.limit,
            idle: requests == 0 && !recent(self.last_request),
            urgent: shared.draining || leaving || starved || waited_for(),
            aged,
            behind: lanes.iter().any(|lane| lane.reclaim.is_behind(cx.now)),
            readers: shared.cache_reads.until(aged, cx.now).is_some(),
            clients: origin.foreground_ios > 0 || origin.last_foreground.is_some_and(recent),
            quiet_ns: origin.last_foreground.map_or(u64::MAX, |at| cx.now.since_ns(at)),
        })
    }

    /// Whether one more run of this origin may be under way.
    fn has_place(&self, at: usize) -> bool {
        places::is_left(RUNS_MAX, self.origins[at].runs, self.origins.iter().map(|batches| batches.runs))
    }

    /// Starts runs of this batch, and while that is being flushed, of the next.
    fn start_runs(
        &mut self,
        origin: usize,
        pace: Pace,
        (batch, blocks): (u32, u64),
        lanes: &mut Lanes,
        router: &Router,
        cx: &mut Cx<'_>,
    ) {
        let batches = &mut self.origins[origin];
        let mut paused_until = None;
        if pace.pause_permille > 0 {
            let pause = batches.last_batch_ns / 1000 * pace.pause_permille;
            let pause = pause.saturating_sub(batches.last_put_off_ns);
            let resume = batches.batch_ended.map_or(cx.now, |at| at.plus_ns(pause));
            if batches.flushing > 0 || cx.now < resume {
                let gap = cx.shared.cache_reads.until(batches.aged(cx), cx.now).filter(|_| pace.patient);
                batches.resume_at = (batches.flushing == 0).then_some(gap.map_or(resume, |gap| gap.min(resume)));
                if !pace.patient {
                    return;
                }
                paused_until = Some(batches.resume_at);
            }
        }
        batches.resume_at = None;
        let (mut tries, mut sweeps_ended) = (0, 0);
        // With nothing in flight nobody would come back here: then all is looked at, from the place of the
        // sweep to its end and once more from the start.
        while self.has_place(origin)
            && self.origins[origin].has_room(batch, blocks)
            && (tries < TRIES_PER_STEP || self.origins[origin].idle())
        {
            let earned = self.credit.allows(&cx.shared.cache_reads, (cx.shared.dirty, cx.shared.dirty_limit), cx.now);
            let batches = &mut self.origins[origin];
            // Who waits for room, or for age, waits for more than a reader does.
            match (earned, paused_until) {
                (Err(_), Some(resume_at)) => {
                    batches.resume_at = resume_at;
                    break;
                }
                (Err(until), None) if !pace.hurry => {
                    batches.resume_at = Some(until);
                    break;
                }
                _ => {}
            }
            tries += 1;
            let places = cx.shared.origins[origin].places();
            if !batches.start_urgent(&places, lanes, router, cx)
                && !batches.start_next(places, pace.hurry, lanes, router, cx)
            {
                sweeps_ended += 1;
                if !batches.idle() || sweeps_ended == 2 {
                    break;
                }
            }
        }
        let batches = &mut self.origins[origin];
        let began = (batches.runs > 0).then_some(cx.now);
        (batches.busy_since, batches.answered) = (batches.busy_since.or(began), batches.answered.or(began));
    }
}

impl Batches {
    fn new(now: Time) -> Self {
        Self {
            order: (order::ALL[0].build)(),
            runs: 0,
            written: Vec::new(),
            written_blocks: 0,
            flushing: 0,
            sweep_began: now,
            busy_since: None,
            flushable: None,
            flush_by: None,
            put_off: (0, 0),
            last_put_off_ns: 0,
            free_ns: 0,
            answered: None,
            batch_ended: None,
            last_batch_ns: 0,
            resume_at: None,
            passed_over: 0,
            ns_per_run: NS_PER_RUN_FIRST,
            ns_per_block: NS_PER_RUN_FIRST,
        }
    }

    /// Whether nothing is under way.
    fn idle(&self) -> bool {
        self.runs == 0 && self.written.is_empty() && self.flushing == 0
    }

    /// Whether one more run belongs to this batch.
    fn has_room(&self, batch: u32, blocks: u64) -> bool {
        self.runs + (self.written.len() as u32) < batch && self.written_blocks < blocks
    }

    fn aged(&self, cx: &Cx<'_>) -> bool {
        cx.now.since_ns(self.sweep_began) >= cx.shared.options.dirty_age_max_ns / 2
    }

    fn flushed(&mut self, runs: u32, blocks: u64, free_ns: u64, now: Time) {
        self.flushing -= runs;
        self.answered = (!self.idle()).then_some(now);
        let (put_off, free) = core::mem::take(&mut self.put_off);
        let Some(since) = self.busy_since else { return };
        // What was put off is at most what the origin was free meanwhile: that much of the batch it may have done by then.
        let (least, estimate) = (now.since_ns(since).saturating_sub(put_off), self.ns_per_run * u64::from(runs));
        let took = estimate.clamp(least, least + free);
        self.last_put_off_ns = put_off;
        let mean = |old: u64, count: u64| (old * 3 + (took / count.max(1)).clamp(1, NS_PER_RUN_MAX)) / 4;
        self.ns_per_run = mean(self.ns_per_run, u64::from(runs));
        if blocks > 0 {
            self.ns_per_block = mean(self.ns_per_block, blocks);
        }
        (self.busy_since, self.free_ns) = (self.answered, free_ns);
        (self.batch_ended, self.last_batch_ns) = (Some(now), took.min(BATCH_NS_MAX));
    }

    /// Asks for the flush of what is written, if that is a batch, or nothing more comes; later, if nobody waits for it.
    fn flush_written(&mut self, (batch, blocks): (u32, u64), pressed: bool, origin: &mut Origin, now: Time) {
        // A small limit is not to be reached by what is written and only waits for its flush.
        let enough = self.written.len() >= batch as usize || self.written_blocks >= blocks;
        self.flush_by = None;
        let free_ns = origin.free_ns(now);
        // One flush at a time, and one batch written meanwhile: else a slow flush would find more and more behind it.
        if self.written.is_empty() || self.flushing > 0 || (self.runs > 0 && !enough) {
            self.count_put_off(free_ns, now);
            return;
        }
        let (since, free_then) = *self.flushable.get_or_insert((now, free_ns));
        let clients_leave_time =
            free_ns.saturating_sub(self.free_ns) * 2 >= now.since_ns(self.batch_ended.unwrap_or(Time(0)));
        if !pressed && clients_leave_time {
            self.flush_by = self.puts_off(since, free_ns.saturating_sub(free_then), origin.foreground_ios > 0, now);
            if self.flush_by.is_some() {
                return;
            }
        }
        self.count_put_off(free_ns, now);
        self.answered = Some(now);
        self.flushing += self.written.len() as u32;
        for (lane, run) in self.written.drain(..) {
            origin.flush.join(FlushWaiter::Run(lane, run));
        }
        self.written_blocks = 0;
    }

    /// The batch can't be flushed any more, or is.
    fn count_put_off(&mut self, free_ns: u64, now: Time) {
        if let Some((since, free_then)) = self.flushable.take() {
            self.put_off.0 += now.since_ns(since);
            self.put_off.1 += free_ns.saturating_sub(free_then);
        }
    }

    /// A disk writes what is in its write cache when it has nothing else to do, but serves nobody while it flushes. So a batch is flushed when the disk
    /// will have done most of it: until when at most, if that is to come. It was written at `since`, and from then on the origin had so much time for it.
    fn puts_off(&self, since: Time, had_ns: u64, busy: bool, now: Time) -> Option<Time> {
        let written_ns = self.busy_since.map_or(0, |began| since.since_ns(began));
        let takes = (self.ns_per_run * self.written.len() as u64).min(BATCH_NS_MAX) * DONE_PERCENT / 100;
        let left = takes.saturating_sub(written_ns + had_ns);
        let last = since.plus_ns((takes * PUT_OFF_MAX).min(BATCH_NS_MAX));
        let flush_by = if busy { last } else { last.min(now.plus_ns(left)) };
        (left > 0 && flush_by > now).then_some(flush_by)
    }

    fn start_urgent(&mut self, places: &Range<u64>, lanes: &mut Lanes, router: &Router, cx: &mut Cx<'_>) -> bool {
        for lane in lanes {
            let mut from = places.start;
            while let Some(flat) = lane.next_urgent(from..places.end) {
                from = flat.0 + 1;
                if let Some(end) = lane.run_end(flat) {
                    from = end.0;
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
    fn start_next(
        &mut self,
        places: Range<u64>,
        hurry: bool,
        lanes: &mut Lanes,
        router: &Router,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some(at) = self.order.next(&DirtyBlocks(lanes, places)) else {
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
    /// The first urgent block in a range.
    fn next_urgent(&self, places: Range<u64>) -> Option<Flat> {
        self.urgent.range(Flat(places.start)..Flat(places.end)).next().copied()
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

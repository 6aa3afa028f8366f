// SPDX-License-Identifier: MIT OR Apache-2.0
//! When runs start: the coordinator's part of destage.

use alloc::vec::Vec;

use super::batches::{Batches, Place, Round, Step, Want};
use super::ordered::{Now, order_step};
use super::rate::{Pace, View, pace};
use super::readers::Credit;
use super::state::Ending;
use crate::act::throttle::Throttle;
use crate::cx::Cx;
use crate::delta::Delta;
use crate::fact::canary::Canary;
use crate::fact::types::{Destage, Mode, Time};
use crate::lanes::Lanes;
use crate::look::Look;
use crate::organ::congestion::AWAY_NS;
use crate::organ::cuts::Hold;
use crate::organ::grant::Used;
use crate::organ::origin::{OriginDelta, Stage};
use crate::organ::places;
use crate::organ::reach::{FAR_RUN_BLOCKS_MAX, FAR_RUNS_MAX, RUN_BLOCKS_MAX, RUNS_MAX};
use crate::organ::room::{Cost, Outlook, Room, Rooms};
use crate::organ::router::Router;

/// No request for this long is idle; no I/O for a client at an origin for this long, and destage
/// needs not yield.
const IDLE_AFTER_NS: u64 = 100_000_000;
/// Candidates that one step looks at: a bound on its time when many can't be taken.
const TRIES_PER_STEP: u32 = 64;
/// Runs of a batch, at least: the way there and back is paid once for them.
const BATCH_RUNS_MIN: u64 = 8;
/// And at most: what a flush has to wait for on a device that answers writes faster than it does
/// them.
const BATCH_RUNS_MAX: u64 = 4096;
/// Blocks of a batch, at most: 32 MiB, a fifth of a second of a disk's sequential writes. That
/// bounds what one flush makes clean, and so what waits to be recorded as clean.
const BATCH_BLOCKS_MAX: u64 = 8192;

/// Destage of all origins. Each has its own batches: one that is slow, or answers nothing for
/// minutes, stops no other.
pub(crate) struct Destager {
    origins: Vec<Batches>,
    /// Which has its turn first.
    turn: usize,
    last_request: Time,
    /// What may be read from the cache device beside clients that read it.
    credit: Credit,
    /// A stop was asked for. (`Facts::stopping` comes when all requests are answered.)
    stopping: bool,
}

/// Whether destage keeps the order of FLUSHes.
fn is_ordered(cx: &Cx<'_>) -> bool {
    cx.facts.options.destage == Destage::Ordered
}

/// Whether clients read from or write to an origin directly now, or did a moment ago.
fn is_used(origin: &OriginDelta, now: Time) -> bool {
    origin.foreground_ios > 0 || origin.last_foreground.is_some_and(|since| now.since_ns(since) < IDLE_AFTER_NS)
}

impl Outlook for Destager {
    fn is_away(&self, origin: usize, cx: &Cx<'_>) -> bool {
        let silent = self.origins[origin].answered.is_some_and(|since| cx.now.since_ns(since) >= AWAY_NS);
        silent || self.origins[origin].refusals.any()
    }

    fn cost(&self, origin: usize) -> Cost {
        let Batches { ns_per_run, ns_per_block, .. } = self.origins[origin];
        Cost { ns_per_run, ns_per_block }
    }
}

impl Destager {
    pub(crate) fn new(origins: usize, now: Time) -> Self {
        let origins = (0..origins).map(|_| Batches::new(now)).collect();
        Self { origins, turn: 0, last_request: now, credit: Credit::default(), stopping: false }
    }

    /// There is one origin more.
    pub(crate) fn add_origin(&mut self, now: Time) {
        self.origins.push(Batches::new(now));
    }

    /// Whether nothing of this origin is under way.
    pub(crate) fn is_idle_for(&self, origin: usize) -> bool {
        self.origins[origin].idle()
    }

    /// From now on no flush is put off.
    pub(crate) const fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) fn request_seen(&mut self, now: Time) {
        self.last_request = now;
    }

    /// A lane tells what it has done with a grant.
    pub(crate) fn grant_used(&mut self, used: &Used) {
        self.origins[used.origin].used(used);
    }

    /// Runs that lanes have, by the coordinator's count, while no message is on its way.
    pub(crate) fn under_way(&self) -> usize {
        self.origins.iter().map(Batches::under_way).sum()
    }

    pub(crate) fn run_written(&mut self, origin: usize, lane: usize, run: usize, blocks: u32, now: Time) {
        self.origins[origin].run_written((lane, run), blocks, now);
    }

    pub(crate) fn run_dropped(&mut self, origin: usize, now: Time) {
        self.origins[origin].run_dropped(now);
    }

    /// A flush of an origin is over that so many runs waited for. Lanes tell what became clean.
    pub(crate) fn flush_ended(&mut self, origin: usize, runs: u32) {
        self.origins[origin].ending = Ending { runs, left: runs, cleaned: 0 };
    }

    /// A run's lane has heard of the flush, which made so many blocks clean.
    pub(crate) fn run_flushed(&mut self, origin: usize, cleaned: u64, cx: &mut Cx<'_>) {
        let ending = &mut self.origins[origin].ending;
        ending.cleaned += cleaned;
        ending.left = ending.left.saturating_sub(1);
        if ending.left == 0 {
            let Ending { runs, cleaned, .. } = core::mem::take(ending);
            self.flushed(origin, runs, cleaned, cx);
        }
    }

    /// A flush of an origin is over that so many runs waited for; it made so many blocks clean.
    fn flushed(&mut self, origin: usize, runs: u32, blocks: u64, cx: &mut Cx<'_>) {
        if blocks > 0 {
            self.origins[origin].refusals.end();
        }
        self.origins[origin].flushed(runs, blocks, cx.delta.origins[origin].free_ns(cx.now), cx.now);
    }

    /// A run for this origin failed. Returns how many attempts have failed in a row.
    pub(crate) fn failed(&mut self, origin: usize, now: Time) -> u32 {
        self.origins[origin].refusals.failed(now)
    }

    /// Whether an origin has refused destage, and nothing of it has become clean since.
    pub(crate) fn is_refused(&self, origin: usize) -> bool {
        self.origins[origin].refusals.any()
    }

    /// An origin may take writes again: it is tried at once.
    pub(crate) fn try_at_once(&mut self, origin: usize) {
        self.origins[origin].refusals.end();
    }

    /// When this step should run again although nothing happens.
    pub(crate) fn next_timer(&self, delta: &Delta, now: Time) -> Option<Time> {
        let idle = self.last_request.plus_ns(IDLE_AFTER_NS);
        let all = self.origins.iter().zip(&delta.origins);
        let away = self.origins.iter().filter_map(|batches| batches.answered).map(|since| since.plus_ns(AWAY_NS));
        let waiting = all.filter(|(batches, origin)| batches.runs == 0 && origin.undrained() > 0);
        let times = waiting.flat_map(|(batches, origin)| {
            [Some(idle), batches.resume_at, batches.refusals.timer(), origin.cuts.group_waits_until()]
        });
        // What is past was looked at then, and must not hide what is to come.
        let flushes = self.origins.iter().filter_map(|batches| batches.flush_by);
        times.flatten().chain(away).chain(flushes).filter(|when| *when > now).min()
    }

    /// Whether an origin is away that has something dirty.
    pub(crate) fn is_any_away(&self, cx: &Cx<'_>) -> bool {
        (0..self.origins.len()).any(|origin| cx.delta.origins[origin].dirty.get() > 0 && self.is_away(origin, cx))
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
        let no_room = (0..origins).any(|origin| rooms.of(origin, self, cx).is_scarce());
        cx.delta.cache_reads.set_room(no_room);
        self.turn = (self.turn + 1) % origins.max(1);
        let crowded = throttle.is_crowded(self, cx);
        // An origin without dirty blocks takes no part (test:
        // `volumes_that_went_leave_destage_its_batches`).
        let at_work = cx.delta.origins.iter().filter(|it| it.dirty.get() > 0).count();
        let shared = BATCH_BLOCKS_MAX.min((cx.facts.dirty_limit / 8 / at_work.max(1) as u64).max(1));
        for nth in 0..origins {
            let origin = (self.turn + nth) % origins;
            if cx.delta.origins[origin].dirty.get() == 0 {
                self.origins[origin].begin_sweep(cx.now);
                if !is_ordered(cx) {
                    cx.delta.origins[origin].cuts.nothing_dirty();
                }
            }
            let starved = throttle.is_starved(origin, crowded, self, cx);
            if starved || lanes.looks().any(|lane| lane.awaits_room(origin, cx)) {
                self.origins[origin].refusals.try_soon();
            }
            let pushed = cx.delta.origins[origin].gauge.reach.is_far() && throttle.slowed(origin) > 0;
            self.origins[origin].stands_for = pushed.then(|| throttle.slowed(origin) as u32);
            let pace = self.pace(origin, lanes, requests, rooms.of(origin, self, cx), (starved, pushed), cx);
            let blocks = shared.min((cx.facts.origins[origin].dirty_limit / 8).max(1));
            self.step_of(origin, pace, blocks, lanes, router, cx);
        }
    }

    fn step_of(
        &mut self,
        origin: usize,
        pace: Option<Pace>,
        blocks: u64,
        lanes: &mut Lanes,
        router: &Router,
        cx: &mut Cx<'_>,
    ) {
        let ordered = is_ordered(cx);
        if ordered {
            let pressed = pace.is_some_and(|pace| pace.pressed);
            let may_begin = pace.is_some() && (pressed || !self.stopping);
            // A flush in flight may cover what is written meanwhile: a part of a group.
            let idle = self.origins[origin].idle() && !cx.delta.origins[origin].flush.is_in_flight();
            let now = Now { idle, may_begin, hurry: pressed };
            order_step(origin, &now, lanes, cx);
        }
        let cuts = &cx.delta.origins[origin].cuts;
        let waits = ordered && (cuts.destaging().is_none() || self.flushes_group(origin, cx));
        let batch = pace.map_or(0, |pace| pace.batch_ns / self.origins[origin].ns_per_run);
        let batch = batch.clamp(BATCH_RUNS_MIN, BATCH_RUNS_MAX) as u32;
        // A group is one batch, however long. Where a flush costs a request, but stops nobody,
        // blocks alone bound a batch: no number of runs makes it short.
        let (batch, blocks) = match () {
            () if cx.facts.planted(Canary::GroupFlushed) => (batch, blocks),
            () if cuts.has_group() => (u32::MAX, u64::MAX),
            () if cx.facts.origins[origin].whole_flushes => (u32::MAX, blocks),
            () => (batch, blocks),
        };
        match pace.filter(|_| !waits) {
            // The round goes on when the lane has answered.
            Some(_) if self.origins[origin].has_grant_out() => {}
            Some(pace) => self.start_runs(origin, pace, (batch, blocks), lanes, router, cx),
            None => self.origins[origin].round = Round::default(),
        }
        if self.holds_flush(origin, lanes, cx) {
            return;
        }
        // The next era waits for the flush.
        let pressed = pace.is_some_and(|pace| pace.pressed)
            || ordered && cx.delta.origins[origin].cuts.is_behind()
            || self.is_flush_waited_for(origin, lanes, cx);
        self.origins[origin].flush_written((batch, blocks), pressed, &mut cx.delta.origins[origin], cx.now);
    }

    /// Whether a whole group waits for its flush. Then nobody looks for more runs. With a grant on
    /// its way the group would not look whole, and its flush would be held back for ever (torture,
    /// seed 1795952174250).
    fn flushes_group(&self, origin: usize, cx: &Cx<'_>) -> bool {
        cx.delta.origins[origin].cuts.has_group() && self.origins[origin].flushing > 0
    }

    /// Whether the flush of an origin is held back: only a part of a group is there.
    fn holds_flush(&mut self, origin: usize, lanes: &Lanes, cx: &mut Cx<'_>) -> bool {
        let (batches, facts) = (&mut self.origins[origin], &cx.facts.origins[origin]);
        let cuts = &cx.delta.origins[origin].cuts;
        let Some(wanted) = cuts.destaging().filter(|_| cuts.has_group()) else {
            cx.delta.origins[origin].cuts.set_hold(Hold::No);
            return false;
        };
        if batches.flushing > 0 {
            // What was found to be whole stays so until its flush is over.
            return cuts.hold() == Hold::Yes;
        }
        let is_complete = batches.only_written() && !batches.lacks_run(facts.id, wanted, lanes);
        let is_complete = is_complete || cx.facts.planted(Canary::GroupFlushed);
        let goes_on = matches!(facts.stage, Stage::Coming | Stage::Serving | Stage::Leaving { destaged: true });
        let hold = match is_complete {
            true => Hold::No,
            false if cx.facts.stopping || !goes_on || batches.refusals.gives_up() => Hold::Fails,
            false => Hold::Yes,
        };
        cx.delta.origins[origin].cuts.set_hold(hold);
        // What was written of a group that is given up waits for the rest. At a stop its flush
        // fails instead, or the stop would never end (torture, seed 1795977627787).
        hold == Hold::Yes || hold == Hold::Fails && !cx.facts.stopping && batches.refusals.gives_up()
    }

    /// Whether an origin has a part of a group, and may soon have the rest.
    pub(crate) fn is_mid_group(&self, origin: usize, cx: &Cx<'_>) -> bool {
        let held = cx.delta.origins[origin].cuts.hold() == Hold::Yes;
        held && !self.origins[origin].idle() && !self.is_away(origin, cx)
    }

    /// Whether somebody waits for what is written to become clean, or the origin is flushed anyway.
    fn is_flush_waited_for(&self, origin: usize, lanes: &Lanes, cx: &Cx<'_>) -> bool {
        let (refusals, flush) = (&self.origins[origin].refusals, &cx.delta.origins[origin].flush);
        // Reclaim gives the log room when what is written is clean.
        let awaited = || lanes.looks().any(|lane| lane.awaits_clean(origin, cx) || lane.awaits_room(origin, cx));
        self.stopping || cx.facts.draining || refusals.rest(cx.now) || flush.due() || awaited()
    }

    fn pace(
        &self,
        origin: usize,
        lanes: &Lanes,
        requests: usize,
        room: Room,
        (starved, pushed): (bool, bool),
        cx: &Cx<'_>,
    ) -> Option<Pace> {
        let (facts, it, batches) = (&cx.facts.origins[origin], &cx.delta.origins[origin], &self.origins[origin]);
        if cx.facts.stopping || batches.refusals.rest(cx.now) || it.undrained() == 0 {
            return None;
        }
        let waited_for = || lanes.looks().any(|lane| lane.has_urgent(origin, cx));
        let bars = |lane: Look<'_>| lane.awaits_clean(origin, cx) || lane.awaits_versions(cx);
        let barred = || is_ordered(cx) && lanes.looks().any(bars);
        let to_go = match facts.stage {
            Stage::Coming | Stage::Serving => false,
            Stage::Leaving { destaged: true } => true,
            // Requests that are under way may need the room of blocks that are thrown away only
            // after them (test: `a_full_cache_lets_a_volume_go_with_its_dirty_blocks`). Or they
            // wait for eras (test: `a_write_past_the_log_lets_its_volume_go`).
            Stage::Leaving { destaged: false } if starved || waited_for() || barred() => false,
            Stage::Leaving { destaged: false } | Stage::Unlisted | Stage::Gone => return None,
        };
        let leaving = facts.mode != Mode::Writeback || cx.cache_failed() || to_go;
        let recent = |since: Time| cx.now.since_ns(since) < IDLE_AFTER_NS;
        // What a FLUSH has covered should be on the origin soon, where that is the point.
        let behind = is_ordered(cx) && it.cuts.is_behind();
        let aged = batches.aged(facts.dirty_age_max_ns, cx.now) || behind;
        pace(View {
            // Destage is at full speed where this origin's writers have to stop.
            dirty: room.taken,
            limit: room.limit,
            idle: requests == 0 && !recent(self.last_request),
            urgent: cx.facts.draining || leaving || starved || waited_for() || barred(),
            aged,
            behind: lanes.looks().any(|lane| lane.is_reclaim_behind(cx.now)),
            readers: !behind && cx.delta.cache_reads.until(aged, cx.now).is_some(),
            // Destage stands for writers that wait. Without a cache they would have their share of
            // a far origin, and a flush there stops nobody.
            clients: is_used(it, cx.now) && !pushed,
            quiet_ns: it.last_foreground.map_or(u64::MAX, |since| cx.now.since_ns(since)),
        })
    }

    /// Where one more run of this origin would have its place, if there is one.
    fn place(&self, origin: usize, pace: Pace, cx: &Cx<'_>) -> Option<Place> {
        let near = |batches: &Batches| batches.runs - batches.far_runs;
        let (it, reach) = (&self.origins[origin], &cx.delta.origins[origin].gauge.reach);
        let beside_clients = pace.pause_permille > 0;
        if beside_clients && it.runs >= reach.beside() {
            return None;
        }
        // Clients wait behind no more than would be there without a cache, or behind what hardly
        // waits itself.
        let most = |writers: u32| writers.max(reach.beside()).max(reach.more());
        let all_stand = it.stands_for.is_some_and(|writers| it.runs >= most(writers));
        if all_stand && is_used(&cx.delta.origins[origin], cx.now) {
            return None;
        }
        if places::is_left(RUNS_MAX, near(it), self.origins.iter().map(near)) {
            return Some(Place::Near);
        }
        let far = self.origins.iter().map(|batches| batches.far_runs);
        // Where a write ends in RAM it tells nothing of the way. Each turn of the daemon then
        // carries more of the short runs of random writes. Long runs stay few: more of them would
        // be cut into short ones.
        let in_ram = cx.facts.origins[origin].whole_flushes && it.has_short_runs();
        let more = if in_ram { FAR_RUNS_MAX } else { reach.more() };
        (!beside_clients && it.far_runs < more && places::is_left(FAR_RUNS_MAX, it.far_runs, far)).then_some(Place::Far)
    }

    /// Whether nobody would come back to an origin: nothing is in flight, nor soon will be.
    fn is_still(&self, origin: usize, cx: &Cx<'_>) -> bool {
        // What was written of a group is not flushed before the rest is there.
        let holds = cx.delta.origins[origin].cuts.has_group();
        self.origins[origin].idle() || holds && self.origins[origin].only_written()
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
            let resume = batches.batch_ended.map_or(cx.now, |when| when.plus_ns(pause));
            if batches.flushing > 0 || cx.now < resume {
                let aged = batches.aged(cx.facts.origins[origin].dirty_age_max_ns, cx.now);
                let gap = cx.delta.cache_reads.until(aged, cx.now).filter(|_| pace.patient);
                batches.resume_at = (batches.flushing == 0).then_some(gap.map_or(resume, |gap| gap.min(resume)));
                if !pace.patient {
                    return;
                }
                paused_until = Some(batches.resume_at);
            }
        }
        batches.resume_at = None;
        let flowing = pace.pause_permille == 0 && cx.delta.origins[origin].gauge.reach.is_far();
        // Two origins of which nothing can be destaged would ask lanes in turns for ever (torture
        // by mail, seed 5038).
        if self.origins[origin].is_in_vain(lanes.news()) {
            return;
        }
        // With nothing in flight nobody would come back here. Then all is looked at, from the place
        // of the sweep to its end, and once more from the start.
        while let Some(place) = self.place(origin, pace, cx)
            && self.origins[origin].has_room(batch, blocks, flowing)
            && (self.origins[origin].round.tries < TRIES_PER_STEP || self.is_still(origin, cx))
        {
            let earned = self.credit.allows(&cx.delta.cache_reads, (cx.delta.dirty(), cx.facts.dirty_limit), cx.now);
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
            batches.round.tries += 1;
            let (ordered, eras) = (is_ordered(cx), cx.delta.origins[origin].cuts.destaging());
            let blocks_max = match place {
                Place::Far => FAR_RUN_BLOCKS_MAX,
                Place::Near if pace.pause_permille > 0 => cx.delta.origins[origin].gauge.reach.beside_blocks(),
                Place::Near => RUN_BLOCKS_MAX,
            };
            let want = Want { origin, place, blocks_max, hurry: pace.hurry, ordered, eras };
            match batches.start_one(&want, lanes, router, cx) {
                Step::Asked => return batches.note_began(cx.now),
                Step::Unknown => {
                    batches.round.tries -= 1;
                    return batches.note_began(cx.now);
                }
                Step::Tried => {}
                Step::SweepEnded => {
                    batches.round.sweeps_ended += 1;
                    if !self.is_still(origin, cx) || self.origins[origin].round.sweeps_ended == 2 {
                        break;
                    }
                }
            }
        }
        self.origins[origin].end_round(lanes.news());
        self.origins[origin].note_began(cx.now);
    }
}

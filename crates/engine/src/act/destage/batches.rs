// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches of an origin's runs: which blocks go next, and when what is written is flushed.

use alloc::vec::Vec;

use super::order::Next;
use super::refusals::Refusals;
use super::search::Search;
use super::state::Ending;
use crate::cx::Cx;
use crate::fact::types::{OriginId, Time};
use crate::lanes::Lanes;
use crate::organ::down::Down;
use crate::organ::eras::Wanted;
use crate::organ::flush::FlushWaiter;
use crate::organ::grant::{Came, Grant, Takes, Used};
use crate::organ::index::Flat;
use crate::organ::origin::OriginDelta;
use crate::organ::reach::FAR_RUN_BLOCKS_MAX;
use crate::organ::router::Router;
use crate::organ::up::Up;

/// Assumed before anything was measured: a disk's sorted random writes, about 400 a second.
const NS_PER_RUN_FIRST: u64 = 2_500_000;
/// Taken for a run at most: a disk's longest seek, a turn, and 1 MiB of its inner tracks. A batch
/// of few runs among reads of clients takes longer, but says nothing about what comes after them.
const NS_PER_RUN_MAX: u64 = 35_000_000;
/// The most that is taken for a batch when the pause after it is measured out. One flush that timed
/// out must not stop destage for an hour.
const BATCH_NS_MAX: u64 = 1_000_000_000;
/// The part of a batch that a disk should have done by itself before it is flushed. Less than all,
/// so that too high an estimate of what that takes gets lower.
const DONE_PERCENT: u64 = 75;
/// However little time clients leave it then: so many times that time at most.
const PUT_OFF_MAX: u64 = 4;
/// Rewritten blocks that are passed over one after the other before one is taken all the same.
const PASSED_OVER_MAX: u32 = 64;

/// Where one more run finds its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Among those that any origin may have.
    Near,
    /// Among those for origins that are far away: the run is short.
    Far,
}

/// What one more run is to be like.
pub(super) struct Want {
    pub(super) origin: usize,
    pub(super) place: Place,
    /// The run has so many blocks at most.
    pub(super) blocks_max: u32,
    /// Blocks that were rewritten since the last sweep are taken too.
    pub(super) hurry: bool,
    /// Destage is ordered, and these eras may be destaged now.
    pub(super) ordered: bool,
    pub(super) eras: Option<Wanted>,
}

/// What a look for one more run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A lane has to answer first.
    Asked,
    /// Lanes have to show first what they have.
    Unknown,
    /// A block was tried.
    Tried,
    /// There is nothing more in this sweep.
    SweepEnded,
}

/// What a step of destage has looked at so far. It goes on when a lane has answered.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) tries: u32,
    pub(super) sweeps_ended: u32,
    /// A run has begun.
    pub(super) has_begun: bool,
}

/// Destage of one origin.
pub(super) struct Batches {
    search: Search,
    pub(super) refusals: Refusals,
    /// Runs gathered or written right now, and the one that a grant is out for.
    pub(super) runs: u32,
    /// How many of them an origin has only because it is far away. They are counted as the first
    /// that end, so that no more long runs are under way than others are.
    pub(super) far_runs: u32,
    /// Where the origin is far away, and writers wait for room or for their turn: how many.
    pub(super) stands_for: Option<u32>,
    /// Runs written, waiting for a flush: (lane, run).
    written: Vec<(usize, usize)>,
    written_blocks: u64,
    /// Runs whose flush is asked for.
    pub(super) flushing: u32,
    sweep_began: Time,
    /// Since when runs have been under way without a pause.
    busy_since: Option<Time>,
    /// The batch is written, and could be flushed: since when, and the origin's free time then.
    flushable: Option<(Time, u64)>,
    /// The batch is flushed by then at last, if nothing else happens.
    pub(super) flush_by: Option<Time>,
    /// How long that was put off, and how much of it the origin was free; of the last batch how
    /// long.
    put_off: (u64, u64),
    pub(super) last_put_off_ns: u64,
    /// The origin's free time when the last batch ended.
    free_ns: u64,
    /// While any are: when the first began, a run or a flush last ended, or a flush was last asked
    /// for.
    pub(super) answered: Option<Time>,
    /// When the last batch ended, and what it took.
    pub(super) batch_ended: Option<Time>,
    pub(super) last_batch_ns: u64,
    /// A pause for the sake of clients ends then.
    pub(super) resume_at: Option<Time>,
    /// Rewritten blocks passed over since the last run was started.
    passed_over: u32,
    /// The number of grants so far, and the one that a lane has not answered: (lane, grant, place).
    grants: u64,
    out: Option<(usize, Grant, Place)>,
    pub(super) round: Round,
    /// The last round came to nothing, with this news.
    pub(super) in_vain: Option<u64>,
    /// What the runs and blocks of the last batches took, in the mean.
    pub(super) ns_per_run: u64,
    pub(super) ns_per_block: u64,
    /// The flush of a batch is over.
    pub(super) ending: Ending,
}

impl Batches {
    pub(super) fn new(now: Time) -> Self {
        Self {
            search: Search::default(),
            refusals: Refusals::default(),
            runs: 0,
            far_runs: 0,
            stands_for: None,
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
            grants: 0,
            out: None,
            round: Round::default(),
            in_vain: None,
            ns_per_run: NS_PER_RUN_FIRST,
            ns_per_block: NS_PER_RUN_FIRST,
            ending: Ending::default(),
        }
    }

    /// A sweep begins: what becomes dirty from now on is as old as this.
    pub(super) const fn begin_sweep(&mut self, now: Time) {
        self.sweep_began = now;
    }

    /// A run (lane, number) is on the origin, and waits for the flush.
    pub(super) fn run_written(&mut self, run: (usize, usize), blocks: u32, now: Time) {
        self.answered = Some(now);
        self.run_ended();
        self.written.push(run);
        self.written_blocks += u64::from(blocks);
    }

    const fn run_ended(&mut self) {
        self.runs -= 1;
        self.far_runs = self.far_runs.saturating_sub(1);
    }

    fn run_began(&mut self, place: Place) {
        self.runs += 1;
        self.far_runs += u32::from(place == Place::Far);
    }

    /// A run ended without being written.
    pub(super) fn run_dropped(&mut self, now: Time) {
        self.run_ended();
        self.answered = Some(now);
        if self.idle() {
            // What failed says nothing about what the next batch takes.
            (self.busy_since, self.answered) = (None, None);
        }
    }

    /// Runs may have begun.
    pub(super) fn note_began(&mut self, now: Time) {
        let began = (self.runs > 0).then_some(now);
        (self.busy_since, self.answered) = (self.busy_since.or(began), self.answered.or(began));
    }

    /// Whether the runs of this batch that are written were short, in the mean.
    pub(super) fn has_short_runs(&self) -> bool {
        let runs = self.written.len() as u64;
        runs > 0 && self.written_blocks <= runs * u64::from(FAR_RUN_BLOCKS_MAX)
    }

    /// Whether nothing is under way.
    pub(super) fn idle(&self) -> bool {
        self.runs == 0 && self.written.is_empty() && self.flushing == 0
    }

    /// Whether one more run may start before this batch is flushed. With `flowing` runs under way
    /// don't count, and may belong to the next batch. If they waited for the last ones of this
    /// batch, the way to a far origin would be empty for a round trip.
    pub(super) fn has_room(&self, batch: u32, blocks: u64, flowing: bool) -> bool {
        let runs = if flowing { 0 } else { self.runs };
        runs + (self.written.len() as u32) < batch && self.written_blocks < blocks
    }

    /// Whether dirty data of its origin, which may stay dirty for that long, is near that age.
    pub(super) const fn aged(&self, age_max_ns: u64, now: Time) -> bool {
        now.since_ns(self.sweep_began) >= age_max_ns / 2
    }

    pub(super) fn flushed(&mut self, runs: u32, blocks: u64, free_ns: u64, now: Time) {
        self.flushing -= runs;
        self.answered = (!self.idle()).then_some(now);
        let (put_off, free) = core::mem::take(&mut self.put_off);
        let Some(since) = self.busy_since else { return };
        // What was put off is at most what the origin was free meanwhile: that much of the batch it
        // may have done by then.
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

    /// Asks for the flush of what is written, if that is a batch, or nothing more comes; later, if
    /// nobody waits for it.
    pub(super) fn flush_written(
        &mut self,
        (batch, blocks): (u32, u64),
        pressed: bool,
        origin: &mut OriginDelta,
        now: Time,
    ) {
        // A small limit is not to be reached by what is written and only waits for its flush.
        let enough = self.written.len() >= batch as usize || self.written_blocks >= blocks;
        self.flush_by = None;
        let free_ns = origin.free_ns(now);
        // One flush at a time, and one batch written meanwhile: else a slow flush would find more
        // and more behind it.
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

    /// A disk writes what is in its write cache when it has nothing else to do, but serves nobody
    /// while it flushes. So a batch is flushed when the disk will have done most of it: until when
    /// at most, if that is to come. It was written at `since`, and from then on the origin had so
    /// much time for it.
    fn puts_off(&self, since: Time, had_ns: u64, busy: bool, now: Time) -> Option<Time> {
        let written_ns = self.busy_since.map_or(0, |began| since.since_ns(began));
        let takes = (self.ns_per_run * self.written.len() as u64).min(BATCH_NS_MAX) * DONE_PERCENT / 100;
        let left = takes.saturating_sub(written_ns + had_ns);
        let last = since.plus_ns((takes * PUT_OFF_MAX).min(BATCH_NS_MAX));
        let flush_by = if busy { last } else { last.min(now.plus_ns(left)) };
        (left > 0 && flush_by > now).then_some(flush_by)
    }

    /// Looks for one more run: first where somebody waits for a block, then where the order wants
    /// it.
    pub(super) fn start_one(&mut self, want: &Want, lanes: &mut Lanes, router: &Router, cx: &mut Cx<'_>) -> Step {
        // In order nothing goes before its turn.
        if !want.ordered
            && let Some(step) = self.start_urgent(want, lanes, router, cx)
        {
            return step;
        }
        let next = match self.search.next(want.origin, want.eras, lanes, cx) {
            Next::At(place) => place,
            Next::Nothing => {
                self.begin_sweep(cx.now);
                return Step::SweepEnded;
            }
            Next::Unknown => return Step::Unknown,
        };
        let any = want.hurry || want.ordered || self.passed_over >= PASSED_OVER_MAX;
        let takes = if any { Takes::Any } else { Takes::Rested };
        let came = self.give(Flat(next), takes, want, lanes, router, cx);
        if came.is_some() { Step::Tried } else { Step::Asked }
    }

    /// Looks for one more run where somebody waits for a block. `None`: there is none.
    fn start_urgent(&mut self, want: &Want, lanes: &mut Lanes, router: &Router, cx: &mut Cx<'_>) -> Option<Step> {
        loop {
            let flat = match self.search.next_urgent(want.origin, lanes, cx) {
                Next::At(place) => Flat(place),
                Next::Nothing => return None,
                Next::Unknown => return Some(Step::Unknown),
            };
            match self.give(flat, Takes::Urgent, want, lanes, router, cx) {
                None => return Some(Step::Asked),
                Some(Came::Run) => return Some(Step::Tried),
                Some(_) => {}
            }
        }
    }

    /// Gives a grant for a run at a block. Returns what came of that, if the answer is there.
    fn give(
        &mut self,
        first: Flat,
        takes: Takes,
        want: &Want,
        lanes: &mut Lanes,
        router: &Router,
        cx: &mut Cx<'_>,
    ) -> Option<Came> {
        let (lane, end) = (router.lane_of(first), run_end_max(first, want.blocks_max, router, cx));
        self.grants += 1;
        let grant = Grant { number: self.grants, origin: want.origin, first, end, eras: want.eras, takes };
        self.out = Some((lane, grant, want.place));
        self.run_began(want.place);
        match lanes.ask(lane, Down::Grant(grant), cx) {
            Some(Up::GrantUsed(used)) => self.used(&used),
            _ => None,
        }
    }

    /// A lane tells what it has done with a grant. An answer to another grant than the one that is
    /// out says nothing.
    pub(super) fn used(&mut self, used: &Used) -> Option<Came> {
        let (lane, grant, place) = self.out.take_if(|(_, grant, _)| grant.number == used.number)?;
        self.search.used(lane, &grant, used);
        self.round.has_begun |= used.came == Came::Run;
        if used.came != Came::Run {
            self.runs -= 1;
            self.far_runs = self.far_runs.saturating_sub(u32::from(place == Place::Far));
            if self.idle() {
                (self.busy_since, self.answered) = (None, None);
            }
        }
        if grant.takes != Takes::Urgent {
            match used.came {
                Came::Run | Came::Nothing => self.passed_over = 0,
                Came::PassedOver => self.passed_over += 1,
                Came::Covered => {}
            }
        }
        Some(used.came)
    }

    /// Whether a new round would find what the last one found: nothing.
    pub(super) fn is_in_vain(&self, news: Option<u64>) -> bool {
        self.round == Round::default() && self.in_vain.is_some() && self.in_vain == news
    }

    /// The round is over.
    pub(super) fn end_round(&mut self, news: Option<u64>) {
        let round = core::mem::take(&mut self.round);
        self.in_vain = news.filter(|_| !round.has_begun);
    }

    /// Whether a lane has a grant that it has not answered.
    pub(super) const fn has_grant_out(&self) -> bool {
        self.out.is_some()
    }

    /// Whether nothing is under way but what was written and waits for its flush.
    pub(super) const fn only_written(&self) -> bool {
        self.runs == 0 && self.out.is_none() && self.flushing == 0
    }

    /// Whether a group of eras has a block that no run covers.
    pub(super) fn lacks_run(&mut self, origin: OriginId, wanted: Wanted, lanes: &Lanes) -> bool {
        self.search.lacks_run(origin, wanted, lanes)
    }

    /// Runs of lanes, and grants for them: those that are not clean, nor given up.
    pub(super) fn under_way(&self) -> usize {
        self.runs as usize + self.written.len() + self.flushing as usize
    }
}

/// How far a run that starts at a block may go: to the end of its stripe, or of its origin.
fn run_end_max(flat: Flat, blocks_max: u32, router: &Router, cx: &Cx<'_>) -> Flat {
    let origin = &cx.facts.origins[cx.facts.origin_of(flat)];
    router.stripe_end(flat).min(Flat(origin.places().end)).min(flat + blocks_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flowing_batch_does_not_wait_for_its_last_runs() {
        let mut batches = Batches::new(Time(0));
        (0..4).for_each(|_| batches.run_began(Place::Near));
        assert!(!batches.has_room(4, 100, false) && batches.has_room(4, 100, true));
        (0..4).for_each(|run| batches.run_written((0, run), 1, Time(1)));
        assert!(!batches.has_room(4, 100, true), "a whole batch is flushed first");
    }

    #[test]
    fn an_answer_to_a_grant_counts_once() {
        let mut batches = Batches::new(Time(0));
        let grant = Grant { number: 7, origin: 0, first: Flat(4), end: Flat(8), eras: None, takes: Takes::Any };
        batches.run_began(Place::Far);
        batches.out = Some((0, grant, Place::Far));
        let answer = |number| Used { number, origin: 0, came: Came::Nothing, end: Flat(5) };
        assert_eq!(batches.used(&answer(6)), None, "an answer to an earlier grant");
        assert_eq!((batches.under_way(), batches.has_grant_out()), (1, true));
        assert_eq!(batches.used(&answer(7)), Some(Came::Nothing));
        assert_eq!((batches.under_way(), batches.far_runs, batches.has_grant_out()), (0, 0, false));
        assert_eq!(batches.used(&answer(7)), None, "the same answer once more");
        assert_eq!(batches.under_way(), 0);
    }
}

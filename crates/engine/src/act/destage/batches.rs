// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches of an origin's runs: which blocks go next, and when what is written is flushed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::order::{self, DirtyView, Order};
use super::refusals::Refusals;
use super::state::Ending;
use crate::act::commit::seal::seal;
use crate::act::destage::run::{run_end, start_run, to_destage};
use crate::cx::Cx;
use crate::fact::types::{OriginId, Time};
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::organ::flush::FlushWaiter;
use crate::organ::index::Flat;
use crate::organ::origin::OriginDelta;
use crate::organ::reach::FAR_RUN_BLOCKS_MAX;
use crate::organ::router::Router;

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

/// Destage of one origin.
pub(super) struct Batches {
    order: Box<dyn Order>,
    pub(super) refusals: Refusals,
    /// Runs gathered or written right now.
    pub(super) runs: u32,
    /// How many of them an origin has only because it is far away. They are counted as the first
    /// that end, so that no more long runs are under way than others are.
    pub(super) far_runs: u32,
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
    /// What the runs and blocks of the last batches took, in the mean.
    pub(super) ns_per_run: u64,
    pub(super) ns_per_block: u64,
    /// The flush of a batch is over.
    pub(super) ending: Ending,
}

/// The dirty blocks of one origin: (lanes, its places); where destage is ordered, those of this era
/// alone.
struct DirtyBlocks<'a>(&'a Lanes, Range<u64>, Option<(OriginId, u64)>);

impl DirtyView for DirtyBlocks<'_> {
    fn next(&self, from: u64) -> Option<u64> {
        let from = Flat(from.max(self.1.start));
        let next = |lane: &Lane| match (&lane.eras, self.2) {
            (None, _) => lane.store.next_dirty(from),
            (Some(eras), Some((origin, era))) => eras.next(origin, era, from),
            (Some(_), None) => None,
        };
        self.0.iter().filter_map(|lane| next(lane)).min().map(|flat| flat.0).filter(|place| *place < self.1.end)
    }
}

impl Batches {
    pub(super) fn new(now: Time) -> Self {
        Self {
            order: (order::ALL[0].build)(),
            refusals: Refusals::default(),
            runs: 0,
            far_runs: 0,
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

    /// Whether nothing is under way.
    pub(super) fn idle(&self) -> bool {
        self.runs == 0 && self.written.is_empty() && self.flushing == 0
    }

    /// Whether one more run belongs to this batch.
    pub(super) fn has_room(&self, batch: u32, blocks: u64) -> bool {
        self.runs + (self.written.len() as u32) < batch && self.written_blocks < blocks
    }

    pub(super) fn aged(&self, cx: &Cx<'_>) -> bool {
        cx.now.since_ns(self.sweep_began) >= cx.facts.options.dirty_age_max_ns / 2
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

    pub(super) fn start_urgent(
        &mut self,
        places: &Range<u64>,
        place: Place,
        lanes: &mut Lanes,
        router: &Router,
        cx: &mut Cx<'_>,
    ) -> bool {
        for lane in 0..lanes.len() {
            let lane = lanes.at_hand(lane);
            let mut from = places.start;
            while let Some(flat) = lane.trouble.next_urgent(from..places.end) {
                from = flat.0 + 1;
                if let Some(end) = run_end(lane, flat) {
                    from = end.0;
                } else if start_run(lane, flat, run_end_max(flat, place, router, cx), cx) > 0 {
                    self.run_began(place);
                    return true;
                } else {
                    seal_for_destage(lane, flat, cx);
                }
            }
        }
        false
    }

    /// Starts the run that the order wants, or passes over a run that can't be taken now. Without
    /// `hurry` it passes over a block, too, that was rewritten since the last sweep. Returns false
    /// if there is nothing more in this sweep.
    pub(super) fn start_next(
        &mut self,
        places: Range<u64>,
        (hurry, place): (bool, Place),
        lanes: &mut Lanes,
        router: &Router,
        cx: &mut Cx<'_>,
    ) -> bool {
        let origin = cx.facts.origin_of(Flat(places.start));
        let era = cx.delta.origins[origin].cuts.destaging().map(|era| (cx.facts.origins[origin].id, era));
        let Some(next) = self.order.next(&DirtyBlocks(lanes, places, era)) else {
            self.begin_sweep(cx.now);
            return false;
        };
        let flat = Flat(next);
        let lane = lanes.at_hand(router.lane_of(flat));
        let end = if let Some(end) = run_end(lane, flat) {
            end
        } else {
            if hurry || self.passed_over >= PASSED_OVER_MAX || !pass_over(lane, flat) {
                self.passed_over = 0;
                let end = run_end_max(flat, place, router, cx);
                let mut blocks = start_run(lane, flat, end, cx);
                if blocks == 0 && seal_for_destage(lane, flat, cx) {
                    blocks = start_run(lane, flat, end, cx);
                }
                if blocks > 0 {
                    self.run_began(place);
                }
                Flat(next + u64::from(blocks.max(1)))
            } else {
                self.passed_over += 1;
                Flat(next + 1)
            }
        };
        self.order.taken(end.0);
        true
    }
}

/// How far a run that starts at a block may go: to the end of its stripe, or of its origin.
fn run_end_max(flat: Flat, place: Place, router: &Router, cx: &Cx<'_>) -> Flat {
    let origin = &cx.facts.origins[cx.facts.origin_of(flat)];
    let end = router.stripe_end(flat).min(Flat(origin.places().end));
    if place == Place::Far { end.min(flat + FAR_RUN_BLOCKS_MAX) } else { end }
}

/// Whether a dirty block was rewritten since the last sweep came by: then it may be again, and is
/// better left for the next one. (A recency bit as in B. Gill and D. Modha, "WOW: Wise Ordering for
/// Writes", FAST 2005, for a block instead of a stripe.)
fn pass_over(lane: &mut Lane, flat: Flat) -> bool {
    let rewritten = lane.store.is_rewritten(flat);
    if rewritten {
        lane.store.forget_rewritten(flat);
    }
    rewritten
}

/// A block that should be destaged is still in an open commit: seal that. Whether it was.
fn seal_for_destage(lane: &mut Lane, flat: Flat, cx: &mut Cx<'_>) -> bool {
    let unsealed = to_destage(lane, flat, cx).is_some_and(|version| lane.log.unsealed(version.0));
    if unsealed {
        seal(lane, crate::format::Stream::Writes, cx);
    }
    unsealed
}

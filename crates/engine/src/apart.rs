// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes at work at the same time.
//!
//! What a lane does for clients - finding blocks, copying and summing them, admitting them - is
//! most of what an engine does. It changes the lane, and of what lanes share only sums, lists and
//! gauges. So each lane can do it on a view of what they share, and what it has put down there is
//! taken over when all are done, in the order of the lanes. The effects are the same whoever does
//! the jobs, one thread or several (invariant 8; test: `threads_change_no_effect`): what the
//! simulator proves holds for threads.
//!
//! All the rest - destage, reclaim, flushes, failures, members of a mirror - is done by who has all
//! lanes. (Fork and join, as in R. Blumofe et al., "Cilk", 1995, instead of a thread for each lane
//! with messages between them: ADR 0020.)

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::bypass::Streams;
use crate::cx::Cx;
use crate::engine::Coordinator;
use crate::io::Effects;
use crate::lane::{Lane, OwnLanes};
use crate::memory::LaneJob;
use crate::organ::flush::OriginFlush;
use crate::organ::members::{Members, State};
use crate::organ::origin::Origin;
use crate::shared::Shared;
use crate::status::Counters;
use crate::types::Time;

/// What a sum of a view begins with, so that it may fall below.
const BASE: u64 = 1 << 62;

/// What a lane works on beside the other lanes.
pub(crate) struct Apart {
    pub(crate) view: Shared,
    pub(crate) out: Effects,
}

impl Coordinator {
    /// Lets all lanes work: apart, if that is worth its trouble.
    pub(crate) fn work(&mut self, lanes: &mut OwnLanes, cx: &mut Cx<'_>) {
        if self.waits_for_others(lanes, cx) {
            return;
        }
        if let Some(least) = cx.mem.apart_from()
            && cx.shared.can_be_viewed()
            && lanes.iter().filter(|lane| lane.work_blocks() >= least).nth(1).is_some()
        {
            self.work_apart(lanes, cx);
        }
        lanes.iter_mut().for_each(|lane| lane.work(cx));
    }

    /// Whether an opening waits until more lanes have something to do. Each has one batch under
    /// way, which takes less time than to work it off: if each was worked off as it ends, they
    /// would end one by one for ever, and never be worked off at the same time.
    pub(crate) fn waits_for_others(&self, lanes: &OwnLanes, cx: &Cx<'_>) -> bool {
        if !self.opening() || !cx.shared.can_be_viewed() {
            return false;
        }
        let (mut ended, mut under_way) = (0, 0);
        for (done, others) in lanes.iter().map(|lane| lane.batches()) {
            ended += usize::from(done > 0);
            under_way += usize::from(done == 0 && others > 0);
        }
        ended > 0 && ended < cx.mem.apart_threads() && under_way > 0
    }

    fn work_apart(&mut self, lanes: &mut OwnLanes, cx: &mut Cx<'_>) {
        for mut lane in lanes.drain(..) {
            let new = || Box::new(Apart { view: cx.shared.new_view(), out: Effects::default() });
            lane.apart.get_or_insert_with(new).view.look_at(cx.shared);
            self.jobs.push(LaneJob::new(lane, cx.now));
        }
        cx.mem.apart(&mut self.jobs);
        for job in self.jobs.drain(..) {
            let mut lane: Box<Lane> = job.into_work().downcast().expect("each job was made of a lane");
            if let Some(apart) = &mut lane.apart {
                cx.shared.take_over(&mut apart.view, cx.now);
                cx.out.0.append(&mut apart.out.0);
            }
            lanes.push(lane);
        }
    }
}

impl Shared {
    /// Whether lanes may work apart: where members of a mirror or failures are concerned, what one
    /// does matters to the others at once.
    fn can_be_viewed(&self) -> bool {
        self.members.state == State::Single && !self.cache_failed && self.lost.is_empty()
    }

    /// A view: what never changes, and room for the rest.
    fn new_view(&self) -> Self {
        Self {
            superblock: self.superblock.clone(),
            cache_tag: self.cache_tag,
            options: self.options.clone(),
            origins: self.origins.iter().map(Origin::new_view).collect(),
            counters: Counters::default(),
            up: Vec::new(),
            lost: Default::default(),
            dirty: 0,
            dirty_limit: 0,
            cache_failed: false,
            failure: self.failure,
            members: Members::new(&self.superblock),
            gauge: self.gauge,
            cache_reads: self.cache_reads,
            away: false,
            draining: false,
            stopping: false,
            buffer_bytes: 0,
            ram_front_bytes: 0,
            budget: None,
            window_bytes: 0,
            measured: Some(Vec::new()),
        }
    }

    /// Makes a view show what is so now, with nothing put down in it.
    fn look_at(&mut self, all: &Self) {
        self.counters = Counters::default();
        self.dirty = BASE;
        (self.buffer_bytes, self.ram_front_bytes, self.window_bytes) = (BASE, BASE, BASE);
        (self.dirty_limit, self.away) = (all.dirty_limit, all.away);
        (self.draining, self.stopping) = (all.draining, all.stopping);
        (self.gauge, self.cache_reads, self.budget) = (all.gauge, all.cache_reads, all.budget);
        self.cache_reads.dirtied_blocks = 0;
        (self.members.lead, self.members.state) = (all.members.lead, all.members.state);
        for (view, origin) in self.origins.iter_mut().zip(&all.origins) {
            view.look_at(origin);
        }
    }

    /// Takes over what was put down in a view.
    fn take_over(&mut self, view: &mut Self, now: Time) {
        debug_assert!(!view.cache_failed && view.members.state == State::Single, "a failure is nobody's own affair");
        self.counters.add(&view.counters);
        self.up.append(&mut view.up);
        self.lost.append(&mut view.lost);
        self.cache_reads.dirtied_blocks += view.cache_reads.dirtied_blocks;
        for (sum, seen) in [
            (&mut self.dirty, view.dirty),
            (&mut self.buffer_bytes, view.buffer_bytes),
            (&mut self.ram_front_bytes, view.ram_front_bytes),
            (&mut self.window_bytes, view.window_bytes),
        ] {
            *sum = *sum + seen - BASE;
        }
        for (origin, view) in self.origins.iter_mut().zip(&mut view.origins) {
            origin.take_over(view);
        }
        for what in view.measured.iter_mut().flat_map(|list| list.drain(..)) {
            self.measure(what, now);
        }
    }
}

impl Origin {
    fn new_view(&self) -> Self {
        Self { streams: Streams::new(), flush: OriginFlush::default(), ..*self }
    }

    fn look_at(&mut self, all: &Self) {
        self.flush.show(&all.flush);
        (self.mode, self.gauge) = (all.mode, all.gauge);
        (self.dirty, self.reserved) = (BASE, BASE);
        (self.foreground_ios, self.last_foreground) = (all.foreground_ios, all.last_foreground);
        self.free_ns = all.free_ns;
    }

    fn take_over(&mut self, view: &mut Self) {
        self.dirty = self.dirty + view.dirty - BASE;
        self.reserved = self.reserved + view.reserved - BASE;
        self.flush.take_over(&mut view.flush);
    }
}

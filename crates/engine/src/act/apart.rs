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

use crate::coordinator::Coordinator;
use crate::cx::Cx;
use crate::fact::memory::LaneJob;
use crate::lane::{Lane, OwnLanes};
use crate::organ::view::Apart;

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
            lane.apart.get_or_insert_with(|| Box::new(Apart::new(cx.shared))).look_at(cx.shared);
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes at work at the same time.
//!
//! A lane finds blocks, copies and sums them, and admits them: this is most of an engine's work.
//! For this work a lane reads facts that don't change meanwhile, and changes itself. It notes
//! everything else in its own [`crate::delta::Delta`]: sums, messages and what happened at the
//! devices. When all lanes are done their deltas are taken over, in the order of the lanes. So the
//! effects are the same with one thread or several (invariant 8; test: `threads_change_no_effect`).
//! What the simulator proves holds for threads.
//!
//! The coordinator, which has all lanes, does all other work: destage, reclaim, flushes, failures
//! and members of a mirror. (This is fork and join, as in R. Blumofe et al., "Cilk", 1995. The
//! alternative is a thread for each lane, with messages between them: ADR 0020.)

use alloc::boxed::Box;

use crate::coordinator::Coordinator;
use crate::cx::{Apart, Cx, Turn};
use crate::fact::memory::LaneJob;
use crate::lane::Lane;
use crate::lanes::Lanes;

/// Whether it pays that lanes work at the same time.
pub(crate) fn pays_apart(lanes: &Lanes, cx: &Cx<'_>) -> bool {
    cx.mem.apart_from().is_some_and(|least| {
        cx.delta.can_be_apart() && lanes.driven().filter(|lane| lane.work_blocks() >= least).nth(1).is_some()
    })
}

/// Whether an opening waits until more lanes have something to do. Each lane has one batch under
/// way. Reading a batch takes less time than working it off. If each batch was worked off as soon
/// as it was read, the batches would end one by one for ever. They would never be worked off at the
/// same time.
pub(crate) fn waits_for_others(coordinator: &Coordinator, lanes: &Lanes, cx: &Cx<'_>) -> bool {
    if !coordinator.opening() || !cx.delta.can_be_apart() {
        return false;
    }
    let (mut ended, mut under_way) = (0, 0);
    for (done, others) in lanes.driven().map(Lane::batches) {
        ended += usize::from(done > 0);
        under_way += usize::from(done == 0 && others > 0);
    }
    ended > 0 && ended < cx.mem.apart_threads() && under_way > 0
}

/// Lets all lanes work at the same time.
pub(crate) fn work_apart(coordinator: &mut Coordinator, lanes: &mut Lanes, turn: &mut Turn<'_>) {
    let own = lanes.own();
    for mut lane in own.drain(..) {
        let apart = lane.apart.get_or_insert_with(|| Box::new(Apart::new(turn.delta)));
        apart.look_at(turn.facts, turn.delta);
        coordinator.jobs.push(LaneJob::new(lane, turn.now));
    }
    turn.mem.apart(&mut coordinator.jobs);
    for job in coordinator.jobs.drain(..) {
        let mut lane: Box<Lane> = job.into_work().downcast().expect("each job was made of a lane");
        if let Some(apart) = &mut lane.apart {
            apart.give_back(turn);
        }
        own.push(lane);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of an engine: opening, serving, stopping, and what has to be true for each step.

use crate::act::answer::part_done;
use crate::act::flushes::drained_waiters;
use crate::act::flushes::flush_devices;
use crate::act::recover::eras::open_eras;
use crate::coordinator::{Coordinator, Life};
use crate::cx::{Cx, Turn};
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, RequestError};
use crate::fact::types::Destage;
use crate::lanes::Lanes;
use crate::organ::down::Down;
use crate::organ::origin::OriginDelta;
use crate::organ::room::Outlook;
use crate::organ::up::Up;

/// The steps of life: open, drained, stopped.
pub(super) fn live(coordinator: &mut Coordinator, lanes: &mut Lanes, turn: &mut Turn<'_>) {
    if !lanes.know_all(&turn.cx()) {
        return;
    }
    match coordinator.life() {
        Life::Opening => end_opening(coordinator, lanes, &mut turn.cx()),
        Life::Serving => {
            let delta = &*turn.delta;
            if turn.facts.draining && delta.dirty() == delta.lost() && delta.reserved() == 0 {
                turn.change().draining = false;
                let mut cx = turn.cx();
                cx.delta.counters.drains += u64::from(cx.delta.lost() == 0);
                cx.event(Event::Drained);
            }
        }
        Life::Stopping => {
            // A cache that failed is not replayed, so what it holds has to be on the origin
            // now; unless its origin refuses it. A stop that gave up then doesn't come back to
            // it.
            let undrained =
                |(origin, it): (usize, &OriginDelta)| !coordinator.destager.is_refused(origin) && it.undrained() > 0;
            let leaving = turn.delta.members.cache_failed
                && !turn.facts.stopping
                && turn.delta.origins.iter().enumerate().any(undrained);
            // An origin is to have all of a group of eras, or nothing of it.
            let mid_group = (0..turn.facts.origins.len()).any(|it| coordinator.destager.is_mid_group(it, &turn.cx()));
            let quiet =
                coordinator.requests.is_empty() && coordinator.throttle.is_empty() && coordinator.volumes.idle();
            if quiet && !leaving && !mid_group {
                // From here on destage and reclaim start nothing new. Direct writes are made
                // durable.
                if !turn.facts.stopping {
                    turn.change().stopping = true;
                    turn.delta.origins.iter_mut().for_each(|it| it.flush.want_if_written());
                }
                close(coordinator, lanes, &mut turn.cx());
            }
        }
        Life::Closing => end_closing(coordinator, lanes, &mut turn.cx()),
        Life::Stopped | Life::Failed => {}
    }
}

/// Serves, if all lanes are open.
fn end_opening(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    // As at the end: a checkpoint that waits for a failed device waits for ever.
    let over = cx.cache_failed() || lanes.looks().all(|lane| lane.rest().no_checkpoint);
    if coordinator.lanes_open < lanes.count() || !over {
        return;
    }
    coordinator.go_on_to(Life::Serving);
    match cx.facts.options.destage {
        Destage::Ordered => open_eras(lanes, cx),
        // When the FLUSHes of what is dirty were is not known any more.
        Destage::Free => {
            cx.delta.origins.iter_mut().filter(|it| it.dirty.get() > 0).for_each(|it| it.cuts.note_flush(cx.now))
        }
    }
    let blocks_cached = lanes.driven().map(|lane| lane.store.index().len()).sum();
    let (blocks_dirty, commits_replayed) = (cx.delta.dirty(), coordinator.commits_replayed);
    let members = &mut cx.delta.members;
    if members.pairing().clean_lost && members.pairing().lead == members.lead_at_opening {
        // The checkpoint of this opening knows of no clean block that was lost.
        members.change_pairing().clean_lost = false;
        coordinator.persist.want();
    }
    // At once, so that the first who promote or flush don't wait for it.
    cx.delta.origins.iter_mut().for_each(|it| it.flush.want_if_written());
    flush_devices(coordinator, lanes, cx);
    cx.event(Event::Ready { blocks_cached, blocks_dirty, commits_replayed });
}

/// Stops, if the last checkpoints are written.
fn end_closing(coordinator: &mut Coordinator, lanes: &Lanes, cx: &mut Cx<'_>) {
    // A checkpoint that waits for a failed device waits for ever.
    let over = cx.cache_failed() || lanes.looks().all(|lane| lane.rest().no_checkpoint);
    let quiet = coordinator.persist.idle() && !coordinator.cache_flushing && cx.delta.members.idle();
    if over && quiet && lanes.looks().all(|lane| lane.rest().idle) {
        coordinator.go_on_to(Life::Stopped);
        cx.event(Event::Stopped);
    }
}

/// Clients are about to leave, and an origin that takes nothing holds none of them. Nothing
/// that was acknowledged is given up (test: `no_origin_holds_those_who_leave`).
pub(super) fn fail_those_who_wait(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    for origin in 0..cx.facts.origins.len() {
        if !coordinator.destager.is_away(origin, cx) {
            continue;
        }
        for piece in coordinator.throttle.give_up(origin, &coordinator.destager, cx) {
            part_done(coordinator, piece.request, Some(RequestError::Stopping), cx);
        }
        lanes.send_all(|| Down::GiveUpClean { origin }, cx);
        for waiter in drained_waiters(coordinator, origin) {
            coordinator.flush_done(waiter, Err(DeviceError::Io), lanes, cx);
        }
    }
}

/// Seals what is open; when all is durable begins the last checkpoints.
pub(super) fn close(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let closed = close_lanes(coordinator, lanes, cx);
    cx.delta.want_proof();
    flush_devices(coordinator, lanes, cx);
    let flushed = cx.delta.origins.iter().all(|origin| origin.flush.idle());
    let quiet = coordinator.persist.idle() && !coordinator.cache_flushing && cx.delta.members.idle();
    let idle = closed && flushed && quiet && lanes.looks().all(|lane| lane.rest().idle);
    if idle && cx.cache_failed() {
        coordinator.go_on_to(Life::Stopped);
        cx.event(Event::Stopped);
    } else if idle && lanes.looks().all(|lane| lane.rest().log_quiet && lane.rest().no_checkpoint) {
        coordinator.go_on_to(Life::Closing);
        lanes.send_all(|| Down::Checkpoint, cx);
    }
}

/// Lets each lane seal what is open. Returns whether all lanes have, and have taken nothing since
/// then.
fn close_lanes(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) -> bool {
    let mut closed = true;
    for lane in 0..lanes.count() {
        let taken = lanes.look(lane).taken();
        let asks = match coordinator.closing.get(&lane) {
            None => true,
            Some(None) => false,
            Some(at) if *at == taken => continue,
            Some(_) => true,
        };
        if asks && let Some(Up::Closed { .. }) = lanes.ask(lane, Down::Close, cx) {
            continue;
        }
        coordinator.closing.insert(lane, None);
        closed = false;
    }
    closed
}

impl Coordinator {
    /// A lane has sealed what was open.
    pub(crate) fn closed(&mut self, lane: usize, lanes: &Lanes) {
        self.closing.insert(lane, lanes.look(lane).taken());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of an engine: opening, serving, stopping, and what has to be true for each step.

use crate::act::checkpoint::{begin_checkpoint, checkpoint_step};
use crate::act::commit::seal::seal_all;
use crate::act::direct::give_up_awaiting_clean;
use crate::coordinator::{Coordinator, Life};
use crate::cx::{Cx, Turn};
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, RequestError};
use crate::lane::Lanes;
use crate::organ::origin::OriginDelta;
use crate::organ::room::Outlook;

impl Coordinator {
    /// The steps of life: open, drained, stopped.
    pub(super) fn live(&mut self, lanes: &mut Lanes, turn: &mut Turn<'_>) {
        match self.life {
            Life::Opening => self.end_opening(lanes, &mut turn.cx()),
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
                let undrained = |(at, it): (usize, &OriginDelta)| !self.destager.is_refused(at) && it.undrained() > 0;
                let leaving = turn.delta.members.cache_failed
                    && !turn.facts.stopping
                    && turn.delta.origins.iter().enumerate().any(undrained);
                if self.requests.is_empty() && self.throttle.is_empty() && !leaving {
                    // From here on destage and reclaim start nothing new. Direct writes are made
                    // durable.
                    if !turn.facts.stopping {
                        turn.change().stopping = true;
                        turn.delta.origins.iter_mut().for_each(|it| it.flush.want_if_written());
                    }
                    self.close(lanes, &mut turn.cx());
                }
            }
            Life::Closing => self.end_closing(lanes, &mut turn.cx()),
            Life::Stopped | Life::Failed => {}
        }
    }

    /// Serves, if all lanes are open.
    fn end_opening(&mut self, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        // As at the end: a checkpoint that waits for a failed device waits for ever.
        let over = cx.cache_failed() || lanes.iter().all(|lane| lane.checkpoint.resting());
        if self.lanes_open < lanes.len() || !over {
            return;
        }
        self.life = Life::Serving;
        let blocks_cached = lanes.iter().map(|lane| lane.index.len()).sum();
        let (blocks_dirty, commits_replayed) = (cx.delta.dirty(), self.commits_replayed);
        let members = &mut cx.delta.members;
        if members.pairing().clean_lost && members.pairing().lead == members.lead_at_opening {
            // The checkpoint of this opening knows of no clean block that was lost.
            members.change_pairing().clean_lost = false;
            self.persist.want();
        }
        // At once, so that the first who promote or flush don't wait for it.
        cx.delta.origins.iter_mut().for_each(|it| it.flush.want_if_written());
        self.flush_devices(lanes, cx);
        cx.event(Event::Ready { blocks_cached, blocks_dirty, commits_replayed });
    }

    /// Stops, if the last checkpoints are written.
    fn end_closing(&mut self, lanes: &Lanes, cx: &mut Cx<'_>) {
        // A checkpoint that waits for a failed device waits for ever.
        let over = cx.cache_failed() || lanes.iter().all(|lane| lane.checkpoint.resting());
        let quiet = self.persist.idle() && !self.cache_flushing && cx.delta.members.idle();
        if over && quiet && lanes.iter().all(|lane| lane.idle()) {
            self.life = Life::Stopped;
            cx.event(Event::Stopped);
        }
    }

    /// Clients are about to leave, and an origin that takes nothing holds none of them. Nothing
    /// that was acknowledged is given up (test: `no_origin_holds_those_who_leave`).
    pub(super) fn fail_those_who_wait(&mut self, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        for at in 0..cx.facts.origins.len() {
            if !self.destager.is_away(at, cx) {
                continue;
            }
            for piece in self.throttle.give_up(at, &self.destager, cx) {
                self.part_done(piece.request, Some(RequestError::Stopping), cx);
            }
            lanes.iter_mut().for_each(|lane| give_up_awaiting_clean(lane, at, cx));
            for waiter in self.drained_waiters(at, lanes, cx) {
                self.flush_done(waiter, Err(DeviceError::Io), lanes, cx);
            }
        }
    }

    /// Seals what is open; when all is durable begins the last checkpoints.
    pub(super) fn close(&mut self, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        for lane in &mut *lanes {
            seal_all(lane, cx);
            // What is promoted may wait for one, and nothing comes after this.
            checkpoint_step(lane, cx);
        }
        cx.delta.want_proof();
        self.flush_devices(lanes, cx);
        let flushed = cx.delta.origins.iter().all(|origin| origin.flush.idle());
        let quiet = self.persist.idle() && !self.cache_flushing && cx.delta.members.idle();
        let idle = flushed && quiet && lanes.iter().all(|lane| lane.idle());
        if idle && cx.cache_failed() {
            self.life = Life::Stopped;
            cx.event(Event::Stopped);
        } else if idle && lanes.iter().all(|lane| lane.log.quiet() && lane.checkpoint.resting()) {
            self.life = Life::Closing;
            lanes.iter_mut().for_each(|lane| begin_checkpoint(lane, cx));
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the coordinator does next: with the end of an I/O, with what lanes tell it, with who waited
//! for an origin's flush.

use crate::act::answer::part_done;
use crate::act::answer::piece_done;
use crate::act::commit::unproven::promoted_flushed;
use crate::act::destage::run::run_flushed;
use crate::act::direct::drop_replaced;
use crate::act::flushes::cache_flushed;
use crate::act::flushes::drained_waiters;
use crate::act::flushes::origin_flushed;
use crate::act::map::mapped;
use crate::act::persist::{PERSIST_FLUSH, PERSIST_WRITE};
use crate::act::request::past_congestion;
use crate::act::write::give_up_room;
use crate::coordinator::{CACHE_FLUSH, Coordinator, MAP};
use crate::cx::COORDINATOR;
use crate::cx::Cx;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, RequestError};
use crate::lane::Lanes;
use crate::organ::flush::FlushWaiter;
use crate::organ::up::Up;

/// Attempts of destage that a full or read-only origin must have refused, one a second, before
/// writers are told who wait for it. Of one that refuses only a part some other block becomes clean
/// meanwhile, and a thin pool may have grown.
const GIVE_UP_AFTER: u32 = 5;
impl Coordinator {
    /// Hands the end of an I/O to the one that asked for it.
    pub(crate) fn hand_on(
        &mut self,
        lane: usize,
        io: usize,
        result: Result<(), DeviceError>,
        lanes: &mut Lanes,
        cx: &mut Cx<'_>,
    ) {
        if lane == COORDINATOR {
            self.io_done(io, result, lanes, cx);
        } else {
            lanes[lane].take_ended(io, result, cx);
        }
    }

    /// An I/O of the coordinator ended.
    fn io_done(&mut self, io: usize, result: Result<(), DeviceError>, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        match io {
            CACHE_FLUSH => cache_flushed(self, result, lanes, cx),
            PERSIST_WRITE | PERSIST_FLUSH => self.persist.io_done(io, result, cx),
            map if map >= MAP => mapped(self, map - MAP, result, cx),
            origin => origin_flushed(self, origin, result, lanes, cx),
        }
    }

    /// An origin's flush is over, or will never be: its waiter goes on.
    pub(crate) fn flush_done(
        &mut self,
        waiter: FlushWaiter,
        result: Result<(), DeviceError>,
        lanes: &mut Lanes,
        cx: &mut Cx<'_>,
    ) {
        let error = result.err().map(RequestError::from);
        match waiter {
            FlushWaiter::Request(request) => part_done(self, request, error, cx),
            FlushWaiter::Piece(lane, piece) => lanes[lane].end(piece, error.map_or(Ok(()), Err), cx),
            FlushWaiter::Replacing(lane, piece) => drop_replaced(&mut lanes[lane], piece, result, cx),
            FlushWaiter::Run(lane, run) => run_flushed(&mut lanes[lane], run, result, cx),
            FlushWaiter::Promoted(lane, seq) => promoted_flushed(&mut lanes[lane], seq, result, cx),
        }
    }

    /// Does what the lanes have asked for.
    pub(crate) fn handle_messages(&mut self, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        while !cx.delta.is_silent() {
            let mut messages = cx.delta.take_told();
            for up in messages.drain(..) {
                match up {
                    Up::PieceDone { request, error, from_origin } => piece_done(self, request, error, from_origin, cx),
                    Up::RangePieceDone { request, error } => {
                        self.ranges.give_back(self.requests[request].origin, 1);
                        part_done(self, request, error, cx);
                    }
                    Up::OnOrigin { request, failed_flushes } => {
                        self.requests[request].note_on_origin(failed_flushes);
                    }
                    Up::RunWritten { lane, run, origin, blocks } => {
                        self.destager.run_written(origin, lane, run, blocks, cx.now);
                    }
                    Up::PastCongestion { lane, piece } => past_congestion(self, lane, piece, lanes, cx),
                    Up::RunDropped { origin } => self.destager.run_dropped(origin, cx.now),
                    Up::DestageFailed { origin, error } => {
                        let attempts = self.destager.failed(origin, cx.now);
                        if attempts >= GIVE_UP_AFTER && matches!(error, DeviceError::NoSpace | DeviceError::ReadOnly) {
                            for piece in self.throttle.give_up(origin, &self.destager, cx) {
                                part_done(self, piece.request, Some(error.into()), cx);
                            }
                            let places = cx.facts.origins[origin].places();
                            lanes.iter_mut().for_each(|lane| give_up_room(lane, &places, error.into(), cx));
                        }
                        for waiter in drained_waiters(self, origin, lanes, cx) {
                            self.flush_done(waiter, Err(error), lanes, cx);
                        }
                        cx.event(Event::DestageFailed { origin: cx.facts.superblock.origins[origin].id, error });
                    }
                    Up::UntilDrained { waiter } => self.until_drained.push(waiter),
                    Up::Replayed => {
                        self.lanes_replayed += 1;
                        if self.lanes_replayed == lanes.len() && self.opening() {
                            cx.event(Event::Replayed);
                        }
                    }
                    Up::Recovered { commits } => {
                        self.lanes_open += 1;
                        self.commits_replayed += commits;
                    }
                    Up::OpenFailed(error) => {
                        if self.fail() {
                            cx.event(Event::OpenFailed(error));
                        }
                    }
                }
            }
            cx.delta.give_back_room(messages);
            for lane in &mut *lanes {
                lane.work(cx);
            }
        }
    }
}

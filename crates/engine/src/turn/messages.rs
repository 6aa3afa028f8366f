// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the coordinator does next: with the end of an I/O, with what lanes tell it, with who waited
//! for an origin's flush.

use crate::act::answer::part_done;
use crate::act::answer::piece_done;
use crate::act::destage::GIVE_UP_AFTER;
use crate::act::destage::ordered::sent_recorded;
use crate::act::flushes::cache_flushed;
use crate::act::flushes::drained_waiters;
use crate::act::flushes::origin_flushed;
use crate::act::map::mapped;
use crate::act::persist::{PERSIST_FLUSH, PERSIST_WRITE};
use crate::act::request::past_congestion;
use crate::coordinator::{CACHE_FLUSH, Coordinator, MAP};
use crate::cx::COORDINATOR;
use crate::cx::Cx;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, RequestError};
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::organ::down::Down;
use crate::organ::flush::FlushWaiter;
use crate::organ::up::Up;

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
            lanes.ended(lane, io, result, cx);
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
        match waiter {
            FlushWaiter::Request(request) => part_done(self, request, result.err().map(RequestError::from), cx),
            FlushWaiter::Piece(lane, _)
            | FlushWaiter::Replacing(lane, _)
            | FlushWaiter::Run(lane, _)
            | FlushWaiter::Promoted(lane, _) => lanes.send(lane, Down::OriginFlushed { waiter, result }, cx),
        }
    }

    /// Does what the lanes have asked for.
    pub(crate) fn handle_messages(&mut self, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        if lanes.by_mail() {
            return self.handle_mail(lanes, cx);
        }
        while !cx.delta.is_silent() {
            let mut messages = cx.delta.take_told();
            for up in messages.drain(..) {
                self.handle(up, lanes, cx);
            }
            cx.delta.give_back_room(messages);
            lanes.each(cx, Lane::work);
        }
    }

    /// Delivers messages in the order that a seed chooses, until it leaves some for later.
    #[cold]
    fn handle_mail(&mut self, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        while let Some(letter) = lanes.next_letter(cx) {
            if let Some(up) = lanes.deliver(letter, cx) {
                self.handle(up, lanes, cx);
            }
            if lanes.leaves_mail() {
                return;
            }
        }
    }

    /// Does what a lane has asked for.
    // Always, as each request has a message: a call takes as long as most of them.
    #[inline(always)]
    fn handle(&mut self, up: Up, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        match up {
            Up::PieceDone { request, error, from_origin } => piece_done(self, request, error, from_origin, cx),
            Up::RangePieceDone { request, error } => {
                self.ranges.give_back(self.requests[request].origin, 1);
                part_done(self, request, error, cx);
            }
            Up::OnOrigin { request, failed_flushes } => {
                self.requests[request].note_on_origin(failed_flushes);
            }
            Up::GrantUsed(used) => self.destager.grant_used(&used),
            Up::RunWritten { lane, run, origin, blocks } => {
                self.destager.run_written(origin, lane, run, blocks, cx.now);
            }
            Up::PastCongestion(piece) => past_congestion(self, *piece, lanes, cx),
            Up::SentRecorded { origin } => sent_recorded(origin, lanes, cx),
            Up::RunFlushed { origin, cleaned } => self.destager.run_flushed(origin, cleaned, cx),
            Up::RunDropped { origin } => self.destager.run_dropped(origin, cx.now),
            Up::DestageFailed { origin, error } => {
                let attempts = self.destager.failed(origin, cx.now);
                if attempts >= GIVE_UP_AFTER {
                    lanes.send_all(|| Down::GiveUpEras { origin, error }, cx);
                }
                if attempts >= GIVE_UP_AFTER && matches!(error, DeviceError::NoSpace | DeviceError::ReadOnly) {
                    for piece in self.throttle.give_up(origin, &self.destager, cx) {
                        part_done(self, piece.request, Some(error.into()), cx);
                    }
                    lanes.send_all(|| Down::GiveUpRoom { origin, error: error.into() }, cx);
                }
                for waiter in drained_waiters(self, origin) {
                    self.flush_done(waiter, Err(error), lanes, cx);
                }
                cx.event(Event::DestageFailed { origin: cx.facts.origins[origin].id, error });
            }
            Up::UntilDrained { waiter, origin } => {
                let of_request = |waiter| match waiter {
                    FlushWaiter::Request(request) => self.requests[request].origin,
                    _ => 0,
                };
                self.until_drained.push((origin.unwrap_or_else(|| of_request(waiter)), waiter));
            }
            Up::Filled { number, lacking } => self.filling.filled(number, lacking, lanes.count(), cx),
            Up::Widened { keys, room } => self.volumes.widened(keys, room),
            Up::Forgotten { origin } => self.volumes.forgotten(origin),
            Up::Closed { lane } => self.closed(lane, lanes),
            Up::Replayed => {
                self.lanes_replayed += 1;
                if self.lanes_replayed == lanes.count() && self.opening() {
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
}

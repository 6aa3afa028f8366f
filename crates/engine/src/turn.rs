// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lane does next: looks at what ended, wakes who waited, begins what came, starts what has
//! its lock.
//!
//! This is the only file that knows all acts of a lane. Nothing else decides by what an I/O was for
//! ([`LaneIo`]), or by who waited ([`Waiter`]). [`messages`] does so for what lanes tell the
//! coordinator.
//!
//! Where lanes may work apart ([`crate::act::apart`]), work that has to do with one lane alone is
//! left for then. Else it is done as it comes.

mod messages;
mod receive;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::any::Any;

use crate::act::checkpoint::{checkpoint_io_done, checkpoint_step};
use crate::act::commit::seal::{commit_done, commit_step, seal_all};
use crate::act::destage::run::{run_read_done, run_write_done, write_run};
use crate::act::detour::{detour_done, detour_step};
use crate::act::direct::{clear_way, direct_done, invalidated, replaced, start_direct};
use crate::act::expect::{expect, expect_copies};
use crate::act::neighbours::wide_done;
use crate::act::read::{read_cache_done, read_origin_done, start_read};
use crate::act::reclaim::{freed_durable, reclaim_header_done, survivor_done};
use crate::act::recover::recover_io_done;
use crate::act::sync::{sync_read_done, sync_step, sync_written};
use crate::act::volumes::index::widen_step;
use crate::act::write::{merge_done, resume_awaiting_room, start_write};
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::io::{DeviceError, RequestError};
use crate::fact::memory::{Memory, Work};
use crate::fact::types::Time;
use crate::lane::Lane;
use crate::organ::flying::LaneIo;
use crate::organ::members::FailureRecord;
use crate::organ::piece::{Piece, PieceKind};
use crate::organ::up::Up;
use crate::organ::waiter::{Wait, Waiter, Woken};

/// What a batch of a checkpoint's entries counts for, or a commit of replay: milliseconds, 50 us
/// and more.
const BATCH_BLOCKS: u64 = 64;

impl Work for Lane {
    fn blocks(&self) -> u64 {
        self.work_blocks()
    }

    fn run(&mut self, now: Time, mem: &mut dyn Memory) {
        let Some(mut apart) = self.apart.take() else { return };
        if let Some(mut cx) = apart.cx(now, mem) {
            self.work_apart(&mut cx);
        }
        self.apart = Some(apart);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Lane {
    /// Takes a piece. What will be looked at for it comes meanwhile.
    pub(crate) fn take(&mut self, piece: Piece, cx: &Cx<'_>) {
        if cx.mem.apart_from().is_some() {
            self.arrived.push(piece);
        } else {
            expect(self, &piece, cx.mem);
            self.begin(piece);
        }
    }

    fn begin_arrived(&mut self) {
        let mut arrived = core::mem::take(&mut self.arrived);
        arrived.drain(..).for_each(|piece| self.begin(piece));
        // Its memory serves again.
        self.arrived = arrived;
    }

    /// Begins a piece; it starts when its lock is granted.
    fn begin(&mut self, arrived: Piece) {
        let (first, blocks) = (arrived.first, u64::from(arrived.blocks));
        let exclusive = arrived.kind != PieceKind::Read;
        if exclusive {
            self.under_way.make_void(first, arrived.end());
        }
        let piece = self.pieces.insert(arrived);
        let (lock, granted) = self.locks.acquire(first, blocks, exclusive, piece);
        self.pieces[piece].lock = Some(lock);
        if granted {
            self.ready.push_back(piece);
        }
    }

    /// Looks at what ended, begins what arrived, and starts the pieces whose locks were granted.
    pub(crate) fn work(&mut self, cx: &mut Cx<'_>) {
        self.look_at_ended(cx);
        self.begin_arrived();
        while let Some(piece) = self.ready.pop_front() {
            self.expect_next(cx.mem);
            self.start(piece, cx);
        }
    }

    /// Does the part of [`Lane::work`] that has to do with this lane alone. What goes past the log,
    /// and what takes blocks away, is left.
    pub(crate) fn work_apart(&mut self, cx: &mut Cx<'_>) {
        self.look_at_ended(cx);
        // In the caches of the processor that needs them.
        self.arrived.iter().for_each(|it| expect(self, it, cx.mem));
        self.begin_arrived();
        let mut others = VecDeque::new();
        while let Some(piece) = self.ready.pop_front() {
            if self.pieces[piece].kind.is_of_one_lane() {
                self.expect_next(cx.mem);
                self.start(piece, cx);
            } else {
                others.push_back(piece);
            }
        }
        self.ready = others;
    }

    /// Asks for what the next reads find in the RAM front.
    fn expect_next(&mut self, mem: &dyn Memory) {
        if self.ram_front.is_none() {
            return;
        }
        let read = |nth: usize| {
            let it = self.ready.get(nth).map(|piece| &self.pieces[*piece])?;
            (it.kind == PieceKind::Read).then_some(it.first)
        };
        let (next, after, mut ahead) = (read(0), read(1), self.ahead);
        expect_copies(self, &mut ahead, next, after, mem);
        self.ahead = ahead;
    }

    /// Blocks that there is work for, about.
    pub(crate) fn work_blocks(&self) -> u64 {
        let ready = self.ready.iter().map(|piece| &self.pieces[*piece]).chain(&self.arrived);
        let own = ready.filter(|it| it.kind.is_of_one_lane());
        let ended = self.ended.iter().map(|(io, _)| if self.ios[*io].is_batch() { BATCH_BLOCKS } else { 1 });
        own.map(|it| u64::from(it.blocks)).chain(ended).sum()
    }

    /// Batches that have ended and wait to be looked at, and those that are under way.
    pub(crate) fn batches(&self) -> (usize, usize) {
        let ended = self.ended.iter().filter(|(io, _)| self.ios[*io].is_batch()).count();
        (ended, self.ios.iter().filter(|(_, io)| io.is_batch()).count() - ended)
    }

    /// Whether there is anything to do at once.
    pub(crate) fn has_work(&self) -> bool {
        !(self.arrived.is_empty() && self.ready.is_empty() && self.ended.is_empty())
    }

    fn look_at_ended(&mut self, cx: &mut Cx<'_>) {
        let mut ended = core::mem::take(&mut self.ended);
        for (io, result) in ended.drain(..) {
            self.io_done(io, result, cx);
        }
        // Its memory serves again.
        self.ended = ended;
    }

    fn start(&mut self, piece: usize, cx: &mut Cx<'_>) {
        match self.pieces[piece].kind {
            PieceKind::Read => {
                if cx.facts.planted(Canary::FillOverNewer) {
                    self.unlock(piece);
                }
                start_read(self, piece, cx);
            }
            PieceKind::Write => start_write(self, piece, cx),
            PieceKind::Direct => start_direct(self, piece, cx),
            PieceKind::Discard | PieceKind::Zero | PieceKind::Punch => clear_way(self, piece, cx),
        }
    }

    /// An I/O of this lane ended.
    fn io_done(&mut self, io: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let what = self.ios.remove(io);
        if result == Err(DeviceError::TimedOut)
            && let Some(device) = what.reads_member()
        {
            // A device that gives no answer to a read is trusted with nothing new. All else that a
            // lane asks of the cache fails its member by itself.
            cx.fail_member(device);
        }
        match what {
            LaneIo::ReadCache(read) => read_cache_done(self, &read, result, cx),
            LaneIo::ReadOrigin { read } => read_origin_done(self, read, result, cx),
            LaneIo::ReadWide(read) => wide_done(self, &read, result, cx),
            LaneIo::Detour { detour } => detour_done(self, detour, result, cx),
            LaneIo::Merge { piece, block, buf, from, places } => {
                merge_done(self, piece, block, buf, from, places, result, cx);
            }
            LaneIo::Direct { piece, failed_flushes } => direct_done(self, piece, failed_flushes, result, cx),
            LaneIo::Commit { seq } => commit_done(self, seq, result, cx),
            LaneIo::RunRead { run, .. } => run_read_done(self, run, result, cx),
            LaneIo::RunWrite { run } => run_write_done(self, run, result, cx),
            LaneIo::ReclaimHeader { segment, slot, buf, device } => {
                reclaim_header_done(self, segment, slot, buf, device, result, cx)
            }
            LaneIo::Survivor { survivor, buf, .. } => survivor_done(self, survivor, buf, result, cx),
            LaneIo::Checkpoint => checkpoint_io_done(self, result, cx),
            LaneIo::Recover => recover_io_done(self, result, cx),
            LaneIo::SyncRead { flat, found, buf, .. } => sync_read_done(self, flat, found, buf, result, cx),
            LaneIo::SyncWrite { slot, buf } => sync_written(self, slot, buf, result, cx),
        }
    }

    /// Does what has become possible, or is due, without any message.
    pub(crate) fn step(&mut self, cx: &mut Cx<'_>) {
        detour_step(self, cx);
        resume_awaiting_room(self, cx);
        commit_step(self, cx);
        checkpoint_step(self, cx);
        sync_step(self, cx);
        widen_step(self, cx);
    }

    /// Seals what is open: the engine stops.
    pub(crate) fn close(&mut self, cx: &mut Cx<'_>) {
        seal_all(self, cx);
        // What is promoted may wait for one, and nothing comes after this.
        checkpoint_step(self, cx);
    }

    /// The cache device failed: nothing will become durable on it any more.
    pub(crate) fn leave_cache(&mut self, cx: &mut Cx<'_>) {
        let woken = self.log.leave();
        self.go_without_cache(woken, cx);
        if cx.delta.members.failure != FailureRecord::Unknown {
            let woken = self.log.leave_record();
            self.go_without_cache(woken, cx);
        }
    }

    fn go_without_cache(&mut self, woken: Woken, cx: &mut Cx<'_>) {
        for waiter in woken.0 {
            if let Wait::Over(result) = self.without_cache(waiter, cx) {
                self.woken(waiter, result, cx);
            }
        }
    }

    /// A commit is durable, or never will be: its waiter goes on.
    fn woken(&mut self, waiter: Waiter, result: Result<(), RequestError>, cx: &mut Cx<'_>) {
        match waiter {
            Waiter::Request(request) => {
                cx.delta.tell(Up::PieceDone { request, error: result.err(), from_origin: false });
            }
            Waiter::Piece(piece) => self.end(piece, result, cx),
            Waiter::Invalidated(piece) => invalidated(self, piece, result, cx),
            Waiter::Replaced(piece) => replaced(self, piece, result, cx),
            Waiter::Freed(segment) if result.is_ok() => freed_durable(self, segment, cx),
            Waiter::Dropped(flat) if result.is_ok() => self.trouble.recorded(flat),
            Waiter::Sent(origin) if result.is_ok() => cx.delta.tell(Up::SentRecorded { origin }),
            Waiter::Freed(_) | Waiter::Dropped(_) | Waiter::Sent(_) => {}
            Waiter::Run(run) => write_run(self, run, cx),
        }
    }

    /// Takes the end of an I/O. A read, or a batch, that went well has to do with this lane alone,
    /// and may be left for when lanes work apart.
    pub(crate) fn take_ended(&mut self, io: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        if result.is_ok() && cx.mem.apart_from().is_some() && self.ios[io].is_of_one_lane() {
            self.ended.push((io, result));
        } else {
            self.io_done(io, result, cx);
        }
    }
}

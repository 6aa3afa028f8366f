// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lane does next: looks at what ended, begins what came, starts what has its lock.
//!
//! Where lanes may work apart ([`crate::apart`]) what has to do with one lane alone is left for then; else it is done as it comes.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::any::Any;

use crate::canary::Canary;
use crate::cx::Cx;
use crate::io::DeviceError;
use crate::lane::{Lane, LaneIo};
use crate::memory::{Memory, Work};
use crate::piece::{Piece, PieceKind};
use crate::types::Time;

/// What a batch of a checkpoint's entries counts for, or a commit of replay: milliseconds, 50 us and more.
const BATCH_BLOCKS: u64 = 64;

impl Work for Lane {
    fn blocks(&self) -> u64 {
        self.work_blocks()
    }

    fn run(&mut self, now: Time, mem: &mut dyn Memory) {
        let Some(mut apart) = self.apart.take() else { return };
        let mut cx = Cx { now, mem, out: &mut apart.out, shared: &mut apart.view };
        self.work_apart(&mut cx);
        self.apart = Some(apart);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Lane {
    /// Takes a piece.
    pub(crate) fn take(&mut self, piece: Piece, cx: &Cx<'_>) {
        if cx.mem.apart_from().is_some() {
            self.arrived.push(piece);
        } else {
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
    fn begin(&mut self, piece: Piece) {
        let (first, blocks) = (piece.first, u64::from(piece.blocks));
        let exclusive = piece.kind != PieceKind::Read;
        if exclusive {
            self.under_way.make_void(first, piece.end());
        }
        let at = self.pieces.insert(piece);
        let (lock, granted) = self.locks.acquire(first, blocks, exclusive, at);
        self.pieces[at].lock = Some(lock);
        if granted {
            self.ready.push_back(at);
        }
    }

    /// Looks at what ended, begins what arrived, and starts the pieces whose locks were granted.
    pub(crate) fn work(&mut self, cx: &mut Cx<'_>) {
        self.look_at_ended(cx);
        self.begin_arrived();
        while let Some(at) = self.ready.pop_front() {
            self.expect_next(cx.mem);
            self.start(at, cx);
        }
    }

    /// The same, but for what has to do with more than this lane: what goes past the log, and what takes blocks away.
    pub(crate) fn work_apart(&mut self, cx: &mut Cx<'_>) {
        self.look_at_ended(cx);
        // In the caches of the processor that needs them.
        self.arrived.iter().for_each(|piece| self.expect(piece, cx.mem));
        self.begin_arrived();
        let mut others = VecDeque::new();
        while let Some(at) = self.ready.pop_front() {
            if self.pieces[at].kind.is_of_one_lane() {
                self.expect_next(cx.mem);
                self.start(at, cx);
            } else {
                others.push_back(at);
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
            let piece = self.ready.get(nth).map(|at| &self.pieces[*at])?;
            (piece.kind == PieceKind::Read).then_some(piece.first)
        };
        let (next, after, mut ahead) = (read(0), read(1), self.ahead);
        self.expect_copies(&mut ahead, next, after, mem);
        self.ahead = ahead;
    }

    /// Blocks that there is work for, about.
    pub(crate) fn work_blocks(&self) -> u64 {
        let ready = self.ready.iter().map(|at| &self.pieces[*at]).chain(&self.arrived);
        let own = ready.filter(|piece| piece.kind.is_of_one_lane());
        let ended = self.ended.iter().map(|(io, _)| if self.ios[*io].is_batch() { BATCH_BLOCKS } else { 1 });
        own.map(|piece| u64::from(piece.blocks)).chain(ended).sum()
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

    fn start(&mut self, at: usize, cx: &mut Cx<'_>) {
        match self.pieces[at].kind {
            PieceKind::Read => {
                if cx.shared.planted(Canary::FillOverNewer) {
                    self.unlock(at);
                }
                self.start_read(at, cx);
            }
            PieceKind::Write => self.start_write(at, cx),
            PieceKind::Direct => self.start_direct(at, cx),
            PieceKind::Discard | PieceKind::Zero | PieceKind::Punch => self.clear_way(at, cx),
        }
    }

    /// An I/O of this lane ended. A read, or a batch, that went well has to do with this lane alone.
    pub(crate) fn take_ended(&mut self, io: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let reads = || matches!(self.ios[io], LaneIo::ReadCache(_) | LaneIo::ReadOrigin { .. });
        let own = || reads() || self.ios[io].is_batch();
        if result.is_ok() && cx.mem.apart_from().is_some() && own() {
            self.ended.push((io, result));
        } else {
            self.io_done(io, result, cx);
        }
    }
}

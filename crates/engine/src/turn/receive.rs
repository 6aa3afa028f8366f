// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lane does with a message of the coordinator.

use crate::act::checkpoint::eras::can_checkpoint;
use crate::act::checkpoint::{begin_checkpoint, checkpoint_flushed};
use crate::act::commit::unproven::{drop_doubtful, promoted_flushed};
use crate::act::destage::barrier::fail_awaiting_eras;
use crate::act::destage::grant::use_grant;
use crate::act::destage::ordered::note_sent;
use crate::act::destage::run::run_flushed;
use crate::act::destage::versions::put_together;
use crate::act::direct::{drop_replaced, give_up_awaiting_clean, resume_awaiting_clean};
use crate::act::hang::look_for_lost;
use crate::act::reclaim::vacate::vacate;
use crate::act::recover::end_recovery;
use crate::act::recover::eras::forget_sent;
use crate::act::sync::part::{end_filling, fill};
use crate::act::volumes::index::{forget, widen};
use crate::act::write::give_up_room;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::io::{DeviceError, RequestError};
use crate::lane::Lane;
use crate::organ::down::{Covered, Down};
use crate::organ::flush::FlushWaiter;
use crate::organ::up::Up;
use crate::organ::waiter::{Wait, Waiter};

impl Lane {
    /// Does what a message asks for.
    pub(crate) fn receive(&mut self, down: Down, cx: &mut Cx<'_>) {
        match down {
            Down::Piece(piece) => self.take(piece, cx),
            Down::ClientFlush { request } => self.client_flush(request, cx),
            Down::Grant(grant) => {
                let used = use_grant(self, &grant, cx);
                cx.delta.tell(Up::GrantUsed(used));
            }
            Down::Seek { origin, cursor } => *self.cursors.of_mut(origin) = cursor,
            Down::NoteSent { origin, note } => note_sent(self, origin, note, cx),
            Down::PutTogether { origin, last } => put_together(self, origin, last, cx),
            Down::HoldGate(hold) => self.policy.hold_gate(hold),
            Down::CacheFlushed { covered, result } => self.cache_flushed(covered, result, cx),
            Down::OriginFlushed { waiter, result } => self.origin_flushed(waiter, result, cx),
            Down::OriginDoubtful { origin } => drop_doubtful(self, origin, cx),
            Down::GiveUpRoom { origin, error } => give_up_room(self, &cx.facts.origins[origin].places(), error, cx),
            Down::ErasSent => resume_awaiting_clean(self, cx),
            Down::GiveUpEras { origin, error } => fail_awaiting_eras(self, origin, error, cx),
            Down::GiveUpClean { origin } => give_up_awaiting_clean(self, origin, cx),
            Down::Vacate { first } => vacate(self, first, cx),
            Down::TryLost => self.try_lost(cx),
            Down::LookForLost => look_for_lost(self, cx),
            Down::FillMirror { number, what } => fill(self, number, what),
            Down::EndFilling { number } => end_filling(self, number, cx),
            Down::Widen { keys } => widen(self, keys, cx),
            Down::AddOrigin => self.add_origin(),
            Down::Forget { origin } => forget(self, origin, cx),
            Down::OpenEras { sent } => forget_sent(self, &sent, cx),
            Down::GoOn => end_recovery(self, cx),
            Down::LeadChanged => self.lead_changed(cx),
            Down::ForgetCopies => self.trouble.forget_copies(),
            Down::Close => {
                self.close(cx);
                cx.delta.tell(Up::Closed { lane: self.id });
            }
            // A checkpoint that does not tell of eras is worse than none.
            Down::Checkpoint if can_checkpoint(self, cx) => begin_checkpoint(self, cx),
            Down::Checkpoint => {}
        }
    }

    /// A client's FLUSH is answered when all that came before it is durable.
    fn client_flush(&mut self, request: usize, cx: &mut Cx<'_>) {
        if self.await_durable(Waiter::Request(request), cx) == Wait::Durable {
            cx.delta.tell(Up::PieceDone { request, error: None, from_origin: false });
        }
    }

    /// A flush of the cache device is over.
    fn cache_flushed(&mut self, covered: Covered, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let late = cx.facts.planted(Canary::CoveredLate);
        let seq = if late { self.log.written_seq } else { covered.seq };
        if result.is_ok() {
            for waiter in self.log.flushed(seq).0 {
                self.woken(waiter, Ok(()), cx);
            }
        }
        if self.checkpoint.flush_ends(covered.checkpoint) {
            checkpoint_flushed(self, result, cx);
        }
    }

    /// An origin's flush is over, or will never be: what waited for it goes on.
    fn origin_flushed(&mut self, waiter: FlushWaiter, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        match waiter {
            FlushWaiter::Request(_) => {}
            FlushWaiter::Piece(_, piece) => self.end(piece, result.map_err(RequestError::from), cx),
            FlushWaiter::Replacing(_, piece) => drop_replaced(self, piece, result, cx),
            FlushWaiter::Run(_, run) => run_flushed(self, run, result, cx),
            FlushWaiter::Promoted(_, seq) => promoted_flushed(self, seq, result, cx),
        }
    }
}

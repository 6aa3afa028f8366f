// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the engine's answers to the replies of one connection.
//!
//! A request is answered when all its pieces are. A read's reply is queued as its buffers, which
//! are freed when they are sent; all others give theirs back here. Failures are told with a place
//! and in words where the client takes chunks.

use flashfront_engine::{Buf, RequestError};
use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::server::{Refusal, Reply};
use flashfront_nbd_proto::wire::{Errno, Replies};

use super::super::Core;
use super::super::piece::PieceId;
use super::connection::{Connection, Phase, release};

/// What a client is told of a failure.
fn refusal(error: RequestError) -> Refusal {
    match error {
        RequestError::Io => Refusal(Errno::EIO, "a device failed; the log of the daemon says more"),
        RequestError::NoSpace => Refusal(Errno::ENOSPC, "the origin has no space left"),
        RequestError::ReadOnly => Refusal(Errno::EPERM, "the origin takes no writes"),
        RequestError::Invalid => Refusal(Errno::EINVAL, "the range is not one of this volume's"),
        RequestError::Stopping => Refusal(Errno::ESHUTDOWN, "the daemon is stopping"),
    }
}

impl Connection {
    /// The engine's answer to one piece.
    pub(super) fn reply(&mut self, id: PieceId, result: Result<(), RequestError>, core: &mut dyn Core) {
        self.in_flight -= 1;
        self.progress += 1;
        if self.is_again(id) {
            return self.got_again(id, result.is_ok(), core);
        }
        let pending = self.table.get_mut(id.place);
        pending.unanswered -= 1;
        let slot = usize::from(id.piece);
        let part = pending.parts.get(slot).copied().flatten();
        if let Err(error) = result {
            let at = part.map_or(pending.offset, |part| part.at);
            pending.fail(refusal(error), (pending.ask != Ask::Flush).then_some(at));
        }
        if matches!(pending.ask, Ask::Write | Ask::Zeroes { .. }) {
            self.give_back(id, core);
        }
        self.piece_ended(id.place, core);
    }

    /// Everything that was asked of the engine for a request is done: queues its reply.
    pub(super) fn finish(&mut self, place: u16, core: &mut dyn Core) {
        if self.dead {
            self.free_bufs(place, core);
            return self.leave(place);
        }
        let pending = self.table.get_mut(place);
        if let Some((refusal, at)) = pending.failed {
            return self.answer_failure(place, refusal, at, core);
        }
        match pending.ask {
            Ask::Read { whole } => self.answer_read(place, whole, core),
            Ask::Status { one } => self.answer_status(place, one, core),
            Ask::Cache => {
                pending.done += u64::from(pending.window);
                let last = pending.done == pending.len;
                self.free_bufs(place, core);
                if last {
                    self.leave_long(place);
                    self.answer_done(place);
                }
            }
            Ask::Write | Ask::Flush | Ask::Trim | Ask::Zeroes { .. } => self.answer_done(place),
        }
    }

    /// A reply to a request, in the form that was agreed on.
    pub(super) fn reply_to(&mut self, place: u16) -> Reply {
        let pending = self.table.get_mut(place);
        Reply { replies: self.protocol.replies(), cookie: pending.cookie, offset: pending.offset }
    }

    /// A reply that says only that all is well.
    fn answer_done(&mut self, place: u16) {
        let reply = self.reply_to(place);
        self.outbox.push(|out| reply.done(out), None, None, Some(place));
    }

    fn answer_failure(&mut self, place: u16, refusal: Refusal, at: Option<u64>, core: &mut dyn Core) {
        self.free_bufs(place, core);
        let reply = self.reply_to(place);
        let pending = self.table.get_mut(place);
        if reply.replies == Replies::Simple && pending.done > 0 && pending.ask != Ask::Cache {
            // A simple reply can't fail any more once its header is sent.
            return self.break_off(place, core);
        }
        self.outbox.push(|out| reply.failed(refusal, at, out), None, None, Some(place));
        self.leave_long(place);
    }

    /// Hangs up in the middle of a reply.
    fn break_off(&mut self, place: u16, core: &mut dyn Core) {
        self.unpark(place);
        self.leave(place);
        self.phase = Phase::Ending;
        let (table, held_bytes) = (&mut self.table, &mut self.held_bytes);
        self.outbox.clear(|sent| release(sent, table, held_bytes, core));
    }

    /// Whether this is the read that is answered alone.
    pub(super) fn is_long(&self, place: u16) -> bool {
        matches!(self.phase, Phase::Long(long) if long == place)
    }

    /// A read that was answered alone is answered.
    pub(super) fn leave_long(&mut self, place: u16) {
        if matches!(self.phase, Phase::Long(long) if long == place) {
            self.phase = Phase::Commands;
        }
    }

    /// A request is over, or will be when what is read again of it is there.
    fn leave(&mut self, place: u16) {
        if self.table.get_mut(place).again > 0 {
            self.table.get_mut(place).orphan = true;
        } else {
            self.table.remove(place);
        }
    }

    /// Frees the buffers that a request still has, but for those of what is read again.
    pub(super) fn free_bufs(&mut self, place: u16, core: &mut dyn Core) {
        self.take_bufs(place, &mut |buf| core.free(buf));
    }

    /// Takes a request's buffers from it.
    pub(super) fn take_bufs(&mut self, place: u16, taken: &mut dyn FnMut(Buf)) {
        for slot in self.table.get_mut(place).first_parts() {
            if let Some(part) = slot.take() {
                self.held_bytes -= u64::from(part.bytes);
                taken(part.buf);
            }
        }
    }
}

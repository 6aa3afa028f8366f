// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's answers to the pieces of one connection.
//!
//! A request is answered when all its pieces are.

use flashfront_engine::{RequestError, Span};
use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::server::Refusal;
use flashfront_nbd_proto::wire::Errno;

use super::again::{got_again, is_again, refused_again};
use super::parks::Parked;
use super::reply::finish;
use super::requests::Requests;
use crate::frontend::Core;
use crate::frontend::piece::{Piece, PieceId};

/// Returns the error that the client is told of a failure.
fn refusal(error: RequestError) -> Refusal {
    match error {
        RequestError::Io => Refusal(Errno::EIO, "a device failed; the log of the daemon says more"),
        RequestError::NoSpace => Refusal(Errno::ENOSPC, "the origin has no space left"),
        RequestError::ReadOnly => Refusal(Errno::EPERM, "the origin takes no writes"),
        RequestError::Invalid => Refusal(Errno::EINVAL, "the range is not one of this volume's"),
        RequestError::Stopping => Refusal(Errno::ESHUTDOWN, "the daemon is stopping"),
    }
}

/// The engine's answer to one piece.
pub(super) fn answered(requests: &mut Requests, id: PieceId, result: Result<(), RequestError>, core: &mut dyn Core) {
    requests.piece_came();
    if is_again(requests, id) {
        return got_again(requests, id, result.is_ok(), core);
    }
    let pending = requests.table.get_mut(id.place);
    pending.unanswered -= 1;
    let slot = usize::from(id.piece);
    let part = pending.parts.get(slot).copied().flatten();
    if let Err(error) = result {
        let at = part.map_or(pending.offset, |part| part.at);
        pending.fail(refusal(error), (pending.ask != Ask::Flush).then_some(at));
    }
    if matches!(pending.ask, Ask::Write | Ask::Zeroes { .. }) {
        requests.give_back(id, core);
    }
    piece_ended(requests, id.place, core);
}

/// The engine was not asked for a piece that would have to wait.
pub(super) fn refused(requests: &mut Requests, id: PieceId, core: &mut dyn Core) {
    requests.piece_came();
    if is_again(requests, id) {
        return refused_again(requests, id, core);
    }
    let dead = requests.is_dead();
    let pending = requests.table.get_mut(id.place);
    pending.unanswered -= 1;
    let (ask, part) = (pending.ask, pending.parts.get(usize::from(id.piece)).copied().flatten());
    if dead || !matches!(ask, Ask::Write | Ask::Zeroes { .. }) {
        pending.refused = true;
    } else if let Some(part) = part {
        let piece = Piece { offset: part.at, len: part.len };
        let payload = core.memory().bytes(Span::new(part.buf, piece.buf_offset(), part.len)).into();
        requests.give_back(id, core);
        requests.park(Parked::Write { place: id.place, piece, payload });
    }
    piece_ended(requests, id.place, core);
}

/// The engine owes less for a request: answers it, or parks it, if that was the last.
fn piece_ended(requests: &mut Requests, place: u16, core: &mut dyn Core) {
    let dead = requests.is_dead();
    let pending = requests.table.get_mut(place);
    if !pending.is_done() {
        return;
    }
    if std::mem::take(&mut pending.refused) && pending.failed.is_none() && !dead {
        requests.free_bufs(place, core);
        requests.park(Parked::Whole { place });
    } else {
        finish(requests, place, core);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payload of replies that was taken back from the outbox, and is read again.

use flashfront_device::Share;
use flashfront_engine::{RequestOp, Span};
use flashfront_nbd_proto::Ask;

use super::asked::Order;
use super::outbox::Data;
use super::pending::{AGAIN_SLOT, Part};
use super::range::sectors_of;
use super::requests::Requests;
use crate::frontend::Core;
use crate::frontend::piece::{Piece, PieceId};

/// Bytes that are read again ahead of the client's reading.
const AHEAD_BYTES: u64 = 2 << 20;

/// Whether a piece is a part of a reply that was taken back.
pub(super) fn is_again(requests: &mut Requests, id: PieceId) -> bool {
    usize::from(id.piece) >= AGAIN_SLOT && matches!(requests.table.get_mut(id.place).ask, Ask::Read { .. })
}

/// Whether payload is to be sent soon that was taken back, and was not asked for since.
pub(super) fn wants_payload(requests: &Requests) -> bool {
    requests.outbox.is_lacking() && requests.outbox.first_away(AHEAD_BYTES).is_some()
}

/// Asks once more for payload that was taken back and is wanted soon. False if there is no buffer.
pub(super) fn fetch_again(requests: &mut Requests, share: Option<Share>, core: &mut dyn Core) -> bool {
    while let Some(data) = requests.outbox.first_away(AHEAD_BYTES) {
        if !read_again(requests, data, share, core) {
            return false;
        }
    }
    true
}

/// Reads again what was taken back from the outbox; false if there is no buffer for it.
fn read_again(requests: &mut Requests, data: Data, share: Option<Share>, core: &mut dyn Core) -> bool {
    let Some(slot) = requests.table.get_mut(data.place).free_slot(AGAIN_SLOT) else { return false };
    let piece = Piece { offset: data.from, len: data.len };
    let bytes = piece.buf_bytes();
    let Some(buf) = requests.holdings.alloc(share, bytes, core) else { return false };
    let pending = requests.table.get_mut(data.place);
    pending.put(slot, Part { buf, bytes, at: piece.offset, len: piece.len });
    pending.again += 1;
    requests.outbox.ask(data, slot as u16);
    let sectors = sectors_of(piece.offset, piece.offset + u64::from(piece.len));
    let order = Order { place: data.place, slot, op: RequestOp::Read, sectors, buf: Some(buf), fua: false };
    requests.submit(order, core);
    // This part is counted apart from the parts of the first reply.
    requests.table.get_mut(data.place).unanswered -= 1;
    true
}

/// Payload that was taken back from the outbox was read again.
pub(super) fn got_again(requests: &mut Requests, id: PieceId, sound: bool, core: &mut dyn Core) {
    let wanted = sound && !requests.is_dead();
    let pending = requests.table.get_mut(id.place);
    pending.again -= 1;
    let part = pending.parts[usize::from(id.piece)].filter(|_| wanted);
    if !sound {
        // The head of its reply, which says that it went well, may be sent already.
        requests.lose();
    }
    if let Some(part) = part {
        let at = Piece { offset: part.at, len: part.len }.buf_offset();
        let there = Some((Span::new(part.buf, at, part.len), part.bytes));
        if requests.outbox.arrived(id.place, id.piece, there) {
            requests.table.get_mut(id.place).parts[usize::from(id.piece)] = None;
        }
    }
    requests.give_back(id, core);
    leave_orphan(requests, id.place);
}

/// The engine was not asked for payload that was taken back: it would have to wait.
pub(super) fn refused_again(requests: &mut Requests, id: PieceId, core: &mut dyn Core) {
    requests.parks.set_again(!requests.is_dead());
    requests.table.get_mut(id.place).again -= 1;
    requests.give_back(id, core);
    requests.outbox.arrived(id.place, id.piece, None);
    leave_orphan(requests, id.place);
}

fn leave_orphan(requests: &mut Requests, place: u16) {
    let pending = requests.table.get_mut(place);
    if pending.orphan && pending.again == 0 && pending.is_done() {
        requests.table.remove(place);
    }
}

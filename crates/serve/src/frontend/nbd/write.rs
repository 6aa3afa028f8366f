// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece of a write goes to the engine, with its payload in a buffer.
//!
//! Clients may write any bytes, the engine whole sectors: a write says which bytes of its first
//! and last sector are not its own.

use flashfront_device::Share;
use flashfront_engine::{Buf, Span};

use super::asked::Order;
use super::pending::Part;
use super::range::write_of;
use super::requests::Requests;
use crate::frontend::Core;
use crate::frontend::piece::Piece;

/// Hands a piece of a write to the engine.
pub(super) fn submit_write(
    requests: &mut Requests,
    place: u16,
    slot: usize,
    piece: Piece,
    buf: Buf,
    core: &mut dyn Core,
) {
    let bytes = piece.buf_bytes();
    requests.holdings.begin_write(Some(buf), bytes, core);
    let pending = requests.table.get_mut(place);
    pending.put(slot, Part { buf, bytes, at: piece.offset, len: piece.len });
    let fua = pending.fua;
    let (sectors, op) = write_of(piece.offset, piece.offset + u64::from(piece.len));
    requests.submit(Order { place, slot, op, sectors, buf: Some(buf), fua }, core);
}

/// Hands a piece that was parked to the engine; false if there is no buffer.
pub(super) fn write_parked(
    requests: &mut Requests,
    place: u16,
    piece: Piece,
    payload: &[u8],
    share: Share,
    core: &mut dyn Core,
) -> bool {
    let Some(slot) = requests.table.get_mut(place).free_slot(0) else { return false };
    let Some(buf) = requests.holdings.alloc(Some(share), piece.buf_bytes(), core) else { return false };
    core.memory().bytes_mut(Span::new(buf, piece.buf_offset(), piece.len)).copy_from_slice(payload);
    submit_write(requests, place, slot, piece, buf, core);
    true
}

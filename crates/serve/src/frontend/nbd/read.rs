// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads: their buffers, and their pieces at the engine.
//!
//! Clients may ask for any bytes, the engine takes whole sectors: a read takes in the bytes around.
//! Clients that never asked for a maximum may read more than [`PAYLOAD_BYTES_MAX`]. Such a read is
//! answered window by window, alone.

use flashfront_device::Share;
use flashfront_engine::{BLOCK_BYTES, RequestOp};
use flashfront_nbd_proto::server::Refusal;
use flashfront_nbd_proto::wire::Errno;
use flashfront_nbd_proto::{Ask, Request};

use super::asked::Order;
use super::limits::PAYLOAD_BYTES_MAX;
use super::parks::Parked;
use super::range::sectors_of;
use super::reply::finish;
use super::requests::Requests;
use super::wait::Wait;
use crate::frontend::Core;
use crate::frontend::piece::Piece;

/// Bytes of a longer read that are in memory at a time.
const WINDOW_BYTES: u64 = 8 << 20;

/// Begins a read, or tells what it must wait for.
pub(super) fn start(requests: &mut Requests, request: &Request, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
    let long = request.len > PAYLOAD_BYTES_MAX.into();
    // No other reply may come between the parts of a simple one.
    if long && requests.table.len() > 0 {
        return Some(Wait::Own);
    }
    let place = requests.insert(request);
    let wait = start_window(requests, place, core, may_alloc);
    if wait.is_some() {
        requests.table.remove(place);
    } else if long {
        requests.begin_long(place);
    }
    wait
}

/// Asks the engine for the next window of a read.
fn start_window(requests: &mut Requests, place: u16, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
    let pending = requests.table.get_mut(place);
    let (start, left) = (pending.offset + pending.done, pending.len - pending.done);
    let long = pending.len > PAYLOAD_BYTES_MAX.into();
    let window = if long { left.min(WINDOW_BYTES - start % BLOCK_BYTES) } else { left } as u32;
    pending.window = window;
    let count = Piece::count(start, window);
    let bytes = (0..count).map(|index| u64::from(Piece::of(start, window, index).buf_bytes())).sum();
    let wait = requests.holdings.must_wait(bytes, may_alloc);
    if wait.is_some() {
        return wait;
    }
    if bytes > core.passing_bytes() / 2 || requests.outbox.is_lacking() {
        // This can't be a read that ends by itself, whatever is cached; or what is to be sent
        // before it has to come first.
        requests.park(Parked::Whole { place });
        return None;
    }
    (!begin_window(requests, place, requests.holdings.share_for(bytes), core)).then_some(Wait::Room)
}

/// Takes the buffers for the bytes to be read, and hands their pieces to the engine; false if there
/// are none.
///
/// It takes all buffers or none: two reads with half of theirs would wait for each other.
pub(super) fn begin_window(requests: &mut Requests, place: u16, share: Option<Share>, core: &mut dyn Core) -> bool {
    let pending = requests.table.get_mut(place);
    let (start, window) = (pending.offset + pending.done, pending.window);
    let op = if pending.ask == Ask::Cache { RequestOp::Prefetch } else { RequestOp::Read };
    let count = Piece::count(start, window);
    for index in 0..count {
        let piece = Piece::of(start, window, index);
        if !requests.take_buf(place, index.into(), piece, share, core) {
            return false;
        }
    }
    for index in 0..count {
        let piece = Piece::of(start, window, index);
        let slot = usize::from(index);
        let buf = requests.table.get_mut(place).parts[slot].map(|part| part.buf);
        let sectors = sectors_of(piece.offset, piece.offset + u64::from(piece.len));
        requests.submit(Order { place, slot, op, sectors, buf, fua: false }, core);
    }
    true
}

/// Goes on with a long read when all that was asked for is in the outbox.
pub(super) fn go_on(requests: &mut Requests, place: u16, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
    if !requests.table.get_mut(place).is_done() {
        return Some(Wait::Own);
    }
    start_window(requests, place, core, may_alloc)
}

/// The rest of a long read is not wanted, or can't be had, any more.
pub(super) fn cut_short(requests: &mut Requests, place: u16, core: &mut dyn Core) {
    requests.unpark(place);
    let pending = requests.table.get_mut(place);
    pending.fail(Refusal(Errno::ESHUTDOWN, "the connection ends"), None);
    if pending.unanswered == 0 {
        finish(requests, place, core);
    }
}

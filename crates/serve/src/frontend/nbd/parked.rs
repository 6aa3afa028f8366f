// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of one connection that would wait for an origin, and wait for a buffer that may wait
//! first.
//!
//! Here they hold no buffer: a read is its place in the table, a write has its payload in memory of
//! the connection's own. That is at most what may come back from the engine and a piece, as nothing
//! more is received from a client with parked writes.

use flashfront_device::Share;
use flashfront_engine::BLOCK_BYTES;
use flashfront_nbd_proto::Ask;

use super::again::{fetch_again, wants_payload};
use super::parks::Parked;
use super::read::begin_window;
use super::reply::finish;
use super::requests::Requests;
use super::status;
use super::write::write_parked;
use crate::frontend::Core;

/// The result of trying a parked request once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumed {
    /// The engine has it.
    Begun,
    /// There was no buffer for it.
    NoRoom,
    /// The connection holds as much as it may.
    HasEnough,
}

/// Tries the first of the parked requests, with a buffer of this share. Dropped answers that the
/// client `reads` go first.
pub(super) fn resume(requests: &mut Requests, share: Share, reads: bool, core: &mut dyn Core) -> Resumed {
    if requests.parks.again() || reads && wants_payload(requests) {
        let served = fetch_again(requests, Some(share), core);
        requests.parks.set_again(!served);
        return if served { Resumed::Begun } else { Resumed::NoRoom };
    }
    let Some(parked) = requests.parks.pop() else { return Resumed::HasEnough };
    let bytes = match &parked {
        Parked::Whole { place } => u64::from(requests.table.get_mut(*place).window) + 2 * BLOCK_BYTES,
        Parked::Write { piece, .. } => u64::from(piece.buf_bytes()),
    };
    // Its answer would be behind those, and hold buffers that those need.
    let is_behind = matches!(parked, Parked::Whole { .. }) && requests.outbox.is_lacking();
    let holdings = &requests.holdings;
    let fits = match share {
        _ if is_behind => false,
        Share::Passing => bytes <= core.passing_bytes() / 2 && holdings.must_wait(bytes, true).is_none(),
        _ => holdings.share_for(bytes).is_none(),
    };
    // A request that is begun may be answered at once.
    requests.table.get_mut(parked.place()).parked -= 1;
    let begun = fits && begin(requests, &parked, share, core);
    if begun {
        requests.moved();
        return Resumed::Begun;
    }
    requests.table.get_mut(parked.place()).parked += 1;
    // A request that may have become a hit goes to the end: the next one is tried the next time.
    requests.parks.push(parked, share != Share::Passing);
    if fits { Resumed::NoRoom } else { Resumed::HasEnough }
}

fn begin(requests: &mut Requests, parked: &Parked, share: Share, core: &mut dyn Core) -> bool {
    match parked {
        Parked::Write { place, piece, payload } => write_parked(requests, *place, *piece, payload, share, core),
        Parked::Whole { place } if matches!(requests.table.get_mut(*place).ask, Ask::Status { .. }) => {
            status::begin(requests, *place, Some(share), core)
        }
        Parked::Whole { place } => begin_window(requests, *place, Some(share), core),
    }
}

/// The client is gone: drops its requests that wait here.
pub(super) fn drop_parked(requests: &mut Requests, core: &mut dyn Core) {
    requests.parks.set_again(false);
    while let Some(parked) = requests.parks.pop() {
        let place = parked.place();
        requests.table.get_mut(place).parked -= 1;
        // A long read ends with its connection.
        if requests.table.get_mut(place).is_done() && requests.long() != Some(place) {
            finish(requests, place, core);
        }
    }
}

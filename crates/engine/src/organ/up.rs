// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lane tells the coordinator. A lane never touches another lane: it leaves these messages,
//! and the coordinator handles them after the lane's step.

use alloc::boxed::Box;

use crate::fact::io::{DeviceError, RequestError};
use crate::fact::open_error::OpenError;
use crate::fact::types::OriginId;
use crate::organ::flush::FlushWaiter;
use crate::organ::grant::Used;
use crate::organ::piece::Piece;

/// A message of a lane to the coordinator.
pub(crate) enum Up {
    /// A part of a request is done.
    PieceDone { request: usize, error: Option<RequestError>, from_origin: bool },
    /// A part of a discard or of long zeroes is done.
    RangePieceDone { request: usize, error: Option<RequestError> },
    /// A part of a request is on its origin, which had failed so many flushes by then. No flush has
    /// covered that part.
    OnOrigin { request: usize, failed_flushes: u32 },
    /// A direct write was to go past the log, and can't: its range is in the log, or the origin
    /// refused it, or is away.
    PastCongestion(Box<Piece>),
    /// A grant for a run of destage is used, or could not be used.
    GrantUsed(Used),
    /// A destage run could not be written.
    DestageFailed { origin: usize, error: DeviceError },
    /// A destage run is on its origin, and waits for the flush.
    RunWritten { lane: usize, run: usize, origin: usize, blocks: u32 },
    /// The flush after a destage run is over, and has made so many blocks clean.
    RunFlushed { origin: usize, cleaned: u64 },
    /// The log says durably which eras of an origin are on it.
    SentRecorded { origin: OriginId },
    /// A destage run ended without being written.
    RunDropped { origin: usize },
    /// The cache device failed under a waiter for durability, a client's FLUSH or a piece of this
    /// origin.
    UntilDrained { waiter: FlushWaiter, origin: Option<usize> },
    /// A new mirror has all of this lane, but for so many dirty blocks. `None`: the lane has given
    /// that filling up.
    Filled { number: u64, lacking: Option<u64> },
    /// The index has room for so many keys, or not.
    Widened { keys: u64, room: Room },
    /// The blocks of a removed volume have left the index.
    Forgotten { origin: usize },
    /// The lane has sealed what was open.
    Closed { lane: usize },
    /// The lane has replayed its log, and waits for the word to go on.
    Replayed,
    /// The lane has replayed its log.
    Recovered { commits: u64 },
    /// The lane can't be replayed.
    OpenFailed(OpenError),
}

/// Room in the index of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Made,
    /// The room is made when nothing walks over the index any more.
    Later,
    /// An index can't be that wide.
    Never,
}

/// Each request moves some of these messages.
const _: () = assert!(size_of::<Up>() <= 40);

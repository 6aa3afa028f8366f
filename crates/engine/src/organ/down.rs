// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the coordinator asks of a lane. Each message is a value: it says all that the lane needs,
//! and refers to nothing that may be another thing when the message comes.

use crate::fact::io::{DeviceError, RequestError};
use crate::organ::flush::FlushWaiter;
use crate::organ::piece::Piece;
use crate::policy::Hold;

/// A message of the coordinator to a lane.
pub(crate) enum Down {
    /// A part of a request is for this lane.
    Piece(Piece),
    /// A client's FLUSH: the lane answers [`PieceDone`](crate::organ::up::Up::PieceDone) when all
    /// that came before is durable.
    ClientFlush { request: usize },
    /// The gate of the policy is held open, or let go.
    HoldGate(Hold),
    /// A flush of the cache device is over. It has covered what this lane had asked for when the
    /// flush began.
    CacheFlushed { covered: Covered, result: Result<(), DeviceError> },
    /// An origin's flush that the lane waits for is over, or will never be.
    OriginFlushed { waiter: FlushWaiter, result: Result<(), DeviceError> },
    /// What was written through to this origin, and is not proven, may be gone.
    OriginDoubtful { origin: usize },
    /// This origin refuses what fills the log: its writes don't wait for room any more.
    GiveUpRoom { origin: usize, error: RequestError },
    /// The log says durably which eras of an origin are on it.
    ErasSent,
    /// This origin refuses what it is given: nothing waits for its eras any more.
    GiveUpEras { origin: usize, error: DeviceError },
    /// Clients are about to leave: nothing waits for destage to this origin any more.
    GiveUpClean { origin: usize },
    /// Lost blocks may be readable by now: they are tried once more.
    TryLost,
    /// The cache device had hung, and answers again.
    LookForLost,
    /// Replay is over, and the lane opens.
    GoOn,
    /// The lead of the members is another one now.
    LeadChanged,
    /// There is no other member any more, or a new one that is empty.
    ForgetCopies,
    /// The last checkpoint begins.
    Checkpoint,
}

/// A lane's wish for a flush of the cache device, which the coordinator may see late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushWish {
    /// The lane wants a flush.
    pub(crate) wanted: bool,
    /// A flush that begins after this wish covers this, whether it is wanted or not.
    pub(crate) covers: Covered,
}

/// What a flush of the cache device covers of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Covered {
    /// Commits up to this one were written when the flush began.
    pub(crate) seq: u64,
    /// The checkpoint had asked for the flush. The number tells this wish from later ones.
    pub(crate) checkpoint: Option<u64>,
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the coordinator asks of a lane. Each message is a value: it says all that the lane needs,
//! and refers to nothing that may be another thing when the message comes.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::act::sync::state::Fill;
use crate::fact::io::{DeviceError, RequestError};
use crate::fact::types::OriginId;
use crate::organ::cursor::Cursor;
use crate::organ::cuts::ErasNote;
use crate::organ::flush::FlushWaiter;
use crate::organ::grant::Grant;
use crate::organ::piece::Piece;
use crate::policy::Hold;

/// A message of the coordinator to a lane.
pub(crate) enum Down {
    /// A part of a request is for this lane.
    Piece(Piece),
    /// A client's FLUSH: the lane answers [`PieceDone`](crate::organ::up::Up::PieceDone) when all
    /// that came before is durable.
    ClientFlush { request: usize },
    /// The lane may start a run of destage, and answers
    /// [`GrantUsed`](crate::organ::up::Up::GrantUsed).
    Grant(Grant),
    /// Destage of an origin goes on at this cursor: the lane shows what it has there.
    Seek { origin: usize, cursor: Cursor },
    /// The log is to say which eras of an origin are on it, and the lane answers
    /// [`SentRecorded`](crate::organ::up::Up::SentRecorded) when it says so durably.
    NoteSent { origin: OriginId, note: ErasNote },
    /// The eras of an origin up to this one go to it together, as a group.
    PutTogether { origin: OriginId, last: u64 },
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
    /// The segments from this one on are to be empty; `None`: no segment is.
    Vacate { first: Option<u32> },
    /// Lost blocks may be readable by now: they are tried once more.
    TryLost,
    /// The cache device had hung, and answers again.
    LookForLost,
    /// A new mirror is to be filled. Fillings have numbers.
    FillMirror { number: u64, what: Fill },
    /// All lanes have filled it: the lane answers [`Filled`](crate::organ::up::Up::Filled).
    EndFilling { number: u64 },
    /// The index is to have room for so many keys: the lane answers
    /// [`Widened`](crate::organ::up::Up::Widened), and tells that once more if it had to wait.
    Widen { keys: u64 },
    /// There is one origin more.
    AddOrigin,
    /// A volume is removed. The lane answers [`Forgotten`](crate::organ::up::Up::Forgotten) when
    /// the blocks of that volume have left the index.
    Forget { origin: usize },
    /// All lanes are open: eras before these are on their origins.
    OpenEras { sent: Arc<BTreeMap<OriginId, u64>> },
    /// Replay is over, and the lane opens.
    GoOn,
    /// The lead of the members is another one now.
    LeadChanged,
    /// There is no other member any more, or a new one that is empty.
    ForgetCopies,
    /// The engine stops: the lane seals what is open, and answers
    /// [`Closed`](crate::organ::up::Up::Closed).
    Close,
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

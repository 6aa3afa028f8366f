// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the coordinator has seen of a lane, which may be late: the lane may be further by now.
//!
//! A lane shows this *before* the messages of the same step, if it has changed. So a message never
//! comes to a coordinator that knows less of the lane than the message presumes.

use alloc::collections::BTreeSet;

use crate::fact::types::Time;
use crate::organ::down::FlushWish;

/// What a lane shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneSeen {
    /// Its wish for a flush of the cache device.
    pub(crate) wish: FlushWish,
    /// The number of the filling of a mirror of which it has done its part.
    pub(crate) filled: Option<u64>,
    pub(crate) pressure: Pressure,
}

/// What a lane lacks. Seen late this costs time, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// The log takes no more.
    pub(crate) saturated: bool,
    /// Reclaim waits for destage, until then at most.
    pub(crate) behind_until: Option<Time>,
    /// The origins of which writes wait for room in the log.
    pub(crate) room: BTreeSet<usize>,
    /// Writes wait until eras need fewer versions, of whatever origin.
    pub(crate) versions: bool,
    /// The origins of which pieces wait until their range is clean.
    pub(crate) clean: BTreeSet<usize>,
}

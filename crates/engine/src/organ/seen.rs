// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the coordinator has seen of a lane, which may be late: the lane may be further by now.
//!
//! A lane shows this *before* the messages of the same step, if it has changed. So a message never
//! comes to a coordinator that knows less of the lane than the message presumes.

use crate::organ::down::FlushWish;

/// What a lane shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneSeen {
    /// Its wish for a flush of the cache device.
    pub(crate) wish: FlushWish,
    /// The number of the filling of a mirror of which it has done its part.
    pub(crate) filled: Option<u64>,
}

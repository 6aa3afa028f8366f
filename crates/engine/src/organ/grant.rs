// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grants: the coordinator lets a lane start one run of destage, and hears what came of that.
//!
//! An origin has one grant at a time, so that its destage has one order over all lanes. A lane
//! starts no run without a grant. The answer to a grant ends that grant.

use crate::organ::eras::Wanted;
use crate::organ::index::Flat;

/// A lane may start one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Grants of an origin count up: an answer says which grant it is for.
    pub(crate) number: u64,
    pub(crate) origin: usize,
    /// The run starts at this block, and ends here at last.
    pub(crate) first: Flat,
    pub(crate) end: Flat,
    /// The run takes the versions of these eras, where destage is ordered.
    pub(crate) eras: Option<Wanted>,
    pub(crate) takes: Takes,
}

/// Which block the run may start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// A block that somebody waits for.
    Urgent,
    Any,
    /// A block that was not rewritten since the last sweep.
    Rested,
}

/// What a lane has done with a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) number: u64,
    pub(crate) origin: usize,
    pub(crate) came: Came,
    /// The order goes on here.
    pub(crate) end: Flat,
}

/// What came of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// A run has started.
    Run,
    /// The block can't be destaged now.
    Nothing,
    /// The block was rewritten since the last sweep.
    PassedOver,
    /// A run covers the block already.
    Covered,
}

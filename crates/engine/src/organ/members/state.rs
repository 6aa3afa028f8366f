// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of two cache devices count, and what is to become of them.

use crate::fact::io::{DeviceError, Op};

/// What is known of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MembersState {
    /// The lead alone.
    Single,
    /// Both members.
    Whole,
    /// A member failed; the other one's superblock does not say so durably yet.
    Leaving {
        /// Which.
        out: u8,
    },
    /// A new member is being filled. It doesn't count yet.
    Syncing,
    /// The new member is full, and the superblocks are being written that make it count.
    Pairing,
    /// Both members hold everything, and the superblocks are being written that make the other one
    /// the lead.
    Promoting,
    /// Both failed, and the cache with them.
    Broken,
}

/// What becomes of the lead when a filling is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The lead stays, and the other member mirrors it.
    Mirror,
    /// The other member gets clean data too, becomes the lead, and the old lead leaves.
    Succeed,
    /// The other member gets clean data too, and becomes the lead. The old lead stays, as its
    /// mirror.
    Promote,
}

/// A write or flush of both members.
pub(crate) struct Pair {
    /// The lane that the I/O belongs to, and its number there.
    pub(crate) lane: usize,
    pub(crate) io: usize,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) pending: u32,
    /// What each member said.
    pub(crate) failed: [Option<DeviceError>; 2],
}

/// Whether it is known, wherever the next start will look, that this cache must not be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureRecord {
    /// Not yet, or nothing has failed.
    Unknown,
    /// The next start will see it.
    Durable,
    /// No place is left to record it.
    Impossible,
}

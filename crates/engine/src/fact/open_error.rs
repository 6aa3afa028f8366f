// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a cache can't be opened, and what to do then.

use core::fmt;

use crate::fact::io::DeviceError;

/// Why a cache can't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Origins so large that an index entry would have no room for a checksum.
    KeySpaceTooLarge,
    /// Neither checkpoint area of a lane holds a head.
    NoCheckpoint {
        /// The lane.
        lane: u32,
    },
    /// A block of a lane's checkpoint is damaged.
    CheckpointDamaged {
        /// The lane.
        lane: u32,
        /// First byte of the block on the cache device.
        offset: u64,
    },
    /// A commit is missing or damaged though it was durable once.
    LogDamaged {
        /// The lane.
        lane: u32,
        /// The commit's number.
        commit: u64,
        /// The last commit that is known to have been durable.
        durable: u64,
    },
    /// Commits of a later opening are there, but its checkpoint is not.
    CheckpointLost {
        /// The lane.
        lane: u32,
        /// The opening.
        epoch: u64,
    },
    /// The cache device can't be read.
    Read {
        /// First byte of the failed read.
        offset: u64,
        /// How it failed.
        error: DeviceError,
    },
    /// A lane has no segments to start its log with, as so much is dirty.
    NoFreeSegments {
        /// The lane.
        lane: u32,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeySpaceTooLarge => write!(
                f,
                "the origins are too large: an entry of the index has room for 256 TiB of them together; take a smaller one, or a part of it"
            ),
            Self::NoCheckpoint { lane } => {
                write!(
                    f,
                    "lane {lane}: no checkpoint found; `flashfront repair` salvages what is left on the cache device"
                )
            }
            Self::CheckpointDamaged { lane, offset } => write!(
                f,
                "lane {lane}: the checkpoint block at byte {offset} of the cache device is damaged; `flashfront repair` salvages what is left"
            ),
            Self::LogDamaged { lane, commit, durable } => write!(
                f,
                "lane {lane}: commit {commit} of the log is damaged or missing, though a later one says that all up to \
                 {durable} were durable: the cache device has decayed, or it lost what it had flushed; serving what is \
                 before it would be serving old data; `flashfront repair` salvages what is left, and lists what is lost"
            ),
            Self::CheckpointLost { lane, epoch } => write!(
                f,
                "lane {lane}: the newest checkpoint is damaged: there are commits of opening {epoch}, which the older \
                 one knows nothing of; `flashfront repair` salvages what is left"
            ),
            Self::Read { offset, error: DeviceError::TimedOut } => write!(
                f,
                "the cache device did not answer a read at byte {offset} in time; see `dmesg`, and start again when it answers"
            ),
            Self::Read { offset, error } => write!(
                f,
                "can't read the cache device at byte {offset}: {error:?}; `flashfront repair` salvages what can be read"
            ),
            Self::NoFreeSegments { lane } => write!(f, "lane {lane}: no free segments to write to"),
        }
    }
}

impl core::error::Error for OpenError {}

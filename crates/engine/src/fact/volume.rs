// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator may do with the volumes of a running cache, and why it is refused.

use alloc::string::String;
use core::fmt;

use crate::fact::types::{Mode, OriginId};
use crate::format::{NAME_BYTES_MAX, Shares};

/// A volume to add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewVolume {
    /// Its name, which no other volume of the cache has.
    pub name: String,
    /// A serial number or the like; empty if the origin has none.
    pub identity: String,
    /// The origin's path or address.
    pub origin_path: String,
    /// The origin's size, a multiple of 512.
    pub size_bytes: u64,
    /// The origin's logical block, in bytes.
    pub block_bytes: u32,
    /// Whether the origin takes what was written between two of its flushes as a whole or not at
    /// all.
    pub whole_flushes: bool,
    /// How writes are treated.
    pub mode: Mode,
    /// Whether clients may not write.
    pub read_only: bool,
    /// Its part of the cache.
    pub shares: Shares,
    /// Hash of the origin's samples now (stale guard).
    pub fingerprint: u64,
    /// Time of the last change of a file, in ns since 1970; 0 if unknown.
    pub changed_ns: u64,
}

/// What becomes of a volume's dirty blocks when the volume is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirtyOnRemove {
    /// A volume with dirty blocks is not removed.
    #[default]
    Refuse,
    /// They are destaged first.
    Destage,
    /// They are given up, for ever.
    Discard,
}

/// A change of a cache's volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeChange {
    /// A new volume. It gets an id that no volume of this cache ever had.
    Add(NewVolume),
    /// Another name.
    Rename {
        /// The volume.
        origin: OriginId,
        /// The new name.
        name: String,
    },
    /// Whether clients may write.
    SetReadOnly {
        /// The volume.
        origin: OriginId,
        /// From now on.
        read_only: bool,
    },
    /// Another part of the cache.
    SetShares {
        /// The volume.
        origin: OriginId,
        /// From now on.
        shares: Shares,
    },
    /// The origin is found by another path from now on.
    SetOriginPath {
        /// The volume.
        origin: OriginId,
        /// The path or address.
        origin_path: String,
    },
    /// Clients get the new part of an origin, which has that size already.
    Grow {
        /// The volume.
        origin: OriginId,
        /// The new size, a multiple of 512, beyond the old one.
        size_bytes: u64,
    },
    /// The volume goes, with all its blocks. It takes no requests from now on. Asked for once more,
    /// while its blocks are destaged, this changes what becomes of them.
    Remove {
        /// The volume.
        origin: OriginId,
        /// What becomes of its dirty blocks.
        dirty: DirtyOnRemove,
    },
}

impl VolumeChange {
    /// The volume that is changed, if it is there already.
    #[must_use]
    pub const fn origin(&self) -> Option<OriginId> {
        match self {
            Self::Add(_) => None,
            Self::Rename { origin, .. }
            | Self::SetReadOnly { origin, .. }
            | Self::SetShares { origin, .. }
            | Self::SetOriginPath { origin, .. }
            | Self::Grow { origin, .. }
            | Self::Remove { origin, .. } => Some(*origin),
        }
    }
}

/// Why a change of the volumes was refused. Nothing has changed then, but by
/// [`VolumeError::CacheFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolumeError {
    /// The cache has no such volume.
    NoSuchVolume,
    /// Another volume has that name.
    NameTaken(OriginId),
    /// The name is empty, or too long.
    BadName,
    /// The size is no multiple of 512, or 0.
    BadSize,
    /// A volume can't get smaller, or has that size already.
    NotLarger {
        /// Its size.
        size_bytes: u64,
    },
    /// The last block of the volume is not whole. The cache knows nothing of the rest of it.
    PartOfBlock {
        /// The size.
        size_bytes: u64,
    },
    /// The next volume begins too soon behind this one on the line of all blocks.
    NoRoomBehind,
    /// The table of volumes is full.
    TooMany {
        /// The volumes that there is room for.
        most: usize,
    },
    /// No id is left: each was used once.
    IdsUsedUp,
    /// The volumes are too large together, those among them that were removed since the cache was
    /// opened.
    NoPlace,
    /// The volume has dirty blocks.
    Dirty {
        /// How many.
        blocks: u64,
    },
    /// The volume's own dirty limit has no room for a request.
    DirtyLimitTooLow {
        /// The least that has.
        least_bytes: u64,
    },
    /// The volume's largest part of the cache has no room for a request.
    LargestPartTooSmall {
        /// The least that has.
        least_bytes: u64,
    },
    /// The volume's smallest part is larger than its largest one.
    PartsCrossed {
        /// The smallest part.
        min_bytes: u64,
        /// The largest part.
        max_bytes: u64,
    },
    /// The width of reads around misses is no whole number of blocks, or too large.
    BadReadAround {
        /// What was asked for.
        bytes: u64,
        /// The most.
        most_bytes: u64,
    },
    /// The smallest parts of all volumes would be more than half of the cache.
    PartsTooLarge {
        /// What was asked for.
        min_bytes: u64,
        /// What the others have.
        others_bytes: u64,
        /// What all together may have.
        most_bytes: u64,
    },
    /// The cache has format version 1.
    NeedsVersion2,
    /// Another change of this volume is under way.
    Busy,
    /// The engine does not serve, or stops.
    NotServing,
    /// The cache device failed. If it failed while the change was written, the next opening shows
    /// whether it was made.
    CacheFailed,
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchVolume => write!(f, "the cache has no such volume; see `flashfront volume list`"),
            Self::NameTaken(_) => write!(f, "another volume of the cache has that name; choose another one"),
            Self::BadName => {
                write!(f, "a name has 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`; choose another one")
            }
            Self::BadSize => {
                write!(f, "the size of the origin is no multiple of 512 bytes, or 0; choose another origin")
            }
            Self::NotLarger { size_bytes } => {
                write!(f, "the volume has {size_bytes} bytes, and its origin has no more; make the origin larger first")
            }
            Self::PartOfBlock { size_bytes } => write!(
                f,
                "the volume has {size_bytes} bytes, which is no multiple of 4096, so its last block can't grow; remove the volume with --destage, and add it again"
            ),
            Self::NoRoomBehind => write!(
                f,
                "since the start of the daemon the volume can at most double; stop the daemon, and grow it with --cache"
            ),
            Self::TooMany { most } => {
                write!(
                    f,
                    "the cache has its {most} volumes, which is all that its table has room for; remove one first"
                )
            }
            Self::IdsUsedUp => {
                write!(
                    f,
                    "each volume ever added took a number, and none is left; `flashfront format` makes a new cache"
                )
            }
            Self::NoPlace => write!(
                f,
                "the volumes are larger than the 256 TiB together that the index has room for; those count, too, that were removed since the cache was opened: stop and start it once, or add less"
            ),
            Self::Dirty { blocks } => write!(
                f,
                "the volume has {blocks} dirty blocks, which its origin lacks; destage them first, or say that they are to be given up"
            ),
            Self::DirtyLimitTooLow { least_bytes } => write!(
                f,
                "a dirty limit of a volume's own is at least {}, so that the longest request fits; say more, or none",
                Told(*least_bytes)
            ),
            Self::LargestPartTooSmall { least_bytes } => write!(
                f,
                "a volume's largest part of the cache is at least {}, so that the longest request fits; say more, or none",
                Told(*least_bytes)
            ),
            Self::PartsCrossed { min_bytes, max_bytes } => write!(
                f,
                "the volume's smallest part, {}, would be larger than its largest, {}; say both",
                Told(*min_bytes),
                Told(*max_bytes)
            ),
            Self::BadReadAround { bytes, most_bytes } => write!(
                f,
                "{} can't be read around a miss: say a multiple of 4 KiB, and at most {} (0B = only what is asked for)",
                Told(*bytes),
                Told(*most_bytes)
            ),
            Self::PartsTooLarge { min_bytes, others_bytes, most_bytes } => write!(
                f,
                "{} for this volume and {} for the others are more than half of the cache, {}, which is all that can be kept for volumes; say less, or take something from another volume",
                Told(*min_bytes),
                Told(*others_bytes),
                Told(*most_bytes)
            ),
            Self::NeedsVersion2 => write!(
                f,
                "the cache has format version 1, whose volumes can't be changed; stop it, and run `flashfront volume convert`"
            ),
            Self::Busy => write!(f, "another change of this volume is under way; wait until it is done"),
            Self::NotServing => write!(f, "the daemon is opening the cache, or stops; try again when it serves"),
            Self::CacheFailed => write!(
                f,
                "the cache device failed; if it failed during this change, the next start shows whether the change was made"
            ),
        }
    }
}

impl core::error::Error for VolumeError {}

/// A size for people: in the largest unit of which it is a multiple.
struct Told(u64);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

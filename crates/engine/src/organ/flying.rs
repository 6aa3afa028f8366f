// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/Os in flight: what each is for, and what has to be known when it ends.
//!
//! Only [`crate::turn`] decides by them what goes on.

use smallvec::SmallVec;

use crate::fact::io::DeviceId;
use crate::fact::memory::Buf;
use crate::organ::index::{Flat, Found};

/// Blocks of a read piece in consecutive slots.
pub(crate) struct SlotsRead {
    pub(crate) piece: usize,
    /// First block of the piece.
    pub(crate) block: u32,
    pub(crate) slot: u32,
    /// A checksum for each block.
    pub(crate) checksums: SmallVec<[u32; 4]>,
    /// The member of a mirrored cache that is read.
    pub(crate) device: DeviceId,
}

/// Blocks of a read piece that are read with their neighbours.
pub(crate) struct WideRead {
    /// First block of the piece, and how many.
    pub(crate) block: u32,
    pub(crate) blocks: u32,
    pub(crate) read: usize,
    /// A buffer of the widest unit of any origin, and that.
    pub(crate) buf: Buf,
    pub(crate) unit: u32,
    pub(crate) into: Into,
}

/// Where neighbours go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    /// Into the log: it has room, or what they push out isn't missed.
    Log,
    /// Into the window, in RAM.
    Window,
}

/// Where a block is completed from, and so whose places are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Origin,
    Cache,
}

/// A block of a victim that is copied forward.
#[derive(Clone, Copy)]
pub(crate) struct Survivor {
    pub(crate) segment: u32,
    pub(crate) flat: Flat,
    pub(crate) found: Found,
    /// Its hits from then on.
    pub(crate) hits: u8,
    /// The survivor waits for room: without it a volume would have less than its smallest part.
    pub(crate) must: bool,
}

/// What an I/O in flight is for.
pub(crate) enum LaneIo {
    /// Blocks of a read piece from the cache device.
    ReadCache(SlotsRead),
    /// Blocks of a read piece from the origin.
    ReadOrigin {
        read: usize,
    },
    /// Cached blocks from the origin.
    Detour {
        detour: usize,
    },
    /// Blocks of a read piece from the origin, with their neighbours.
    ReadWide(WideRead),
    /// The old content of a block that is written in part.
    Merge {
        piece: usize,
        block: u32,
        buf: Buf,
        from: Option<(Found, DeviceId)>,
        /// The device whose places the read has taken, wherever the block is read by now.
        places: Source,
    },
    /// A direct write, discard or zero.
    Direct {
        piece: usize,
        failed_flushes: u32,
    },
    Commit {
        seq: u64,
    },
    /// Blocks of a destage run from this member of the cache.
    RunRead {
        run: usize,
        device: DeviceId,
    },
    RunWrite {
        run: usize,
    },
    /// A commit header of a segment under reclaim.
    ReclaimHeader {
        segment: u32,
        slot: u32,
        buf: Buf,
        device: DeviceId,
    },
    /// A block that may survive.
    Survivor {
        survivor: Survivor,
        buf: Buf,
        device: DeviceId,
    },
    Checkpoint,
    Recover,
    /// A dirty block for a new mirror.
    SyncRead {
        flat: Flat,
        found: Found,
        buf: Buf,
        device: DeviceId,
    },
    SyncWrite {
        slot: Option<u32>,
        buf: Buf,
    },
}

impl LaneIo {
    /// A batch of a checkpoint's entries, read or written, or a commit of replay.
    pub(crate) const fn is_batch(&self) -> bool {
        matches!(self, Self::Recover | Self::Checkpoint)
    }

    /// Whether it is a client's read of an origin that others may join.
    pub(crate) const fn is_shared_read(&self) -> bool {
        matches!(self, Self::ReadOrigin { .. } | Self::ReadWide(_))
    }

    /// Whether a lane may look at its end beside other lanes, if it went well.
    pub(crate) const fn is_of_one_lane(&self) -> bool {
        matches!(self, Self::ReadCache(_) | Self::ReadOrigin { .. }) || self.is_batch()
    }

    /// The member of the cache that is read, if it is a read of the cache whose failure nothing
    /// else notices. Another member may lead since the read began.
    pub(crate) const fn reads_member(&self) -> Option<DeviceId> {
        match self {
            Self::ReadCache(read) => Some(read.device),
            Self::Merge { from: Some((_, device)), .. }
            | Self::RunRead { device, .. }
            | Self::ReclaimHeader { device, .. }
            | Self::Survivor { device, .. }
            | Self::SyncRead { device, .. } => Some(*device),
            _ => None,
        }
    }
}

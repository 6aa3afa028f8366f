// SPDX-License-Identifier: MIT OR Apache-2.0
//! The units of the engine: time, places on a device, ids, modes.
//!
//! Every number that crosses a module has a type of its own here. So a sector can't be taken for a
//! block, nor a slot for a segment.

use core::fmt;

/// Bytes of a sector, the block layer's unit (512).
pub const SECTOR_BYTES: u64 = 512;
/// Bytes of a block, the cache's unit (4096).
pub const BLOCK_BYTES: u64 = 4096;
/// Sectors of a block (8).
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;
/// The longest read, write or write-zeroes-by-payload that one [`crate::Request`] may carry (1
/// MiB).
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// A moment, in nanoseconds since a start that the caller chose. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// This moment, `ns` nanoseconds later.
    #[must_use]
    pub const fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this moment; 0 if `earlier` is later.
    #[must_use]
    pub const fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The number of an origin of this cache (24 bits on the medium). It is never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u32);

/// A block of an origin: its offset there, in units of 4 KiB (36 bits on the medium).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

/// A sector of an origin: its offset there, in units of 512 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// An origin and a block of it: the key of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The origin.
    pub origin: OriginId,
    /// The block.
    pub block: Block,
}

/// A segment of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// The place of one block in the log of one lane. It is segment x slots per segment + place in the
/// segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// How writes to an origin are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Writes go to the cache device, and later to the origin.
    #[default]
    Writeback,
    /// Writes go to the origin and then to the cache device. They are acknowledged when the origin
    /// has them.
    Writethrough,
    /// Writes go to the origin only; reads are cached.
    Writearound,
    /// Everything goes to the origin. The cache serves only blocks that are still dirty in it.
    Passthrough,
}

impl Mode {
    /// All modes, in the order of their numbers on the medium.
    pub const ALL: [Self; 4] = [Self::Writeback, Self::Writethrough, Self::Writearound, Self::Passthrough];

    /// The name used by the CLI, the config and the reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writeback => "writeback",
            Self::Writethrough => "writethrough",
            Self::Writearound => "writearound",
            Self::Passthrough => "passthrough",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When a write in writeback mode is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// A write is acknowledged at once, as by a disk with a volatile write cache. FLUSH and FUA
    /// make it durable.
    #[default]
    Flush,
    /// A write is acknowledged when its commit is durable on the cache device.
    Always,
}

impl Durability {
    /// All durabilities.
    pub const ALL: [Self; 2] = [Self::Flush, Self::Always];

    /// The name used by the CLI, the config and the reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Always => "always",
        }
    }

    /// The durability of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// In which order dirty data goes to its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Destage {
    /// In the order of places, which a disk does fastest. A rewritten block is written once. The
    /// origin alone is no file system until all is destaged.
    #[default]
    Free,
    /// In the order of FLUSHes. The origin alone is at every moment what a disk could hold after a
    /// power cut at an earlier FLUSH.
    Ordered,
}

impl Destage {
    /// All orders.
    pub const ALL: [Self; 2] = [Self::Free, Self::Ordered];

    /// The name used by the CLI, the config and the reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Ordered => "ordered",
        }
    }

    /// The order of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

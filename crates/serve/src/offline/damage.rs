// SPDX-License-Identifier: MIT OR Apache-2.0
//! A damaged place on a cache device.

use serde::Serialize;

/// The kind of a damaged structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DamageKind {
    /// A copy of the superblock; the other is used, and mends it at the next start.
    Superblock,
    /// A checkpoint: the cache can't be opened, or not in its newest state.
    Checkpoint,
    /// A commit of the log: what came after it is out of reach.
    Log,
    /// A block that the origin has too: it will be read from there.
    CleanData,
    /// A block that only the cache has: its content is lost.
    DirtyData,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The damaged structure.
    pub kind: DamageKind,
    /// First byte on the cache device.
    pub offset: u64,
    /// The volume that the block belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The first sector of the block there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lba: Option<u64>,
    /// The content that should be there.
    pub expected: String,
    /// The content that is there.
    pub found: String,
}

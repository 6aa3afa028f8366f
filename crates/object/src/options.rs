// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a volume works, and figures about it.

/// How a volume works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A batch of so many bytes becomes an object.
    pub batch_bytes: usize,
    /// Uploads at a time.
    pub uploads: usize,
    /// Objects after a checkpoint before the next one is thought of.
    pub tail: usize,
    /// Objects after a checkpoint that make the next one, whatever it costs.
    pub tail_max: usize,
    /// Manifests that stay complete for readers: they may open one while newer ones appear.
    pub complete: u64,
    /// Manifests that are not deleted. More than a list of the store can lack.
    pub manifests: u64,
    /// Bytes of extents that were read and are kept.
    pub recent_bytes: usize,
    /// Bytes of the map that may be in RAM although the store has them. A map that is not larger is
    /// read at the opening; of a larger one pages are read when somebody needs them. What is not
    /// stored yet comes on top: about as much, before a checkpoint is made.
    pub map_bytes: usize,
    /// What was written between two flushes is in the store as a whole or not at all: manifests
    /// end where a flush was asked for.
    pub whole_flushes: bool,
}

impl Default for Options {
    /// 8 MiB is what a request costs least for, beside the time that it takes. Four at a time fill
    /// 100 MB/s at 50 ms. At an opening 64 heads are fetched in six rounds of 12 requests, and 256
    /// in 22. 24 MiB are a million extents: 4 GiB that were written in blocks of 4 KiB, or 256 GiB
    /// in long writes.
    fn default() -> Self {
        Self {
            batch_bytes: 8 << 20,
            uploads: 4,
            tail: 64,
            tail_max: 256,
            complete: 16,
            manifests: 1000,
            recent_bytes: 16 << 20,
            map_bytes: 24 << 20,
            whole_flushes: false,
        }
    }
}

/// A volume takes no writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteFault {
    /// The volume was opened to be read.
    #[error("the volume was opened to be read only")]
    ReadOnly,
    /// Another writer has opened it.
    #[error("another writer has opened the volume ({0})")]
    Fenced(String),
    /// The volume is encrypted, and no key is given.
    #[error("the volume is encrypted, and no key is given")]
    NoKey,
}

/// What the store does not have yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsent {
    /// Bytes in RAM, in no manifest.
    pub bytes: u64,
    /// Number of the oldest batch among them, of those since the opening. Whoever has a clock can
    /// note when it first saw the number.
    pub oldest: u64,
    /// Number of the batch that the next write goes to.
    pub open: u64,
}

/// How much a volume holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects in use.
    pub objects: u64,
    /// Bytes in use.
    pub live_bytes: u64,
    /// Bytes of objects that are not in use any more.
    pub dead_bytes: u64,
    /// Bytes of the volume that are in use, about.
    pub content_bytes: u64,
    /// Extents of the map that are in RAM.
    pub extents: u64,
}

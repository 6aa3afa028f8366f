// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rivals are models of the caches that people compare with. They run on the same device models and
//! under the same jobs as Flashfront. Each has a file or a folder.
//!
//! A rival decides what I/O a request becomes. [`Rig`] carries the I/O out on the devices, counts
//! it, and is the [`System`](crate::system::System) that jobs run on. A new rival is a file that
//! implements [`Rival`] and exports a `SPEC` for each way to run it, and a line in [`ALL`].

mod bcache;
mod dm_cache;
mod dm_writeboost;
mod flashcache;
mod gflash;
mod rig;
mod spec;

pub use rig::{Io, Rig, Rival, Stats};
pub use spec::{Geometry, Spec};

/// All rivals, in the order of the tables.
pub const ALL: &[Spec] = &[
    bcache::SPEC,
    bcache::SPEC_4M,
    bcache::SPEC_6_1,
    dm_cache::MQ,
    dm_cache::SMQ_4_11,
    dm_cache::SMQ,
    flashcache::FLASHCACHE,
    gflash::SPEC,
    dm_writeboost::SPEC,
    dm_writeboost::SPEC_READCACHE,
];

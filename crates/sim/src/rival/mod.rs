// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of the caches that people compare with, one file each, on the same device models and
//! under the same jobs as Flashfront.
//!
//! A rival decides what I/O a request becomes; [`Rig`] carries it out on the devices, counts it,
//! and is the [`System`] that jobs run on. To add one: a file that implements [`Rival`] and exports
//! a `SPEC` for each way to run it, and a line in [`ALL`].

use flashfront_device::sim::ModelSpec;

use crate::system::System;

mod bcache;
mod dm_cache;
mod dm_writeboost;
mod flashcache;
mod gflash;
mod rig;

pub use rig::{Io, Rig, Rival, Stats};

/// What a system is built for.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// The origin's kind.
    pub origin: ModelSpec,
    /// The origin's size.
    pub origin_bytes: u64,
    /// The cache device's kind.
    pub cache: ModelSpec,
    /// The cache device's size.
    pub cache_bytes: u64,
}

/// A rival, and how it is set up.
#[derive(Debug)]
pub struct Spec {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where its facts come from.
    pub source: &'static str,
    /// Makes it, with an empty cache.
    pub build: fn(&Geometry) -> Box<dyn System>,
}

impl Spec {
    /// The size that is next to so many bytes and large enough for it.
    #[must_use]
    pub fn cache_bytes(&self, bytes: u64) -> u64 {
        if self.name == gflash::SPEC.name { bytes.max(gflash::CACHE_BYTES_MIN) } else { bytes }
    }
}

/// All of them.
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

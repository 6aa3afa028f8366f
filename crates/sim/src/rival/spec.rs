// SPDX-License-Identifier: MIT OR Apache-2.0
//! A spec registers a rival, and says how it is built.

use flashfront_device::sim::ModelSpec;

use crate::system::System;

/// The devices that a system is built for.
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
    /// The name on the command line and in tables.
    pub name: &'static str,
    /// A line on what the rival is.
    pub summary: &'static str,
    /// Where the facts of the model come from.
    pub source: &'static str,
    /// The smallest cache device that the rival takes.
    pub cache_bytes_min: u64,
    /// Builds the rival, with an empty cache.
    pub build: fn(&Geometry) -> Box<dyn System>,
}

impl Spec {
    /// The size of a cache device that is wanted, or the rival's smallest if that is larger.
    #[must_use]
    pub fn cache_bytes(&self, wanted: u64) -> u64 {
        wanted.max(self.cache_bytes_min)
    }
}

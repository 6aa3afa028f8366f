// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which blocks that missed are put in the cache.
//!
//! A policy sees keys as numbers and whether there is room; no I/O, no clock, not the cache.
//! Writes in writeback mode are not asked about: they are always absorbed.

use alloc::boxed::Box;

use crate::policy::registry;

#[cfg(test)]
mod tests;

/// What a policy may know when it decides.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The cache has segments that were never needed yet.
    pub room: bool,
}

/// An admission policy, one per lane.
pub trait Admission: Send {
    /// Whether this block, which has just missed, is put in the cache.
    fn admit(&mut self, key: u64, view: View) -> bool;

    /// This block was dropped from the cache.
    fn evicted(&mut self, key: u64);

    /// Memory it takes.
    fn bytes(&self) -> u64;
}

/// Makes a policy for a lane of that many blocks.
pub type Build = fn(capacity_blocks: u64) -> Box<dyn Admission>;

registry! { Build: second_miss, always }

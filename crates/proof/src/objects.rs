// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes in an object store, in virtual time. The store loses, delays and tears requests. Writers
//! crash, pause and take over from each other. A seed stands for one whole life.
//!
//! The oracle opens the bucket alone, again and again. What it finds must be a state in which the
//! volume was, and must have every flush that was acknowledged. Snapshots must stay what they were.

mod content;
mod judge;
mod life;
mod store;
pub mod sweep;
mod writers;

use crate::panics;

pub use life::Lived;

/// Lives a seed's life.
///
/// # Errors
/// The promise that was broken.
pub fn live(seed: u64) -> Result<Lived, String> {
    panics::caught(|| life::run(seed))
}

/// The planted bugs of volumes in a store.
#[cfg(feature = "canary")]
pub mod canary {
    pub use flashfront_object::{Canary, plant};
}

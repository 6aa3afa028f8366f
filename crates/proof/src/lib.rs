// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proof runs the production engine over virtual disks in virtual time, and judges each answer.
//!
//! A [`World`] joins one engine with its disks and a clock that jumps from event to event. An
//! [`Oracle`] knows what every read may return. A [`Client`] asks the world, and the oracle judges
//! what comes back. [`sweep`] cuts the power at every event of a workload. [`torture`] makes a
//! whole random life of a cache out of one seed; [`objects`] one of a volume in an object store.
//! There are no threads, no clock and no files, so the same seed gives the same run.
//!
//! How fast a cache is, and what a policy holds, is not asked here: that is crates/sim.
#![forbid(unsafe_code)]

#[cfg(feature = "canary")]
pub mod canary;
mod client;
pub mod objects;
mod oracle;
mod order;
pub mod panics;
mod spec;
mod stamp;
pub mod sweep;
pub mod torture;
mod volumes;
mod world;

pub use client::Client;
pub use oracle::{Oracle, Violation};
pub use spec::{OriginSpec, WorldSpec};
pub use stamp::{Content, identify, stamp};
pub use world::{Answer, Disk, Opened, World};

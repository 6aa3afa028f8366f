// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual time: the production engine over virtual disks, and what must be true of it.
//!
//! [`World`] joins one engine with its disks and a clock that jumps from event to event; [`Oracle`]
//! knows what every read may return, [`Client`] asks and lets it judge; [`torture`] makes a whole
//! random life of a cache out of one seed, [`sweep`] cuts the power at every event of a workload.
//! [`trace`] reads what clients once asked of real disks, [`policy`] decides which blocks a cache
//! would have held, [`replay`] and [`adapt`] count what comes of it, [`advise`] asks what that is
//! worth. No threads, no clock, no files: the same seed gives the same run.
#![forbid(unsafe_code)]

pub mod adapt;
pub mod advise;
pub mod calibrate;
#[cfg(feature = "canary")]
pub mod canary;
mod client;
pub mod compare;
pub mod load;
mod oracle;
pub mod panics;
pub mod policy;
pub mod replay;
pub mod rival;
pub mod scenario;
mod spec;
mod stamp;
pub mod sweep;
pub mod system;
pub mod torture;
pub mod trace;
mod world;
pub mod zipf;

pub use client::Client;
pub use oracle::{Oracle, Violation};
pub use spec::{OriginSpec, WorldSpec};
pub use stamp::{Content, identify, stamp};
pub use world::{Answer, Disk, Opened, World};

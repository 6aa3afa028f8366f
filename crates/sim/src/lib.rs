// SPDX-License-Identifier: MIT OR Apache-2.0
//! The laboratory says what a cache would have done, and how long it would have taken. All time is
//! virtual.
//!
//! [`trace`] reads what clients once asked of real disks. [`policy`] decides which blocks a cache
//! would have held; [`replay`] and [`adapt`] count what comes of it. [`system`] is what loads run
//! on: the production engine without payload, or a bare device. [`rival`] has models of other
//! caches. [`load`], [`scenario`] and [`compare`] run jobs on them. [`calibrate`] holds the models
//! of devices beside measurements, and [`advise`] says what a cache is worth. There is no clock, so
//! the same load gives the same figures.
//!
//! Whether an answer is right is not asked here: that is crates/proof.
#![forbid(unsafe_code)]

pub mod adapt;
pub mod advise;
pub mod calibrate;
pub mod compare;
pub mod load;
pub mod policy;
pub mod replay;
pub mod rival;
pub mod scenario;
pub mod system;
pub mod trace;
pub mod zipf;

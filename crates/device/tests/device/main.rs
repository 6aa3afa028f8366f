// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the devices through their public face.
//!
//! [`conformance`] has what all of them promise, [`real`] and [`blockdev`] what only real ones do,
//! and [`backend`] which backend is chosen.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod backend;
mod blockdev;
mod conformance;
mod nbd;
mod objects;
mod real;
mod rig;
mod ways;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the devices through their public face: what all of them promise ([`conformance`]), what
//! only real ones do ([`real`], [`blockdev`]), and which backend is chosen ([`backend`]).
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod backend;
mod blockdev;
mod conformance;
mod real;
mod rig;
mod ways;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the devices through their public face: what all of them promise ([`conformance`]), what
//! only real ones do ([`real`], [`blockdev`]), and which backend is chosen ([`backend`]).

mod backend;
mod blockdev;
mod conformance;
mod real;
mod rig;

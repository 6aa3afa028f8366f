// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of policies on traces, and of caches on the models of devices.
//!
//! All files are one program, which is linked once, and whose tests run side by side.

mod adversarial;
mod advise;
mod advised;
mod as_replayed;
mod behind;
mod calibration;
mod collection;
mod congested;
mod loads;
mod monotone;
mod policies;
mod put_off;
mod readers;
mod replay;
mod shadow;
mod trace;

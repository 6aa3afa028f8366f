// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrappers: a device that changes how another one behaves.

mod delay;
mod hdd;
mod inject;
mod ssd;

pub use delay::{Delay, DelaySpec};
pub use hdd::HddSpec;
pub use inject::{ALWAYS_PPM, Fault, Faults, Inject, Rule, SpecError};
pub use ssd::SsdSpec;

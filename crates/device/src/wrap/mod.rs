// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrappers: a device that changes how another one behaves.

mod delay;
mod inject;
mod patience;

pub use delay::Delay;
pub use inject::{ALWAYS_PPM, Fault, Faults, Inject, Rule, SpecError};
pub use patience::Patience;

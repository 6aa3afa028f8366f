// SPDX-License-Identifier: MIT OR Apache-2.0
//! The systems that jobs run on: a bare device, Flashfront, or a model of another cache.
//!
//! All of them run in virtual time, and without payload.

mod asked;
mod asker;
mod bare;
mod flashfront;
mod weightless;

pub use asked::{Ask, System, SystemRequest, Traffic};
pub use asker::Asker;
pub use bare::Bare;
pub use flashfront::{Flashfront, FlashfrontSpec};

// SPDX-License-Identifier: MIT OR Apache-2.0
//! One seed = one whole life of a cache: geometry, options, clients, mode switches, power cuts, all at
//! random, every answer judged by the oracle.

mod plan;
mod run;

pub use plan::Plan;
pub use run::{Outcome, run};

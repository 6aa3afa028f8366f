// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library measures real devices: suites of jobs, run by fio or by an act of its own, on
//! targets in turns.
//!
//! A [`Suite`] is what is asked for, [`Results`] is what came of it. Results are written after
//! each run, so that an interrupted bench goes on later. Nothing here prints.
#![forbid(unsafe_code)]

pub mod assert;
pub mod cold;
mod command;
pub mod database;
mod error;
mod figures;
pub mod fill;
pub mod fio;
mod folders;
pub mod git;
mod machine;
mod quiet;
pub mod replay;
pub mod results;
mod runner;
pub mod safety;
mod store;
pub mod suite;
pub mod suites;
pub mod target;

pub use error::BenchError;
pub use figures::{Direction, Figures, Measured, Point};
pub use machine::devices_of;
pub use results::{Results, Row, Run};
pub use runner::{Bench, Fresh, FreshMaker, News, Plan, Step};
pub use safety::MayDestroy;
pub use store::{Request, Store};
pub use suite::{Act, Headline, Job, Scale, Site, Suite, Work};

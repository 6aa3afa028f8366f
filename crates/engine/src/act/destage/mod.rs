// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destage: dirty blocks go to their origin, in runs.
//!
//! - `order` says which dirty block is next, and `rate` how many runs may be in flight.
//! - `run` carries out one run within its lane.
//! - `batches` has the runs of an origin, and when they are flushed. `refusals` has when an origin
//!   that refuses is tried again.
//! - `schedule` is the coordinator's part that brings them together.
//!
//! Invariant 4: a block stays dirty until its origin write and the origin's flush after it have
//! completed, and it hasn't been rewritten meanwhile (test: `dirty_until_durable`).

pub(crate) mod batches;
pub mod order;
pub(crate) mod rate;
mod readers;
mod refusals;
pub(crate) mod run;
mod schedule;
pub(crate) mod state;

pub(crate) use schedule::Destager;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destage: dirty blocks go to their origin, in runs.
//!
//! - `order` says which dirty block is next, and `rate` how many runs may be in flight.
//! - `grant` lets a lane start one run, and `run` carries that run out within its lane.
//! - `search` finds that block over all lanes, by what each has `ahead`.
//! - `batches` keeps the runs of an origin and decides when they are flushed.
//! - `ordered` and `versions` keep the order of FLUSHes, where that is asked for.
//! - `refusals` decides when an origin that refuses is tried again.
//! - `schedule` is the coordinator's part that brings them together.
//!
//! Invariant 4: a block stays dirty until two things have completed: its origin write, and the
//! origin's flush after that write. If the block was rewritten meanwhile, it stays dirty too (test:
//! `dirty_until_durable`).

pub(crate) mod ahead;
pub(crate) mod barrier;
pub(crate) mod batches;
pub(crate) mod grant;
pub mod order;
pub(crate) mod ordered;
pub(crate) mod rate;
mod readers;
mod refusals;
pub(crate) mod run;
mod schedule;
mod search;
pub(crate) mod state;
pub(crate) mod versions;

pub(crate) use refusals::GIVE_UP_AFTER;
pub(crate) use schedule::Destager;

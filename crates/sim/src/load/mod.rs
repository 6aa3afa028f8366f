// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs describe what clients ask for, as fio does. They run in virtual time.
//!
//! A job is a number of workers, each with at most one request in flight (fio's `iodepth` x
//! `numjobs`). It is closed (each answer brings the next request) or open (requests come at a rate,
//! whether the last ones are answered or not).

pub mod fio;
mod job;
mod lengths;
mod requests;
mod result;
mod run;
mod settled;
mod zipf;

pub use job::{Job, Pattern, Zone};
pub use lengths::Lengths;
pub use result::{Interval, JobResult, PhaseResult, SETTLED};
pub use run::{idle, run, work_bytes};

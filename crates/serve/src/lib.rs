// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon as a library: the pump between engine, devices and front-ends, and the operator's
//! side.
//!
//! `daemon` is the life of a daemon from config to clean stop. `pump` is its thread of I/O,
//! `frontend` how clients reach it, and `carrier` threads for that. `latency` measures requests,
//! `growth` what counters gained lately, and `history` keeps the figures of the last day.
//!
//! Operators reach the daemon by `control` and `http` (`places`: how many at a time); `metrics` is
//! for Prometheus. `superblock` and `stale` are read and written before and after. `state` is the
//! folder for what devices can't carry themselves. `descriptors` raises the limit of open files,
//! and `storage` finds paths that lead to the same device. `upgrade` hands clients to a new
//! program.

mod address;
pub mod carrier;
pub mod config;
pub mod control;
pub mod daemon;
mod descriptors;
pub mod failure;
pub mod frontend;
mod growth;
pub mod history;
pub mod http;
pub mod latency;
pub mod metrics;
pub mod mixup;
mod mounts;
pub mod offline;
mod origin_errors;
mod places;
mod pressure;
pub mod pump;
pub mod report;
#[cfg(test)]
mod rig;
mod socket;
pub mod stale;
mod state;
pub mod storage;
pub mod superblock;
pub mod tap;
mod unaccepted;
pub mod upgrade;
mod uuid;

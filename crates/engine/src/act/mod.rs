// SPDX-License-Identifier: MIT OR Apache-2.0
//! Acts: what the engine does. Each is a verb over a lane, or over the coordinator and its lanes.
//!
//! An act changes organs by their verbs. What goes on later, when an I/O has ended or a waiter is
//! woken, is decided in [`crate::turn`] alone. State that one act alone needs lies beside that act.

pub(crate) mod answer;
pub(crate) mod apart;
pub(crate) mod checkpoint;
pub(crate) mod commit;
pub(crate) mod damage;
pub mod destage;
pub(crate) mod detour;
pub(crate) mod direct;
pub(crate) mod expect;
pub(crate) mod flushes;
pub(crate) mod foresee;
pub(crate) mod hang;
pub(crate) mod map;
pub(crate) mod mirror;
pub(crate) mod neighbours;
pub(crate) mod persist;
pub(crate) mod prefetch;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod reclaim;
pub(crate) mod recover;
pub(crate) mod request;
pub(crate) mod shares;
pub(crate) mod show;
pub(crate) mod sync;
pub(crate) mod throttle;
pub(crate) mod under_way;
pub(crate) mod volumes;
pub(crate) mod warm;
pub(crate) mod write;
pub(crate) mod zeroes;

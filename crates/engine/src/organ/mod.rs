// SPDX-License-Identifier: MIT OR Apache-2.0
//! Organs: each owns a part of the state, and changes it only by its own verbs.
//!
//! An organ knows no lane and no coordinator. It returns values; the acts decide what follows.

pub(crate) mod active;
pub(crate) mod cache_reads;
pub(crate) mod flush;
pub(crate) mod flying;
pub(crate) mod measured;
pub(crate) mod members;
pub(crate) mod neighbours;
pub(crate) mod origin;
pub(crate) mod room;
pub(crate) mod segment;
pub(crate) mod trouble;
pub(crate) mod under_way;
pub(crate) mod view;
pub(crate) mod waiter;
pub(crate) mod zeroes;

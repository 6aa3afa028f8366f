// SPDX-License-Identifier: MIT OR Apache-2.0
//! Organs: each owns a part of the state, and changes it only by its own verbs.
//!
//! An organ knows no lane and no coordinator. It returns values; the acts decide what follows.

pub(crate) mod active;
pub(crate) mod budget;
pub(crate) mod bypass;
pub(crate) mod cache_reads;
pub(crate) mod chains;
pub(crate) mod congestion;
pub(crate) mod cursor;
pub(crate) mod cuts;
pub(crate) mod demand;
pub(crate) mod dirty;
pub(crate) mod down;
pub(crate) mod earlier;
pub(crate) mod eras;
pub(crate) mod flush;
pub(crate) mod flying;
pub(crate) mod grant;
pub(crate) mod hand;
pub(crate) mod index;
pub(crate) mod locality;
pub(crate) mod locks;
pub(crate) mod mail;
pub(crate) mod measured;
pub(crate) mod members;
pub(crate) mod neighbours;
pub(crate) mod origin;
pub(crate) mod piece;
pub(crate) mod places;
pub(crate) mod ram_front;
pub(crate) mod reach;
pub(crate) mod room;
pub(crate) mod router;
pub(crate) mod seen;
pub(crate) mod segment;
pub(crate) mod sparse;
pub(crate) mod store;
pub(crate) mod sum;
pub(crate) mod trouble;
pub(crate) mod under_way;
pub(crate) mod up;
pub(crate) mod waiter;
pub(crate) mod window;
pub(crate) mod zeroes;

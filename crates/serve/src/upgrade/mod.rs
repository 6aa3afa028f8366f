// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new program takes a running daemon's place, and no client sees an error (ADR 0060).
//!
//! The new program is started beside the old one, with the same arguments, and with a socket as its
//! stdin. It judges an `offer` before anything is touched. `successor` is the new program as the
//! old one sees it, and `predecessor` the other way round. `parcel` is what goes from one to the
//! other, by `channel`. `order` is the operator's word. The daemon's steps are in
//! `daemon::upgrade`.
//!
//! Invariant: at every moment one of both has the clients, and the old one keeps a copy of their
//! sockets until the new one serves. A new program that dies, hangs or refuses before that changes
//! nothing (tests: end to end `upgrade`).

mod channel;
mod offer;
mod order;
mod parcel;
mod predecessor;
mod role;
mod successor;

pub(crate) use channel::{Channel, News};
pub(crate) use offer::Offer;
pub(crate) use order::{Operator, UpgradeHandle, UpgradeOrder, Wish};
pub use parcel::Parcel;
pub(crate) use parcel::{Bytes, Descriptor};
pub use predecessor::Predecessor;
pub use role::Upgraded;
pub(crate) use role::{HAND_OVER, HAND_OVER_WITHOUT_TLS, ms_since, shared_clock_ns, version};
pub(crate) use successor::{Successor, program};

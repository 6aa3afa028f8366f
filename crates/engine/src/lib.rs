// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache engine: decides, and does nothing else.
//!
//! It is sans-I/O: [`Engine::apply`] takes an [`Input`] at a [`Time`] and adds [`Effect`]s to a
//! list; the caller carries them out and reports back. No I/O, clock, thread, log or random source;
//! payload stays in the caller's [`Memory`]. The same engine serves a daemon and a simulation.
//!
//! A request goes through `request` (check, classify, split into pieces for the lanes), then
//! `read`, `write` or `direct`; `commit` is the log, `destage` writes dirty blocks to the origins,
//! `reclaim` makes room, `checkpoint` and `recover` see to restarts, `index` knows where everything
//! is.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod apart;
mod budget;
mod buffers;
mod bypass;
mod canary;
mod chains;
mod check;
mod checkpoint;
mod commit;
mod congestion;
mod coordinator;
mod cx;
mod damage;
pub mod destage;
mod detour;
mod direct;
mod dirty;
mod engine;
mod event;
mod expect;
mod extents;
mod foresee;
pub mod format;
mod hang;
mod index;
mod io;
mod lane;
mod locality;
mod locks;
mod map;
mod memory;
mod mirror;
mod neighbours;
mod open_error;
mod options;
mod organ;
mod persist;
mod piece;
mod places;
pub mod policy;
mod ram_front;
mod ranges;
mod read;
mod reclaim;
mod recover;
mod request;
mod router;
pub mod shadow;
mod shared;
mod sparse;
mod status;
mod sync;
mod throttle;
mod turn;
mod types;
mod under_way;
mod window;
mod write;
mod zeroes;

pub use buffers::buffers_most;
#[cfg(feature = "canary")]
pub use canary::Canary;
pub use engine::Engine;
pub use event::Event;
pub use extents::{Extent, extents, put_extents};
pub use io::{
    AnswerKind, Answered, Control, DeviceError, DeviceId, Effect, Effects, Input, Io, Op, Request, RequestError,
    RequestId, RequestOp, Token,
};
pub use map::MAP_BYTES;
pub use memory::{Buf, LaneJob, Memory, Span};
pub use open_error::OpenError;
pub use options::{Options, READ_AROUND_BLOCKS_MAX};
pub use status::{Counters, MirrorStatus, OriginStatus, Status};
pub use types::*;

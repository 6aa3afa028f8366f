// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache engine: decides, and does nothing else.
//!
//! The engine is sans-I/O: [`Engine::apply`] takes an [`Input`] at a [`Time`] and adds [`Effect`]s
//! to a list. The caller carries them out and reports back. There is no I/O, clock, thread, log or
//! random source here; payload stays in the caller's [`Memory`]. The same engine serves a daemon
//! and a simulation.
//!
//! - [`Engine`] is the face.
//! - `turn` decides what comes next.
//! - `act` has what is done. A request goes through `act::request` (check, classify, split into
//!   pieces for the lanes), then `read`, `write` or `direct`. `commit` is the log, `destage` writes
//!   dirty blocks to the origins, `reclaim` makes room, `checkpoint` and `recover` see to restarts.
//! - `cx` has the context of a step: `facts` that it may read, and the `delta` that it puts down.
//! - `organ` has the state: `store` knows which blocks there are, and where.
//! - `fact` has what all others build on.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod act;
mod buffers;
mod check;
mod coordinator;
mod cx;
mod delta;
mod engine;
mod fact;
mod facts;
pub mod format;
mod lane;
mod lanes;
mod look;
mod organ;
pub mod policy;
pub mod shadow;
mod turn;

pub use act::destage;
pub use act::map::MAP_BYTES;
pub use buffers::buffers_most;
pub use engine::Engine;
#[cfg(feature = "canary")]
pub use fact::canary::Canary;
pub use fact::event::Event;
pub use fact::extents::{Extent, extents, put_extents};
pub use fact::io::{
    AnswerKind, Answered, Control, DeviceError, DeviceId, Effect, Effects, Input, Io, Op, Request, RequestError,
    RequestId, RequestOp, Token,
};
pub use fact::memory::{Buf, LaneJob, Memory, Span};
pub use fact::open_error::OpenError;
pub use fact::options::{Options, READ_AROUND_BLOCKS_MAX};
pub use fact::status::{Counters, MirrorStatus, OriginStatus, Status};
pub use fact::types::*;
pub use fact::volume::{DirtyOnRemove, NewVolume, VolumeChange, VolumeError};

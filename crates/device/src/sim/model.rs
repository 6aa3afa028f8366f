// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a device of a kind would be done with its I/Os: the models' common face.
//!
//! A model carries no bytes. [`crate::wrap::Delay`] puts one on a real or virtual device, in
//! whatever time its caller lives; the simulation without payload asks models directly. No
//! randomness: same calls, same times.

use flashfront_engine::{Op, Time};

/// An I/O, as a model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelIo {
    /// Grows from one submission to the next.
    pub number: u64,
    /// The operation.
    pub op: Op,
    /// First byte on the device. 0 for a flush.
    pub offset: u64,
    /// Length in bytes. 0 for a flush.
    pub len: u64,
}

/// When I/Os would be done.
pub trait Model: Send {
    /// Takes an I/O.
    fn submit(&mut self, now: Time, io: ModelIo);

    /// The next moment at which something ends or begins; time must not jump over it.
    fn next_event(&self) -> Option<Time>;

    /// Moves on to `now`; appends the numbers of I/Os that are done by then, and when.
    fn advance(&mut self, now: Time, done: &mut Vec<(Time, u64)>);
}

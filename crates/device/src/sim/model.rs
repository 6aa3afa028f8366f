// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a device of a kind would be done with its I/Os: the models' common face.
//!
//! A model carries no bytes. [`crate::wrap::Delay`] puts one on a real or virtual device, in whatever time its caller lives;
//! the simulation without payload asks models directly. No randomness: same calls, same times.

use flashfront_engine::{Op, Time};

use super::hdd::{Hdd, HddSpec};
use super::ssd::{Ssd, SsdSpec};

/// What kind of device to be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ModelSpec {
    /// A disk with one head.
    Hdd(HddSpec),
    /// Flash behind a controller.
    Ssd(SsdSpec),
}

impl ModelSpec {
    /// A model of a device of this kind and size.
    #[must_use]
    pub fn build(self, size_bytes: u64) -> Box<dyn Model> {
        match self {
            Self::Hdd(spec) => Box::new(Hdd::new(spec, size_bytes)),
            Self::Ssd(spec) => Box::new(Ssd::new(spec, size_bytes)),
        }
    }

    /// Whether it has a head to move.
    #[must_use]
    pub const fn rotational(self) -> bool {
        matches!(self, Self::Hdd(_))
    }
}

/// One I/O, as a model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelIo {
    /// Grows from one submission to the next.
    pub number: u64,
    /// What to do.
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

    /// Moves on to `now`; appends the numbers of what is done by then, and when.
    fn advance(&mut self, now: Time, done: &mut Vec<(Time, u64)>);
}

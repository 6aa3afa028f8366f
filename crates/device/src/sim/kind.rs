// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of devices that there are models of.

use super::hdd::{Hdd, HddSpec};
use super::model::Model;
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

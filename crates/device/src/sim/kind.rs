// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of devices that there are models of.

use super::hdd::{Hdd, HddSpec};
use super::model::Model;
use super::ssd::{Ssd, SsdSpec};
use super::volume::{Volume, VolumeSpec};

/// The kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ModelSpec {
    /// A disk with one head.
    Hdd(HddSpec),
    /// Flash behind a controller.
    Ssd(SsdSpec),
    /// Storage behind a network.
    Volume(VolumeSpec),
}

impl ModelSpec {
    /// A model of a device of this kind and size.
    #[must_use]
    pub fn build(self, size_bytes: u64) -> Box<dyn Model> {
        match self {
            Self::Hdd(spec) => Box::new(Hdd::new(spec, size_bytes)),
            Self::Ssd(spec) => Box::new(Ssd::new(spec, size_bytes)),
            Self::Volume(spec) => Box::new(Volume::new(spec)),
        }
    }

    /// The kind that takes `times` as long for everything.
    #[must_use]
    pub fn scaled(self, times: f64) -> Self {
        match self {
            Self::Hdd(spec) => Self::Hdd(spec.scaled(times)),
            Self::Ssd(spec) => Self::Ssd(spec.scaled(times)),
            Self::Volume(spec) => Self::Volume(spec.scaled(times)),
        }
    }

    /// Whether it has a head to move.
    #[must_use]
    pub const fn rotational(self) -> bool {
        matches!(self, Self::Hdd(_))
    }
}

/// Makes a duration `times` as long.
pub(super) fn longer(ns: u64, times: f64) -> u64 {
    (ns as f64 * times).round() as u64
}

/// Divides a speed by `times`; it is never 0.
pub(super) fn slower(bytes_per_s: u64, times: f64) -> u64 {
    ((bytes_per_s as f64 / times).round() as u64).max(1)
}

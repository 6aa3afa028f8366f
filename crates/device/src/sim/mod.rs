// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual devices: they live in RAM and in the time that the caller passes in.

mod catalog;
mod hdd;
mod image;
mod kind;
mod link;
mod model;
mod ramdisk;
mod ssd;
mod volume;

pub use catalog::{Known, known};
pub use hdd::HddSpec;
pub use kind::ModelSpec;
pub use link::{Break, Link};
pub use model::{Model, ModelIo};
pub use ramdisk::{Fate, RamDisk, RamSpec};
pub use ssd::{Fill, SsdSpec};
pub use volume::{Burst, VolumeSpec};

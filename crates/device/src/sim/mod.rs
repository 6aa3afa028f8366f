// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual devices: they live in RAM and in the time that the caller passes in.

mod image;
mod ramdisk;

pub use ramdisk::{Fate, RamDisk, RamSpec};

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries bytes: one [`Device`] trait for real, virtual and wrapped devices.
//!
//! The engine decides and this crate carries out. [`Arena`] is the memory that I/O is done from,
//! and [`real`] talks to the kernel. [`sim`] is a device in RAM and virtual time for tests, and
//! [`wrap`] changes how another device behaves. [`pace`] finds out how fast a real one reads.
//! Nothing here knows what a cache is. Only [`probe`] knows the contents that a disk may have, so
//! that `format` destroys nothing by mistake.
#![deny(unsafe_code)]

mod arena;
mod device;
mod huge;
pub mod pace;
pub mod probe;
pub mod real;
mod rng;
pub mod sim;
mod tables;
mod unflushed;
pub mod wrap;

pub use arena::{Arena, CHUNK_BYTES, Chunk, Loan, Share, prefetch};
pub use device::{Device, DeviceIo, Done, Geometry, Hang};
pub use rng::Rng;
pub use tables::Tables;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A key numbers a block of a trace, on whatever disk of the trace.
//!
//! Its high bits tell the stretch, which is a disk or a part of a large one. The low bits tell the
//! block of the stretch.

/// Blocks of a stretch, as a power of two. 2^44 blocks are 64 PiB.
pub(crate) const STRETCH_BITS: u32 = 44;

/// The bits of a key that tell the block of its stretch.
pub(crate) const BLOCK_OF_KEY: u64 = (1 << STRETCH_BITS) - 1;

/// The most stretches of a trace: what is left of a key, but for the last number.
pub(super) const STRETCHES_MAX: u64 = (1 << (64 - STRETCH_BITS)) - 1;

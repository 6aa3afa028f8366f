// SPDX-License-Identifier: MIT OR Apache-2.0
//! Picks what a life has, by its seed.

use flashfront_device::Rng;

/// Picks one of several values, each as likely as the others.
pub(super) fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A seeded random source: what makes virtual devices reproducible.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): one addition and a mix per number, passes BigCrush, and
//! every seed is a good one. Not for secrets.

/// A stream of numbers that depends on its seed only.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiply-shift instead of a remainder: no division, and a bias below 2^-32 for our
        // bounds.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

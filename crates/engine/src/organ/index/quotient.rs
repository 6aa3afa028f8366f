// SPDX-License-Identifier: MIT OR Apache-2.0
//! A key as bucket and remainder: mixed, and divided by how many keys share a bucket.

/// How many keys share a bucket; divides by that with a multiplication.
pub(super) struct Width {
    pub(super) width: u64,
    /// The largest number that is below 2^64 / width.
    inverse: u64,
}

impl Width {
    pub(super) const fn new(width: u64) -> Self {
        Self { width, inverse: u64::MAX / width }
    }

    /// Bucket and remainder. Exact for numbers below 2^63: the estimate is the quotient or one
    /// less.
    pub(super) const fn divide(&self, mixed: u64) -> (u64, u64) {
        let estimate = ((mixed as u128 * self.inverse as u128) >> 64) as u64;
        let rest = mixed - estimate * self.width;
        if rest < self.width { (estimate, rest) } else { (estimate + 1, rest - self.width) }
    }
}

/// An invertible mix of numbers of `bits` bits: xor-shift and odd multiplication, three rounds,
/// the construction of Murmur3's finalizer on a domain of any width.
pub(super) struct Mix {
    pub(super) bits: u32,
    shift: u32,
    mask: u64,
}

const ODD: [u64; 2] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];

impl Mix {
    pub(super) fn new(keys: u64) -> Self {
        let bits = (u64::BITS - keys.saturating_sub(1).leading_zeros()).max(8);
        Self { bits, shift: bits.div_ceil(2), mask: u64::MAX >> (64 - bits) }
    }

    pub(super) const fn forward(&self, x: u64) -> u64 {
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(ODD[0]) & self.mask;
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(ODD[1]) & self.mask;
        x ^ x >> self.shift
    }

    pub(super) const fn backward(&self, x: u64) -> u64 {
        // A shift by half the width or more undoes itself.
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(inverse(ODD[1])) & self.mask;
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(inverse(ODD[0])) & self.mask;
        x ^ x >> self.shift
    }
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut round = 0;
    while round < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        round += 1;
    }
    x
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws places by popularity as fio's `random_distribution=zipf` does.
//!
//! The law: J. Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994.
//! It is near to Zipf's law, but not exactly Zipf's. `crate::zipf` is exact. This module is for
//! jobs of fio, which have to ask for the same places as fio. Popular places are scattered by a
//! multiplication, and moved as a whole by the seed.
//!
//! With the exponent 1.2 the hundred most popular of 65,536 places have 73.8 % instead of 72.7. A
//! job that asks for half as many places as there are reads 3 % fewer different places.

use flashfront_device::Rng;

/// The number of places whose weights count, as in fio: 10 million.
const COUNTED_MAX: u64 = 10_000_000;
/// The number of weights that are summed up one by one. An integral stands for the others. Its
/// error is less than one in 10^8 of the sum.
const SUMMED_MAX: u64 = 1000;
/// The multiplier of fio's hash: 2^64 divided by the square of the golden ratio, as an odd number.
const SCATTER: u64 = 0x61c8_8646_80b5_83eb;

#[derive(Debug)]
pub(super) struct Popular {
    places: u64,
    exponent: f64,
    /// The sum of all weights.
    sum: f64,
    eta: f64,
    offset: u64,
}

impl Popular {
    /// Makes the law over `places` places. The exponent is more than 0, and not 1.
    pub(super) fn new(places: u64, exponent: f64, seed: u64) -> Self {
        let weight = |rank: u64| (rank as f64).powf(-exponent);
        let (summed, counted) = (places.min(SUMMED_MAX), places.min(COUNTED_MAX));
        let integral = |to: u64| (to as f64 + 0.5).powf(1.0 - exponent) / (1.0 - exponent);
        let sum = (1..=summed).map(weight).sum::<f64>() + integral(counted) - integral(summed);
        let eta = (1.0 - (2.0 / places as f64).powf(1.0 - exponent)) / (1.0 - (1.0 + weight(2)) / sum);
        let offset = Rng::new(seed).next_u64();
        Self { places, exponent, sum, eta, offset }
    }

    pub(super) fn place(&self, rng: &mut Rng) -> u64 {
        (self.rank(rng).wrapping_mul(SCATTER) % self.places + self.offset % self.places) % self.places
    }

    /// Draws a rank. 0 is the most popular.
    fn rank(&self, rng: &mut Rng) -> u64 {
        let uniform = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let weight = uniform * self.sum;
        if weight < 1.0 {
            0
        } else if weight < 1.0 + 0.5_f64.powf(self.exponent) {
            1.min(self.places - 1)
        } else {
            let part = (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.exponent));
            ((self.places as f64 * part) as u64).min(self.places - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This law asks for as many different places as fio. Five runs of fio 3.33 read 16,384 times
    /// over 65,536 places after zipf:1.2. Their iologs have 2,756 to 2,861 different places. The
    /// exact law would give 2,940.
    #[test]
    fn as_many_different_places_as_fio_asks_for() {
        for seed in 1..6 {
            let (popular, mut rng) = (Popular::new(65_536, 1.2, seed), Rng::new(seed));
            let asked: std::collections::BTreeSet<u64> = (0..16_384).map(|_| popular.place(&mut rng)).collect();
            assert!((2_720..2_900).contains(&asked.len()), "{}", asked.len());
        }
    }

    #[test]
    fn the_sum_of_many_weights_is_that_of_each() {
        for exponent in [0.5, 0.99, 1.2, 2.0] {
            let each: f64 = (1..=100_000).map(|rank| f64::from(rank).powf(-exponent)).sum();
            let sum = Popular::new(100_000, exponent, 1).sum;
            assert!((sum / each - 1.0).abs() < 1e-8, "{exponent}: {sum}, {each}");
        }
    }

    #[test]
    fn the_most_popular_have_their_share_and_the_seed_moves_them() {
        let most = |seed| {
            let (popular, mut rng) = (Popular::new(1000, 1.2, seed), Rng::new(7));
            let mut counts = vec![0; 1000];
            (0..100_000).for_each(|_| counts[popular.place(&mut rng) as usize] += 1);
            let most = (0..1000).max_by_key(|place| counts[*place]).unwrap();
            // 1 / sum of k^-1.2 up to 1000 = 0.2320.
            assert!((22_700..23_700).contains(&counts[most]), "{}", counts[most]);
            most
        };
        assert_ne!(most(1), most(2));
        assert_eq!(Popular::new(1, 0.9, 3).place(&mut Rng::new(1)), 0);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws exact samples of Zipf's law, in constant time and without a table.
//!
//! The crate rand_distr has the same method. Ours stays, since the loads and their published
//! figures depend on each random number that it takes.
//!
//! Rejection-inversion: W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996. The integral of the hat function
//! x^-s is inverted; the few samples outside the law's steps are thrown back.
//! Ranks are scattered by a permutation, so that popular blocks aren't neighbours.

use flashfront_device::Rng;

/// The law: ranks 1 to n, rank k with a probability proportional to k^-s.
#[derive(Debug)]
pub struct Zipf {
    n: f64,
    s: f64,
    /// Integrals of the hat up to 1.5 and to n + 0.5.
    low: f64,
    high: f64,
    /// A sample that is this close to its rank needs no test.
    shortcut: f64,
}

impl Zipf {
    /// A law over `n` ranks with exponent `s` > 0.
    ///
    /// # Panics
    /// Without ranks, or with an exponent that is not above 0.
    #[must_use]
    pub fn new(n: u64, s: f64) -> Self {
        assert!(n > 0 && s > 0.0, "a law has ranks and a positive exponent");
        let mut zipf = Self { n: n as f64, s, low: 0.0, high: 0.0, shortcut: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.n + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.hat(2.0));
        zipf
    }

    /// Draws a rank from 0 (the most popular) to n - 1.
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        loop {
            // These are 53 random bits: all that a f64 holds.
            let uniform = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let u = self.high + uniform * (self.low - self.high);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.hat(k) {
                return k as u64 - 1;
            }
        }
    }

    /// The probability of the `first` most popular ranks together. It is summed up, not sampled.
    #[must_use]
    pub fn share_of(&self, first: u64) -> f64 {
        let weights = |ranks: f64| {
            // The small weights come first. Otherwise their sum would be lost in rounding.
            let ranks = (1..=ranks as u64).rev();
            ranks.map(|rank| self.hat(rank as f64)).sum::<f64>()
        };
        weights(self.n.min(first as f64)) / weights(self.n)
    }

    fn hat(&self, x: f64) -> f64 {
        (-self.s * x.ln()).exp()
    }

    /// The integral of x^-s, with the value 0 at 1: (x^(1-s) - 1) / (1-s), and ln x for s = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.s) * log;
        if t.abs() > 1e-8 { t.exp_m1() / t * log } else { log * (1.0 + t / 2.0) }
    }

    fn inverse(&self, x: f64) -> f64 {
        // Rounding may take t below its limit.
        let t = (x * (1.0 - self.s)).max(-1.0);
        if t.abs() > 1e-8 { (t.ln_1p() / t * x).exp() } else { x.exp() }
    }
}

/// A fixed permutation of the numbers below n.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    n: u64,
    mask: u64,
    shift: u32,
}

impl Scatter {
    /// Makes a permutation of `n` numbers.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(n: u64) -> Self {
        assert!(n > 0, "a permutation of something");
        let whole = n.next_power_of_two();
        Self { n, mask: whole - 1, shift: whole.trailing_zeros().div_ceil(2).max(1) }
    }

    /// The place of rank `x`, which is less than n.
    #[must_use]
    pub fn place(&self, x: u64) -> u64 {
        // A step is a permutation of the numbers below a power of two. A number that is not below n
        // is stepped again. It comes back below n, at the latest where it began.
        let mut x = self.step(x);
        while x >= self.n {
            x = self.step(x);
        }
        x
    }

    /// Xor-shift and odd multiplication are both invertible modulo 2^bits.
    fn step(&self, x: u64) -> u64 {
        let x = (x.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 0x1234_5677) & self.mask;
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9) & self.mask;
        x ^ x >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic of `count` samples against the law.
    fn chi_square(n: u64, s: f64, count: u64) -> f64 {
        let zipf = Zipf::new(n, s);
        let mut rng = Rng::new(7);
        let mut seen = vec![0_u64; n as usize];
        (0..count).for_each(|_| seen[zipf.sample(&mut rng) as usize] += 1);
        let weights: Vec<f64> = (1..=n).map(|k| (k as f64).powf(-s)).collect();
        let sum: f64 = weights.iter().sum();
        let term = |(weight, seen): (&f64, &u64)| {
            let expected = weight / sum * count as f64;
            (*seen as f64 - expected).powi(2) / expected
        };
        weights.iter().zip(&seen).map(term).sum()
    }

    #[test]
    fn samples_follow_the_law() {
        // 99 degrees of freedom: mean 99, standard deviation 14; 1 in 10^5 is above 165.
        for s in [0.6, 0.99, 1.0, 1.2, 2.0] {
            let statistic = chi_square(100, s, 200_000);
            assert!(statistic < 165.0, "exponent {s}: {statistic}");
        }
    }

    #[test]
    fn another_law_is_told_apart() {
        let zipf = Zipf::new(100, 1.2);
        let mut rng = Rng::new(7);
        let first = (0..100_000).filter(|_| zipf.sample(&mut rng) == 0).count();
        // 1 / sum of k^-1.2 up to 100 = 0.2776, and 0.1928 for exponent 1.
        assert!((27_200..28_300).contains(&first), "{first}");
    }

    #[test]
    fn every_rank_of_a_large_law_is_in_range() {
        let zipf = Zipf::new(1 << 19, 1.2);
        let mut rng = Rng::new(1);
        assert!((0..100_000).all(|_| zipf.sample(&mut rng) < 1 << 19));
        assert!((0..1000).all(|_| Zipf::new(1, 1.2).sample(&mut rng) == 0));
    }

    #[test]
    fn the_share_of_the_most_popular_is_what_is_sampled() {
        let zipf = Zipf::new(5000, 1.2);
        let mut rng = Rng::new(3);
        let among = (0..400_000).filter(|_| zipf.sample(&mut rng) < 300).count();
        // Four standard deviations are 0.0023.
        assert!((among as f64 / 400_000.0 - zipf.share_of(300)).abs() < 0.0023, "{among}");
        assert!((zipf.share_of(5000) - 1.0).abs() < 1e-12 && zipf.share_of(0) == 0.0);
        // 1 + 1/2, of 1 + 1/2 + 1/3 + 1/4.
        assert!((Zipf::new(4, 1.0).share_of(2) - 18.0 / 25.0).abs() < 1e-12);
    }

    #[test]
    fn scattering_loses_nothing() {
        for n in [1, 2, 3, 16, 1000, 1025, 1 << 13] {
            let scatter = Scatter::new(n);
            let mut places: Vec<u64> = (0..n).map(|x| scatter.place(x)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..n), "{n}");
        }
    }
}

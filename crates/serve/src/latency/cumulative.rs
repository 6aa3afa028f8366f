// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of durations since the start of the daemon, in the fixed buckets that Prometheus adds up.

use serde::{Deserialize, Serialize};

use super::counts::{begin_of, bucket_of};

/// The longest duration of each bucket; there is one more for all that is longer.
pub const BOUNDS_NS: [u64; 21] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// The first of our buckets that may hold durations of each fine bucket. No fine one lies in more
/// than two of ours.
const FIRST: [u8; 256] = {
    let mut first = [0; 256];
    let (mut fine, mut at) = (0, 0);
    while fine < first.len() {
        while at < BOUNDS_NS.len() && BOUNDS_NS[at] < begin_of(fine) {
            at += 1;
        }
        assert!(at + 1 >= BOUNDS_NS.len() || BOUNDS_NS[at + 1] >= begin_of(fine + 1), "two bounds in a fine bucket");
        first[fine] = at as u8;
        fine += 1;
    }
    first
};

/// Counts that only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cumulative {
    buckets: [u64; BOUNDS_NS.len() + 1],
    /// The sum of all durations. With 64 bits it would be full after half a year of a thousand
    /// requests in flight.
    sum_ns: u128,
}

impl Cumulative {
    /// Counts a duration.
    pub fn record(&mut self, ns: u64) {
        let first = usize::from(FIRST[bucket_of(ns)]);
        let is_longer = BOUNDS_NS.get(first).is_some_and(|bound| ns > *bound);
        self.buckets[first + usize::from(is_longer)] += 1;
        self.sum_ns += u128::from(ns);
    }

    /// Adds the durations of others.
    pub fn add(&mut self, others: &Self) {
        self.buckets.iter_mut().zip(&others.buckets).for_each(|(sum, count)| *sum += count);
        self.sum_ns += others.sum_ns;
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// How long they took together.
    #[must_use]
    pub fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The longest duration of each bucket in seconds, and how many are in it; the last one has no
    /// bound.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
        bounds.zip(self.buckets.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bound_is_in_its_bucket_and_what_is_longer_in_the_next() {
        for (nth, bound) in BOUNDS_NS.into_iter().enumerate() {
            let mut counted = Cumulative::default();
            counted.record(bound);
            counted.record(bound + 1);
            let mut expected = [0; BOUNDS_NS.len() + 1];
            (expected[nth], expected[nth + 1]) = (1, 1);
            assert_eq!(counted.buckets, expected, "{bound}");
            assert_eq!((counted.count(), counted.sum_ns), (2, u128::from(2 * bound + 1)));
        }
    }

    proptest! {
        #[test]
        fn each_duration_is_in_the_first_bucket_that_is_long_enough(ns in prop_oneof![0_u64..100_000_000, any::<u64>()]) {
            let mut counted = Cumulative::default();
            counted.record(ns);
            let expected = BOUNDS_NS.iter().position(|bound| ns <= *bound).unwrap_or(BOUNDS_NS.len());
            prop_assert_eq!(counted.buckets.iter().position(|count| *count == 1), Some(expected));
        }
    }
}

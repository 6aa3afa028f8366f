// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of durations, in buckets whose width grows with the durations in them.
//!
//! Each power of two has eight buckets of equal width. A percentile is the middle of its bucket. So
//! it is wrong by a sixteenth (6.25 %) at most (test: `percentiles_are_near_the_exact_ones`), and
//! below 256 ns by 16 ns. Durations beyond 550 s fall into the last bucket. The longest one is kept
//! as it is.

use serde::{Deserialize, Serialize};

/// Buckets: from 0 to 2^39 ns.
const BUCKETS: usize = 256;
/// The narrowest are 32 ns wide.
const UNIT_BITS: u32 = 5;
/// Eight buckets for each power of two.
const STEP_BITS: u32 = 3;
const STEPS: u64 = 1 << STEP_BITS;

/// The bucket of a duration.
pub(super) const fn bucket_of(ns: u64) -> usize {
    let units = ns >> UNIT_BITS;
    if units < STEPS {
        return units as usize;
    }
    let shift = units.ilog2() - STEP_BITS;
    let at = ((shift as usize) << STEP_BITS) + (units >> shift) as usize;
    if at < BUCKETS { at } else { BUCKETS - 1 }
}

/// The shortest duration of a bucket.
pub(super) const fn begin_of(bucket: usize) -> u64 {
    let at = bucket as u64;
    if at < STEPS {
        return at << UNIT_BITS;
    }
    let shift = at / STEPS - 1;
    (STEPS + at % STEPS) << shift << UNIT_BITS
}

/// Durations of one span of time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Packed", into = "Packed")]
pub struct Counts {
    buckets: [u32; BUCKETS],
    max_ns: u64,
    /// The bytes of payload.
    bytes: u64,
}

/// The buckets in which there is anything, for the hand-over to another program.
#[derive(Serialize, Deserialize)]
struct Packed {
    buckets: Vec<(u16, u32)>,
    max_ns: u64,
    bytes: u64,
}

impl From<Counts> for Packed {
    fn from(it: Counts) -> Self {
        let buckets = (0..).zip(it.buckets).filter(|(_, count)| *count > 0).collect();
        Self { buckets, max_ns: it.max_ns, bytes: it.bytes }
    }
}

impl From<Packed> for Counts {
    fn from(it: Packed) -> Self {
        let mut counts = Self { max_ns: it.max_ns, bytes: it.bytes, ..Self::default() };
        for (at, count) in it.buckets {
            counts.buckets[usize::from(at).min(BUCKETS - 1)] += count;
        }
        counts
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], max_ns: 0, bytes: 0 }
    }
}

impl Counts {
    /// Counts a duration.
    pub fn record(&mut self, ns: u64) {
        self.buckets[bucket_of(ns)] += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts bytes of payload.
    pub const fn carry(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Adds the durations of another span.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.max_ns = self.max_ns.max(other.max_ns);
        self.bytes += other.bytes;
    }

    /// Adds what a span has counted since it was `before`. If its longest duration is older than
    /// that, the end of the last bucket stands for the longest one of these.
    pub fn add_since(&mut self, now: &Self, before: &Self) {
        self.bytes += now.bytes - before.bytes;
        let mut last = None;
        for (at, sum) in self.buckets.iter_mut().enumerate() {
            let counted = now.buckets[at] - before.buckets[at];
            *sum = sum.saturating_add(counted);
            last = if counted > 0 { Some(at) } else { last };
        }
        let Some(last) = last else { return };
        let longest = if now.max_ns > before.max_ns { now.max_ns } else { begin_of(last + 1).min(now.max_ns) };
        self.max_ns = self.max_ns.max(longest);
    }
}

/// A summary of many durations, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Half of them took this long at most; 0 if there are none.
    pub p50_ns: u64,
    /// The time that 99 of 100 took at most.
    pub p99_ns: u64,
    /// The longest one.
    pub max_ns: u64,
    /// How many there are.
    pub count: u64,
    /// The bytes of their payload.
    pub bytes: u64,
}

impl Summary {
    /// The durations of several spans together.
    pub fn of<'a>(spans: impl Iterator<Item = &'a Counts>) -> Self {
        let (mut buckets, mut max_ns, mut bytes) = ([0_u64; BUCKETS], 0, 0);
        for span in spans {
            buckets.iter_mut().zip(&span.buckets).for_each(|(sum, count)| *sum += u64::from(*count));
            max_ns = span.max_ns.max(max_ns);
            bytes += span.bytes;
        }
        let count: u64 = buckets.iter().sum();
        let percentile = |percent: u64| {
            let rank = (count * percent).div_ceil(100).max(1);
            let mut before = 0;
            let reached = |count: &u64| {
                before += count;
                before >= rank
            };
            let bucket = buckets.iter().position(reached)?;
            // No duration is longer than the longest one.
            Some((begin_of(bucket).midpoint(begin_of(bucket + 1))).min(max_ns))
        };
        Self { p50_ns: percentile(50).unwrap_or(0), p99_ns: percentile(99).unwrap_or(0), max_ns, count, bytes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 0..BUCKETS {
            let (begin, end) = (begin_of(bucket), begin_of(bucket + 1));
            assert!(begin < end);
            assert_eq!((bucket_of(begin), bucket_of(end - 1)), (bucket, bucket));
            // The bucket is no wider than an eighth of its durations.
            assert!(bucket < STEPS as usize || (end - begin) * STEPS <= begin, "bucket {bucket}: {begin} to {end}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(begin_of(BUCKETS), 1 << 39);
    }

    proptest! {
        /// Latencies of RAM, of flash and of disks, and single ones that hang.
        #[test]
        fn percentiles_are_near_the_exact_ones(
            mut all in prop::collection::vec(prop_oneof![0_u64..10_000, 10_000_u64..1_000_000, 1_000_000_u64..500_000_000_000], 1..500),
            spans in 1_usize..5,
        ) {
            let mut counts = vec![Counts::default(); spans];
            for (nth, ns) in all.iter().enumerate() {
                counts[nth % spans].record(*ns);
            }
            let summary = Summary::of(counts.iter());
            all.sort_unstable();
            for (percent, told) in [(50, summary.p50_ns), (99, summary.p99_ns)] {
                let exact = all[(all.len() * percent).div_ceil(100) - 1];
                prop_assert!(told.abs_diff(exact) <= 16.max(exact / 16), "p{percent}: {told} instead of {exact}");
            }
            prop_assert_eq!((summary.max_ns, summary.count), (*all.last().unwrap(), all.len() as u64));
        }
    }

    #[test]
    fn what_a_span_has_counted_since_a_moment_is_told_apart() {
        let (mut span, mut since) = (Counts::default(), Counts::default());
        span.record(1_000_000);
        let before = span.clone();
        span.record(2_000);
        since.add_since(&span, &before);
        let summary = Summary::of([&since].into_iter());
        assert_eq!(summary.count, 1);
        assert!(summary.max_ns >= 2_000 && summary.max_ns < 2_300, "{summary:?}");
        let before = span.clone();
        span.record(5_000_000);
        since.add_since(&span, &before);
        assert_eq!(Summary::of([&since].into_iter()).max_ns, 5_000_000);
        let nothing = since.clone();
        since.add_since(&span, &span);
        assert_eq!(Summary::of([&since].into_iter()), Summary::of([&nothing].into_iter()));
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Summary::of([].into_iter()), Summary::default());
    }
}

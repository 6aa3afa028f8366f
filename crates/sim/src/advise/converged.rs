// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judges whether a recording is long enough for its answer to mean something.
//!
//! Three things must be true. Half of the recording gives the same answer. A longer recording would
//! hardly show more blocks that come again. The recording has seen most of the blocks that it asks
//! for, or as much as the cache device could hold. The rules are in docs/decide/advise.md.

use super::choose::{self, Choice};
use super::growth::Growth;
use super::trial::Trial;

/// The largest share of the reads that a history twice as long may newly show to come again.
pub const GAIN_MAX: f64 = 0.05;
/// The largest share of the last quarter's reads that may be of blocks never asked for before.
pub const UNSEEN_MAX: f64 = 0.5;
/// Recordings are never said to need more doublings than this.
const DOUBLINGS_MAX: f64 = 6.0;
/// The least and the most of the gain that is taken to be left after a doubling.
const LEFT: (f64, f64) = (0.5, 0.9);

/// The facts that tell whether a recording is long enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Converged {
    /// The size that the first half alone advises; none if it advises no cache.
    pub first_half: Option<u64>,
    /// Whether the first half advises the same size as the whole, or a neighbouring size.
    pub agrees: bool,
    /// The share of the reads that only a recording twice as long would find to come again. A
    /// doubling is taken to gain as much less as the last doubling did.
    pub gain: Option<f64>,
    /// The share of the last quarter's reads that had never been asked for.
    pub unseen: Option<f64>,
    /// Whether the recording touches as much as the cache device holds. Blocks that come again
    /// later than that are no hits anyway.
    pub fills_device: bool,
    /// How long the recording should be, as a multiple of its length. 1 if it is long enough.
    pub times: f64,
}

impl Converged {
    /// Whether the answer means something.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        self.agrees && !self.grows() && !self.is_unseen()
    }

    /// Whether a longer recording would see more blocks come again.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.gain.is_some_and(|gain| gain > GAIN_MAX)
    }

    /// Whether most reads are of blocks that have not been seen before, and may come again or not.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        !self.fills_device && self.unseen.is_some_and(|unseen| unseen > UNSEEN_MAX)
    }
}

/// Judges a recording from the trials of the disk alone and of all sizes. The cache device has
/// `device_bytes` bytes.
pub(super) fn converged(
    growth: &Growth,
    alone: &Trial,
    sizes: &[Trial],
    choice: Option<&Choice>,
    device_bytes: u64,
) -> Converged {
    let first_half = choose::size_before(alone, sizes);
    let place = |bytes: u64| sizes.iter().position(|trial| trial.cache.is_some_and(|it| it.0 == bytes));
    let agrees = match (first_half, choice) {
        (None, None) => true,
        (Some(first), Some(choice)) => {
            let places = place(first).zip(place(choice.cache_bytes));
            places.is_some_and(|(first, whole)| first.abs_diff(whole) <= 1)
        }
        _ => false,
    };
    let touched = growth.touched_bytes.last().copied().unwrap_or(0);
    let gains = growth.gains();
    let mut found = Converged {
        first_half,
        agrees,
        gain: gains.map(next_gain),
        unseen: growth.unseen_share(),
        fills_device: touched >= device_bytes,
        times: 1.0,
    };
    if !found.is_converged() {
        let fills = (device_bytes as f64 / touched.max(1) as f64).max(2.0);
        let doublings = gains.filter(|_| found.grows()).map_or(1.0, doublings);
        found.times = if found.is_unseen() { fills } else { doublings.exp2().min(fills) };
    }
    found
}

/// The part of a gain that is left after a doubling.
fn left([gain, before]: [f64; 2]) -> f64 {
    (gain / before).clamp(0.0, 1.0)
}

/// The gain of the next doubling.
fn next_gain(gains: [f64; 2]) -> f64 {
    if gains[0] > 0.0 { gains[0] * left(gains) } else { 0.0 }
}

/// How often the recording must double until the next doubling gains no more than it may.
fn doublings(gains: [f64; 2]) -> f64 {
    let left = left(gains).clamp(LEFT.0, LEFT.1);
    ((GAIN_MAX / next_gain(gains)).ln() / left.ln()).ceil().clamp(1.0, DOUBLINGS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_that_halves_needs_few_doublings_and_one_that_stays_needs_many() {
        let of = |gains| (next_gain(gains), doublings(gains));
        assert_eq!(of([0.25, 0.5]), (0.125, 2.0), "0.0625, 0.03125");
        assert_eq!(of([0.1, 0.2]), (0.05, 1.0));
        assert_eq!(of([0.2, 0.2]), (0.2, DOUBLINGS_MAX));
        assert_eq!(of([0.1, 0.0]), (0.1, DOUBLINGS_MAX), "nothing is known of how it falls");
        assert!(next_gain([0.0, 0.0]).abs() < f64::EPSILON);
    }
}

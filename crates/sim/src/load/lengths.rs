// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of a job have one length, a range of lengths, or a choice by percent.

use flashfront_device::Rng;

/// The lengths of a job's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lengths {
    /// Every request is as long as the job's `block_bytes`.
    #[default]
    Block,
    /// Every multiple of `step` from `least` to `most` is as likely as the others (fio's
    /// `bsrange`).
    Range {
        /// The shortest request, in bytes.
        least: u64,
        /// The longest request, in bytes.
        most: u64,
        /// The distance of two lengths, in bytes.
        step: u64,
    },
    /// Each length has a weight; the likelihood is the weight by the sum of all weights (fio's
    /// `bssplit`).
    Split(Vec<(u64, u32)>),
}

impl Lengths {
    /// The shortest request; `block_bytes` is the job's.
    #[must_use]
    pub fn least(&self, block_bytes: u64) -> u64 {
        match self {
            Self::Block => block_bytes,
            Self::Range { least, .. } => *least,
            Self::Split(choices) => choices.iter().map(|choice| choice.0).min().unwrap_or(block_bytes),
        }
    }

    /// The longest request; `block_bytes` is the job's.
    #[must_use]
    pub fn most(&self, block_bytes: u64) -> u64 {
        match self {
            Self::Block => block_bytes,
            Self::Range { most, .. } => *most,
            Self::Split(choices) => choices.iter().map(|choice| choice.0).max().unwrap_or(block_bytes),
        }
    }

    /// The mean length of all requests; `block_bytes` is the job's.
    #[must_use]
    pub fn mean(&self, block_bytes: u64) -> f64 {
        match self {
            Self::Block => block_bytes as f64,
            Self::Range { least, most, .. } => (least + most) as f64 / 2.0,
            Self::Split(choices) => {
                let all: f64 = choices.iter().map(|choice| f64::from(choice.1)).sum();
                choices.iter().map(|choice| choice.0 as f64 * f64::from(choice.1)).sum::<f64>() / all
            }
        }
    }

    /// The length of the next request.
    pub(super) fn next(&self, block_bytes: u64, rng: &mut Rng) -> u64 {
        match self {
            Self::Block => block_bytes,
            Self::Range { least, most, step } => least + rng.below((most - least) / step + 1) * step,
            Self::Split(choices) => {
                let all: u64 = choices.iter().map(|choice| u64::from(choice.1)).sum();
                let mut left = rng.below(all.max(1));
                for (bytes, weight) in choices {
                    if left < u64::from(*weight) {
                        return *bytes;
                    }
                    left -= u64::from(*weight);
                }
                block_bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_as_often_as_their_weights_say() {
        let split = Lengths::Split(vec![(4096, 60), (65536, 40)]);
        let mut rng = Rng::new(7);
        let long = (0..100_000).filter(|_| split.next(4096, &mut rng) == 65536).count();
        // Three standard deviations are 465.
        assert!((39_500..40_500).contains(&long), "{long}");
        assert_eq!((split.least(1), split.most(1)), (4096, 65536));
    }

    #[test]
    fn a_range_has_both_its_ends_and_nothing_else() {
        let range = Lengths::Range { least: 512, most: 2048, step: 512 };
        let mut rng = Rng::new(7);
        let mut seen: Vec<u64> = (0..1000).map(|_| range.next(512, &mut rng)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [512, 1024, 1536, 2048]);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses what to advise, by the time that runs of a trace took.
//!
//! Time is what a cache is bought for. The size is the smallest that saves nearly all of the time
//! that a larger size would save. The mode is the safest that isn't much slower.

use flashfront_engine::Mode;

use super::played::Played;
use super::trial::Trial;

/// A cache helps if the mean time of a request is at most this part of the time without a cache.
const HELPS: f64 = 0.8;
/// A size is enough if it saves this part of the time that the best size saves.
pub const ENOUGH: f64 = 0.9;
/// A safer mode, or a mode that writes less to flash, may take this much of the other mode's time.
const SLOWER: f64 = 1.1;
/// A mode writes less to flash if it writes at most this part of the other mode's bytes.
const FEWER_WRITES: f64 = 0.8;

/// The cache that is advised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Size of the cache.
    pub cache_bytes: u64,
    /// The mode of the cache.
    pub mode: Mode,
    /// The mean time of a request with this cache.
    pub mean_ns: u64,
    /// The bytes that are written to the cache device in the second half of the trace.
    pub flash_write_bytes: u64,
    /// The time that the measured half takes.
    pub took_ns: u64,
}

impl Choice {
    fn of(trial: &Trial) -> Option<Self> {
        let (cache_bytes, mode) = trial.cache?;
        let played = &trial.played;
        let (mean_ns, flash_write_bytes) = (played.mean_ns(), played.traffic.cache_write_bytes);
        Some(Self { cache_bytes, mode, mean_ns, flash_write_bytes, took_ns: played.took_ns })
    }
}

/// The size that is enough. `trials` are in ascending order. None if no size helps.
pub(super) fn size(alone: &Trial, trials: &[Trial]) -> Option<Choice> {
    enough(alone, trials, Played::mean_ns).and_then(Choice::of)
}

/// The size that the first half of the trace alone would advise.
pub(super) fn size_before(alone: &Trial, trials: &[Trial]) -> Option<u64> {
    enough(alone, trials, Played::mean_before_ns).and_then(|trial| trial.cache).map(|it| it.0)
}

/// The first trial that is enough, judged by this mean.
fn enough<'a>(alone: &Trial, trials: &'a [Trial], mean: impl Fn(&Played) -> u64) -> Option<&'a Trial> {
    let mean = |trial: &Trial| mean(&trial.played) as f64;
    let alone = mean(alone);
    let best = trials.iter().map(mean).fold(f64::INFINITY, f64::min);
    if best > alone * HELPS {
        return None;
    }
    trials.iter().find(|trial| alone - mean(trial) >= (alone - best) * ENOUGH)
}

/// The mode: writeback, or another mode that was tried with that size. `writes` is the number of
/// writes in the trace.
pub(super) fn mode(alone: &Trial, writeback: Choice, others: &[Trial], writes: u64) -> Choice {
    if writes == 0 {
        // Without writes there is no difference, and nothing can be lost.
        return Choice { mode: Mode::Writethrough, ..writeback };
    }
    let as_fast = |it: &Choice, other: &Choice| it.mean_ns as f64 <= other.mean_ns as f64 * SLOWER;
    let helps = |it: &Choice| it.mean_ns as f64 <= alone.played.mean_ns() as f64 * HELPS;
    let of = |mode| {
        let all = others.iter().filter_map(Choice::of);
        all.filter(|it| as_fast(it, &writeback) && helps(it)).find(|it| it.mode == mode)
    };
    let spares = |around: &Choice, through: &Choice| {
        around.flash_write_bytes as f64 <= through.flash_write_bytes as f64 * FEWER_WRITES && as_fast(around, through)
    };
    match (of(Mode::Writethrough), of(Mode::Writearound)) {
        (Some(through), Some(around)) if spares(&around, &through) => around,
        (Some(through), _) => through,
        (None, Some(around)) => around,
        (None, None) => writeback,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A trial with one read that took `us` microseconds, and `flash_write_bytes` bytes written to
    /// flash.
    fn trial(cache: Option<(u64, Mode)>, us: u64, flash_write_bytes: u64) -> Trial {
        let mut played = Played::default();
        (played.reads.requests, played.reads.sum_ns) = (1, u128::from(us) * 1000);
        played.traffic.cache_write_bytes = flash_write_bytes;
        Trial { cache, played }
    }

    fn sizes(means_us: &[u64]) -> Vec<Trial> {
        let each = |(nth, us): (usize, &u64)| trial(Some((GIB << nth, Mode::Writeback)), *us, 0);
        means_us.iter().enumerate().map(each).collect()
    }

    #[test]
    fn the_smallest_size_that_saves_nearly_all_is_enough() {
        let of = |alone, means: &[u64]| size(&trial(None, alone, 0), &sizes(means)).map(|it| it.cache_bytes / GIB);
        assert_eq!(of(8000, &[7000, 4000, 900, 400, 390]), Some(4), "saves 7,100 of 7,610");
        assert_eq!(of(8000, &[500, 499, 498]), Some(1));
        assert_eq!(of(8000, &[7900, 7800, 6500]), None, "a fifth less is the least that is worth it");
        assert_eq!(of(8000, &[7900, 7800, 6400]), Some(4));
        assert_eq!(of(8000, &[9000, 8000]), None);
        assert_eq!(of(8000, &[]), None);
    }

    #[test]
    fn the_mode_is_the_safest_that_is_not_much_slower() {
        let of = |back, through, around, writes| {
            let writeback = Choice::of(&trial(Some((GIB, Mode::Writeback)), back, 0)).expect("a cache");
            let others = [(Mode::Writethrough, through), (Mode::Writearound, around)];
            let others = others.map(|(mode, (us, flash))| trial(Some((GIB, mode)), us, flash));
            mode(&trial(None, 8000, 0), writeback, &others, writes).mode
        };
        assert_eq!(of(400, (4000, 100), (4000, 50), 1), Mode::Writeback);
        assert_eq!(of(400, (430, 100), (430, 90), 1), Mode::Writethrough, "as fast, and nothing can be lost");
        assert_eq!(of(400, (430, 100), (435, 50), 1), Mode::Writearound, "as fast, and flash is spared");
        assert_eq!(of(400, (400, 100), (441, 50), 1), Mode::Writethrough, "it would be slower");
        assert_eq!(of(400, (500, 100), (430, 100), 1), Mode::Writearound);
        assert_eq!(of(400, (4000, 100), (4000, 50), 0), Mode::Writethrough, "nothing is written");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far away an origin is, and so how many runs of destage are on their way to it.
//!
//! A disk is near: it answers one write after the other, and many at a time only wait for each
//! other. A volume behind a network is far: a write takes as long alone as beside others. That ends
//! when its bandwidth, or its I/Os a second, are used up. So runs are counted as packets on a
//! network are (L. Brakmo and L. Peterson, "TCP Vegas", 1995). As long as writes take hardly longer
//! than the shortest one, one more is sent; else one less.

/// An origin that answers its fastest write sooner than that is near: 16 runs at a time are 40,000
/// a second there. A disk's write cache takes 0.1 ms.
const FAR_NS: u64 = 400_000;
/// Beside clients writes may wait a sixteenth of the shortest one, else a quarter.
const BESIDE_16THS: u64 = 17;
const ALONE_16THS: u64 = 20;
/// Runs beside clients, at least. (With two, and an eighth, misses took 1.46 times as long at the
/// 99th percentile, 0.5 ms away. With one, and a sixteenth, they take 1.12 times as long.)
const BESIDE_MIN: u32 = 1;
/// Where writes take so many times the shortest one, this is a disk that counts as far, or many
/// clients wait. There a run alone waits long for its turn, and one more costs little.
const CROWDED_TIMES: u64 = 4;
/// Where a single run is too much beside clients, it gets shorter. After so many writes that had to
/// wait it is half as long.
const WRITES_PER_HALVING: u32 = 16;
/// The halvings, at most: then a run has 16 KiB.
const HALVINGS_MAX: u32 = 6;
const FEWER_RUNS_MAX: u32 = RUNS_MAX - BESIDE_MIN;
/// Runs on their way to all far origins beside those that any origin may have. 64 at a time are
/// 1,280 a second over 50 ms, twice what 32 clients do there.
pub(crate) const FAR_RUNS_MAX: u32 = 48;
/// The blocks of such a run, at most. 16 long runs fill 250 MB/s over 50 ms by themselves.
pub(crate) const FAR_RUN_BLOCKS_MAX: u32 = 16;

/// Runs of destage that any origin may have under way. A disk can choose among that many (NCQ has
/// 32 places, and runs are long).
pub(crate) const RUNS_MAX: u32 = 16;

/// The longest run: 1 MiB is past the point where a disk's seek matters.
pub(crate) const RUN_BLOCKS_MAX: u32 = 256;

/// What writes of destage tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// The shortest write, which is forgotten slowly: the way may become longer. 0 = none yet.
    least_ns: u64,
    /// What a write took lately, in the mean; in 16ths.
    mean_16th_ns: u64,
    /// Runs beside those that any origin may have.
    more: u32,
    /// Writes take [`CROWDED_TIMES`] as long as the shortest one, or longer.
    crowded: bool,
    /// Runs less than those that any origin may have, beside clients. Beyond
    /// [`FEWER_RUNS_MAX`] runs get shorter instead.
    less: u32,
}

impl Reach {
    /// A write took so long.
    pub(crate) fn wrote(&mut self, ns: u64) {
        if self.least_ns == 0 {
            (self.least_ns, self.mean_16th_ns) = (ns.max(1), ns * 16);
        }
        self.least_ns = ns.clamp(1, self.least_ns + (self.least_ns >> 10));
        self.mean_16th_ns = self.mean_16th_ns - self.mean_16th_ns / 16 + ns;
        let far = self.is_far();
        let takes_16ths = self.mean_16th_ns / self.least_ns;
        let more = far && takes_16ths < ALONE_16THS;
        self.more = if more { FAR_RUNS_MAX.min(self.more + 1) } else { self.more.saturating_sub(1) };
        self.crowded = self.mean_16th_ns / 16 >= self.least_ns * CROWDED_TIMES;
        let less_max = FEWER_RUNS_MAX + HALVINGS_MAX * WRITES_PER_HALVING;
        let less = far && takes_16ths >= BESIDE_16THS;
        self.less = if less { less_max.min(self.less + 1) } else { self.less.saturating_sub(1) };
    }

    /// Whether the origin is far away, as far as that is known.
    pub(crate) const fn is_far(&self) -> bool {
        self.least_ns >= FAR_NS
    }

    /// Runs under way beside clients, whose I/Os wait behind them where I/Os a second are bound.
    pub(crate) fn beside(&self) -> u32 {
        RUNS_MAX - self.less.min(FEWER_RUNS_MAX - u32::from(self.crowded))
    }

    /// The blocks of a run beside clients, at most. Their I/Os wait while it is carried.
    pub(crate) const fn beside_blocks(&self) -> u32 {
        RUN_BLOCKS_MAX >> (self.less.saturating_sub(FEWER_RUNS_MAX) / WRITES_PER_HALVING)
    }

    /// Runs beside those that any origin may have.
    pub(crate) const fn more(&self) -> u32 {
        self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_origin_gets_more_until_writes_wait_for_each_other() {
        let mut reach = Reach::default();
        (0..200).for_each(|_| reach.wrote(50_000_000));
        assert_eq!(reach.more(), FAR_RUNS_MAX);
        (0..30).for_each(|_| reach.wrote(80_000_000));
        assert_eq!((reach.beside(), reach.beside_blocks()), (BESIDE_MIN, RUN_BLOCKS_MAX), "they wait");
        (0..200).for_each(|_| reach.wrote(80_000_000));
        assert_eq!((reach.more(), reach.beside(), reach.beside_blocks()), (0, BESIDE_MIN, 4));
        (0..100).for_each(|_| reach.wrote(500_000_000));
        assert_eq!(reach.beside(), 2, "a run alone would wait long");
        (0..300).for_each(|_| reach.wrote(52_000_000));
        assert_eq!((reach.more(), reach.beside(), reach.beside_blocks()), (FAR_RUNS_MAX, RUNS_MAX, RUN_BLOCKS_MAX));
    }

    #[test]
    fn a_near_origin_gets_no_more() {
        let mut cached = Reach::default();
        (0..200).for_each(|_| cached.wrote(100_000));
        assert_eq!((cached.more(), cached.beside()), (0, RUNS_MAX));
        // A disk without a write cache: from the next track to a far seek, and the queue.
        let mut disk = Reach::default();
        (0..200).for_each(|nth| disk.wrote(1_500_000 + nth % 16 * 1_000_000));
        assert_eq!(disk.more(), 0);
    }
}

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
/// Beside clients writes may wait for each other an eighth of the shortest one, else a quarter.
const BESIDE_8THS: u64 = 9;
const ALONE_8THS: u64 = 10;
/// Runs beside clients, at least.
const BESIDE_MIN: u32 = 2;
/// Runs on their way to all far origins beside those that any origin may have. 64 at a time are
/// 1,280 a second over 50 ms, twice what 32 clients do there.
pub(crate) const FAR_RUNS_MAX: u32 = 48;
/// The blocks of such a run, at most. 16 long runs fill 250 MB/s over 50 ms by themselves.
pub(crate) const FAR_RUN_BLOCKS_MAX: u32 = 16;

/// Runs of destage that any origin may have under way. A disk can choose among that many (NCQ has
/// 32 places, and runs are long).
pub(crate) const RUNS_MAX: u32 = 16;

/// What writes of destage tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// The shortest write, which is forgotten slowly: the way may become longer. 0 = none yet.
    least_ns: u64,
    /// What a write took lately, in the mean; in 16ths.
    mean_16th_ns: u64,
    /// Runs beside those that any origin may have.
    more: u32,
    /// Runs less than those that any origin may have, beside clients.
    fewer: u32,
}

impl Reach {
    /// A write took so long.
    pub(crate) fn wrote(&mut self, ns: u64) {
        if self.least_ns == 0 {
            (self.least_ns, self.mean_16th_ns) = (ns.max(1), ns * 16);
        }
        self.least_ns = ns.clamp(1, self.least_ns + (self.least_ns >> 10));
        self.mean_16th_ns = self.mean_16th_ns - self.mean_16th_ns / 16 + ns;
        let far = self.least_ns >= FAR_NS;
        let takes_8ths = self.mean_16th_ns / 2 / self.least_ns;
        let more = far && takes_8ths < ALONE_8THS;
        self.more = if more { FAR_RUNS_MAX.min(self.more + 1) } else { self.more.saturating_sub(1) };
        let fewer = far && takes_8ths >= BESIDE_8THS;
        self.fewer = if fewer { (RUNS_MAX - BESIDE_MIN).min(self.fewer + 1) } else { self.fewer.saturating_sub(1) };
    }

    /// Runs under way beside clients, whose I/Os wait behind them where I/Os a second are bound.
    pub(crate) const fn beside(&self) -> u32 {
        RUNS_MAX - self.fewer
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
        (0..200).for_each(|_| reach.wrote(80_000_000));
        assert_eq!((reach.more(), reach.beside()), (0, BESIDE_MIN), "they wait");
        (0..200).for_each(|_| reach.wrote(55_000_000));
        assert_eq!((reach.more(), reach.beside()), (FAR_RUNS_MAX, RUNS_MAX));
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

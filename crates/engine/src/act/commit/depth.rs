// SPDX-License-Identifier: MIT OR Apache-2.0
//! The depth: how many commits of a lane are in flight at once.
//!
//! Eight commits of 1 MiB keep most devices busy. A virtual disk may report all I/Os done that it
//! was given at once. Such a disk has nothing to do until the next commits come. So more commits
//! are in flight while no client reads from the cache device: as many as are written in 8 ms. This
//! bounds how long a read that comes then waits behind them.
//!
//! Measured in process on such a disk of 4 GB/s, means of nine in turns. A block takes 1.14 us with
//! 8 commits, and 1.08 us with up to 32. Raw writes take 1.02 us.

use crate::fact::types::Time;

/// The least number of commits in flight.
const LEAST: usize = 8;
/// The most commits of all lanes together. Each lane may have its least number all the same.
const MOST_OF_ALL: usize = 32;
/// The depth grows only while a commit takes no longer than this.
const TAKES_MAX_NS: u64 = 8_000_000;

/// A lane's number of commits in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    now: usize,
    most: usize,
}

impl Depth {
    /// The greatest depth of one lane, where there are `lanes` lanes.
    pub(super) const fn most(lanes: u32) -> usize {
        let each = MOST_OF_ALL / lanes as usize;
        if each > LEAST { each } else { LEAST }
    }

    pub(super) const fn of(lanes: u32) -> Self {
        Self { now: LEAST, most: Self::most(lanes) }
    }

    pub(super) const fn get(self) -> usize {
        self.now
    }

    /// A commit that began at `began` has ended. `in_flight` commits were in flight, this one
    /// included.
    pub(super) fn ended(&mut self, began: Time, in_flight: usize, reads: bool, now: Time) {
        self.now = if reads {
            LEAST
        } else if now.since_ns(began) > TAKES_MAX_NS {
            (self.now - 1).max(LEAST)
        } else if in_flight >= self.now {
            (self.now + 1).min(self.most)
        } else {
            self.now
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the depth to which a device leads that writes a commit in `each_ns`, if there is
    /// always one more.
    fn after(depth: &mut Depth, each_ns: u64, reads: bool) -> usize {
        for nth in 1..=100 {
            let took = each_ns * depth.get() as u64;
            depth.ended(Time(nth * each_ns), depth.get(), reads, Time(nth * each_ns + took));
        }
        depth.get()
    }

    #[test]
    fn as_many_as_are_written_in_8_ms_unless_somebody_reads() {
        let mut depth = Depth::of(1);
        assert_eq!(depth.get(), 8);
        assert_eq!(after(&mut depth, 250_000, false), 32, "4 GB/s");
        assert!((15..=17).contains(&after(&mut depth, 500_000, false)), "2 GB/s");
        assert_eq!(after(&mut depth, 2_000_000, false), 8, "500 MB/s");
        assert_eq!(after(&mut depth, 250_000, false), 32);
        assert_eq!(after(&mut depth, 250_000, true), 8);
    }

    #[test]
    fn lanes_share_them_and_none_is_more_unless_it_is_needed() {
        assert_eq!([1, 2, 3, 4, 16].map(Depth::most), [32, 16, 10, 8, 8]);
        let mut depth = Depth::of(1);
        (0..100).for_each(|nth| depth.ended(Time(nth), 3, false, Time(nth + 1)));
        assert_eq!(depth.get(), 8);
    }
}

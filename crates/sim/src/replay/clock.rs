// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock tells policies the time of a trace, which never goes back.

/// Between requests of a trace without times.
pub(crate) const UNTIMED_NS: u64 = 1_000_000;

/// Times that go back by no more are of several processors or in whole seconds, and stand still.
/// What goes back by more is another trace behind the first.
const BACK_MAX_NS: u64 = 10_000_000_000;

/// No time is later, so that policies can add what they like to it: what a trace says beyond stands
/// still there. A garbled line may say anything.
const LATEST_NS: u64 = u64::MAX - 86_400_000_000_000;

/// Follows the times of records.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now_ns: u64,
    /// What is added to the times of the trace that is behind others.
    offset_ns: u64,
    /// How often time went back, and was taken to go on from where it was.
    pub(super) anew: u64,
    /// Any record had a time.
    pub(super) timed: bool,
}

impl Clock {
    /// The time of the next record.
    pub(super) fn at(&mut self, time_ns: Option<u64>) -> u64 {
        let time_ns = match time_ns {
            None => self.now_ns.saturating_add(UNTIMED_NS),
            Some(time_ns) => {
                self.timed = true;
                if time_ns.saturating_add(self.offset_ns).saturating_add(BACK_MAX_NS) < self.now_ns {
                    self.offset_ns = self.now_ns - time_ns;
                    self.anew += 1;
                }
                time_ns.saturating_add(self.offset_ns)
            }
        };
        self.now_ns = self.now_ns.max(time_ns.min(LATEST_NS));
        self.now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn times_stand_still_where_they_go_back_a_little_and_go_on_behind_a_trace_that_began_anew() {
        let mut clock = Clock::default();
        let times = [100 * S, 95 * S, 101 * S, 0, 5 * S, 2 * S, 6 * S].map(|time| clock.at(Some(time)));
        assert_eq!(times, [100 * S, 100 * S, 101 * S, 101 * S, 106 * S, 106 * S, 107 * S]);
        assert_eq!((clock.anew, clock.timed), (1, true));
    }

    #[test]
    fn records_without_times_come_a_millisecond_apart_and_no_time_is_too_late() {
        let mut clock = Clock::default();
        assert_eq!([clock.at(None), clock.at(None)], [UNTIMED_NS, 2 * UNTIMED_NS]);
        assert!(!clock.timed);
        assert_eq!([u64::MAX, 3, u64::MAX].map(|time| clock.at(Some(time))), [LATEST_NS; 3]);
    }
}

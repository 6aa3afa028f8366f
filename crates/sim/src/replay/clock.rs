// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock tells policies the time of a trace, which never goes back.

use crate::trace::FAR_NS;

/// Between requests of a trace without times.
pub(crate) const UNTIMED_NS: u64 = 1_000_000;

/// No clock of a trace rests for so long. What steps on by more is another trace behind the first,
/// or a clock that was set.
const ON_MAX_NS: u64 = 366 * 86_400_000_000_000;

/// No time is later, so that policies can add what they like to it.
const LATEST_NS: u64 = u64::MAX - 86_400_000_000_000;

/// A trace begins no later, so that a century of it comes before [`LATEST_NS`]. Its first line may
/// say anything.
const FIRST_MAX_NS: u64 = LATEST_NS - 100 * ON_MAX_NS;

/// Follows the times of records. Times that go back by at most [`FAR_NS`] are of several processors
/// or in whole seconds, and stand still. Where times step back by more, or on by more than a year,
/// time goes on from where it was.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now_ns: u64,
    /// What is added to the times of the trace.
    offset_ns: i128,
    /// How often times stepped, and were taken to go on from where they were.
    pub(super) anew: u64,
    /// Any record had a time.
    pub(super) timed: bool,
}

impl Clock {
    /// The time of the next record.
    pub(super) fn at(&mut self, time_ns: Option<u64>) -> u64 {
        let Some(time_ns) = time_ns else {
            self.now_ns = self.now_ns.saturating_add(UNTIMED_NS).min(LATEST_NS);
            return self.now_ns;
        };
        let time_ns = i128::from(time_ns);
        if self.timed {
            let passed = time_ns + self.offset_ns - i128::from(self.now_ns);
            if passed < -i128::from(FAR_NS) || passed > i128::from(ON_MAX_NS) {
                self.offset_ns = i128::from(self.now_ns) - time_ns;
                self.anew += 1;
            }
        } else {
            self.timed = true;
            self.offset_ns = (i128::from(FIRST_MAX_NS) - time_ns).min(0);
        }
        let passed = time_ns + self.offset_ns - i128::from(self.now_ns);
        self.now_ns = self.now_ns.saturating_add(u64::try_from(passed).unwrap_or(0)).min(LATEST_NS);
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
        let mut clock = Clock::default();
        let times = [u64::MAX, 3, u64::MAX, u64::MAX - 5, 9].map(|time| clock.at(Some(time)));
        assert_eq!((times, clock.anew), ([FIRST_MAX_NS; 5], 3));
        assert_eq!(clock.at(Some(9 + S)), FIRST_MAX_NS + S, "time goes on behind a garbled line");
    }

    #[test]
    fn a_first_line_of_another_age_moves_no_other() {
        const MSR_NS: u64 = 12_816_637_200_001_659_500;
        let mut clock = Clock::default();
        let times = [100, MSR_NS, MSR_NS + S, 100, MSR_NS + 2 * S, MSR_NS + 3 * S].map(|time| clock.at(Some(time)));
        assert_eq!((times.map(|it| it / S), clock.anew), ([0, 0, 1, 1, 1, 2], 3));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The budget: what may be written to the cache device in a day. When it is used up, reads are not
//! cached any more.
//!
//! A token bucket counts everything that is written to the device that leads, commit headers and
//! checkpoints included. Only fills are declined: what clients write has to be absorbed, and what
//! is copied forward makes room for it. Credit of idle hours is kept up to a quarter of a day's.
//! Debt, which writes alone can make, is forgiven beyond a day's. So one restored backup doesn't
//! end caching for a week.

use crate::fact::types::Time;

const DAY_NS: u128 = 86_400_000_000_000;
/// The part of a day's bytes that may be saved up.
const CREDIT_PART: i64 = 4;

/// The bytes that may be written.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    per_day: u64,
    credit: i64,
    /// The credit is what it was then, but for what was spent.
    since: Time,
}

impl Budget {
    /// Nothing is saved up yet, so that restarts give no credit.
    pub(crate) const fn new(bytes_per_day: u64, now: Time) -> Self {
        Self { per_day: bytes_per_day, credit: 0, since: now }
    }

    pub(crate) fn spend(&mut self, bytes: u64, now: Time) {
        self.earn(now);
        self.credit = self.credit.saturating_sub_unsigned(bytes).max(-self.day());
    }

    /// Whether more may be written that need not be.
    pub(crate) fn allows(&mut self, now: Time) -> bool {
        self.earn(now);
        self.credit > 0
    }

    /// What may be written in a day, and what of it is left: what was saved up, or less than
    /// nothing.
    pub(crate) fn left(&self, now: Time) -> (u64, i64) {
        (self.per_day, self.with(self.earned(now)))
    }

    fn earned(&self, now: Time) -> u128 {
        u128::from(now.0.saturating_sub(self.since.0)) * u128::from(self.per_day) / DAY_NS
    }

    fn with(&self, earned: u128) -> i64 {
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        self.credit.saturating_add(earned).min(self.day() / CREDIT_PART)
    }

    fn earn(&mut self, now: Time) {
        let earned = self.earned(now);
        if earned > 0 {
            // Only the time that the whole bytes took: the rest counts the next time.
            self.since = self.since.plus_ns((earned * DAY_NS / u128::from(self.per_day)) as u64);
            self.credit = self.with(earned);
        }
    }

    fn day(&self) -> i64 {
        i64::try_from(self.per_day).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    #[test]
    fn credit_comes_with_time_and_is_bounded() {
        let mut budget = Budget::new(24_000, Time(0));
        assert!(!budget.allows(Time(0)), "a start gives no credit");
        assert!(budget.allows(Time(HOUR_NS)));
        budget.spend(1000, Time(HOUR_NS));
        assert!(!budget.allows(Time(HOUR_NS)), "an hour's bytes are spent");
        assert!(budget.allows(Time(100 * HOUR_NS)));
        budget.spend(6000, Time(100 * HOUR_NS));
        assert!(!budget.allows(Time(100 * HOUR_NS)), "more than a quarter of a day was saved up");
        // Thirty hours of writes without a look.
        (100..=130).for_each(|hour| budget.spend(1_000_000, Time(hour * HOUR_NS)));
        assert_eq!(budget.left(Time(131 * HOUR_NS)), (24_000, -23_000));
        assert!(!budget.allows(Time(153 * HOUR_NS)), "less than a day of debt");
        assert!(budget.allows(Time(155 * HOUR_NS)), "debt of more than a day is kept");
        assert_eq!(budget.left(Time(900 * HOUR_NS)), (24_000, 6000), "a quarter of a day is saved up");
    }

    #[test]
    fn no_byte_is_lost_between_two_looks() {
        let mut budget = Budget::new(86_400, Time(0));
        // A byte a second, asked for every 0.7 s.
        let spent = (0..100_000u64)
            .filter(|nth| {
                let allowed = budget.allows(Time(nth * 700_000_000));
                budget.spend(u64::from(allowed), Time(nth * 700_000_000));
                allowed
            })
            .count();
        assert!((69_990..=70_000).contains(&spent), "{spent} of 70,000 bytes");
    }
}

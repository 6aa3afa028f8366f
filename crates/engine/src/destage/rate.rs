// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many destage runs may be in flight: a pure function of what can be seen.

/// What the decision rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) dirty: u64,
    pub(crate) limit: u64,
    /// No request in flight, and none for a while.
    pub(crate) idle: bool,
    /// Somebody waits: drain, stop of writeback, reclaim, a direct write.
    pub(crate) urgent: bool,
    /// The oldest dirty block is near its greatest age.
    pub(crate) aged: bool,
    /// Reads of clients at the origins.
    pub(crate) foreground_reads: u32,
}

/// Full speed: enough in flight for a disk to choose from (NCQ has 32 places; runs are long).
pub(crate) const RUNS_MAX: u32 = 16;
/// Above this part of the limit destage runs at full speed, before writers are slowed at 3/4.
const FULL_SPEED_PERCENT: u64 = 60;
/// Above this part destage runs beside the clients.
const BACKGROUND_PERCENT: u64 = 30;

/// How many runs may be in flight.
pub(crate) fn runs_allowed(view: View) -> u32 {
    if view.dirty == 0 {
        0
    } else if view.urgent || view.idle || view.dirty * 100 >= view.limit * FULL_SPEED_PERCENT {
        RUNS_MAX
    } else if view.dirty * 100 >= view.limit * BACKGROUND_PERCENT || view.aged {
        // A client's read waits behind at most one write.
        if view.foreground_reads > 0 { 1 } else { RUNS_MAX / 4 }
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: View = View { dirty: 10, limit: 1000, idle: false, urgent: false, aged: false, foreground_reads: 0 };

    #[test]
    fn busy_and_little_dirty_waits_and_idle_does_not() {
        assert_eq!(runs_allowed(CALM), 0);
        assert_eq!(runs_allowed(View { idle: true, ..CALM }), RUNS_MAX);
        assert_eq!(runs_allowed(View { dirty: 0, idle: true, urgent: true, ..CALM }), 0);
    }

    #[test]
    fn pressure_never_lowers_the_rate() {
        let mut last = 0;
        for dirty in 0..=1000 {
            let now = runs_allowed(View { dirty, ..CALM });
            assert!(now >= last, "at {dirty} dirty blocks");
            last = now;
        }
        assert_eq!(last, RUNS_MAX);
        assert_eq!(runs_allowed(View { dirty: 400, foreground_reads: 3, ..CALM }), 1, "yields to reads");
    }
}

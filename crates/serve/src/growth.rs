// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells how much counters grew in the last minute, hour and day, from what they were at the begin
//! of some spans of time.
//!
//! The counters are noted in turns that the daemon takes anyway: the first one of each span. An
//! idle daemon is not woken for it, since its counters don't grow meanwhile. A counter that never
//! grew takes no RAM.

use std::collections::VecDeque;

use flashfront_engine::Time;

/// The length of the shortest span.
const SPAN_NS: u64 = 10_000_000_000;
/// The spans of the minute, the hour and the day: how many, and how long each is.
const RINGS: [(u64, u64); 3] = [(7, SPAN_NS), (7, 60 * SPAN_NS), (9, 18 * 60 * SPAN_NS)];

/// The growth of some counters.
#[derive(Clone, Debug)]
pub(crate) struct Growth<const N: usize> {
    marks: Marks<N>,
}

/// For each ring the spans that were noted, oldest first: their number, and the counters.
pub(crate) type Marks<const N: usize> = [VecDeque<(u64, [u64; N])>; RINGS.len()];

impl<const N: usize> From<Marks<N>> for Growth<N> {
    fn from(marks: Marks<N>) -> Self {
        Self { marks }
    }
}

impl<const N: usize> Default for Growth<N> {
    fn default() -> Self {
        Self { marks: Default::default() }
    }
}

impl<const N: usize> Growth<N> {
    /// When the span of this moment is over, and the counters are to be noted again.
    pub(crate) const fn due_after(now: Time) -> Time {
        Time((now.0 / SPAN_NS + 1) * SPAN_NS)
    }

    /// What another program goes on with.
    pub(crate) const fn marks(&self) -> &Marks<N> {
        &self.marks
    }

    /// Notes the counters.
    pub(crate) fn note(&mut self, now: Time, counters: [u64; N]) {
        for (marks, (spans, span_ns)) in self.marks.iter_mut().zip(RINGS) {
            let number = now.0 / span_ns;
            if marks.is_empty() {
                if counters == [0; N] {
                    continue;
                }
                // They began to grow in the span before.
                marks.push_back((number.saturating_sub(1), [0; N]));
            }
            if marks.back().is_some_and(|(newest, _)| *newest < number) {
                marks.push_back((number, counters));
            }
            while marks.front().is_some_and(|(oldest, _)| oldest + spans <= number) {
                marks.pop_front();
            }
        }
    }

    /// How much the counters grew in the last minute, hour and day; these are the counters now.
    pub(crate) fn of(&self, now: Time, counters: [u64; N]) -> [[u64; N]; RINGS.len()] {
        let mut grown = [[0; N]; RINGS.len()];
        for ((grown, marks), (spans, span_ns)) in grown.iter_mut().zip(&self.marks).zip(RINGS) {
            let number = now.0 / span_ns;
            // Nothing was noted yet: all of it is new.
            let none = marks.is_empty().then_some([0; N]);
            // A counter that was not noted in a span did not grow in it.
            let first = marks.iter().find(|(begun, _)| begun + spans > number).map(|it| it.1);
            let before = none.or(first).unwrap_or(counters);
            for ((grown, now), before) in grown.iter_mut().zip(counters).zip(before) {
                *grown = now.saturating_sub(before);
            }
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    #[test]
    fn what_grew_in_a_window_counts_in_it() {
        let mut growth = Growth::<1>::default();
        assert_eq!(growth.of(at(3), [5]), [[5]; 3], "before the first note");
        growth.note(at(10), [0]);
        assert!(growth.marks.iter().all(VecDeque::is_empty), "nothing grew, nothing is kept");
        growth.note(at(20), [7]);
        assert_eq!(growth.of(at(25), [9]), [[9]; 3]);
        // Idle for 500 s; then one turn, in which it grows by one.
        assert_eq!(growth.of(at(500), [9]), [[0], [9], [9]]);
        growth.note(at(520), [10]);
        growth.note(at(530), [12]);
        assert_eq!(growth.of(at(539), [13]), [[3], [13], [13]]);
        assert_eq!(growth.of(at(9_000), [13]), [[0], [0], [13]]);
        assert_eq!(growth.of(at(200_000), [13]), [[0]; 3]);
    }

    #[test]
    fn ram_has_a_bound() {
        let mut growth = Growth::<2>::default();
        for nth in 0..20_000 {
            growth.note(at(nth * 10), [nth, nth]);
        }
        let spans = growth.marks.each_ref().map(VecDeque::len);
        assert_eq!(spans, RINGS.map(|(spans, _)| spans as usize));
    }
}

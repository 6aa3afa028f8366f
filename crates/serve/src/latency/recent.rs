// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durations of a rolling span of time, such as the last minute: a ring of shorter spans.
//!
//! RAM is taken for a span when its first duration comes, and serves again when the ring has
//! turned.

use flashfront_engine::Time;

use super::{Counts, Summary};

/// A ring of spans of equal length. The newest one is still running.
#[derive(Debug)]
pub struct Recent {
    span_ns: u64,
    /// The spans by their number, in turn.
    ring: Vec<Option<Span>>,
    /// The place of the newest span, and when it is over.
    newest: usize,
    ends: Time,
}

/// The part of a ring that an observer has counted already.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The newest span at that time.
    number: u64,
    /// The counts of the span at that time.
    counts: Box<Counts>,
}

#[derive(Debug)]
struct Span {
    /// How many spans passed before it.
    number: u64,
    counts: Box<Counts>,
}

impl Recent {
    /// Makes a ring of `spans` spans of this length.
    ///
    /// # Panics
    /// Without any span, or if they have no length.
    #[must_use]
    pub fn new(spans: usize, span_ns: u64) -> Self {
        assert!(spans > 0 && span_ns > 0, "a ring has spans, and they have a length");
        Self { span_ns, ring: (0..spans).map(|_| None).collect(), newest: 0, ends: Time(0) }
    }

    /// Goes on with the spans of another ring, each with its number.
    pub(crate) fn go_on(&mut self, spans: Vec<(u64, Counts)>) {
        for (number, counts) in spans {
            let at = (number % self.ring.len() as u64) as usize;
            let ends = Time(number.saturating_add(1).saturating_mul(self.span_ns));
            if ends.0 > self.ends.0 {
                (self.newest, self.ends) = (at, ends);
            }
            self.ring[at] = Some(Span { number, counts: Box::new(counts) });
        }
    }

    /// The spans of the ring, each with its number.
    pub(crate) fn numbered(&self) -> Vec<(u64, Counts)> {
        self.ring.iter().flatten().map(|span| (span.number, (*span.counts).clone())).collect()
    }

    /// Whether the newest span is over.
    #[must_use]
    pub const fn is_over(&self, now: Time) -> bool {
        now.0 >= self.ends.0
    }

    /// Counts a request that ended at `now`, which never goes back: its duration and its bytes.
    pub fn record(&mut self, ns: u64, bytes: u64, now: Time) {
        if let Some(counts) = self.span_of(now) {
            counts.record(ns);
            counts.carry(bytes);
        }
    }

    /// Adds a span of a finer ring, which began at that time.
    pub fn add(&mut self, span: &Counts, began: Time) {
        if let Some(counts) = self.span_of(began) {
            counts.add(span);
        }
    }

    /// Returns the newest span, and when it began.
    #[must_use]
    pub fn newest(&self) -> Option<(&Counts, Time)> {
        let span = self.ring[self.newest].as_ref()?;
        Some((&span.counts, Time(span.number * self.span_ns)))
    }

    /// The span of this moment, which is the newest one from now on.
    fn span_of(&mut self, now: Time) -> Option<&mut Counts> {
        if self.is_over(now) {
            self.turn(now);
        }
        self.ring[self.newest].as_mut().map(|span| &mut *span.counts)
    }

    /// Begins the span of this moment.
    fn turn(&mut self, now: Time) {
        let number = now.0 / self.span_ns;
        self.newest = (number % self.ring.len() as u64) as usize;
        self.ends = Time((number + 1).saturating_mul(self.span_ns));
        match &mut self.ring[self.newest] {
            Some(span) => {
                span.number = number;
                *span.counts = Counts::default();
            }
            empty => *empty = Some(Span { number, counts: Box::default() }),
        }
    }

    /// Adds to `sum` all durations since the observer last looked. The ring still has them if that
    /// was less than a whole turn ago.
    pub fn add_unseen(&self, seen: &mut Seen, sum: &mut Counts) {
        let mut newest = None::<&Span>;
        for span in self.ring.iter().flatten().filter(|span| span.number >= seen.number) {
            if span.number == seen.number {
                sum.add_since(&span.counts, &seen.counts);
            } else {
                sum.add(&span.counts);
            }
            newest = newest.filter(|it| it.number > span.number).or(Some(span));
        }
        if let Some(span) = newest {
            seen.number = span.number;
            seen.counts.clone_from(&span.counts);
        }
    }

    /// Summarizes the requests that ended in the spans up to `now` that the ring holds.
    #[must_use]
    pub fn summary(&self, now: Time) -> Summary {
        Summary::of(self.spans(now))
    }

    /// The spans up to `now` that the ring holds and that are not too old.
    pub fn spans(&self, now: Time) -> impl Iterator<Item = &Counts> {
        let number = now.0 / self.span_ns;
        let is_recent = move |span: &&Span| span.number + self.ring.len() as u64 > number;
        self.ring.iter().flatten().filter(is_recent).map(|span| &*span.counts)
    }

    /// Whether the ring covers that moment still.
    #[must_use]
    pub const fn covers(&self, moment: Time, now: Time) -> bool {
        moment.0 / self.span_ns + self.ring.len() as u64 > now.0 / self.span_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_ring_is_forgotten() {
        let mut recent = Recent::new(7, 10);
        recent.record(1, 0, Time(5));
        recent.record(2, 0, Time(19));
        recent.record(3, 0, Time(69));
        let found = |recent: &Recent, now| (recent.summary(Time(now)).count, recent.summary(Time(now)).max_ns);
        assert_eq!(found(&recent, 69), (3, 3));
        assert_eq!(found(&recent, 70), (2, 3));
        assert_eq!(found(&recent, 80), (1, 3));
        assert_eq!(found(&recent, 139), (0, 0));
        // The place of the first span serves again, and nothing of it is left.
        recent.record(1, 0, Time(71));
        assert_eq!(found(&recent, 79), (3, 3));
        // After a long silence nothing old is mistaken for new.
        recent.record(1, 0, Time(7_000_000));
        assert_eq!(found(&recent, 7_000_000), (1, 1));
    }

    #[test]
    fn a_ring_goes_on_where_another_one_was() {
        let (mut before, mut after) = (Recent::new(7, 10), Recent::new(7, 10));
        [(1, 5), (2, 19), (3, 69)].into_iter().for_each(|(ns, now)| before.record(ns, 8, Time(now)));
        after.go_on(before.numbered());
        for recent in [&mut before, &mut after] {
            recent.record(4, 8, Time(69));
            assert_eq!((recent.summary(Time(69)).count, recent.summary(Time(69)).bytes), (4, 32));
            recent.record(5, 8, Time(75));
            assert_eq!((recent.summary(Time(75)).count, recent.summary(Time(75)).max_ns), (4, 5));
            assert_eq!(recent.summary(Time(139)).count, 1);
        }
    }

    #[test]
    fn an_observer_counts_each_duration_once() {
        let (mut recent, mut seen) = (Recent::new(7, 10), Seen::default());
        let mut unseen = |recent: &Recent| {
            let mut sum = Counts::default();
            recent.add_unseen(&mut seen, &mut sum);
            Summary::of([&sum].into_iter()).count
        };
        assert_eq!(unseen(&recent), 0);
        recent.record(1, 0, Time(5));
        assert_eq!((unseen(&recent), unseen(&recent)), (1, 0));
        // Some more of the same span, and of the next two.
        [6, 9, 12, 23, 24].into_iter().for_each(|now| recent.record(1, 0, Time(now)));
        assert_eq!((unseen(&recent), unseen(&recent)), (5, 0));
        // A span that serves again is another one.
        recent.record(1, 0, Time(95));
        assert_eq!((unseen(&recent), unseen(&recent)), (1, 0));
    }

    #[test]
    fn ram_is_taken_when_it_is_needed() {
        let mut recent = Recent::new(7, 10);
        let taken = |recent: &Recent| recent.ring.iter().flatten().count();
        assert_eq!(taken(&recent), 0);
        (0..1000).for_each(|_| recent.record(1, 0, Time(42)));
        assert_eq!(taken(&recent), 1);
        (0..1000).for_each(|now| recent.record(1, 0, Time(42 + now)));
        assert_eq!(taken(&recent), 7);
    }
}

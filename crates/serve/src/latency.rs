// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how long requests take and how many bytes they bring, by volume and by kind.
//!
//! The pump records each reply. The time runs from the moment at which a front-end has the request
//! to the moment at which the front-end has the answer. So it holds all that the daemon is to blame
//! for. A wait for buffers counts; a wait for a client that does not read doesn't. RAM: at most 98
//! KiB for each volume, none of which is taken before the volume is used.
//!
//! A request is counted in the minute alone. When a span of the minute is over, it is added to the
//! hour and to the day.

use flashfront_engine::{AnswerKind, Answered, OriginId, Time};
use serde::{Deserialize, Serialize};

mod counts;
mod cumulative;
mod recent;

pub use counts::{Counts, Summary};
pub use cumulative::{BOUNDS_NS, Cumulative};
pub use recent::{Recent, Seen};

/// The number of spans, and their length. With the running span they cover the last 60 to 70
/// seconds.
const SPANS: usize = 7;
const SPAN_NS: u64 = 10_000_000_000;
/// Spans of the hour: the last 60 to 70 minutes.
const HOUR: (usize, u64) = (7, 60 * SPAN_NS);
/// Spans of the day: the last 24 to 27 hours.
const DAY: (usize, u64) = (9, 18 * 60 * SPAN_NS);

/// Kinds of requests that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads that the cache answered alone.
    Hit,
    /// Reads that needed the origin for some part.
    Miss,
    /// Writes and write-zeroes.
    Write,
    /// FLUSHes.
    Flush,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Hit, Self::Miss, Self::Write, Self::Flush];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }

    const fn of(kind: AnswerKind) -> Option<Self> {
        Some(match kind {
            AnswerKind::Hit => Self::Hit,
            AnswerKind::Miss => Self::Miss,
            AnswerKind::Write => Self::Write,
            AnswerKind::Flush => Self::Flush,
            AnswerKind::Other => return None,
        })
    }
}

/// Requests of one volume and kind.
#[derive(Debug)]
struct Measured {
    since_start: Cumulative,
    minute: Recent,
    /// They lack the newest span of the minute.
    hour: Recent,
    day: Recent,
    /// The bytes of their payload since the start.
    bytes: u64,
}

impl Default for Measured {
    fn default() -> Self {
        let [minute, hour, day] = [(SPANS, SPAN_NS), HOUR, DAY].map(|(spans, span_ns)| Recent::new(spans, span_ns));
        Self { since_start: Cumulative::default(), minute, hour, day, bytes: 0 }
    }
}

impl Measured {
    fn record(&mut self, ns: u64, bytes: u64, now: Time) {
        if self.minute.is_over(now)
            && let Some((span, began)) = self.minute.newest()
        {
            self.hour.add(span, began);
            self.day.add(span, began);
        }
        self.minute.record(ns, bytes, now);
        self.since_start.record(ns);
        self.bytes += bytes;
    }

    /// The spans of the last minute, hour and day.
    fn spans<'a>(&'a self, now: Time) -> [Vec<&'a Counts>; 3] {
        let newest = self.minute.newest();
        let longer = |ring: &'a Recent| {
            let newest = newest.filter(|(_, began)| ring.covers(*began, now));
            ring.spans(now).chain(newest.map(|it| it.0)).collect()
        };
        [self.minute.spans(now).collect(), longer(&self.hour), longer(&self.day)]
    }
}

/// A kind of requests of a volume, as it is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Since the start of the daemon.
    pub since_start: Cumulative,
    /// The last minute.
    pub minute: Summary,
    /// The last hour.
    pub hour: Summary,
    /// The last day.
    pub day: Summary,
    /// Bytes of their payload since the start.
    pub bytes: u64,
}

/// Requests of one volume and kind, for the hand-over to another program: the spans have their
/// numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct HandedOver {
    since_start: Cumulative,
    minute: Vec<(u64, Counts)>,
    hour: Vec<(u64, Counts)>,
    day: Vec<(u64, Counts)>,
    bytes: u64,
}

/// The latencies of all volumes, for the hand-over to another program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LatencyFigures(Vec<(u32, [HandedOver; 4])>);

/// The latencies of all volumes.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// For how long the daemon had served before the clock began.
    before_ns: u64,
    /// The volumes, by their origin's id.
    volumes: Vec<Option<Box<[Measured; 4]>>>,
}

impl Latencies {
    /// Goes on with the requests of a daemon before this one. That had served for `before_ns` when
    /// the clock of this one began.
    pub(crate) fn go_on(&mut self, LatencyFigures(volumes): LatencyFigures, before_ns: u64) {
        self.before_ns = before_ns;
        for (id, kinds) in volumes {
            let measured = kinds.map(|it| {
                let mut measured = Measured { since_start: it.since_start, bytes: it.bytes, ..Measured::default() };
                measured.minute.go_on(it.minute);
                measured.hour.go_on(it.hour);
                measured.day.go_on(it.day);
                measured
            });
            *self.place(id) = Some(Box::new(measured));
        }
    }

    /// What another program goes on with.
    pub(crate) fn figures(&self) -> LatencyFigures {
        let figures = |it: &Measured| HandedOver {
            since_start: it.since_start.clone(),
            minute: it.minute.numbered(),
            hour: it.hour.numbered(),
            day: it.day.numbered(),
            bytes: it.bytes,
        };
        let volumes = (0..).zip(&self.volumes);
        LatencyFigures(volumes.filter_map(|(id, kinds)| Some((id, kinds.as_ref()?.each_ref().map(figures)))).collect())
    }

    /// The time since the daemon began to serve, whatever program that was.
    const fn since_begin(&self, now: Time) -> Time {
        Time(now.0 + self.before_ns)
    }

    fn place(&mut self, id: u32) -> &mut Option<Box<[Measured; 4]>> {
        let at = id as usize;
        if at >= self.volumes.len() {
            self.volumes.resize_with(at + 1, || None);
        }
        &mut self.volumes[at]
    }

    /// Records an answer.
    pub(crate) fn record(&mut self, answered: Answered, now: Time) {
        let Some(kind) = Kind::of(answered.kind) else { return };
        let at = self.since_begin(now);
        let measured = &mut self.place(answered.origin.0).get_or_insert_with(Box::default)[kind as usize];
        measured.record(now.since_ns(answered.since), u64::from(answered.bytes), at);
    }

    /// Counts the requests of a volume and a kind since the start.
    pub(crate) fn count(&self, OriginId(id): OriginId, kind: Kind) -> u64 {
        let kinds = self.volumes.get(id as usize).and_then(Option::as_ref);
        kinds.map_or(0, |kinds| kinds[kind as usize].since_start.count())
    }

    /// Forgets a volume that is gone.
    pub(crate) fn forget(&mut self, OriginId(id): OriginId) {
        if let Some(kinds) = self.volumes.get_mut(id as usize) {
            *kinds = None;
        }
    }

    /// Returns the requests and bytes of each kind since the start. Adds to `sums` the durations
    /// that the observer has not seen yet.
    pub(crate) fn observe(
        &self,
        OriginId(id): OriginId,
        seen: &mut [Seen; 4],
        sums: &mut [Counts; 4],
    ) -> [(u64, u64); 4] {
        let Some(Some(kinds)) = self.volumes.get(id as usize) else { return Default::default() };
        for ((kind, seen), sum) in kinds.iter().zip(seen).zip(sums) {
            kind.minute.add_unseen(seen, sum);
        }
        kinds.each_ref().map(|it| (it.since_start.count(), it.bytes))
    }

    /// Returns the durations of a volume, in the order of [`Kind::ALL`].
    pub(crate) fn of(&self, OriginId(id): OriginId, now: Time) -> [Durations; 4] {
        let Some(Some(kinds)) = self.volumes.get(id as usize) else { return Default::default() };
        let now = self.since_begin(now);
        kinds.each_ref().map(|it| {
            let [minute, hour, day] = it.spans(now).map(|spans| Summary::of(spans.into_iter()));
            Durations { since_start: it.since_start.clone(), minute, hour, day, bytes: it.bytes }
        })
    }

    /// Returns the requests of all volumes in the last minute, hour and day, in the order of
    /// [`Kind::ALL`].
    pub(crate) fn of_all(&self, now: Time) -> [[Summary; 4]; 3] {
        let now = self.since_begin(now);
        let mut all: [[Counts; 4]; 3] = Default::default();
        for (kind, measured) in self.volumes.iter().flatten().flat_map(|kinds| kinds.iter().enumerate()) {
            for (sum, spans) in all.iter_mut().zip(measured.spans(now)) {
                spans.into_iter().for_each(|span| sum[kind].add(span));
            }
        }
        all.each_ref().map(|kinds| kinds.each_ref().map(|counts| Summary::of([counts].into_iter())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_volume_and_its_kind() {
        let mut latencies = Latencies::default();
        let now = Time(100 * SPAN_NS);
        for (origin, kind) in
            [(2, AnswerKind::Miss), (2, AnswerKind::Miss), (0, AnswerKind::Flush), (0, AnswerKind::Other)]
        {
            let since = Time(now.0 - 1_000_000);
            latencies.record(Answered { origin: OriginId(origin), kind, since, bytes: 4096 }, now);
        }
        let counts = |origin| latencies.of(OriginId(origin), now).map(|it| (it.since_start.count(), it.minute.count));
        assert_eq!(counts(0), [(0, 0), (0, 0), (0, 0), (1, 1)]);
        assert_eq!(counts(1), [(0, 0); 4]);
        assert_eq!(counts(2), [(0, 0), (2, 2), (0, 0), (0, 0)]);
        assert_eq!(latencies.of(OriginId(2), now)[Kind::Miss as usize].minute.max_ns, 1_000_000);
        assert_eq!(latencies.of(OriginId(2), now).map(|it| it.bytes), [0, 8192, 0, 0]);
        // A clock that was read a moment earlier makes no time of centuries.
        latencies
            .record(Answered { origin: OriginId(1), kind: AnswerKind::Hit, since: Time(now.0 + 1), bytes: 0 }, now);
        assert_eq!(latencies.of(OriginId(1), now)[Kind::Hit as usize].minute.max_ns, 0);
    }

    #[test]
    fn a_volume_takes_no_more_ram_than_is_said() {
        let spans = SPANS + HOUR.0 + DAY.0;
        let of_a_kind = size_of::<Measured>() + spans * (size_of::<Counts>() + size_of::<u64>() * 2);
        assert!(4 * of_a_kind <= 98 << 10, "{} bytes", 4 * of_a_kind);
    }

    #[test]
    fn each_window_has_what_ended_in_it() {
        let mut latencies = Latencies::default();
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        for (origin, seconds) in [(0, 5), (1, 7), (0, 3_000), (0, 40_000), (0, 40_005), (0, 42_000), (0, 42_115)] {
            let since = Time(at(seconds).0 - 1_000_000);
            let answered = Answered { origin: OriginId(origin), kind: AnswerKind::Write, since, bytes: 4096 };
            latencies.record(answered, at(seconds));
        }
        let counts = |seconds| {
            let it = &latencies.of(OriginId(0), at(seconds))[Kind::Write as usize];
            assert_eq!(
                [it.minute.bytes, it.hour.bytes, it.day.bytes].map(|bytes| bytes / 4096),
                [it.minute.count, it.hour.count, it.day.count]
            );
            [it.minute.count, it.hour.count, it.day.count]
        };
        assert_eq!(counts(42_120), [1, 4, 6]);
        assert_eq!(counts(42_300), [0, 4, 6], "the newest span of the minute is over, and counts on");
        assert_eq!(counts(44_300), [0, 2, 6]);
        assert_eq!(counts(100_000), [0, 0, 4]);
        assert_eq!(counts(1_000_000), [0, 0, 0]);
        let all = latencies.of_all(at(42_120)).map(|kinds| kinds[Kind::Write as usize].count);
        assert_eq!(all, [1, 4, 7]);
    }
}

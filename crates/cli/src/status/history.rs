// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a daemon did in each of the last seconds, as rows of small strokes.

use std::collections::VecDeque;

use flashfront_serve::report::StatusReport;

use crate::human;

/// As many seconds are kept: the widest windows show no more.
const SECONDS: usize = 240;

/// What happened between two reports, so many seconds apart.
struct Between<'a> {
    before: &'a StatusReport,
    now: &'a StatusReport,
    seconds: f64,
}

impl Between<'_> {
    fn per_second(&self, count: fn(&StatusReport) -> u64) -> f64 {
        count(self.now).saturating_sub(count(self.before)) as f64 / self.seconds.max(1e-3)
    }

    /// The share of blocks read that were in the cache, if any were read.
    fn hits(&self) -> Option<f64> {
        let grown = |count: fn(&StatusReport) -> u64| count(self.now).saturating_sub(count(self.before));
        let (hits, misses) = (grown(|it| it.counters.read_hits), grown(|it| it.counters.read_misses));
        (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
    }
}

/// A row: its name, its value in a second, and how a value is written. The last is the value that
/// fills the row's height, if that is fixed.
struct Row {
    name: &'static str,
    value: fn(&Between<'_>) -> Option<f64>,
    text: fn(f64) -> String,
    full: Option<f64>,
}

const ROWS: [Row; 9] = [
    counted("reads", |it| Some(it.per_second(|it| it.counters.reads))),
    counted("writes", |it| Some(it.per_second(|it| it.counters.writes))),
    counted("flushes", |it| Some(it.per_second(|it| it.counters.flushes))),
    Row { name: "read hits", value: |it| it.hits(), text: |it| human::percent(Some(it)), full: Some(1.0) },
    sized("origin  r", |it| Some(it.per_second(|it| it.counters.origin_reads_bytes))),
    sized("origin  w", |it| Some(it.per_second(|it| it.counters.origin_writes_bytes))),
    sized("cache   r", |it| Some(it.per_second(|it| it.counters.cache_reads_bytes))),
    sized("cache   w", |it| Some(it.per_second(|it| it.counters.cache_writes_bytes))),
    sized("dirty", |it| Some((it.now.blocks_dirty * flashfront_engine::BLOCK_BYTES) as f64)),
];

const fn counted(name: &'static str, value: fn(&Between<'_>) -> Option<f64>) -> Row {
    Row { name, value, text: |it| human::count(it.round() as u64), full: None }
}

const fn sized(name: &'static str, value: fn(&Between<'_>) -> Option<f64>) -> Row {
    Row { name, value, text: |it| human::bytes(it.round() as u64), full: None }
}

/// The last seconds.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The value of each row, for each second.
    seconds: VecDeque<[Option<f64>; ROWS.len()]>,
}

impl History {
    /// Adds what happened between two reports, so many seconds apart.
    pub(super) fn add(&mut self, before: &StatusReport, now: &StatusReport, seconds: f64) {
        let between = Between { before, now, seconds };
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(ROWS.map(|row| (row.value)(&between)));
    }

    /// A heading and a row for each figure: now, over time, and the highest value of that time.
    pub(super) fn lines(&self, columns: usize, strokes: Strokes) -> Vec<String> {
        let wide = columns.saturating_sub(44).clamp(1, SECONDS);
        let heading =
            format!("{:<12}{:>12}  {:<wide$}{:>12}", "per second", "now", format!("the last {wide} s"), "highest");
        let mut lines = vec![heading];
        let from = self.seconds.len().saturating_sub(wide);
        for (nth, row) in ROWS.iter().enumerate() {
            let values: Vec<Option<f64>> = self.seconds.iter().skip(from).map(|it| it[nth]).collect();
            let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), row.text);
            let highest = values.iter().flatten().copied().reduce(f64::max);
            let drawn = strokes.draw(&values, row.full.or(highest).unwrap_or(0.0));
            let now = text(values.last().copied().flatten());
            // The newest is at the right, so that time moves to the left.
            lines.push(format!("{:<12}{now:>12}  {drawn:>wide$}{:>12}", row.name, text(highest)));
        }
        lines
    }
}

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strokes {
    /// Bars of eighths.
    Blocks,
    /// Letters, where the terminal's character set has no bars.
    Letters,
}

impl Strokes {
    /// What the locale's character set has.
    pub(super) fn of_locale() -> Self {
        let locale =
            ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|it| !it.is_empty()));
        Self::of(&locale.unwrap_or_default())
    }

    fn of(locale: &str) -> Self {
        let set = locale.to_ascii_lowercase().replace('-', "");
        if set.contains("utf8") { Self::Blocks } else { Self::Letters }
    }

    /// Each value as a stroke: nothing where there is no value, the lowest one for what is little
    /// or nothing.
    fn draw(self, values: &[Option<f64>], full: f64) -> String {
        let all: &[char] = match self {
            Self::Blocks => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            Self::Letters => &['_', '.', '-', '=', '+', '*', '%', '#'],
        };
        let stroke = |value: &Option<f64>| match value {
            None => ' ',
            Some(value) if full <= 0.0 || *value <= 0.0 => all[0],
            Some(value) => all[((value / full * all.len() as f64).ceil() as usize).clamp(1, all.len()) - 1],
        };
        values.iter().map(stroke).collect()
    }
}

#[cfg(test)]
mod tests {
    use flashfront_engine::Status;
    use flashfront_serve::report::Facts;

    use super::*;

    fn report(reads: u64, hits: u64) -> StatusReport {
        let mut report = StatusReport::new(&Status::default(), &Facts::default());
        report.counters.reads = reads;
        report.counters.read_hits = hits;
        report.counters.read_misses = reads - hits;
        report
    }

    #[test]
    fn values_are_strokes_of_their_height() {
        let values = [Some(0.0), Some(1.0), Some(4.0), Some(8.0), None];
        assert_eq!(Strokes::Blocks.draw(&values, 8.0), "▁▁▄█ ");
        assert_eq!(Strokes::Letters.draw(&values, 8.0), "__=# ");
        assert_eq!(Strokes::Blocks.draw(&[Some(0.0)], 0.0), "▁", "nothing at all");
        assert_eq!([Strokes::of("de_DE.UTF-8"), Strokes::of("en_US.utf8")], [Strokes::Blocks; 2]);
        assert_eq!([Strokes::of("C"), Strokes::of("")], [Strokes::Letters; 2]);
    }

    #[test]
    fn rows_tell_now_and_the_highest() {
        let mut history = History::default();
        let all = [report(0, 0), report(2000, 1000), report(2500, 1500), report(2500, 1500)];
        all.windows(2).for_each(|pair| history.add(&pair[0], &pair[1], 1.0));
        let lines = history.lines(80, Strokes::Blocks);
        assert_eq!(lines[0], "per second           now  the last 36 s                            highest");
        assert_eq!(lines[1], format!("reads                  0  {:>36}       2,000", "█▂▁"));
        assert_eq!(lines[4], format!("read hits              -  {:>36}     100.0 %", "▄█ "));
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    }

    #[test]
    fn a_long_history_keeps_its_newest_part_and_fits_any_window() {
        let mut history = History::default();
        for nth in 0..1000_u64 {
            history.add(&report(0, 0), &report(nth << 10, 0), 1.0);
        }
        assert_eq!(history.seconds.len(), SECONDS);
        for columns in [80, 81, 132, 500] {
            let lines = history.lines(columns, Strokes::Letters);
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{columns}: {lines:?}");
        }
    }
}

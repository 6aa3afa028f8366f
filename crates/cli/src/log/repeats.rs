// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which lines of a log that repeats itself are written, and counts the others.
//!
//! Lines are of one kind if the same place in the program says them of the same thing. [`FIRST`]
//! lines of each kind in [`WINDOW`] are written at once. Further lines are counted, and told as one
//! line when the window is over. As long as a kind goes on, it has one line in each window. The
//! clock is the caller's.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Lines of a kind that are written at once: enough to see whether they differ.
pub(super) const FIRST: u32 = 5;
/// The time for which lines of a kind are counted before they are told as one: 8,640 lines a day at
/// most.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Kinds that are told apart. Devices, volumes and sockets are fewer.
const KINDS_MAX: usize = 256;

/// Lines of one kind that were left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut<T> {
    /// How many.
    pub(super) lines: u64,
    /// The seconds in which they came.
    pub(super) seconds: u64,
    /// The last of them.
    pub(super) last: T,
}

#[derive(Debug)]
struct Window<T> {
    began: Instant,
    written: u32,
    left_out: u64,
    last: Option<T>,
}

/// The kinds of lines of the last seconds.
#[derive(Debug)]
pub(super) struct Repeats<K, T> {
    kinds: HashMap<K, Window<T>>,
}

impl<K, T> Default for Repeats<K, T> {
    fn default() -> Self {
        Self { kinds: HashMap::new() }
    }
}

impl<K: Eq + Hash, T> Repeats<K, T> {
    /// Whether a line is to be written now. If not, it is counted.
    pub(super) fn take(&mut self, kind: K, line: T, now: Instant) -> bool {
        if self.kinds.len() >= KINDS_MAX {
            // Repeats that have ended have no count to tell, or their count is told soon.
            self.kinds.retain(|_, window| window.left_out > 0 || now.duration_since(window.began) < WINDOW);
            if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&kind) {
                return true;
            }
        }
        let window = self.kinds.entry(kind).or_insert(Window { began: now, written: 0, left_out: 0, last: None });
        if window.left_out == 0 && now.duration_since(window.began) >= WINDOW {
            (window.began, window.written) = (now, 0);
        }
        if window.written < FIRST {
            window.written += 1;
            return true;
        }
        window.left_out += 1;
        window.last = Some(line);
        false
    }

    /// When [`Repeats::over`] has something to tell.
    pub(super) fn next(&self) -> Option<Instant> {
        self.kinds.values().filter(|window| window.left_out > 0).map(|window| window.began + WINDOW).min()
    }

    /// Returns the lines that were left out in windows that are over by now.
    ///
    /// A kind with lines left out begins its next window with all its lines used up, until it is
    /// silent for a whole one.
    pub(super) fn over(&mut self, now: Instant) -> Vec<LeftOut<T>> {
        let mut told = Vec::new();
        self.kinds.retain(|_, window| {
            let age = now.duration_since(window.began);
            if age < WINDOW {
                return true;
            }
            let left_out = window.tell(age);
            let goes_on = left_out.is_some();
            told.extend(left_out);
            (window.began, window.written) = (now, FIRST);
            goes_on
        });
        told
    }

    /// Returns the lines that were left out and are not told yet, however short a time ago.
    pub(super) fn end(&mut self, now: Instant) -> Vec<LeftOut<T>> {
        let windows = self.kinds.drain();
        windows.filter_map(|(_, mut window)| window.tell(now.duration_since(window.began))).collect()
    }
}

impl<T> Window<T> {
    fn tell(&mut self, age: Duration) -> Option<LeftOut<T>> {
        let lines = std::mem::take(&mut self.left_out);
        let seconds = age.as_secs().max(1);
        self.last.take().map(|last| LeftOut { lines, seconds, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log with a clock of its own, in seconds.
    struct World {
        start: Instant,
        repeats: Repeats<&'static str, u64>,
    }

    impl World {
        fn new() -> Self {
            Self { start: Instant::now(), repeats: Repeats::default() }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        /// How many of these lines are written at once.
        fn take(&mut self, kind: &'static str, lines: std::ops::Range<u64>, second: u64) -> usize {
            let now = self.at(second);
            lines.filter(|line| self.repeats.take(kind, *line, now)).count()
        }

        /// Returns what is told of lines left out: how many, in how many seconds, the last of them.
        fn told(&mut self, second: u64) -> Vec<(u64, u64, u64)> {
            let now = self.at(second);
            self.repeats.over(now).into_iter().map(|it| (it.lines, it.seconds, it.last)).collect()
        }
    }

    #[test]
    fn the_first_are_written_and_the_others_counted() {
        let mut world = World::new();
        assert_eq!(world.repeats.next(), None);
        assert_eq!(world.take("corrupt", 0..5, 0), 5);
        assert_eq!(world.repeats.next(), None, "nothing is left out");
        assert_eq!(world.take("corrupt", 5..4716, 1), 0);
        assert_eq!(world.take("refused", 0..3, 1), 3, "another kind");
        assert_eq!(world.repeats.next(), Some(world.at(10)));
        assert_eq!(world.told(9), []);
        assert_eq!(world.told(10), [(4711, 10, 4715)]);
        assert_eq!(world.repeats.next(), None);
    }

    #[test]
    fn what_goes_on_has_one_line_in_each_window_until_it_is_silent() {
        let mut world = World::new();
        assert_eq!(world.take("corrupt", 0..100, 0), 5);
        assert_eq!(world.told(10), [(95, 10, 99)]);
        assert_eq!(world.take("corrupt", 100..101, 19), 0, "it goes on");
        assert_eq!(world.told(20), [(1, 10, 100)]);
        assert_eq!(world.take("corrupt", 101..103, 31), 2, "it was silent for a whole window");
        assert_eq!(world.told(60), []);
    }

    #[test]
    fn what_comes_now_and_then_is_written_each_time() {
        let mut world = World::new();
        for second in (0..1000).step_by(3) {
            assert_eq!(world.take("refused", second..second + 1, second), 1, "at {second} s");
        }
    }

    #[test]
    fn what_is_left_out_is_told_at_the_end_too() {
        let mut world = World::new();
        world.take("corrupt", 0..7, 0);
        world.take("refused", 0..5, 0);
        let end = world.repeats.end(world.at(3));
        assert_eq!(end, [LeftOut { lines: 2, seconds: 3, last: 6 }]);
        assert_eq!(world.repeats.end(world.at(4)), []);
    }

    #[test]
    fn many_kinds_take_no_more_memory_and_lose_no_line() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        for kind in 0..10_000 {
            assert!(repeats.take(kind, (), start), "{kind}");
        }
        assert!(repeats.kinds.len() <= KINDS_MAX);
        assert!((0..100).all(|_| repeats.take(9999, (), start)), "not told apart, so not left out");
        let later = start + WINDOW;
        assert!((0..5).all(|_| repeats.take(9999, (), later)) && !repeats.take(9999, (), later), "there is room again");
    }
}

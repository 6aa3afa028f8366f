// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judges an origin alone, without its cache, where destage is ordered. It must hold what a plain
//! disk could hold after a power cut at some moment of the past.
//!
//! At a moment a disk may hold, in each sector, any write that had begun, unless a later one had
//! replaced it durably by then. So each content that is found stands for a time. The time goes from
//! the beginning of its write until a FLUSH made a later write of the sector durable. There must be
//! one moment that is in the times of all sectors. The rule is that of [`crate::oracle`], for a
//! moment of the past.

use std::collections::BTreeMap;
use std::fmt;

use crate::stamp::Content;

/// A write, discard or write-zeroes.
#[derive(Clone, Copy, Debug)]
struct Op {
    content: Content,
    start: u64,
    /// When it was acknowledged. Nothing is known of one that failed.
    end: Option<u64>,
    /// From when on a power cut leaves it, or what came later.
    durable: Option<u64>,
}

/// An origin that no disk could be.
#[derive(Clone, Debug)]
pub(crate) struct Disorder {
    origin: usize,
    /// The sector whose content is the newest, and when its write began.
    newest: (u64, Content, u64),
    /// A sector that lacks what was durable by then, and since when it was.
    lacking: (u64, Content, u64),
}

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, newest, lacking } = self;
        write!(
            f,
            "the bare origin {origin} is out of order: sector {} has {:?}, begun at {}, but sector {} still has {:?}, \
             durably replaced at {}",
            newest.0, newest.1, newest.2, lacking.0, lacking.1, lacking.2
        )
    }
}

/// What was written to each sector, ever.
#[derive(Clone, Debug)]
pub(crate) struct History {
    origins: Vec<BTreeMap<u64, Vec<u32>>>,
    ops: Vec<Op>,
    /// Acknowledged writes of each origin that no flush has covered.
    undurable: Vec<Vec<u32>>,
    /// When the server of each origin last lost what no flush had covered.
    lost_at: Vec<u64>,
}

impl History {
    /// The history of so many origins. All their sectors hold write 0.
    #[must_use]
    pub(crate) fn new(origins: usize) -> Self {
        let first = Op { content: Content::Write(0), start: 0, end: Some(0), durable: Some(0) };
        Self {
            origins: vec![BTreeMap::new(); origins],
            ops: vec![first],
            undurable: vec![Vec::new(); origins],
            lost_at: vec![0; origins],
        }
    }

    /// A write begins, with the next number.
    pub(crate) fn begin(&mut self, origin: usize, sector: u64, sectors: u64, content: Content, start: u64) {
        let op = self.ops.len() as u32;
        self.ops.push(Op { content, start, end: None, durable: None });
        for sector in sector..sector + sectors {
            self.origins[origin].entry(sector).or_default().push(op);
        }
    }

    /// A write was acknowledged, and is durable if that was asked for.
    pub(crate) fn end(&mut self, origin: usize, op: u32, durable: bool, now: u64) {
        let it = &mut self.ops[op as usize];
        (it.end, it.durable) = (Some(now), durable.then_some(now));
        if !durable && it.start > self.lost_at[origin] {
            self.undurable[origin].push(op);
        }
    }

    /// A FLUSH that began at `start` was acknowledged.
    pub(crate) fn flushed(&mut self, origin: usize, start: u64, now: u64) {
        let ops = &mut self.ops;
        self.undurable[origin].retain(|&op| {
            let covered = ops[op as usize].end.is_some_and(|end| end < start);
            if covered {
                ops[op as usize].durable = Some(now);
            }
            !covered
        });
    }

    /// A FLUSH failed, and no later one makes sure of what came before it.
    pub(crate) fn forget_undurable(&mut self, origin: usize) {
        self.undurable[origin].clear();
    }

    /// The server of an origin may have lost what no FLUSH had covered, and what was in flight.
    pub(crate) fn lose(&mut self, origin: usize, now: u64) {
        self.undurable[origin].clear();
        self.lost_at[origin] = now;
    }

    /// What no FLUSH had covered may be lost.
    pub(crate) fn crashed(&mut self) {
        self.undurable.iter_mut().for_each(Vec::clear);
    }

    /// The times for which a content of a sector stands, from the earliest on.
    fn times(&self, origin: usize, sector: u64, found: Content) -> Vec<(u64, u64)> {
        let written = self.origins[origin].get(&sector).map_or(&[][..], Vec::as_slice);
        let all = || [0].into_iter().chain(written.iter().copied()).map(|op| self.ops[op as usize]);
        let matches = |op: &Op| op.content == found || op.content == Content::Any;
        let until = |op: Op| {
            let later = all().filter(|other| op.end.is_some_and(|end| other.start > end && other.end.is_some()));
            later.filter_map(|other| other.durable).min().unwrap_or(u64::MAX)
        };
        all().filter(matches).map(|op| (op.start, until(op))).filter(|(from, until)| from < until).collect()
    }

    /// Judges the contents of an origin's sectors.
    ///
    /// # Errors
    /// When no disk could hold that.
    pub(crate) fn judge(&self, origin: usize, contents: &[Content]) -> Result<(), Disorder> {
        let times: Vec<_> = (0..).zip(contents).map(|(sector, found)| self.times(origin, sector, *found)).collect();
        // A sector may be right at several times. The moment is the earliest that no sector is
        // later than. Each round it can only go up.
        let (mut moment, mut newest) = (0, 0);
        loop {
            let mut moved = false;
            for (sector, times) in times.iter().enumerate() {
                let Some(from) = times.iter().filter(|it| it.1 > moment).map(|it| it.0).min() else {
                    let until = times.iter().map(|it| it.1).max().unwrap_or(0);
                    let begun = (newest as u64, contents[newest], moment);
                    return Err(Disorder { origin, newest: begun, lacking: (sector as u64, contents[sector], until) });
                };
                if from > moment {
                    (moment, newest, moved) = (from, sector, true);
                }
            }
            if !moved {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: fn(u32) -> Content = Content::Write;

    /// Write 1 of sector 0, FLUSH, write 2 of sector 1, FLUSH, write 3 of sector 0.
    fn history() -> History {
        let mut history = History::new(1);
        history.begin(0, 0, 1, W(1), 1);
        history.end(0, 1, false, 2);
        history.flushed(0, 3, 4);
        history.begin(0, 1, 1, W(2), 5);
        history.end(0, 2, false, 6);
        history.flushed(0, 7, 8);
        history.begin(0, 0, 1, W(3), 9);
        history.end(0, 3, false, 10);
        history
    }

    #[test]
    fn what_a_flush_came_after_is_not_there_before_what_came_before_it() {
        let history = history();
        for right in [[W(0), W(0)], [W(1), W(0)], [W(1), W(2)], [W(3), W(2)]] {
            assert!(history.judge(0, &right).is_ok(), "{right:?}");
        }
        for wrong in [[W(0), W(2)], [W(3), W(0)], [W(2), W(2)]] {
            assert!(history.judge(0, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn between_two_flushes_any_order_is_right() {
        let mut history = History::new(1);
        for (op, sector) in [(1, 0), (2, 1), (3, 0)] {
            history.begin(0, sector, 1, W(op), u64::from(op) * 2);
            history.end(0, op, false, u64::from(op) * 2 + 1);
        }
        for right in [[W(0), W(2)], [W(3), W(0)], [W(1), W(2)]] {
            assert!(history.judge(0, &right).is_ok(), "{right:?}");
        }
    }

    #[test]
    fn zeroes_may_be_of_either_of_two_writes() {
        let mut history = history();
        history.begin(0, 1, 1, Content::Zero, 11);
        history.end(0, 4, true, 12);
        history.begin(0, 0, 1, Content::Zero, 13);
        history.end(0, 5, true, 14);
        assert!(history.judge(0, &[Content::Zero, Content::Zero]).is_ok());
        assert!(history.judge(0, &[Content::Zero, W(2)]).is_err());
        assert!(history.judge(0, &[W(3), Content::Zero]).is_ok());
    }
}

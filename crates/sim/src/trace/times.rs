// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds records whose time is damaged, by the times of the records before and behind them.
//!
//! A time is damaged if it is later than both neighbours, or earlier than both. It must be so by
//! more than [`FAR_NS`], and by more than the neighbours are apart. Behind a lasting step the next
//! record is near, so nothing is damaged. The first record and the last one have one neighbour, and
//! are believed. A record is held back only while its time is far from the one before.

use std::collections::VecDeque;

use super::item::Item;
use super::record::Record;
use super::report::{Bad, Position, Reason};

/// Times of processors that are not in step, or in whole seconds, are never so far apart.
pub const FAR_NS: u64 = 10_000_000_000;

/// Follows the times of records.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The time of the last record that was believed.
    before: Option<u64>,
    /// A record whose time is far from the one before, that time, and the complaint about it.
    held: Option<(Record, u64, Bad)>,
    /// Records that are believed: two at most.
    ready: VecDeque<Record>,
}

impl Times {
    /// The next record that is believed, if any is known.
    pub(super) fn next(&mut self) -> Option<Record> {
        self.ready.pop_front()
    }

    /// The complaint about a line, if the record in it may have to be held back.
    pub(super) fn complaint(&self, item: &Item, place: Position, line: &[u8]) -> Option<Bad> {
        let Item::Record(Record { time_ns: Some(at), .. }) = item else { return None };
        let held = self.held.as_ref().map(|it| it.1);
        let suspect = self.before.into_iter().chain(held).any(|it| is_far(it, *at));
        suspect.then(|| Bad::new(place, Reason::TimeOff, line))
    }

    /// Takes a record in. Returns the complaint about the record that was held back, if its time
    /// turns out to be damaged.
    pub(super) fn add(&mut self, record: Record, complaint: Option<Bad>) -> Option<Bad> {
        let damaged = self.judge(record.time_ns);
        let far = record.time_ns.filter(|at| self.before.is_some_and(|before| is_far(before, *at)));
        match far.zip(complaint) {
            Some((at, complaint)) => self.held = Some((record, at, complaint)),
            None => self.believe(record),
        }
        damaged
    }

    /// Ends the trace: a record that is held back is believed.
    pub(super) fn end(&mut self) {
        self.judge(None);
    }

    /// Judges the record that is held back by the time behind it.
    fn judge(&mut self, behind: Option<u64>) -> Option<Bad> {
        let (record, at, complaint) = self.held.take()?;
        if self.before.zip(behind).is_some_and(|(before, behind)| is_damaged(before, at, behind)) {
            return Some(complaint);
        }
        self.believe(record);
        None
    }

    fn believe(&mut self, record: Record) {
        self.before = record.time_ns.or(self.before);
        self.ready.push_back(record);
    }
}

fn is_far(one: u64, other: u64) -> bool {
    one.abs_diff(other) > FAR_NS
}

fn is_damaged(before: u64, at: u64, behind: u64) -> bool {
    let off = at.abs_diff(before).min(at.abs_diff(behind));
    (at > before) == (at > behind) && off > FAR_NS && off > before.abs_diff(behind)
}

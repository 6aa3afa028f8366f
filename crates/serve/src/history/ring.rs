// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of the history: the newest steps of one length, each a row of values.
//!
//! Rows are numbered by the time at which their step began, in steps. Steps without a record are
//! empty rows. Memory is asked for once; the kernel gives pages of it as rows come.

use flashfront_engine::Time;
use serde::{Deserialize, Serialize};

use super::series::{self, Moment, TRAFFIC_WIDTH, WHOLE};
use super::{Fresh, NS_PER_S, Value};

/// Values of the daemon, before those of the volumes.
const OWN_WIDTH: usize = TRAFFIC_WIDTH + WHOLE.len();

/// The rows of a ring, for the hand-over to another program; their values go beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RingFigures {
    step_ns: u64,
    begin: u64,
    end: u64,
}

/// The newest steps of one length.
#[derive(Debug)]
pub(super) struct Ring {
    step_ns: u64,
    rows_max: usize,
    width: usize,
    /// The rows, one behind the other; in turn once there are `rows_max`.
    values: Vec<Value>,
    /// The number of the first row that there ever was, and of the step that is running.
    begin: u64,
    end: u64,
    /// How it was when the running step began, or when the last one was recorded.
    before: Moment,
    began: Time,
    /// How long requests of the running step took: of all volumes, and of each.
    took: Vec<Fresh>,
}

impl Ring {
    pub(super) fn new(step_ns: u64, rows_max: usize, now: Time, before: Moment) -> Self {
        let volumes = before.volumes.len().min(super::VOLUMES_MAX);
        let width = OWN_WIDTH + volumes * TRAFFIC_WIDTH;
        let begin = now.0 / step_ns;
        let took = (0..=volumes).map(|_| Fresh::default()).collect();
        Self {
            step_ns,
            rows_max,
            width,
            values: Vec::with_capacity(rows_max * width),
            begin,
            end: begin,
            before,
            began: now,
            took,
        }
    }

    /// What another program goes on with; the values are put behind `values`.
    pub(super) fn figures(&self, values: &mut Vec<u8>) -> RingFigures {
        self.values.iter().for_each(|value| values.extend(value.0.to_le_bytes()));
        RingFigures { step_ns: self.step_ns, begin: self.begin, end: self.end }
    }

    /// Goes on with the rows of another ring, which followed so many volumes. Takes them off the
    /// beginning of `values`; `None` if they make no such ring. What is followed from now on is to
    /// be said next.
    pub(super) fn go_on(&mut self, earlier: &RingFigures, followed: usize, values: &mut &[u8]) -> Option<()> {
        let width = OWN_WIDTH + followed * TRAFFIC_WIDTH;
        let rows = earlier.end.checked_sub(earlier.begin)?.min(self.rows_max as u64) as usize;
        let (own, rest) = values.split_at_checked(rows * width * size_of::<f32>())?;
        *values = rest;
        if earlier.step_ns != self.step_ns || earlier.end > self.end || followed > super::VOLUMES_MAX {
            return None;
        }
        self.values = own.as_chunks().0.iter().map(|bytes| Value(f32::from_le_bytes(*bytes))).collect();
        (self.width, self.begin, self.end) = (width, earlier.begin, earlier.end);
        self.took = (0..=followed).map(|_| Fresh::default()).collect();
        // `follow` begins the rates of a volume without earlier counters with its counters of now.
        self.before.volumes.clear();
        Some(())
    }

    /// Follows volumes that were at these places before.
    pub(super) fn follow(&mut self, from: &[Option<usize>], moment: &Moment) {
        let followed = self.took.len() - 1;
        let places = from.iter().map(|at| at.filter(|at| *at < followed));
        let places: Vec<Option<usize>> = places.take(super::VOLUMES_MAX).collect();
        let width = OWN_WIDTH + places.len() * TRAFFIC_WIDTH;
        let mut values = Vec::with_capacity(self.rows_max * width);
        for row in self.values.chunks_exact(self.width) {
            values.extend_from_slice(&row[..OWN_WIDTH]);
            for place in &places {
                match place.map(|at| OWN_WIDTH + at * TRAFFIC_WIDTH) {
                    Some(begin) => values.extend_from_slice(&row[begin..begin + TRAFFIC_WIDTH]),
                    None => values.extend_from_slice(&[Value::NONE; TRAFFIC_WIDTH]),
                }
            }
        }
        (self.values, self.width) = (values, width);
        let took = places.iter().map(|place| place.map(|at| self.took[at + 1].clone()).unwrap_or_default());
        self.took = [self.took[0].clone()].into_iter().chain(took).collect();
        // What a new volume did before is not told.
        let before = from
            .iter()
            .zip(&moment.volumes)
            .map(|(at, now)| at.and_then(|at| self.before.volumes.get(at)).copied().unwrap_or(*now));
        self.before.volumes = before.collect();
    }

    /// When the running step ends.
    pub(super) const fn ends(&self) -> Time {
        Time((self.end + 1).saturating_mul(self.step_ns))
    }

    pub(super) const fn step_s(&self) -> u64 {
        self.step_ns / NS_PER_S
    }

    /// The seconds that the ring covers when it is full.
    pub(super) const fn covers_s(&self) -> u64 {
        self.step_s() * self.rows_max as u64
    }

    pub(super) fn record(&mut self, now: Time, moment: &Moment, fresh: &[Fresh]) {
        let (all, volumes) = self.took.split_at_mut(1);
        for (sum, fresh) in volumes.iter_mut().zip(fresh) {
            for kind in 0..fresh.len() {
                sum[kind].add(&fresh[kind]);
            }
        }
        for (kind, fresh) in fresh.iter().flat_map(|it| it.iter().enumerate()) {
            all[0][kind].add(fresh);
        }
        let step = now.0 / self.step_ns;
        if step <= self.end {
            return;
        }
        // Steps that ended without a record.
        let missed = step - 1 - self.end;
        if missed < self.rows_max as u64 {
            (0..missed).for_each(|_| self.push(&vec![Value::NONE; self.width]));
        } else {
            self.values.clear();
            (self.begin, self.end) = (step - 1, step - 1);
        }
        self.push(&self.row(now, moment));
        self.before.clone_from(moment);
        self.began = now;
        self.took.iter_mut().for_each(|it| *it = Fresh::default());
    }

    fn row(&self, now: Time, moment: &Moment) -> Vec<Value> {
        let seconds = now.since_ns(self.began) as f64 / NS_PER_S as f64;
        let mut row = Vec::with_capacity(self.width);
        series::push_traffic(&mut row, &self.before.traffic(), &moment.traffic(), &self.took[0], seconds);
        series::push_whole(&mut row, &self.before.whole, &moment.whole, seconds);
        let volumes = self.before.volumes.iter().zip(&moment.volumes).zip(&self.took[1..]);
        for ((before, now), took) in volumes {
            series::push_traffic(&mut row, before, now, took, seconds);
        }
        row.resize(self.width, Value::NONE);
        row
    }

    fn push(&mut self, row: &[Value]) {
        let at = self.place(self.end);
        if at == self.values.len() {
            self.values.extend_from_slice(row);
        } else {
            self.values[at..at + self.width].copy_from_slice(row);
        }
        self.end += 1;
    }

    /// The place of the row with that number, which is or was there.
    const fn place(&self, number: u64) -> usize {
        ((number - self.begin) as usize % self.rows_max) * self.width
    }

    /// The number behind that of the newest row.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// A column, from the row of that number on; nothing for rows that are not there.
    pub(super) fn column(&self, column: usize, from: i64) -> Vec<Value> {
        let oldest = self.end.saturating_sub(self.rows_max as u64).max(self.begin);
        let value = |number: i64| match u64::try_from(number) {
            Ok(number) if number >= oldest => self.values[self.place(number) + column],
            _ => Value::NONE,
        };
        (from..self.end.cast_signed()).map(value).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        let before = self.before.volumes.capacity() * size_of::<series::Traffic>();
        self.values.capacity() * size_of::<Value>() + self.took.capacity() * size_of::<Fresh>() + before
    }
}

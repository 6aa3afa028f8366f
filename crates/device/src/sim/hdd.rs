// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hard disk: one arm, a turning platter, a queue and a write cache.
//!
//! Places lie on one spiral from the outermost track inwards. A place has an angle, and the
//! platter's angle is the time. To get to a place costs the arm's way and the rest of the turn. A
//! place ahead on the track costs just the turning until it comes by. So sorted writes with small
//! gaps run at the speed of the platter, and destage lives on that. Of the oldest few I/Os that it
//! holds, the drive chooses the one that it can reach first. A flush is no queued command (ATA
//! FLUSH CACHE EXT): later I/O waits until the write cache is empty.
//!
//! Clients come first, and cached writes when there is nothing else to do. Behind a sequential
//! reader there is: to read on. Once the cache is half full both sides take turns. A turn has as
//! many I/Os as the drive chooses among (fewer if no more wait). A sequential reader's turn is at
//! least as long as the read-ahead. Bytes that were read ahead stay in the buffer when the head
//! leaves, and are answered from there.
//!
//! Calibrated against a WD Re 4 TB (docs/laboratory/models.md; test: `calibration`). Several
//! surfaces are not modelled: track and cylinder switches are within the skew, as sustained rates
//! have them. Reads from the write cache, more than one stream of read-ahead, and remapped sectors
//! are missing, too.

use std::collections::{BTreeSet, VecDeque};

use flashfront_engine::{Op, Time};

use super::kind::{longer, slower};
use super::model::{Model, ModelIo};

/// A hard disk. The default is the WD Re 4 TB (WD4000FYYZ, 7200 rpm, SATA) of the 2015 comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HddSpec {
    /// The time of a turn (8.33 ms at 7200 rpm).
    pub turn_ns: u64,
    /// Bytes per second under the head at the outermost track (178 MB/s: the sequential rows).
    pub outer_bytes_per_s: u64,
    /// The innermost track's part of that, in percent (50: data sheets and public scans of such
    /// disks).
    pub inner_percent: u32,
    /// The shortest seek and the settling after any (fitted to random reads within 8 GiB, one at a
    /// time).
    pub settle_ns: u64,
    /// A seek over the whole disk. In between the time grows with the square root of the distance,
    /// the head accelerating half the way and braking half (Ruemmler and Wilkes 1994). 15 ms make a
    /// mean of 8.6, what such disks' sheets say.
    pub full_seek_ns: u64,
    /// A command's way through controller and cable (0.1 ms).
    pub command_ns: u64,
    /// The bytes a second that the cable carries (SATA 6 Gbit/s, 550 MB/s).
    pub cable_bytes_per_s: u64,
    /// The number of waiting I/Os that the drive chooses among, and of I/Os that make a turn. It is
    /// fitted to random reads, 32 at a time, and to cached random writes.
    pub choice: u32,
    /// Size of the volatile write cache; 0 = off: writes end when they are on the platter. (64
    /// MiB.)
    pub write_cache_bytes: u64,
    /// How far the drive reads on when nothing else is asked; behind a sequential reader also
    /// before it turns to its write cache. (2 MiB, fitted to sequential reads beside writes: tasks
    /// 6 and 14 of the comparison of 2015.)
    pub read_ahead_bytes: u64,
    /// The number of others of its side that pass the oldest I/O over at most (128: a quarter of a
    /// second of random I/O).
    pub passes_max: u32,
    /// The device is the beginning of a disk of this size, if that's larger: seeks go by their
    /// share of the whole one. (0.)
    pub whole_bytes: u64,
}

impl Default for HddSpec {
    fn default() -> Self {
        Self {
            turn_ns: 8_333_333,
            outer_bytes_per_s: 178_000_000,
            inner_percent: 50,
            settle_ns: 1_250_000,
            full_seek_ns: 15_000_000,
            command_ns: 100_000,
            cable_bytes_per_s: 550_000_000,
            choice: 20,
            write_cache_bytes: 64 << 20,
            read_ahead_bytes: 2 << 20,
            passes_max: 128,
            whole_bytes: 0,
        }
    }
}

impl HddSpec {
    /// A disk that takes `times` as long for everything. Tracks hold as much.
    #[must_use]
    pub(super) fn scaled(self, times: f64) -> Self {
        Self {
            turn_ns: longer(self.turn_ns, times),
            outer_bytes_per_s: slower(self.outer_bytes_per_s, times),
            settle_ns: longer(self.settle_ns, times),
            full_seek_ns: longer(self.full_seek_ns, times),
            command_ns: longer(self.command_ns, times),
            cable_bytes_per_s: slower(self.cable_bytes_per_s, times),
            ..self
        }
    }
}

/// Nearer than this behind the head is under the head: what a float may be off, and the gap between
/// two sectors.
const SLACK_TURNS: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
struct Queued {
    number: u64,
    at: Time,
    offset: u64,
    len: u64,
    write: bool,
    /// A cached write: answered already, the platter is still to be written.
    answered: bool,
    /// How many others were served while it was the oldest.
    passed: u32,
}

/// Bytes that the head has read of its own accord, or is reading.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// The end of the range that was asked for, and when the head was there.
    from: u64,
    since: Time,
    /// When the head left for something else. What it had read by then stays in the buffer.
    until: Option<Time>,
    /// Behind a sequential reader: how far the head reads before it turns to the write cache.
    stays_to: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Hdd {
    spec: HddSpec,
    size_bytes: u64,
    /// The place of the head: the end of the last I/O.
    head: u64,
    /// When the head was last busy.
    free_at: Time,
    serving: Option<(Time, Queued)>,
    /// I/Os that a client waits for, by age: reads, and writes that are not cached.
    waited: VecDeque<Queued>,
    /// Cached writes, by age.
    cached: VecDeque<Queued>,
    /// Writes for which there is no room in the cache, by age.
    no_room: VecDeque<Queued>,
    /// Numbers of all writes that are not on the platter.
    unwritten: BTreeSet<u64>,
    /// A flush that waits until all before it is on the platter, and since when.
    flush: Option<(u64, Time)>,
    /// I/Os that came after the flush.
    held: VecDeque<ModelIo>,
    /// I/Os that end without the head, and when.
    answers: Vec<(Time, u64)>,
    cached_bytes: u64,
    ahead: Option<Ahead>,
    /// Whether the head was last with a cached write.
    from_cached: bool,
    /// I/Os that are left of this turn.
    turn_left: u32,
}

impl Hdd {
    pub(super) fn new(spec: HddSpec, size_bytes: u64) -> Self {
        Self {
            spec,
            size_bytes: size_bytes.max(spec.whole_bytes),
            head: 0,
            free_at: Time(0),
            serving: None,
            waited: VecDeque::new(),
            cached: VecDeque::new(),
            no_room: VecDeque::new(),
            unwritten: BTreeSet::new(),
            flush: None,
            held: VecDeque::new(),
            answers: Vec::new(),
            cached_bytes: 0,
            ahead: None,
            from_cached: false,
            turn_left: 0,
        }
    }

    /// Returns the turns of the platter from the beginning of the disk to a place, along the
    /// spiral.
    ///
    /// With constant density a track holds as much as it is long. The radius falls with the root of
    /// what lies outside of it.
    fn turns(&self, offset: u64) -> f64 {
        let inner = f64::from(self.spec.inner_percent) / 100.0;
        let lost = 1.0 - inner * inner;
        let outer_track = self.spec.outer_bytes_per_s as f64 * self.spec.turn_ns as f64 / 1e9;
        let size = self.size_bytes as f64;
        if lost <= 0.0 {
            return offset as f64 / outer_track;
        }
        2.0 * size / (lost * outer_track) * (1.0 - (1.0 - lost * offset as f64 / size).sqrt())
    }

    fn turn_ns(&self, turns: f64) -> u64 {
        (turns * self.spec.turn_ns as f64) as u64
    }

    fn transfer_ns(&self, offset: u64, len: u64) -> u64 {
        self.turn_ns(self.turns(offset + len) - self.turns(offset))
    }

    fn cable_ns(&self, len: u64) -> u64 {
        self.spec.command_ns + len.saturating_mul(1_000_000_000) / self.spec.cable_bytes_per_s
    }

    /// Time from `start` until the head is over a place.
    fn reach_ns(&self, start: Time, offset: u64) -> u64 {
        let (here, there) = (self.turns(self.head), self.turns(offset));
        let ahead = there - here;
        let seek_ns = if (0.0..1.0).contains(&ahead) {
            0
        } else {
            let share = (offset.abs_diff(self.head) as f64 / self.size_bytes as f64).sqrt();
            let (settle, full) = (self.spec.settle_ns, self.spec.full_seek_ns);
            settle + (full.saturating_sub(settle) as f64 * share) as u64
        };
        let angle = start.plus_ns(seek_ns).0 as f64 / self.spec.turn_ns as f64;
        let wait = (there - angle).rem_euclid(1.0);
        seek_ns + if wait > 1.0 - SLACK_TURNS { 0 } else { self.turn_ns(wait) }
    }

    /// When the head comes, or came, to the end of a read of its own accord.
    fn read_ahead_end(&self, offset: u64, len: u64) -> Option<Time> {
        let ahead = self.ahead?;
        let ahead_bytes = offset.checked_sub(ahead.from)? + len;
        let end = ahead.since.plus_ns(self.transfer_ns(ahead.from, ahead_bytes));
        (ahead_bytes <= self.spec.read_ahead_bytes && ahead.until.is_none_or(|until| end <= until)).then_some(end)
    }

    /// A read is over then, and the head reads on.
    fn read_on(&mut self, offset: u64, len: u64, end: Time) {
        let from = offset + len;
        let far = self.spec.read_ahead_bytes;
        let before = self.ahead;
        let follows = before.is_some_and(|it| offset.checked_sub(it.from).is_some_and(|gap| gap < far));
        // While the cache is more than half full, I/Os that profit from a stay don't make it
        // longer.
        let stays = before.filter(|it| it.until.is_none() && self.over_half());
        let stays_to = follows.then(|| stays.and_then(|it| it.stays_to).unwrap_or(from + far));
        let (since, until) = match (before, self.read_ahead_end(offset, len)) {
            (Some(before), Some(passed)) => {
                // It came no further than the buffer is large, however long it had.
                let came_to = self.transfer_ns(from, (before.from + far).saturating_sub(from));
                let stopped = before.until.unwrap_or(end).min(end);
                (passed.min(end).max(Time(stopped.0.saturating_sub(came_to))), before.until)
            }
            _ => (end, None),
        };
        self.ahead = Some(Ahead { from, since, until, stays_to });
    }

    /// The time until which the head stays behind a sequential reader, though no I/O asks for it.
    fn stays_until(&self) -> Option<Time> {
        let ahead = self.ahead.filter(|ahead| ahead.until.is_none())?;
        let further = ahead.stays_to.filter(|_| self.flush.is_none())?.saturating_sub(ahead.from);
        Some(ahead.since.plus_ns(self.transfer_ns(ahead.from, further)))
    }

    /// When an I/O that is begun at `start` leaves the platter.
    fn end_of(&self, start: Time, queued: &Queued) -> Time {
        let fresh = start.plus_ns(self.reach_ns(start, queued.offset) + self.transfer_ns(queued.offset, queued.len));
        let ahead = Some(queued).filter(|it| !it.write).and_then(|it| self.read_ahead_end(it.offset, it.len));
        ahead.map_or(fresh, |end| end.max(start).min(fresh))
    }

    fn over_half(&self) -> bool {
        self.cached_bytes * 2 > self.spec.write_cache_bytes
    }

    /// Whether the head goes to a cached write next.
    ///
    /// Cached writes are the drive's own business while no client waits. Once they fill half of the
    /// cache both sides have the head in turn. None: it stays where it reads, or there is nothing
    /// to do.
    fn turn(&self, start: Time) -> Option<bool> {
        let stays = self.stays_until().is_some_and(|until| start < until);
        match (self.waited.is_empty(), self.cached.is_empty()) {
            (true, true) => None,
            (false, true) => Some(false),
            (true, false) => (!stays).then_some(true),
            (false, false) if !self.over_half() => Some(false),
            (false, false) => Some(if self.from_cached { self.turn_left > 0 } else { self.turn_left == 0 && !stays }),
        }
    }

    /// Returns the first of cached writes that follow one another, from which on they are written.
    /// Otherwise those before it would stay behind, and cost a turn later.
    fn chain_start(&self, mut nth: usize, share: usize) -> usize {
        let before = |nth: usize| {
            let mut there = self.cached.iter().take(share);
            there.position(|it| it.offset + it.len == self.cached[nth].offset)
        };
        for _ in 0..share {
            let Some(earlier) = before(nth) else { break };
            nth = earlier;
        }
        nth
    }

    /// Puts the head to the next I/O, if it is idle and there is one.
    fn serve(&mut self, now: Time) {
        if self.serving.is_some() {
            return;
        }
        let start = self.free_at.max(now);
        let Some(from_cached) = self.turn(start) else { return };
        let share = self.spec.choice.max(1) as usize;
        let queue = if from_cached { &self.cached } else { &self.waited };
        let due = queue.front().is_some_and(|it| it.passed >= self.spec.passes_max);
        let mut nth = 0;
        if !due {
            let there = queue.iter().take(share).enumerate();
            let near = there.map(|(nth, queued)| (self.end_of(start, queued), queued.number, nth)).min();
            nth = near.map_or(0, |(_, _, nth)| nth);
            if from_cached {
                nth = self.chain_start(nth, share);
            }
        }
        let end = self.end_of(start, &queue[nth]);
        let queue = if from_cached { &mut self.cached } else { &mut self.waited };
        if nth > 0
            && let Some(oldest) = queue.front_mut()
        {
            oldest.passed += 1;
        }
        let Some(next) = queue.remove(nth) else { return };
        self.turn_left =
            if from_cached == self.from_cached { self.turn_left } else { self.spec.choice }.saturating_sub(1);
        self.from_cached = from_cached;
        if next.write {
            self.ahead = self.ahead.map(|ahead| Ahead { until: ahead.until.or(Some(start)), ..ahead });
        } else {
            self.read_on(next.offset, next.len, end);
        }
        self.serving = Some((end, next));
    }

    fn finish(&mut self, end: Time, queued: Queued) {
        self.head = queued.offset + queued.len;
        self.free_at = end;
        self.serving = None;
        if queued.write {
            self.unwritten.remove(&queued.number);
        }
        if queued.answered {
            self.cached_bytes -= queued.len;
            self.fill_cache(end);
        } else {
            self.answers.push((end.max(queued.at.plus_ns(self.cable_ns(queued.len))), queued.number));
        }
        self.end_flush(end);
    }

    /// Takes writes into the cache while there is room.
    fn fill_cache(&mut self, now: Time) {
        while let Some(&write) = self.no_room.front() {
            if self.cached_bytes + write.len > self.spec.write_cache_bytes {
                return;
            }
            self.no_room.pop_front();
            self.cached_bytes += write.len;
            self.answers.push((now.max(write.at.plus_ns(self.cable_ns(write.len))), write.number));
            self.cached.push_back(Queued { answered: true, ..write });
        }
    }

    /// Ends the flush if nothing before it is left, and begins what came after it, up to the next
    /// flush.
    fn end_flush(&mut self, now: Time) {
        while let Some((number, at)) = self.flush {
            if !self.unwritten.is_empty() || !self.waited.is_empty() || self.serving.is_some() {
                return;
            }
            self.flush = None;
            let end = now.max(at.plus_ns(self.spec.command_ns));
            self.answers.push((end, number));
            while self.flush.is_none()
                && let Some(io) = self.held.pop_front()
            {
                self.begin(end, io);
            }
        }
    }

    fn begin(&mut self, now: Time, io: ModelIo) {
        let ModelIo { number, op, offset, len } = io;
        let queued = Queued { number, at: now, offset, len, write: op == Op::Write, answered: false, passed: 0 };
        match op {
            Op::Flush => self.flush = Some((number, now)),
            // A disk remaps discards and zeroes in its tables, if at all.
            Op::Discard | Op::Zero | Op::Punch | Op::Map => {
                self.answers.push((now.plus_ns(self.spec.command_ns), number))
            }
            Op::Read => {
                if self.read_ahead_end(offset, len).is_some_and(|end| end <= now) {
                    self.read_on(offset, len, now);
                    self.answers.push((now.plus_ns(self.cable_ns(len)), number));
                } else {
                    self.waited.push_back(queued);
                }
            }
            Op::Write => {
                let far = self.spec.read_ahead_bytes;
                self.ahead = self.ahead.filter(|it| it.from + far <= offset || offset + len <= it.from);
                self.unwritten.insert(number);
                if len > self.spec.write_cache_bytes {
                    self.waited.push_back(queued);
                } else {
                    self.no_room.push_back(queued);
                    self.fill_cache(now);
                }
            }
        }
    }
}

impl Model for Hdd {
    fn submit(&mut self, now: Time, io: ModelIo) {
        if self.flush.is_some() {
            self.held.push_back(io);
            return;
        }
        self.begin(now, io);
        self.end_flush(now);
        self.serve(now);
    }

    fn next_event(&self) -> Option<Time> {
        let answer = self.answers.iter().map(|(at, _)| *at).min();
        let end = self.serving.map(|(end, _)| end);
        let stays = self.stays_until().filter(|_| self.serving.is_none() && !self.cached.is_empty());
        [answer, end, stays].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<(Time, u64)>) {
        while let Some((end, queued)) = self.serving.filter(|(end, _)| *end <= now) {
            self.finish(end, queued);
            self.serve(end);
        }
        self.serve(now);
        done.extend(self.answers.extract_if(.., |(at, _)| *at <= now));
    }
}

#[cfg(test)]
mod tests;

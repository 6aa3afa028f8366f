// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pace of a hard disk: one head that has to get there first.
//!
//! Service time = seek + half a turn + transfer; an I/O that goes on where the last one ended pays
//! the transfer only. Of the waiting I/Os the head takes the nearest, as NCQ and elevators do, but
//! none waits longer than the age limit for nearer ones. Not modelled: zones, track skew, the
//! place of the platter (half a turn is the mean), read-ahead.

use flashfront_engine::{Op, Time};

use super::delay::Pace;
use crate::DeviceIo;

/// A hard disk. The default is a 7200 rpm SATA disk as published in data sheets (Seagate Exos,
/// WD Gold: 4.16 ms mean rotational latency, about 8 ms mean read seek) at the mean of its zones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HddSpec {
    /// The shortest seek: the head has to settle on the track (2 ms).
    pub settle_ns: u64,
    /// A seek over the whole disk (13 ms). In between the time grows with the square root of the
    /// distance, the head accelerating half the way and braking half (Ruemmler and Wilkes 1994);
    /// over random places that is a mean of settle + 0.533 x (full - settle), here 7.9 ms.
    pub full_seek_ns: u64,
    /// Half a turn (4.17 ms at 7200 rpm).
    pub half_turn_ns: u64,
    /// Bytes per second under the head (150 MB/s).
    pub bytes_per_s: u64,
    /// Size of the volatile write cache; 0 = none, writes end when they are on the platter
    /// (default: RAID controllers and cautious operators switch it off).
    pub write_cache_bytes: u64,
    /// A command's way through controller and cable: what a cached write or an empty flush takes (0.1 ms).
    pub command_ns: u64,
    /// No I/O is passed over for longer than this (0.5 s).
    pub age_limit_ns: u64,
}

impl Default for HddSpec {
    fn default() -> Self {
        Self {
            settle_ns: 2_000_000,
            full_seek_ns: 13_000_000,
            half_turn_ns: 4_170_000,
            bytes_per_s: 150_000_000,
            write_cache_bytes: 0,
            command_ns: 100_000,
            age_limit_ns: 500_000_000,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    number: u64,
    at: Time,
    offset: u64,
    len: u64,
    write: bool,
    /// A cached write: answered already, the platter is still to be written.
    answered: bool,
}

#[derive(Debug)]
pub(super) struct Hdd {
    spec: HddSpec,
    size_bytes: u64,
    /// Where the head is: the end of the last I/O.
    head: u64,
    /// When the head was last busy.
    free_at: Time,
    serving: Option<(Time, Queued)>,
    queue: Vec<Queued>,
    /// Flushes that wait for writes submitted before them, and since when.
    flushes: Vec<(u64, Time)>,
    /// What ends without the head, and when.
    answers: Vec<(Time, u64)>,
    cached_bytes: u64,
}

impl Hdd {
    pub(super) fn new(spec: HddSpec, size_bytes: u64) -> Self {
        Self {
            spec,
            size_bytes,
            head: 0,
            free_at: Time(0),
            serving: None,
            queue: Vec::new(),
            flushes: Vec::new(),
            answers: Vec::new(),
            cached_bytes: 0,
        }
    }

    fn seek_ns(&self, offset: u64) -> u64 {
        let distance = offset.abs_diff(self.head);
        if distance == 0 {
            return 0;
        }
        let share = (distance as f64 / self.size_bytes as f64).sqrt();
        let travel = (self.spec.full_seek_ns - self.spec.settle_ns) as f64 * share;
        self.spec.settle_ns + travel as u64 + self.spec.half_turn_ns
    }

    /// Puts the head to the next I/O, if it is idle and there is one.
    fn serve(&mut self) {
        if self.serving.is_some() || self.queue.is_empty() {
            return;
        }
        let oldest = self.queue.iter().min_by_key(|queued| queued.number);
        let start = self.free_at.max(self.queue.iter().map(|queued| queued.at).min().unwrap_or_default());
        let starved = oldest.filter(|oldest| start.since_ns(oldest.at) > self.spec.age_limit_ns);
        // Only what has arrived by then can be chosen.
        let nearest = || {
            let there = self.queue.iter().filter(|queued| queued.at <= start);
            there.min_by_key(|queued| (queued.offset.abs_diff(self.head), queued.number))
        };
        let Some(next) = starved.or_else(nearest).copied() else { return };
        self.queue.retain(|queued| queued.number != next.number);
        let transfer_ns = next.len.saturating_mul(1_000_000_000) / self.spec.bytes_per_s;
        let end = start.plus_ns(self.seek_ns(next.offset) + transfer_ns);
        self.serving = Some((end, next));
    }

    fn finish(&mut self, end: Time, queued: Queued, done: &mut Vec<(Time, u64)>) {
        self.head = queued.offset + queued.len;
        self.free_at = end;
        self.serving = None;
        if queued.answered {
            self.cached_bytes -= queued.len;
        } else {
            done.push((end, queued.number));
        }
        self.end_flushes(end);
    }

    /// Ends the flushes for which no earlier write is waiting any more.
    fn end_flushes(&mut self, now: Time) {
        let oldest_write = self.queue.iter().filter(|queued| queued.write).map(|queued| queued.number).min();
        let over = self.flushes.extract_if(.., |(number, _)| oldest_write.is_none_or(|write| write > *number));
        let command_ns = self.spec.command_ns;
        self.answers.extend(over.map(|(number, at)| (now.max(at.plus_ns(command_ns)), number)));
    }
}

impl Pace for Hdd {
    fn submit(&mut self, now: Time, number: u64, io: &DeviceIo) {
        let write = io.op == Op::Write;
        match io.op {
            Op::Flush
                if self.serving.is_some_and(|(_, busy)| busy.write) || self.queue.iter().any(|queued| queued.write) =>
            {
                self.flushes.push((number, now));
            }
            // A disk remaps discards and zeroes in its tables, if at all.
            Op::Flush | Op::Discard | Op::Zero => self.answers.push((now.plus_ns(self.spec.command_ns), number)),
            Op::Read | Op::Write => {
                let answered = write && self.cached_bytes + io.len <= self.spec.write_cache_bytes;
                if answered {
                    self.cached_bytes += io.len;
                    self.answers.push((now.plus_ns(self.spec.command_ns), number));
                }
                self.queue.push(Queued { number, at: now, offset: io.offset, len: io.len, write, answered });
            }
        }
        self.serve();
    }

    fn next_event(&self) -> Option<Time> {
        let answer = self.answers.iter().map(|(at, _)| *at).min();
        let end = self.serving.map(|(end, _)| end);
        [answer, end].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<(Time, u64)>) {
        while let Some((end, queued)) = self.serving.filter(|(end, _)| *end <= now) {
            self.finish(end, queued, done);
            self.serve();
        }
        done.extend(self.answers.extract_if(.., |(at, _)| *at <= now));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays requests: one thread reads the trace and keeps the time, others ask and wait.
//!
//! A request of the timed pace has its time counted from the moment at which the trace asked for
//! it. So a target that falls behind has long times, and not fewer requests. Otherwise the time is
//! counted from the moment at which a thread asks.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flashfront_sim::trace::{Op, Reader};

use super::blocks::Blocks;
use super::{Options, Places};
use crate::error::BenchError;
use crate::figures::{Direction, Figures, Measured, Point};

/// The most requests in flight at the trace's own times. Further ones wait, which counts.
const IN_FLIGHT_TIMED: u32 = 128;
/// Requests that were read before a thread takes them.
const AHEAD: usize = 1024;
/// A longer request is asked in pieces, one after the other: no kernel takes much longer ones.
const PIECE_BYTES: usize = 4 << 20;
/// A point of the course of a replay, at first. Long replays have [`POINTS_MAX`] of them.
const INTERVAL: Duration = Duration::from_millis(100);
const POINTS_MAX: usize = 600;
/// The user may ask for an end, which is looked for so often.
const LOOK: Duration = Duration::from_millis(50);
/// Buffers begin at multiples of it in memory, as direct I/O wants.
const ALIGNED: usize = 4096;

/// A request for a thread.
struct Asked {
    op: Op,
    at: u64,
    len: u64,
    /// When it is to be asked.
    due: Option<Instant>,
}

/// The counts of a thread.
#[derive(Default)]
struct Counted {
    directions: BTreeMap<Direction, Counter>,
    not_discarded: u64,
}

#[derive(Default)]
struct Counter {
    bytes: u64,
    bins: BTreeMap<u64, u64>,
    /// Answers in each interval.
    course: BTreeMap<u64, u64>,
}

pub(super) fn play(
    blocks: &dyn Blocks,
    reader: Reader,
    places: &Places<'_>,
    options: &Options,
    stop: &dyn Fn() -> bool,
) -> Result<Measured, BenchError> {
    let threads = if options.timed { IN_FLIGHT_TIMED } else { options.in_flight.max(1) };
    let (sender, receiver) = sync_channel::<Asked>(AHEAD);
    let receiver = Mutex::new(receiver);
    let failed = AtomicBool::new(false);
    let begin = Instant::now();
    thread::scope(|scope| {
        let work = || work(blocks, &receiver, begin, &failed);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let read =
            hand_out(reader, places, options.timed.then_some(begin), &sender, &|| failed.load(Ordering::Relaxed), stop);
        if read.is_err() {
            // Requests that were handed out and not begun are left.
            failed.store(true, Ordering::Relaxed);
        }
        drop(sender);
        let counted: Vec<_> = workers.into_iter().map(|it| it.join().expect("no thread panics")).collect();
        let moved = read?;
        let counted = counted.into_iter().collect::<Result<Vec<Counted>, BenchError>>()?;
        Ok(measured(counted, begin.elapsed(), &moved))
    })
}

/// Requests that could not be asked as the trace has them.
#[derive(Default)]
struct Moved {
    wrapped: u64,
    widened: u64,
}

fn hand_out(
    reader: Reader,
    places: &Places<'_>,
    begin: Option<Instant>,
    sender: &SyncSender<Asked>,
    failed: &dyn Fn() -> bool,
    stop: &dyn Fn() -> bool,
) -> Result<Moved, BenchError> {
    let mut moved = Moved::default();
    let mut looked = Instant::now();
    for record in reader {
        let record = record.map_err(|error| BenchError::Failed(error.to_string()))?;
        let passed = Duration::from_nanos(record.time_ns.unwrap_or(0).saturating_sub(places.survey.first_ns));
        let due = begin.map(|begin| begin + passed);
        loop {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if stop() {
                    return Err(BenchError::Interrupted);
                }
            }
            let wait = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()));
            if wait.is_zero() || failed() {
                break;
            }
            thread::sleep(wait.min(LOOK));
        }
        let (at, len, is_wrapped) = if record.op == Op::Flush { (0, 0, false) } else { places.of(&record) };
        moved.wrapped += u64::from(is_wrapped);
        let unit = places.unit;
        let (from, to) = (at / unit * unit, (at + len).next_multiple_of(unit).min(places.size));
        moved.widened += u64::from(to - from > len);
        // The only error is that all workers have ended, which tell why.
        if failed() || sender.send(Asked { op: record.op, at: from, len: to - from, due }).is_err() {
            break;
        }
    }
    Ok(moved)
}

fn work(
    blocks: &dyn Blocks,
    receiver: &Mutex<Receiver<Asked>>,
    begin: Instant,
    failed: &AtomicBool,
) -> Result<Counted, BenchError> {
    let mut counted = Counted::default();
    let mut memory = Memory::default();
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(asked) = next else { return Ok(counted) };
        if failed.load(Ordering::Relaxed) {
            continue;
        }
        let since = asked.due.unwrap_or_else(Instant::now);
        let done = match carry_out(blocks, &asked, &mut memory) {
            Ok(done) => done,
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                let what = match asked.op {
                    Op::Read => "read",
                    Op::Write => "write",
                    Op::Discard => "discard",
                    Op::Flush => "flush",
                };
                let (at, len) = (asked.at, asked.len);
                return Err(BenchError::Failed(format!("the {what} of {len} bytes at byte {at} failed: {error}")));
            }
        };
        if !done {
            counted.not_discarded += 1;
            continue;
        }
        let now = Instant::now();
        let counter = counted.directions.entry(direction(asked.op)).or_default();
        counter.bytes += asked.len;
        let ns = u64::try_from(now.duration_since(since).as_nanos()).unwrap_or(u64::MAX);
        *counter.bins.entry(rounded(ns)).or_default() += 1;
        let interval = now.duration_since(begin).as_nanos() / INTERVAL.as_nanos();
        *counter.course.entry(interval as u64).or_default() += 1;
    }
}

/// Whether it was done: not every target can discard.
fn carry_out(blocks: &dyn Blocks, asked: &Asked, memory: &mut Memory) -> io::Result<bool> {
    match asked.op {
        Op::Flush => return blocks.flush().map(|()| true),
        Op::Discard => return blocks.discard(asked.at, asked.len),
        Op::Read | Op::Write => (),
    }
    let mut at = asked.at;
    let end = asked.at + asked.len;
    while at < end {
        let len = (end - at).min(PIECE_BYTES as u64);
        let piece = memory.of(len as usize);
        if asked.op == Op::Read {
            blocks.read(at, piece)?
        } else {
            blocks.write(at, piece)?
        }
        at += len;
    }
    Ok(true)
}

/// A thread's buffer. What it writes is random, so that nothing on the way can compress it.
#[derive(Default)]
struct Memory(Vec<u8>);

impl Memory {
    fn of(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len + ALIGNED {
            let mut random = flashfront_device::Rng::new(len as u64);
            let words = (len + ALIGNED).div_ceil(8);
            self.0 = (0..words).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        }
        let at = self.0.as_ptr().align_offset(ALIGNED);
        &mut self.0[at..at + len]
    }
}

fn direction(op: Op) -> Direction {
    match op {
        Op::Read => Direction::Read,
        Op::Write => Direction::Write,
        Op::Discard => Direction::Trim,
        Op::Flush => Direction::Sync,
    }
}

/// A time with seven binary digits, so that there are few bins: within 1 %.
fn rounded(ns: u64) -> u64 {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(7);
    ns >> shift << shift
}

fn measured(counted: Vec<Counted>, elapsed: Duration, moved: &Moved) -> Measured {
    let seconds = elapsed.as_secs_f64();
    let mut all: BTreeMap<Direction, Counter> = BTreeMap::new();
    let not_discarded = counted.iter().map(|it| it.not_discarded).sum::<u64>();
    for (direction, counter) in counted.into_iter().flat_map(|it| it.directions) {
        let sum = all.entry(direction).or_default();
        sum.bytes += counter.bytes;
        for (ns, count) in counter.bins {
            *sum.bins.entry(ns).or_default() += count;
        }
        for (interval, count) in counter.course {
            *sum.course.entry(interval).or_default() += count;
        }
    }
    let series = series(&all, elapsed);
    let directions = all.into_iter().map(|(direction, it)| (direction, Figures::of(it.bytes, seconds, it.bins)));
    let mut measured = Measured::new(seconds, directions.collect(), series);
    let others = [
        ("wrapped_requests", moved.wrapped),
        ("widened_requests", moved.widened),
        ("not_discarded_requests", not_discarded),
    ];
    let told = others.into_iter().filter(|it| it.1 > 0).map(|(name, count)| (name.to_owned(), count as f64));
    measured.others = told.collect();
    measured
}

/// Rates over time, in at most [`POINTS_MAX`] steps of whole intervals.
fn series(all: &BTreeMap<Direction, Counter>, elapsed: Duration) -> Vec<Point> {
    let intervals = (elapsed.as_nanos() / INTERVAL.as_nanos()) as u64 + 1;
    let step = intervals.div_ceil(POINTS_MAX as u64).max(1);
    let count = |direction: Direction, from: u64| {
        let course = all.get(&direction).map(|it| it.course.range(from..from + step));
        course.map_or(0, |it| it.map(|(_, count)| *count).sum::<u64>()) as f64
    };
    let point = |nth: u64| {
        let end_s = ((nth + 1) * step) as f64 * INTERVAL.as_secs_f64();
        let end_s = end_s.min(elapsed.as_secs_f64());
        let begin_s = (nth * step) as f64 * INTERVAL.as_secs_f64();
        let long_s = (end_s - begin_s).max(1e-3);
        Point {
            at_s: end_s,
            read_iops: count(Direction::Read, nth * step) / long_s,
            write_iops: count(Direction::Write, nth * step) / long_s,
        }
    };
    (0..intervals.div_ceil(step)).map(point).collect()
}

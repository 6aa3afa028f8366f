// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what the buffer holds and of who has the head.

use flashfront_engine::{Op, Time};

use super::{Hdd, HddSpec};
use crate::Rng;
use crate::sim::{Model, ModelIo};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;
const BLOCK: u64 = 128 * KIB;
/// Command and cable: 0.1 ms, and 128 KiB at 550 MB/s.
const CABLE_NS: u64 = 100_000 + BLOCK * 1000 / 550;

/// A disk, its time, and what has ended.
struct Bench {
    disk: Hdd,
    now: Time,
    number: u64,
    ended: Vec<(Time, u64)>,
}

impl Bench {
    fn new() -> Self {
        Self { disk: Hdd::new(HddSpec::default(), 1 << 42), now: Time(0), number: 0, ended: Vec::new() }
    }

    fn submit(&mut self, op: Op, offset: u64, len: u64) -> u64 {
        self.number += 1;
        self.disk.submit(self.now, ModelIo { number: self.number, op, offset, len });
        self.number
    }

    /// Goes on to the next event; whether there was one by then.
    fn step(&mut self, until: Time) -> bool {
        let Some(event) = self.disk.next_event().filter(|event| *event <= until) else { return false };
        self.now = self.now.max(event);
        self.disk.advance(self.now, &mut self.ended);
        assert!(self.ended.iter().all(|(at, _)| *at <= self.now), "told of what is still to end");
        true
    }

    fn pass(&mut self, ns: u64) {
        let until = self.now.plus_ns(ns);
        while self.step(until) {}
        self.now = until;
    }

    /// The time of a read, start to end.
    fn read(&mut self, offset: u64) -> u64 {
        let start = self.now;
        let number = self.submit(Op::Read, offset, BLOCK);
        while !self.ended.iter().any(|(_, ended)| *ended == number) {
            assert!(self.step(Time(u64::MAX)), "a read never ended");
        }
        self.now.since_ns(start)
    }

    /// Writes into the cache, far away and far from one another.
    fn scatter(&mut self, writes: u64) {
        for i in 0..writes {
            self.submit(Op::Write, 100 * GIB + i * 7919 % 512 * GIB, 256 * KIB);
        }
    }
}

#[test]
fn what_was_read_ahead_comes_over_the_cable_and_no_earlier() {
    let mut bench = Bench::new();
    bench.read(GIB);
    bench.pass(50 * MS);
    let took = bench.read(GIB + BLOCK);
    assert!(took.abs_diff(CABLE_NS) < 1000, "{took}");
    // A short read ends before a long read that was there first.
    bench.pass(50 * MS);
    bench.ended.clear();
    let long = bench.submit(Op::Read, GIB + 2 * BLOCK, BLOCK);
    let short = bench.submit(Op::Read, GIB + 3 * BLOCK, 4096);
    bench.pass(MS);
    let order: Vec<_> = bench.ended.iter().map(|(_, number)| *number).collect();
    assert_eq!(order, [short, long]);
    // Further than it reads ahead.
    bench.pass(50 * MS);
    let took = bench.read(GIB + BLOCK + (4 << 20));
    assert!(took > MS, "{took}");
}

#[test]
fn what_was_read_ahead_stays_when_the_head_leaves_and_goes_when_it_is_overwritten() {
    let mut bench = Bench::new();
    bench.read(GIB);
    bench.pass(50 * MS);
    bench.scatter(1);
    bench.pass(50 * MS);
    let took = bench.read(GIB + BLOCK);
    assert!(took.abs_diff(CABLE_NS) < 1000, "{took}");
    bench.submit(Op::Write, GIB + 3 * BLOCK, 4096);
    bench.pass(50 * MS);
    let took = bench.read(GIB + 2 * BLOCK);
    assert!(took > MS, "{took}");
    // The head left at once: there was no time to read ahead.
    let mut bench = Bench::new();
    bench.scatter(8);
    bench.read(GIB);
    bench.pass(500 * MS);
    let took = bench.read(GIB + BLOCK);
    assert!(took > MS, "{took}");
}

#[test]
fn the_head_stays_behind_a_sequential_reader_and_only_there() {
    let span = |apart: u64, writes: u64| {
        let mut bench = Bench::new();
        bench.scatter(writes);
        let start = bench.now;
        for i in 0..64 {
            bench.read(GIB + i * apart);
            bench.pass(MS / 5);
        }
        (bench.now.since_ns(start), bench)
    };
    let (alone, _) = span(BLOCK, 0);
    let (beside, mut bench) = span(BLOCK, 64);
    // One way back to it, from the first write.
    assert!(beside < alone + 40 * MS, "{beside} for {alone}");
    // Once the reader is gone the cache is written: 16 MiB in 64 places.
    let flush = bench.submit(Op::Flush, 0, 0);
    let start = bench.now;
    bench.pass(2000 * MS);
    let (end, _) = bench.ended.iter().find(|(_, number)| *number == flush).copied().unwrap();
    assert!(end.since_ns(start) > 100 * MS, "{end:?}");
    // Behind reads at other places it has no reason to.
    let (alone, _) = span(64 << 20, 0);
    let (beside, mut bench) = span(64 << 20, 64);
    assert!(beside > alone + 200 * MS, "{beside} for {alone}");
    let flush = bench.submit(Op::Flush, 0, 0);
    let start = bench.now;
    bench.pass(2000 * MS);
    let (end, _) = bench.ended.iter().find(|(_, number)| *number == flush).copied().unwrap();
    assert!(end.since_ns(start) < 50 * MS, "{end:?}");
}

/// Reads and writes without end: once the cache is half full both get their turn. A turn is long
/// enough to be worth the way.
#[test]
fn readers_and_the_cache_take_turns_once_it_is_half_full() {
    let mut bench = Bench::new();
    let mut rng = Rng::new(5);
    let mut waiting = std::collections::BTreeMap::new();
    let mut order = Vec::new();
    while bench.now < Time(20_000 * MS) {
        for (op, depth) in [(Op::Read, 32), (Op::Write, 32)] {
            while waiting.values().filter(|it| **it == op).count() < depth {
                let from = if op == Op::Read { 0 } else { 500 * GIB };
                let number = bench.submit(op, from + rng.below(1 << 20) * 4096, 64 * KIB);
                waiting.insert(number, op);
            }
        }
        assert!(bench.step(Time(u64::MAX)));
        for (_, number) in bench.ended.drain(..) {
            order.push(waiting.remove(&number).unwrap());
        }
    }
    // The first fill the cache.
    let order = &order[2000..];
    let reads = order.iter().filter(|op| **op == Op::Read).count();
    assert!((45..=55).contains(&(reads * 100 / order.len())), "{reads} of {}", order.len());
    let runs = order.chunk_by(|one, other| one == other).count();
    let mean = order.len() as f64 / runs as f64;
    assert!((15.0..=22.0).contains(&mean), "{mean} of a kind in a row");
}

#[test]
fn a_pause_earns_no_more_than_the_buffer_holds() {
    let mut bench = Bench::new();
    bench.read(GIB);
    bench.pass(1000 * MS);
    let start = bench.now;
    for i in 1..=512 {
        bench.read(GIB + i * BLOCK);
    }
    // 64 MiB, of which 2 were there.
    let platter_ns = (62 << 20) * 1000 / 178;
    let took = bench.now.since_ns(start);
    assert!((platter_ns..platter_ns + 100 * MS).contains(&took), "{took}, not {platter_ns}");
}

/// Long requests, or such with gaps, go on beyond what would be read ahead: a reader like that must
/// not keep the head for good.
#[test]
fn no_sequential_reader_keeps_a_full_cache_waiting() {
    for (len, apart) in [(BLOCK, BLOCK), (4 << 20, 4 << 20), (1 << 20, 5 << 19)] {
        let mut bench = Bench::new();
        let (mut reads, mut writes, mut read) = (0, 0, None);
        let mut writing = std::collections::BTreeSet::new();
        while bench.now < Time(20_000 * MS) {
            read = read.or_else(|| Some(bench.submit(Op::Read, GIB + reads * apart, len)));
            while writing.len() < 4 {
                writing.insert(bench.submit(Op::Write, 500 * GIB + writes * 7919 % 4096 * (64 << 20), 256 * KIB));
                writes += 1;
            }
            assert!(bench.step(Time(u64::MAX)));
            for (_, number) in std::mem::take(&mut bench.ended) {
                if !writing.remove(&number) {
                    (reads, read) = (reads + 1, None);
                }
            }
        }
        // 128 fill half of the cache.
        assert!(reads * len > (64 << 20) && writes > 600, "{reads} reads of {len}, {writes} writes");
    }
}

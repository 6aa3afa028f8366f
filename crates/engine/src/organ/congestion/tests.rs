// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the gauges: what they expect is what was seen, and what looks fast by mistake doesn't.

use alloc::vec::Vec;

use super::*;

const MS: u64 = 1_000_000;

/// Keeps `depth` I/Os in flight, each answered after `ns`; returns until when.
fn busy(gauge: &mut Gauge, depth: u64, ns: u64, from: Time) -> Time {
    let mut now = from;
    (0..depth).for_each(|_| gauge.began(now));
    for _ in 0..200 {
        now = now.plus_ns(ns / depth);
        gauge.ended(now, 1);
        gauge.began(now);
    }
    now
}

#[test]
fn what_is_expected_is_what_was_seen() {
    for depth in [1, 4, 32] {
        let mut gauge = Gauge::default();
        let now = busy(&mut gauge, depth, 8 * MS, Time(0));
        let expected = gauge.expected_ns(now).unwrap();
        // One more than were in flight.
        assert!(expected.abs_diff(8 * MS * (depth + 1) / depth) < MS / 10, "{expected} at {depth}");
    }
}

/// A cache device with 32 reads in flight, 0.25 ms each.
fn queue() -> (CacheGauge, Time) {
    let mut cache = CacheGauge::default();
    let now = busy(&mut cache.reads, 32, MS / 4, Time(0));
    (cache, now)
}

#[test]
fn a_slow_moment_counts_and_a_fast_device_does_not() {
    let (cache, now) = queue();
    let mut origin = OriginGauge::default();
    assert_eq!(cache.read_past(&origin, now), None, "a quarter of a millisecond is not worth asking");
    let silent = now.plus_ns(21 * MS);
    assert!(cache.reads_congested(&origin, silent).is_some(), "it says nothing for longer than two disk reads");
    let taken = origin.detour.began(21 * MS, silent);
    assert_eq!(cache.reads_congested(&origin, silent), None, "an unknown origin gets one of them");
    origin.detour.ended(taken, true, silent.plus_ns(MS / 10));
    assert!(cache.reads_congested(&origin, silent).is_some());
    let idle = CacheGauge::default();
    assert_eq!(idle.reads_congested(&origin, silent), None, "who has nothing to do is asked");
}

/// A disk that sleeps is asked less and less.
#[test]
fn asking_in_vain_becomes_rare() {
    let (mut cache, mut now) = queue();
    let mut origin = OriginGauge::default();
    let mut asked = Vec::new();
    for _ in 0..200_000 {
        now = busy(&mut cache.reads, 4, 40 * MS, now);
        (0..4).for_each(|_| cache.reads.ended(now, 1));
        if let Some(instead) = cache.read_past(&origin, now) {
            let taken = origin.detour.began(instead, now);
            origin.detour.ended(taken, true, now.plus_ns(8_000 * MS));
            asked.push(now.0 / (1000 * MS));
        }
    }
    let pauses: Vec<u64> = asked.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses.windows(2).all(|two| two[1] + 10 >= two[0]) && pauses.last() >= Some(&3600), "{pauses:?}");
}

#[test]
fn an_error_is_no_answer() {
    let (cache, now) = queue();
    let mut origin = OriginGauge::default();
    let silent = now.plus_ns(25 * MS);
    let taken = origin.detour.began(25 * MS, silent);
    origin.detour.ended(taken, false, silent.plus_ns(1000));
    assert_eq!(cache.read_past(&origin, silent.plus_ns(300_000 * MS)), None, "for minutes");
    assert!(cache.read_past(&origin, silent.plus_ns(700_000 * MS)).is_some());
}

/// A log that needs 7 ms for a commit, with one on its way.
fn slow_log() -> CacheGauge {
    let mut cache = CacheGauge::default();
    cache.commit_began(Time(0));
    cache.commit_ended(true, Time(7 * MS));
    cache.commit_began(Time(7 * MS));
    cache
}

/// An origin that takes a write in 5 us and then flushes.
fn written(count: u64, flush_ns: u64) -> OriginGauge {
    let mut origin = OriginGauge::default();
    let mut now = Time(0);
    for _ in 0..count {
        origin.writes.began(now);
        now = now.plus_ns(5_000);
        origin.writes.ended(true, now);
    }
    origin.writes.flush_began(now);
    origin.writes.flush_ended(true, now.plus_ns(flush_ns));
    origin
}

/// A disk's write cache must not make it look fast, nor make everybody's FLUSH slow.
#[test]
fn a_flush_is_part_of_what_writes_cost() {
    let (cache, now) = (slow_log(), Time(8 * MS));
    assert!(!cache.writes_congested(&OriginGauge::default(), 1, now), "nothing is known");
    assert!(cache.writes_congested(&written(100, MS / 10), 1, now), "28 us to 5 us and a hundredth of a flush");
    assert!(!cache.writes_congested(&written(1, MS / 10), 1, now), "each with a flush of its own");
    assert!(!cache.writes_congested(&written(10_000, 6 * MS), 1, now), "whose flush is long is a disk");
}

#[test]
fn an_origin_that_failed_or_hangs_gets_no_writes_of_others() {
    let cache = slow_log();
    let mut origin = written(100, MS / 10);
    (0..2000).for_each(|_| origin.writes.began(Time(8 * MS)));
    assert!(!cache.writes_congested(&origin, 1, Time(8 * MS)), "it has enough to do until the log has room");
    (0..2000).for_each(|_| origin.writes.ended(true, Time(8 * MS)));
    assert!(cache.writes_congested(&origin, 1, Time(8 * MS)));
    origin.writes.began(Time(8 * MS));
    origin.writes.ended(false, Time(8 * MS));
    assert!(!cache.writes_congested(&origin, 1, Time(9 * MS)));
}

#[test]
fn reads_that_ask_together_are_one_question() {
    let (mut detour, now) = (Detour::default(), Time(5_000_000_000));
    let asked: Vec<Taken> = (0..4).map(|_| detour.began(1, now)).collect();
    assert_eq!(detour.probe_at, now.plus_ns(PROBE_FIRST_NS));
    // None of them has paid: the next one comes after twice as long.
    let then = detour.probe_at;
    asked.into_iter().for_each(|taken| detour.ended(taken, true, then));
    assert!(detour.unknown(then));
    detour.began(1, then);
    assert_eq!(detour.probe_at, then.plus_ns(2 * PROBE_FIRST_NS));
}

#[test]
fn reads_that_follow_one_another_do_not_make_a_disk_look_cheap() {
    let mut origin = OriginGauge::default();
    let mut now = Time(0);
    let read = |origin: &mut OriginGauge, now: Time, first: u64, ns: u64| {
        origin.read_began(first, first + 1, now);
        let now = now.plus_ns(ns);
        origin.read_ended(Some(1), now);
        now
    };
    for nth in 0..20 {
        now = read(&mut origin, now, nth * 100_003, 8 * MS);
    }
    // The disk answers 100,000 blocks in a row from what it has read ahead.
    for nth in 0..100_000 {
        now = read(&mut origin, now, 40_000_000 + nth, MS / 10);
    }
    assert!(origin.reads_are_dear(now), "it is the same disk");
    for nth in 0..100_000 {
        now = read(&mut origin, now, nth * 100_003, MS / 10);
    }
    assert!(!origin.reads_are_dear(now), "scattered reads that are fast do");
}

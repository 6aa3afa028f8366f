// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shadow by itself; how near it comes to the whole is tested in `sim`, on traces.

use super::*;
use crate::policy;

/// A cache of that many blocks in segments of 1 MiB, a 32nd of them free, on one lane.
fn cache(blocks: u64) -> Shape {
    let segments = (blocks / 256) as u32;
    let window_blocks = policy::Window::new(blocks, 1).capacity();
    Shape {
        segments,
        segment_blocks: 256,
        free_segments: (segments / 32).clamp(8, 64),
        window_blocks,
        stands_for: 1,
        read_around_blocks: 1,
    }
}

/// A shadow, and the cache that it is of.
struct Both {
    shadow: Shadow,
    whole: Model,
}

impl Both {
    fn new(blocks: u64) -> Self {
        let policy = policy::ALL[0].build;
        Self { shadow: Shadow::new(cache(blocks), policy), whole: Model::new(cache(blocks), policy) }
    }

    fn note(&mut self, access: Access, keys: Range<u64>) {
        let live = Live { found: self.found(), reads_around: false };
        if let Some(hold) = self.shadow.note(access, keys.clone(), || live) {
            self.whole.hold_gate(hold);
        }
        keys.for_each(|key| apply(&mut self.whole, access, key));
    }

    fn found(&self) -> Found {
        let Totals { read_hits, write_hits, .. } = self.whole.totals();
        Found { read: read_hits, written: write_hits }
    }

    fn what_if(&self) -> Vec<WhatIf> {
        self.shadow.what_if(self.found())
    }
}

/// Reads and writes that drive everything out again and again, and some that come back.
fn busy(shadow: &mut Both, accesses: u64, spread: u64) {
    let mut random = 7_u64;
    for nth in 0..accesses {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (random >> 20) % spread;
        let key = if nth % 3 == 0 { key / 16 } else { key };
        shadow.note(if random >> 62 == 0 { Access::Write } else { Access::Read }, key..key + 1);
    }
}

#[test]
fn it_fits_in_4_mib() {
    // 2^19 blocks have the most in the sample; more blocks only make the sample sparser.
    for (blocks, in_sample) in
        [(1 << 13, 256), (1 << 17, 4096), (1 << 19, 16_384), ((1 << 19) + 256, 8196), (1 << 28, 16_384)]
    {
        let shape = Shape { read_around_blocks: 16, ..cache(blocks) };
        let mut shadow = Shadow::new(shape, policy::ALL[0].build);
        assert_eq!(shadow.round, in_sample);
        // Everything that is asked for is in the sample. So all four models fill, and their
        // windows, too.
        let bits = shadow.bits;
        let sampled = (0_u64..).filter(|unit| mix(unit ^ SALT) >> (64 - bits) == 0);
        let units = if blocks < 1 << 28 { in_sample * 10 / 15 } else { 1000 };
        for unit in sampled.take(units as usize) {
            let access = if unit % 2 == 0 { Access::Write } else { Access::Read };
            shadow.note(access, unit * 16..unit * 16 + 15, || Live { found: Found::default(), reads_around: true });
        }
        assert!(blocks == 1 << 28 || shadow.models.iter().all(Model::filled), "{blocks}");
        assert!(shadow.bytes() > 0 && shadow.bytes() <= Shadow::BYTES_MAX, "{blocks}: {}", shadow.bytes());
    }
}

#[test]
fn of_a_cache_that_is_too_small_nothing_is_said() {
    let mut shadow = Both::new(Shadow::BLOCKS_MIN - 256);
    busy(&mut shadow, 100_000, 50_000);
    let what_if = shadow.what_if();
    let Both { shadow, .. } = shadow;
    assert_eq!((what_if, shadow.models.len()), (Vec::new(), 0));
    assert!(shadow.duels[PRESENT].is_some() && shadow.duels[0].is_none(), "its gate is looked after all the same");
}

#[test]
fn nothing_is_said_before_enough_is_known_and_a_larger_cache_is_better() {
    let mut shadow = Both::new(1 << 16);
    busy(&mut shadow, 1 << 15, 1 << 19);
    assert_eq!(shadow.what_if(), []);
    busy(&mut shadow, 1 << 22, 1 << 19);
    let what_if = shadow.what_if();
    assert_eq!(what_if.iter().map(|it| it.size_percent).collect::<Vec<_>>(), [50, 100, 200, 400]);
    for (smaller, larger) in what_if.iter().zip(&what_if[1..]) {
        let (smaller, larger) = (smaller.totals, larger.totals);
        assert!(smaller.hits < larger.hits && smaller.origin_read_blocks > larger.origin_read_blocks);
        assert_eq!((smaller.accesses, smaller.reads), (larger.accesses, larger.reads));
        assert_eq!(smaller.absorbed_blocks, smaller.accesses - smaller.reads);
    }
    assert!(what_if.iter().all(|it| it.filled));
}

#[test]
fn a_working_set_that_fits_is_known_to_fit() {
    let mut shadow = Both::new(1 << 16);
    for _ in 0..64 {
        shadow.note(Access::Read, 0..1 << 13);
    }
    let what_if = shadow.what_if();
    assert!(what_if.iter().all(|it| it.totals.hits * 100 > it.totals.accesses * 99 && !it.filled), "{what_if:?}");
}

#[test]
fn what_was_long_ago_is_forgotten() {
    let mut shadow = Both::new(1 << 14);
    busy(&mut shadow, 1 << 18, 1 << 18);
    let before = shadow.what_if()[PRESENT].totals.hit_ratio();
    // Eight rounds of a handful of blocks, each many times.
    for _ in 0..64 {
        shadow.note(Access::Read, 0..4096);
    }
    let after = shadow.what_if()[PRESENT].totals;
    assert!(before < 0.5 && after.hit_ratio() > 0.9, "{before} {after:?}");
    assert!(after.accesses <= 9 * (1 << 14), "{after:?}");
}

#[test]
fn same_accesses_same_answers() {
    let run = || {
        let mut shadow = Both::new(1 << 14);
        busy(&mut shadow, 1 << 18, 1 << 17);
        (shadow.what_if(), shadow.shadow.bytes())
    };
    assert!(!run().0.is_empty());
    assert_eq!(run(), run());
}

#[test]
fn writes_go_where_the_mode_says() {
    let shape = Shape {
        segments: 64,
        segment_blocks: 16,
        free_segments: 3,
        window_blocks: 4,
        stands_for: 1,
        read_around_blocks: 1,
    };
    let mut model = Model::new(shape, policy::ALL[0].build);
    model.write(1);
    assert_eq!(model.write(1), Reaction { hit: true, waited: false, admitted: false });
    assert_eq!((model.totals().absorbed_blocks, model.totals().origin_write_blocks), (2, 1));
    // Through: what was dirty is written first, and then itself; it stays.
    model.write_through(1);
    assert_eq!((model.totals().fill_blocks, model.totals().origin_write_blocks), (1, 2));
    assert!(model.read(1).hit);
    // Past: it is gone.
    model.write_past(1);
    assert_eq!(model.evicted(), [1]);
    assert_eq!(model.totals().origin_write_blocks, 3);
    model.read_past(1);
    assert_eq!(model.read(1), Reaction { hit: false, waited: false, admitted: true });
    let totals = model.totals();
    assert_eq!((totals.accesses, totals.reads, totals.hits, totals.read_hits), (7, 3, 3, 1));
    assert_eq!(totals.origin_read_blocks, 2);
}

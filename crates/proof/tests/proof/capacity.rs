// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data that fits stays in the cache, even if it is rewritten all the time. The number of blocks
//! that cleaning moves for this has a bound.

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{Counters, Mode, Options, RequestOp, Status};
use flashfront_proof::{OriginSpec, World, WorldSpec};

/// Sectors of a block.
const BLOCK: u64 = 8;
/// Blocks of a long request.
const LONG: u64 = 64;
const IN_FLIGHT: usize = 16;
/// The most blocks that cleaning moves for each block of room that it wins.
const MOVED_MOST: u64 = 7;

/// A client of a cache that has room for its whole origin.
struct Trial {
    world: World,
    blocks: u64,
    rng: Rng,
}

impl Trial {
    /// Makes a cache of `segments` segments of 64 blocks. Data takes `part.0 / part.1` of the
    /// cache.
    fn new(segments: u32, part: (u64, u64)) -> Self {
        Self::of_segments(segments, 64, part)
    }

    /// Makes the same cache with segments of `segment_blocks` blocks.
    fn of_segments(segments: u32, segment_blocks: u32, (part, of): (u64, u64)) -> Self {
        let blocks = u64::from(segments * segment_blocks) * part / of / LONG * LONG;
        let origin = OriginSpec { size_bytes: blocks * 4096, logical_block_bytes: 512, mode: Mode::Writeback };
        let mut world = World::format(WorldSpec {
            origins: vec![origin],
            segment_blocks,
            segments_per_lane: segments,
            stripe_blocks: 1 << 20,
            options: Options { sequential_bypass_bytes: 0, read_around_blocks: 0, ..Options::default() },
            check: false,
            ..WorldSpec::default()
        });
        world.open().expect("a fresh cache opens");
        Self { world, blocks, rng: Rng::new(1) }
    }

    fn ask(&mut self, op: RequestOp, block: u64, blocks: u64) {
        let write = (op == RequestOp::Write).then_some(1);
        self.world.submit(op, 0, block * BLOCK, blocks * BLOCK, false, write);
        while self.world.in_flight() >= IN_FLIGHT {
            assert!(self.world.step(), "requests are answered");
        }
        self.world.answers.clear();
    }

    /// Reads everything once. Returns the number of misses, in blocks.
    fn read_all(&mut self) -> u64 {
        let before = self.counters().read_misses;
        (0..self.blocks).step_by(LONG as usize).for_each(|at| self.ask(RequestOp::Read, at, LONG));
        self.world.finish_requests();
        self.counters().read_misses - before
    }

    /// Rewrites `writes` random blocks.
    fn rewrite(&mut self, writes: u64) {
        for _ in 0..writes {
            let block = self.rng.below(self.blocks);
            self.ask(RequestOp::Write, block, 1);
        }
        self.world.finish_requests();
    }

    fn status(&self) -> Status {
        self.world.engine().status()
    }

    fn counters(&self) -> Counters {
        self.status().counters
    }

    /// The number of blocks that are not in the cache. A few blocks may have found a full commit
    /// when they came.
    fn absent(&self) -> u64 {
        self.blocks - self.status().blocks_cached
    }
}

/// No block leaves while data fits, and the number of moved blocks has its bound.
#[test]
fn data_that_fits_is_all_there_though_it_is_rewritten_all_the_time() {
    let mut trial = Trial::new(512, (5, 6));
    trial.read_all();
    trial.rewrite(trial.blocks * 3 / 4);
    let counters = trial.counters();
    assert_eq!(counters.evicted_blocks, 0, "nothing had to leave");
    assert!(trial.absent() < trial.blocks / 500, "{} of {} blocks are missing", trial.absent(), trial.blocks);
    let written = counters.write_hits + counters.write_misses;
    assert!(counters.moved_blocks > written, "dead room was won back: {} blocks moved", counters.moved_blocks);
    assert!(counters.moved_blocks <= MOVED_MOST * written, "{} for {written} writes", counters.moved_blocks);
    assert_eq!(counters.moved_blocks, counters.reinserted_blocks);
}

/// Data of eight ninths of the cache stays: this is the most that is promised. Segments are as
/// large as `format` makes them. Headers and rests of commits would be a larger part of smaller
/// segments.
#[test]
fn data_of_eight_ninths_is_all_there_though_it_is_rewritten_all_the_time() {
    let mut trial = Trial::of_segments(1024, 256, (8, 9));
    trial.read_all();
    trial.rewrite(trial.blocks / 4);
    let counters = trial.counters();
    assert_eq!(counters.evicted_blocks, 0, "nothing had to leave");
    assert!(trial.absent() < trial.blocks / 500, "{} of {} blocks are missing", trial.absent(), trial.blocks);
    let written = counters.write_hits + counters.write_misses;
    assert!(counters.moved_blocks > written, "dead room was won back: {} blocks moved", counters.moved_blocks);
    assert!(counters.moved_blocks <= MOVED_MOST * written, "{} for {written} writes", counters.moved_blocks);
}

/// Cleaning costs next to nothing while data takes half of the cache.
#[test]
fn what_is_moved_is_little_where_much_is_dead() {
    let mut trial = Trial::new(128, (1, 2));
    trial.read_all();
    trial.rewrite(trial.blocks * 4);
    let counters = trial.counters();
    assert_eq!((counters.evicted_blocks, trial.absent()), (0, 0));
    let written = counters.write_hits + counters.write_misses;
    let moved = counters.moved_blocks;
    assert!(moved > 0 && moved < written / 2, "{moved} blocks moved for {written} writes");
}

/// Data that fits is admitted when it is read for the first time. A former gate closed when the log
/// was full for the first time, though half of the log was dead. From then on it admitted blocks
/// only when they were read a second time.
#[test]
fn what_is_read_for_the_first_time_is_admitted_while_data_fits() {
    let mut trial = Trial::new(128, (3, 4));
    let (hot, rest) = (trial.blocks / 2, trial.blocks / LONG / 2 * LONG);
    for _ in 0..hot * 4 {
        let block = trial.rng.below(hot);
        trial.ask(RequestOp::Write, block, 1);
    }
    trial.world.finish_requests();
    let filled = u64::from(trial.world.spec.segments_per_lane * trial.world.spec.segment_blocks);
    assert!(trial.counters().write_hits > filled, "the log was filled more than once");
    let cold: Vec<u64> = (rest..trial.blocks).step_by(4).collect();
    for round in 0..2 {
        let before = trial.counters().read_misses;
        for &block in &cold {
            trial.ask(RequestOp::Read, block, 1);
        }
        trial.world.finish_requests();
        let missed = trial.counters().read_misses - before;
        // A block may have come while no commit took more.
        let most = if round == 0 { cold.len() } else { cold.len() / 100 };
        assert!(missed <= most as u64, "round {round}: {missed} of {} were missed", cold.len());
    }
}

/// A crash in the middle of cleaning takes only the blocks of open commits, at most one of each
/// stream.
#[test]
fn what_was_live_is_there_after_a_crash() {
    let mut trial = Trial::new(256, (3, 4));
    trial.read_all();
    trial.rewrite(trial.blocks);
    assert!(trial.counters().moved_blocks > 0);
    for seed in 0..3 {
        for _ in 0..500 {
            let block = trial.rng.below(trial.blocks);
            trial.ask(RequestOp::Write, block, 1);
        }
        let fate = if seed == 0 { Fate::Lost } else { Fate::Mixed };
        trial.world = trial.world.crash(seed, fate, fate);
        let opened = trial.world.open().expect("it opens");
        let absent = trial.blocks - opened.blocks_cached;
        assert!(absent < 4 * 64, "{absent} of {} blocks are missing after a crash", trial.blocks);
        assert_eq!(trial.read_all(), absent, "what is there is a hit");
    }
    trial.rewrite(trial.blocks / 2);
    assert_eq!(trial.counters().evicted_blocks, 0);
    // What the crashes took was read from the origin meanwhile. A few of those blocks, 7 of 12,288,
    // are still in the window.
    let absent = trial.absent();
    assert!(absent < LONG, "{absent} of {} blocks are absent", trial.blocks);
}

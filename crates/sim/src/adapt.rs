// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how soon a cache full of junk, which nobody wants any more, holds the data that clients
//! ask for now. BitFolk's blog of 2017 made this experiment with lvmcache.
//!
//! The cache is full of junk. Then come random reads of 4 KiB after Zipf's law with exponent 1.2.
//! Their data would fit into the cache, or is twelve times as large. Popular blocks lie scattered,
//! as fio has them. There is a read each millisecond, as in replays of traces without times.
//!
//! Junk are blocks that are never asked for again. Before the experiment each was read twice at
//! once, 64 KiB at a time, so that policies that want a second miss take it too. If a policy is not
//! full of junk then, all of the junk is read again.
//!
//! Beside this experiment there are [loads](load) that are made to hurt.
//!
//! Time is counted in rounds: as many reads as the cache has blocks. A turnover is longer: it lasts
//! until as many *different* blocks were asked for as the cache has. Before that, no cache that
//! takes the blocks that are asked for can hold what it should. The same reads go to all policies,
//! from a seed.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use flashfront_engine::policy::Spec;

use crate::policy::{Access, Build, UNIT_BLOCKS_MAX};
use crate::replay::Totals;
use crate::replay::clock::UNTIMED_NS;
use crate::replay::ledger::Ledger;

pub mod load;
#[cfg(test)]
mod tests;

use load::{Case, HOT_PASSES, Junk};

/// The exponent of Zipf's law.
pub const SKEW: f64 = 1.2;

/// Points of the curve over time in a round.
pub const POINTS: u64 = 8;

/// Caches that the experiment can be made with: below, policies with large units have too few;
/// above, the reads take too much RAM.
pub const CACHE_BLOCKS: RangeInclusive<u64> = 1 << 10..=1 << 24;

/// The rounds that an experiment can have. With more, the numbers of reads take too much RAM.
pub const ROUNDS: RangeInclusive<u64> = 1..=64;

/// The place of junk: beyond all data, at the beginning of any unit.
const JUNK: u64 = 1 << 40;

/// The most times that all of the junk is read. Most policies are full of it after the first time,
/// SMQ with blocks of 4 KiB after some ten.
const JUNK_PASSES: u32 = 16;

/// The experiment that is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The cache's size, of [`CACHE_BLOCKS`].
    pub cache_blocks: u64,
    /// The length, of [`ROUNDS`]. A round has as many reads as the cache has blocks.
    pub rounds: u64,
    /// The seed that the reads are drawn from.
    pub seed: u64,
}

/// The properties of the reads, whichever cache gets them.
#[derive(Clone, Debug)]
pub struct Reads {
    /// The number of different blocks that can be asked for.
    pub data_blocks: u64,
    /// The hit ratio of a cache that always holds the most popular blocks, as many as it has room
    /// for. The law tells it if the reads follow Zipf's law alone; otherwise the reads do.
    pub static_optimum: f64,
    /// The number of different blocks that were asked for up to each point. Any cache must read
    /// them from the origin, however large it is.
    pub compulsory_blocks: Vec<u64>,
    /// For each point, the point that is a turnover later. Until then as many different blocks were
    /// asked for as the cache has. The list is shorter than the list of points, as the last points
    /// have no turnover.
    pub turnovers: Vec<usize>,
}

impl Reads {
    /// The point at which as many different blocks were asked for as the cache has. `None` if they
    /// never were.
    #[must_use]
    pub fn turnover(&self) -> Option<usize> {
        self.turnovers.first().copied()
    }
}

/// The figures of one policy.
#[derive(Clone, Debug)]
pub struct Adapted {
    /// The policy's name.
    pub policy: &'static str,
    /// The cache's size in blocks: whole units of the policy.
    pub cache_blocks: u64,
    /// The junk blocks in the cache when the reads began. Nothing else was in it.
    pub junk_blocks: u64,
    /// The totals up to each point, without the junk. All are zero at the first point.
    pub points: Vec<Totals>,
}

/// A case of the experiment.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The case.
    pub case: &'static Case,
    /// Reads between two points.
    pub step: u64,
    /// The reads of the case.
    pub reads: Reads,
    /// The policies, in the order asked for.
    pub rows: Vec<Adapted>,
}

impl Findings {
    /// The point that ends this round.
    #[must_use]
    pub fn end_of_round(&self, round: u64) -> usize {
        (round * POINTS) as usize
    }

    /// The number of points.
    #[must_use]
    pub fn points(&self) -> usize {
        self.reads.compulsory_blocks.len() - 1
    }

    /// The hit ratio of a policy between two points.
    #[must_use]
    pub fn hit_ratio(&self, row: &Adapted, from: usize, to: usize) -> f64 {
        (row.points[to].hits - row.points[from].hits) as f64 / ((to - from) as u64 * self.step) as f64
    }

    /// The hit ratio of a cache that has room for everything. No other cache that takes the blocks
    /// that are asked for can do better.
    #[must_use]
    pub fn unlimited_hit_ratio(&self, from: usize, to: usize) -> f64 {
        let all = &self.reads.compulsory_blocks;
        1.0 - (all[to] - all[from]) as f64 / ((to - from) as u64 * self.step) as f64
    }

    /// The round, counted from 1, in which a policy had the fewest hits compared with LRU. The
    /// second figure is how many fewer, as a share of all reads. `None` without an LRU.
    #[must_use]
    pub fn worst_round(&self, row: &Adapted) -> Option<(u64, f64)> {
        let lru = self.rows.iter().find(|row| row.policy == "lru")?;
        let below = |round: u64| {
            let (from, to) = (self.end_of_round(round - 1), self.end_of_round(round));
            (round, self.hit_ratio(lru, from, to) - self.hit_ratio(row, from, to))
        };
        (1..=self.points() as u64 / POINTS).map(below).max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// How many fewer hits than LRU a policy had in its worst turnover, which may begin at any
    /// point. `None` without an LRU or a turnover.
    #[must_use]
    pub fn worst_turnover(&self, row: &Adapted) -> Option<f64> {
        let lru = self.rows.iter().find(|row| row.policy == "lru")?;
        let turnovers = self.reads.turnovers.iter().enumerate();
        let below = turnovers.map(|(from, &to)| self.hit_ratio(lru, from, to) - self.hit_ratio(row, from, to));
        below.max_by(f64::total_cmp)
    }

    /// The blocks read from the origin up to a point, for each block that had to be read.
    #[must_use]
    pub fn origin_reads_per_compulsory(&self, row: &Adapted, point: usize) -> f64 {
        row.points[point].origin_read_blocks as f64 / self.reads.compulsory_blocks[point].max(1) as f64
    }

    /// The points of the eighth of a round that follows the first turnover.
    #[must_use]
    pub fn after_turnover(&self) -> Option<(usize, usize)> {
        self.reads.turnover().filter(|at| *at < self.points()).map(|at| (at, at + 1))
    }
}

impl Experiment {
    fn step(&self) -> u64 {
        self.cache_blocks / POINTS
    }

    /// The number of reads of a case that count, for each policy.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.rounds * POINTS * self.step()
    }

    /// Runs a case; adds the reads that each policy has seen to `done`.
    ///
    /// # Panics
    /// If [`CACHE_BLOCKS`] or [`ROUNDS`] don't allow it.
    #[must_use]
    pub fn run(&self, case: &'static Case, policies: &[&'static Spec<Build>], done: &AtomicU64) -> Findings {
        assert!(
            CACHE_BLOCKS.contains(&self.cache_blocks) && ROUNDS.contains(&self.rounds),
            "{self:?} is too large or small"
        );
        let (blocks, reads) = self.draw(case);
        let next =
            if policies.iter().any(|spec| spec.build.foresees) { next(&blocks, reads.data_blocks) } else { Vec::new() };
        let (turn, threads) = (AtomicUsize::new(0), thread::available_parallelism().map_or(1, usize::from));
        let mut rows = thread::scope(|scope| {
            let worker = || {
                let mut rows = Vec::new();
                loop {
                    let nth = turn.fetch_add(1, Ordering::Relaxed);
                    let Some(spec) = policies.get(nth) else { break rows };
                    rows.push((nth, self.adapt(spec, case.junk, &blocks, &next, done)));
                }
            };
            let workers: Vec<_> = (0..threads.min(policies.len())).map(|_| scope.spawn(worker)).collect();
            let joined = workers.into_iter().flat_map(|it| match it.join() {
                Ok(rows) => rows,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect::<Vec<_>>()
        });
        rows.sort_by_key(|row| row.0);
        Findings { case, step: self.step(), reads, rows: rows.into_iter().map(|row| row.1).collect() }
    }

    /// The blocks that are asked for, one after the other.
    fn draw(&self, case: &Case) -> (Vec<u32>, Reads) {
        let load::Drawn { blocks, data_blocks, static_optimum } = (case.draw)(self);
        let mut counts = vec![0_u32; data_blocks as usize];
        let (mut compulsory_blocks, mut different) = (vec![0], 0);
        for step in blocks.chunks(self.step() as usize) {
            for &block in step {
                let count = &mut counts[block as usize];
                different += u64::from(*count == 0);
                *count += 1;
            }
            compulsory_blocks.push(different);
        }
        let turnovers = self.turnovers(&blocks, data_blocks);
        let static_optimum = static_optimum.unwrap_or_else(|| {
            counts.sort_unstable_by(|one, other| other.cmp(one));
            let held = counts.iter().take(self.cache_blocks as usize);
            held.map(|count| f64::from(*count)).sum::<f64>() / blocks.len() as f64
        });
        (blocks, Reads { data_blocks, static_optimum, compulsory_blocks, turnovers })
    }

    /// For each point, the point that is a turnover later, as long as there is such a point.
    fn turnovers(&self, blocks: &[u32], data_blocks: u64) -> Vec<usize> {
        let steps: Vec<&[u32]> = blocks.chunks(self.step() as usize).collect();
        // How often each block is asked for between the two points, and how many different blocks
        // there are.
        let (mut counts, mut different) = (vec![0_u32; data_blocks as usize], 0);
        let (mut turnovers, mut to) = (Vec::new(), 0);
        for from in &steps {
            while different < self.cache_blocks {
                let Some(step) = steps.get(to) else { return turnovers };
                for &block in *step {
                    different += u64::from(counts[block as usize] == 0);
                    counts[block as usize] += 1;
                }
                to += 1;
            }
            turnovers.push(to);
            for &block in *from {
                counts[block as usize] -= 1;
                different -= u64::from(counts[block as usize] == 0);
            }
        }
        turnovers
    }

    fn adapt(&self, spec: &Spec<Build>, junk: Junk, blocks: &[u32], next: &[u32], done: &AtomicU64) -> Adapted {
        let mut ledger = Ledger::new(&spec.build, self.cache_blocks);
        let time_ns = match junk {
            Junk::Cold => self.fill_with_junk(&mut ledger, spec.build.unit_blocks),
            Junk::Hot => self.fill_with_hot_junk(&mut ledger, spec.build.unit_blocks),
        };
        let (junk_blocks, before) = (ledger.cached_blocks(), ledger.totals());
        let junk_reads = before.accesses;
        let mut points = vec![Totals::default()];
        let mut nth = 0;
        for step in blocks.chunks(self.step() as usize) {
            for &block in step {
                let next = match next.get(nth) {
                    Some(&NEVER) | None => u64::MAX,
                    Some(&next) => junk_reads + u64::from(next),
                };
                nth += 1;
                let time_ns = time_ns + nth as u64 * UNTIMED_NS;
                ledger.access(
                    &Access { key: ledger.unit(u64::from(block)), write: false, time_ns, first: true, next },
                    1,
                );
            }
            points.push(ledger.totals() - before);
            done.fetch_add(step.len() as u64, Ordering::Relaxed);
        }
        Adapted { policy: spec.name, cache_blocks: ledger.cache_blocks(), junk_blocks, points }
    }

    /// Reads as many blocks as the cache has, in order, each request twice. Repeats that until the
    /// cache is full. Returns the time of the end.
    fn fill_with_junk(&self, ledger: &mut Ledger, unit_blocks: u64) -> u64 {
        let (mut time_ns, mut nth) = (0, 0);
        for _ in 0..JUNK_PASSES {
            let before = ledger.cached_blocks();
            for request in 0..self.cache_blocks.div_ceil(UNIT_BLOCKS_MAX) {
                let blocks = JUNK + request * UNIT_BLOCKS_MAX..JUNK + (request + 1) * UNIT_BLOCKS_MAX;
                for again in [true, false] {
                    time_ns += UNTIMED_NS;
                    for block in blocks.clone().step_by(unit_blocks as usize) {
                        // A policy that foresees admits all that it misses, so it needs only one
                        // pass.
                        let next = if again { nth + UNIT_BLOCKS_MAX / unit_blocks } else { u64::MAX };
                        ledger.access(
                            &Access {
                                key: ledger.unit(block),
                                write: false,
                                time_ns,
                                first: block == blocks.start,
                                next,
                            },
                            unit_blocks,
                        );
                        nth += 1;
                    }
                }
            }
            // A log is never full to the last block. Junk that was read more often than needed
            // would be harder to leave behind.
            let cached = ledger.cached_blocks();
            let no_more = cached < before + self.cache_blocks / 64 && cached > self.cache_blocks / 2;
            if cached * 100 >= self.cache_blocks * 95 || no_more {
                break;
            }
        }
        time_ns
    }

    /// Reads blocks of 0.9 caches in turn, again and again. Returns the time of the end.
    fn fill_with_hot_junk(&self, ledger: &mut Ledger, unit_blocks: u64) -> u64 {
        let (mut time_ns, mut nth) = (0, 0);
        let requests = self.cache_blocks * 9 / 10 / UNIT_BLOCKS_MAX;
        for pass in 1..=HOT_PASSES {
            for request in 0..requests {
                time_ns += UNTIMED_NS;
                let first = JUNK + request * UNIT_BLOCKS_MAX;
                for block in (first..first + UNIT_BLOCKS_MAX).step_by(unit_blocks as usize) {
                    let next =
                        if pass < HOT_PASSES { nth + requests * UNIT_BLOCKS_MAX / unit_blocks } else { u64::MAX };
                    ledger.access(
                        &Access { key: ledger.unit(block), write: false, time_ns, first: block == first, next },
                        unit_blocks,
                    );
                    nth += 1;
                }
            }
        }
        time_ns
    }
}

/// In the result of [`next`]: the block is not read again.
const NEVER: u32 = u32::MAX;

/// The number of the next read of the same block, for each read.
fn next(blocks: &[u32], data_blocks: u64) -> Vec<u32> {
    let mut upcoming = vec![NEVER; data_blocks as usize];
    let mut next = vec![NEVER; blocks.len()];
    for (nth, &block) in blocks.iter().enumerate().rev() {
        next[nth] = std::mem::replace(&mut upcoming[block as usize], nth as u32);
    }
    next
}

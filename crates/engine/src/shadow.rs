// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shadow tells what would be if the cache had another size. It has small models of the cache,
//! fed with a sample of the blocks.
//!
//! A block is in the sample if a hash of its key says so: one in 2^n. A model with 1/2^n of the
//! cache's size sees of these blocks what the whole cache sees of all. (SHARDS: Waldspurger et al.,
//! FAST 2015. Miniature simulations of any policy: the same authors, USENIX ATC 2017.) So four
//! [`Model`]s of the policy that runs answer for half, the same, twice and four times the size.
//! With the duels below they take at most 4 MiB. Neighbours of a miss may be read along. Then all
//! blocks of such a unit are in the sample, or none: else a model could see no neighbours.
//!
//! The sample has limits:
//! - At most one block in 32 is in it. So the shadow costs 160 ns a block at worst, of 13 us that
//!   the daemon needs for a request of one block.
//! - At most 16,384 blocks are in it for the present size. Caches of 2 GiB and more have 8,192 to
//!   16,384 (test: `it_fits_in_4_mib`). Smaller caches have fewer, and their answers are worse.
//!   Below 32 MiB ([`Shadow::BLOCKS_MIN`]) there are none.
//! - Chance decides what share of the accesses is in it, most of all with a few hot blocks. Misses
//!   are hardly those. So misses are counted against the accesses that should be in the sample
//!   (SHARDS-adj).
//! - The true number of misses with the present size is known. The error of the sample there is
//!   taken for the error with the other sizes, too ([`misses`]).
//!
//! For each size a [`Duel`] says whether the policy's gate is held open. With the present size the
//! engine does what the duel says.
//!
//! The answers are about recent times: the last four to eight rounds. A round is as many accesses
//! as the cache has blocks. The shadow doesn't know the time: dirty blocks are written to the
//! origin when they leave.

mod duel;
mod lru;
mod model;
mod shift;
#[cfg(test)]
mod tests;
mod totals;
mod unseen;

use alloc::vec::Vec;
use core::ops::Range;

pub use duel::Duel;
pub use model::{Model, Reaction, Shape};
pub use totals::{Occupancy, Totals};

use crate::policy::{self, Hold, mix};

/// The sizes that are modelled, in halves of the present one.
const HALVES: [u32; 4] = [1, 2, 4, 8];
/// The place of the present size in [`HALVES`].
const PRESENT: usize = 1;
/// At most one block in 2^5 is sampled.
const BITS_MIN: u32 = 5;
/// The most blocks of the model of the present size.
const SAMPLED_BLOCKS_MAX: u64 = 1 << 14;
/// The most segments of a model. Segments of a duel's smallest sample are still large enough to be
/// sparse.
const SEGMENTS_MAX: u64 = 256;
/// Segments that a model keeps free: for both zones, and one more.
const FREE_SEGMENTS: u64 = 3;
/// Rounds after which older counts are forgotten.
const ROUNDS: u64 = 4;
/// The fewest sampled accesses for an answer.
const ACCESSES_MIN: u64 = 1000;
/// The salt keeps the sample independent of the places where the models' ghosts keep its blocks.
const SALT: u64 = 0x9e37_79b9_7f4a_7c15;

/// An access to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They are read.
    Read,
    /// A stream that passes the cache reads them.
    ReadPast,
    /// They are written, in writeback mode.
    Write,
    /// They are written, in writethrough mode.
    WriteThrough,
    /// They are written past the cache, which forgets them.
    WritePast,
}

/// Counts of blocks that the whole cache had when they were asked for, so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// They were read.
    pub read: u64,
    /// They were written, in writeback mode.
    pub written: u64,
}

/// The state of the whole cache at this moment.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// The blocks that it had.
    pub found: Found,
    /// Whether a miss brings its neighbours: the origin is slow to get to a block.
    pub reads_around: bool,
}

/// The answer for a cache of another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// The size, of which 100 is the present one.
    pub size_percent: u32,
    /// The counts of recent times, over all accesses.
    pub totals: Totals,
    /// Whether such a cache would be full by now. Until then its figures may still get better.
    pub filled: bool,
}

/// Models of the cache in four sizes.
pub struct Shadow {
    /// For each size, whether the gate would be held open. With the present size the engine does
    /// what the duel says.
    duels: [Option<Duel>; HALVES.len()],
    /// The sample: one block in 2^bits; without models there is none.
    bits: u32,
    /// A block that is not in this sample is in no other.
    least_bits: u32,
    models: Vec<Model>,
    /// Blocks that are read around a miss. All of such a unit is in the models' sample, or nothing.
    unit_blocks: u64,
    /// Accesses so far when the models were told last.
    told_at: u64,
    /// Counts over all accesses.
    all: Seen,
    /// Sampled accesses.
    sampled: u64,
    round: u64,
    /// When the model of the present size was full.
    full_at: Option<u64>,
    /// The counts one and two times [`ROUNDS`] ago, the older first. `marked_at` tells when the
    /// newer was taken.
    marks: [Mark; 2],
    marked_at: u64,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    accesses: u64,
    reads: u64,
    absorbed: u64,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    all: Seen,
    found: Found,
    totals: [Totals; HALVES.len()],
}

impl Shadow {
    /// The most memory that a shadow takes.
    pub const BYTES_MAX: u64 = 4 << 20;

    /// The smallest cache with answers.
    pub const BLOCKS_MIN: u64 = 1 << 13;

    /// A shadow for a cache of that shape. For a cache that is too small it has no answers.
    #[must_use]
    pub fn new(cache: Shape, policy: policy::Build) -> Self {
        let bits = cache.blocks().div_ceil(SAMPLED_BLOCKS_MAX).next_power_of_two().trailing_zeros().max(BITS_MIN);
        let sizes: &[u32] = if cache.blocks() < Self::BLOCKS_MIN { &[] } else { &HALVES };
        let present = Duel::of(cache, policy);
        // A smaller size would be sampled more densely, which costs the most.
        let bits_min = present.as_ref().map_or(0, Duel::bits);
        let mut duels = HALVES.map(|halves| match halves {
            2 => None,
            _ if sizes.is_empty() => None,
            _ => Duel::sampled(resized(cache, halves), policy, bits_min),
        });
        duels[PRESENT] = present;
        Self {
            least_bits: duels.iter().flatten().map(Duel::bits).chain([bits]).min().unwrap_or(bits),
            duels,
            bits,
            models: sizes.iter().map(|halves| Model::new(sampled(cache, *halves, bits), policy)).collect(),
            unit_blocks: cache.read_around_blocks.max(1),
            told_at: 0,
            all: Seen::default(),
            sampled: 0,
            round: cache.blocks() >> bits,
            full_at: None,
            marks: [Mark::default(); 2],
            marked_at: 0,
        }
    }

    /// Notes that a request does this to these blocks. Returns whether the policy's gate is to be
    /// held open from now on, if that has changed. `live` is asked for the state of the whole
    /// cache, only if that matters.
    pub fn note(&mut self, access: Access, keys: Range<u64>, live: impl FnOnce() -> Live) -> Option<Hold> {
        let blocks = keys.end - keys.start;
        self.all.accesses += blocks;
        self.all.reads += if matches!(access, Access::Read | Access::ReadPast) { blocks } else { 0 };
        self.all.absorbed += if access == Access::Write { blocks } else { 0 };
        let hold = self.note_duels(access, keys.clone());
        self.note_units(access, keys, live);
        hold
    }

    fn note_duels(&mut self, access: Access, keys: Range<u64>) -> Option<Hold> {
        let least_bits = self.least_bits;
        let mut sampled = keys.map(|key| (key, mix(key ^ SALT))).filter(|(_, hash)| is_sampled(*hash, least_bits));
        let first = sampled.next()?;
        self.note_sampled(access, core::iter::once(first).chain(sampled))
    }

    /// Notes what a request does to the blocks that a duel samples. (Few requests do any: this is
    /// not inlined, so that the others needn't save registers for it.)
    #[inline(never)]
    fn note_sampled(&mut self, access: Access, sampled: impl Iterator<Item = (u64, u64)>) -> Option<Hold> {
        let before = self.holds();
        for (key, hash) in sampled {
            self.duels.iter_mut().flatten().for_each(|duel| duel.note_hashed(access, key, hash));
        }
        let holds = self.holds();
        if holds != before {
            self.models.iter_mut().zip(holds).for_each(|(model, hold)| model.hold_gate(hold));
        }
        (holds[PRESENT] != before[PRESENT]).then_some(holds[PRESENT])
    }

    fn note_units(&mut self, access: Access, keys: Range<u64>, live: impl FnOnce() -> Live) {
        if self.models.is_empty() {
            return;
        }
        let unit_blocks = self.unit_blocks;
        let first = keys.start / unit_blocks;
        // Mostly there is one unit: this saves a division.
        let end = if keys.end <= (first + 1) * unit_blocks { first + 1 } else { keys.end.div_ceil(unit_blocks) };
        let bits = self.bits;
        let mut sampled = (first..end).filter(|unit| is_sampled(mix(unit ^ SALT), bits)).peekable();
        if sampled.peek().is_none() {
            return;
        }
        let live = live();
        let passed = self.all.accesses - core::mem::replace(&mut self.told_at, self.all.accesses);
        self.models.iter_mut().for_each(|model| model.time_passes(passed));
        for unit in sampled {
            let first = unit * unit_blocks;
            let blocks = keys.start.max(first)..keys.end.min(first + unit_blocks);
            blocks.for_each(|key| self.sample(access, key, live.found));
        }
        for model in &mut self.models {
            if live.reads_around {
                model.neighbours_come_of(keys.clone());
            } else {
                model.alone();
            }
        }
    }

    fn holds(&self) -> [Hold; HALVES.len()] {
        self.duels.each_ref().map(|duel| duel.as_ref().map_or(Hold::No, Duel::hold))
    }

    fn sample(&mut self, access: Access, key: u64, found: Found) {
        self.sampled += 1;
        self.models.iter_mut().for_each(|model| apply(model, access, key));
        if self.full_at.is_none() && self.models[PRESENT].filled() {
            // The counts while it filled say nothing about a full cache.
            self.full_at = Some(self.sampled);
            self.marks = [self.mark(found); 2];
            self.marked_at = self.sampled;
        } else if self.sampled - self.marked_at >= ROUNDS * self.round {
            self.marks = [self.marks[1], self.mark(found)];
            self.marked_at = self.sampled;
        }
    }

    fn mark(&self, found: Found) -> Mark {
        let mut mark = Mark { all: self.all, found, ..Mark::default() };
        for (totals, model) in mark.totals.iter_mut().zip(&self.models) {
            *totals = model.totals();
        }
        mark
    }

    /// The answers for the sizes that are modelled, the present one among them. `found`: the hits
    /// of the whole cache so far. The list is empty while the answer is not known.
    ///
    /// The answer is known a thousand sampled accesses after a cache of the present size would be
    /// full. If that is not so after four rounds, the answer is known then.
    #[must_use]
    pub fn what_if(&self, found: Found) -> Vec<WhatIf> {
        let needed = self.full_at.map_or(ROUNDS * self.round, |full| full + ACCESSES_MIN);
        if self.sampled < needed.max(ACCESSES_MIN) { Vec::new() } else { self.since(&self.marks[0], found) }
    }

    /// The answers for the sizes that are modelled, from the first access on, however few there
    /// were.
    #[must_use]
    pub fn what_if_from_the_start(&self, found: Found) -> Vec<WhatIf> {
        self.since(&Mark::default(), found)
    }

    fn since(&self, mark: &Mark, found: Found) -> Vec<WhatIf> {
        let models = HALVES.iter().zip(&self.models).zip(&mark.totals);
        let said = models.map(|((halves, model), before)| WhatIf {
            size_percent: halves * 50,
            totals: self.of_all(model.totals() - *before, mark),
            filled: model.filled(),
        });
        let mut said: Vec<WhatIf> = said.collect();
        if let Some(present) = said.get(PRESENT).map(|it| it.totals) {
            let so = Found { read: found.read - mark.found.read, written: found.written - mark.found.written };
            said.iter_mut().for_each(|it| it.totals = corrected(it.totals, present, so));
        }
        said
    }

    /// Scales counts of the sample up to all accesses.
    fn of_all(&self, found: Totals, mark: &Mark) -> Totals {
        let accesses = self.all.accesses - mark.all.accesses;
        let reads = self.all.reads - mark.all.reads;
        let absorbed = self.all.absorbed - mark.all.absorbed;
        let whole = |sampled: u64| sampled << self.bits;
        Totals {
            accesses,
            reads,
            hits: accesses.saturating_sub(whole(found.accesses - found.hits)),
            read_hits: reads.saturating_sub(whole(found.reads - found.read_hits)),
            write_hits: absorbed.saturating_sub(whole(found.absorbed_blocks - found.write_hits)),
            fill_blocks: whole(found.fill_blocks),
            absorbed_blocks: absorbed,
            reinserted_blocks: whole(found.reinserted_blocks),
            origin_read_blocks: whole(found.origin_read_blocks),
            origin_write_blocks: whole(found.origin_write_blocks),
        }
    }

    /// Memory of the shadow.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.models.iter().map(Model::bytes).sum::<u64>() + self.duels.iter().flatten().map(Duel::bytes).sum::<u64>()
    }
}

/// Corrects the counts of a size. `present`: the counts of the model of the present size. `so`: the
/// blocks that the present size really had.
fn corrected(said: Totals, present: Totals, so: Found) -> Totals {
    let read_misses = |totals: Totals| totals.reads - totals.read_hits;
    let write_misses = |totals: Totals| totals.absorbed_blocks - totals.write_hits;
    let missed = misses(read_misses(said), read_misses(present), said.reads.saturating_sub(so.read));
    let missed_writes =
        misses(write_misses(said), write_misses(present), said.absorbed_blocks.saturating_sub(so.written));
    let (read_hits, write_hits) =
        (said.reads.saturating_sub(missed), said.absorbed_blocks.saturating_sub(missed_writes));
    let others = said.hits.saturating_sub(said.read_hits + said.write_hits);
    let origin_read_blocks = match read_misses(said) {
        0 => said.origin_read_blocks,
        misses => (said.origin_read_blocks as f64 * missed as f64 / misses as f64) as u64,
    };
    Totals { hits: read_hits + write_hits + others, read_hits, write_hits, origin_read_blocks, ..said }
}

/// How many misses a size really has. `said`: the figure of its model. `said_present` and
/// `so_present`: the figure of the model of the present size, and the truth.
///
/// The sample errs in the same direction for all sizes, as it has more hot units than there should
/// be, or fewer. Facts that no model knows, like the earlier content of the cache, are unknown to
/// all models. A larger cache, which misses less, is wrong by less.
fn misses(said: u64, said_present: u64, so_present: u64) -> u64 {
    let wrong = so_present as f64 - said_present as f64;
    let part = if said < said_present { said as f64 / said_present as f64 } else { 1.0 };
    (said as f64 + wrong * part).max(0.0) as u64
}

/// Whether a block of that hash is in the sample of one in 2^bits.
fn is_sampled(hash: u64, bits: u32) -> bool {
    bits == 0 || hash >> (64 - bits) == 0
}

fn apply(model: &mut Model, access: Access, key: u64) {
    match access {
        Access::Read => drop(model.read(key)),
        Access::ReadPast => model.read_past(key),
        Access::Write => drop(model.write(key)),
        Access::WriteThrough => model.write_through(key),
        Access::WritePast => model.write_past(key),
    }
}

/// The shape of a cache of `halves` halves of another.
fn resized(cache: Shape, halves: u32) -> Shape {
    let window_blocks = (cache.window_blocks * halves as usize / 2).min(policy::Window::BLOCKS_MAX as usize);
    Shape { segments: (u64::from(cache.segments) * u64::from(halves) / 2) as u32, window_blocks, ..cache }
}

/// The shape of a model of a cache of `halves` that sees one unit in 2^bits, with neighbours. Its
/// window has full size, as unseen blocks share it.
fn sampled(cache: Shape, halves: u32, bits: u32) -> Shape {
    let Shape { window_blocks, read_around_blocks, .. } = resized(cache, halves);
    Shape { window_blocks, read_around_blocks, ..scaled(cache, halves, bits) }
}

/// The shape of a model of `halves` halves of a cache, for one block in 2^bits, each alone.
fn scaled(cache: Shape, halves: u32, bits: u32) -> Shape {
    let scale = |blocks: u64| ((blocks * u64::from(halves)) >> bits >> 1).max(1);
    // A cache has no blocks in the room that it keeps free. A model is not charged for the room
    // that it must keep free.
    let usable = u64::from(cache.segments - cache.free_segments.min(cache.segments)) * u64::from(cache.segment_blocks);
    let usable = scale(usable);
    let segment_blocks = (usable / SEGMENTS_MAX).max(1);
    // The window of any cache has a largest size.
    let window = (cache.window_blocks as u64 * u64::from(halves) / 2).min(policy::Window::BLOCKS_MAX);
    Shape {
        segments: (usable / segment_blocks + FREE_SEGMENTS) as u32,
        segment_blocks: segment_blocks as u32,
        free_segments: FREE_SEGMENTS as u32,
        window_blocks: ((window + (1 << bits >> 1)) >> bits).max(1) as usize,
        stands_for: 1 << bits,
        read_around_blocks: 1,
    }
}

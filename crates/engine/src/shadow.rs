// SPDX-License-Identifier: MIT OR Apache-2.0
//! What would be if the cache had another size: small models of it, fed with a sample of the blocks.
//!
//! A block is in the sample if a hash of its key says so: one in 2^n. A cache of 1/2^n of the size sees of them what the
//! whole one sees of all (SHARDS: Waldspurger et al., FAST 2015; miniature simulations of any policy: the same, USENIX ATC 2017). So four
//! [`Model`]s of the policy that runs answer for half, the same, twice and four times the size, in at most 2 MiB.
//!
//! One in 32 blocks at most, so that it costs 94 ns a block at worst, of 13 us that the daemon needs for a request of one; and at most
//! 8,192 for the present size: caches of 512 MiB and more have 4,096 to 8,192 (test: `it_fits_in_2_mib`). Smaller ones have fewer, and their answers are worse;
//! below 32 MiB ([`Shadow::BLOCKS_MIN`]) there are none. What share of the accesses is in the sample is left to chance, most of all with
//! a few hot blocks; as misses are hardly those, misses are counted against the accesses that should be in it (SHARDS-adj).
//!
//! Of the present size and of each other one a [`Duel`] says whether the policy's gate is held open; of the present one the engine does it.
//!
//! What it says is about recent times: the last four to eight rounds, a round being as many accesses as the cache has blocks. It
//! knows neither what was in the cache when the daemon started nor the time: dirty blocks are written to the origin when they leave.

mod chains;
mod duel;
mod lru;
mod model;
mod shift;
#[cfg(test)]
mod tests;
mod totals;

use alloc::vec::Vec;
use core::ops::Range;

pub use duel::Duel;
pub use model::{Model, Outcome, Shape};
pub use totals::Totals;

use crate::policy::{self, Hold, mix};

/// The sizes that are modelled, in halves of the present one.
const HALVES: [u32; 4] = [1, 2, 4, 8];
/// Which of them is the present one.
const PRESENT: usize = 1;
/// At most one block in 2^5 is sampled.
const BITS_MIN: u32 = 5;
/// Blocks of the model of the present size, at most.
const SAMPLED_BLOCKS_MAX: u64 = 1 << 13;
/// Blocks that a duel samples, at most; a quarter of it for a size that is only modelled.
const DUEL_BLOCKS_MAX: u64 = 1 << 12;
/// Segments of a model, at most: more would only take memory.
const SEGMENTS_MAX: u64 = 1024;
/// Segments that a model keeps free: for both zones, and one more.
const FREE_SEGMENTS: u64 = 3;
/// Rounds after which what was counted before is forgotten.
const ROUNDS: u64 = 4;
/// Sampled accesses without which nothing is said.
const ACCESSES_MIN: u64 = 1000;
/// So that the sample has nothing to do with where the models' ghosts keep its blocks.
const SALT: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is done to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They are read.
    Read,
    /// They are read by a stream that passes the cache.
    ReadPast,
    /// They are written, in writeback mode.
    Write,
    /// They are written, in writethrough mode.
    WriteThrough,
    /// They are written past the cache, which forgets them.
    WritePast,
}

/// What would be with a cache of another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// The size, of which 100 is the present one.
    pub size_percent: u32,
    /// What would have been counted in recent times, over all accesses.
    pub totals: Totals,
    /// Whether it would be full by now; until then it may get better still.
    pub filled: bool,
}

/// Models of the cache in four sizes.
pub struct Shadow {
    /// For each size whether the gate would be held open; of the present one that is what the engine does.
    duels: [Option<Duel>; HALVES.len()],
    /// One block in 2^bits is sampled; without models none is.
    bits: u32,
    /// Whatever is not in this sample is in nobody's.
    least_bits: u32,
    models: Vec<Model>,
    /// What was counted over all accesses.
    all: Seen,
    /// Sampled accesses.
    sampled: u64,
    round: u64,
    /// When the model of the present size was full.
    full_at: Option<u64>,
    /// What had been counted one and two times [`ROUNDS`] ago, the older first, and when the newer was.
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
    totals: [Totals; HALVES.len()],
}

impl Shadow {
    /// The most memory that it takes.
    pub const BYTES_MAX: u64 = 2 << 20;

    /// The smallest cache that it says something about.
    pub const BLOCKS_MIN: u64 = 1 << 13;

    /// For a cache of that shape. Of a cache that is too small it says nothing.
    #[must_use]
    pub fn new(cache: Shape, policy: policy::Build) -> Self {
        let bits = cache.blocks().div_ceil(SAMPLED_BLOCKS_MAX).next_power_of_two().trailing_zeros().max(BITS_MIN);
        let sizes: &[u32] = if cache.blocks() < Self::BLOCKS_MIN { &[] } else { &HALVES };
        let duels = HALVES.map(|halves| match halves {
            2 => Duel::new(cache, policy, DUEL_BLOCKS_MAX),
            _ if sizes.is_empty() => None,
            _ => Duel::new(resized(cache, halves), policy, DUEL_BLOCKS_MAX / 4),
        });
        Self {
            least_bits: duels.iter().flatten().map(Duel::bits).chain([bits]).min().unwrap_or(bits),
            duels,
            bits,
            models: sizes.iter().map(|halves| Model::new(scaled(cache, *halves, bits), policy)).collect(),
            all: Seen::default(),
            sampled: 0,
            round: cache.blocks() >> bits,
            full_at: None,
            marks: [Mark::default(); 2],
            marked_at: 0,
        }
    }

    /// A request does this to these blocks; whether the policy's gate is to be held open from now on, if that is something new.
    pub fn note(&mut self, access: Access, keys: Range<u64>) -> Option<Hold> {
        let blocks = keys.end - keys.start;
        self.all.accesses += blocks;
        self.all.reads += if matches!(access, Access::Read | Access::ReadPast) { blocks } else { 0 };
        self.all.absorbed += if access == Access::Write { blocks } else { 0 };
        let least_bits = self.least_bits;
        let hashed = keys.map(|key| (key, mix(key ^ SALT)));
        let mut sampled = hashed.filter(|(_, hash)| is_sampled(*hash, least_bits)).peekable();
        sampled.peek()?;
        let before = self.holds();
        for (key, hash) in sampled {
            self.duels.iter_mut().flatten().for_each(|duel| duel.note_hashed(access, key, hash));
            if is_sampled(hash, self.bits) && !self.models.is_empty() {
                self.sample(access, key);
            }
        }
        let holds = self.holds();
        if holds != before {
            self.models.iter_mut().zip(holds).for_each(|(model, hold)| model.hold_gate(hold));
        }
        (holds[PRESENT] != before[PRESENT]).then_some(holds[PRESENT])
    }

    fn holds(&self) -> [Hold; HALVES.len()] {
        self.duels.each_ref().map(|duel| duel.as_ref().map_or(Hold::No, Duel::hold))
    }

    fn sample(&mut self, access: Access, key: u64) {
        self.sampled += 1;
        self.models.iter_mut().for_each(|model| apply(model, access, key));
        if self.full_at.is_none() && self.models[PRESENT].filled() {
            // How it filled says nothing about how it does when it is full.
            self.full_at = Some(self.sampled);
            self.marks = [self.mark(); 2];
            self.marked_at = self.sampled;
        } else if self.sampled - self.marked_at >= ROUNDS * self.round {
            self.marks = [self.marks[1], self.mark()];
            self.marked_at = self.sampled;
        }
    }

    fn mark(&self) -> Mark {
        let mut mark = Mark { all: self.all, ..Mark::default() };
        for (totals, model) in mark.totals.iter_mut().zip(&self.models) {
            *totals = model.totals();
        }
        mark
    }

    /// What would be with the sizes that are modelled, the present one among them; empty while it is not known.
    ///
    /// Known it is a thousand sampled accesses after a cache of the present size would be full; or if it is not so after four rounds,
    /// since then more isn't asked for.
    #[must_use]
    pub fn what_if(&self) -> Vec<WhatIf> {
        let needed = self.full_at.map_or(ROUNDS * self.round, |full| full + ACCESSES_MIN);
        if self.sampled < needed.max(ACCESSES_MIN) { Vec::new() } else { self.since(&self.marks[0]) }
    }

    /// The same from the first access on, however few there were.
    #[must_use]
    pub fn what_if_from_the_start(&self) -> Vec<WhatIf> {
        self.since(&Mark::default())
    }

    fn since(&self, mark: &Mark) -> Vec<WhatIf> {
        let accesses = self.all.accesses - mark.all.accesses;
        let reads = self.all.reads - mark.all.reads;
        let models = HALVES.iter().zip(&self.models).zip(&mark.totals);
        let what_if = models.map(|((halves, model), before)| {
            let found = model.totals() - *before;
            let whole = |sampled: u64| sampled << self.bits;
            let totals = Totals {
                accesses,
                reads,
                hits: accesses.saturating_sub(whole(found.accesses - found.hits)),
                read_hits: reads.saturating_sub(whole(found.reads - found.read_hits)),
                fill_blocks: whole(found.fill_blocks),
                absorbed_blocks: self.all.absorbed - mark.all.absorbed,
                reinserted_blocks: whole(found.reinserted_blocks),
                origin_read_blocks: whole(found.origin_read_blocks),
                origin_write_blocks: whole(found.origin_write_blocks),
            };
            WhatIf { size_percent: halves * 50, totals, filled: model.filled() }
        });
        what_if.collect()
    }

    /// Memory it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.models.iter().map(Model::bytes).sum::<u64>() + self.duels.iter().flatten().map(Duel::bytes).sum::<u64>()
    }
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

/// The shape of a cache of so many halves of another.
fn resized(cache: Shape, halves: u32) -> Shape {
    let window_blocks = (cache.window_blocks * halves as usize / 2).min(policy::Window::BLOCKS_MAX as usize);
    Shape { segments: (u64::from(cache.segments) * u64::from(halves) / 2) as u32, window_blocks, ..cache }
}

/// The shape of a model of so many halves of a cache, for one block in 2^bits.
fn scaled(cache: Shape, halves: u32, bits: u32) -> Shape {
    let scale = |blocks: u64| ((blocks * u64::from(halves)) >> bits >> 1).max(1);
    // What a cache keeps free is not there for blocks; what a model must keep free is not charged to it.
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

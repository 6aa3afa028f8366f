// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache device is divided into buckets. They are filled from the front to the back once, then
//! reused as a whole under a new generation.
//!
//! A bucket may be reused if the last collection saw nothing dirty in it. Buckets with little live
//! data that weren't hit for long go first. This is bcache's `lru`, whose measure is age times live
//! sectors.
//!
//! A batch of buckets is invalidated at a time. Before it is used, its new generations are written
//! into buckets of that batch (`bch_prio_write`). A small cache has small batches. Below 1 GiB a
//! batch has four buckets, and one of them is for generations.

use std::collections::VecDeque;

use super::extent::Extent;

/// A bucket has 512 KiB, as in the comparison of 2015 (make-bcache's default).
pub(super) const BUCKET_BLOCKS: u32 = 128;
/// The priority of a bucket that was just hit.
const PRIORITY_MAX: u32 = 32_768;
/// Priorities fall by one each time 1/`PRIORITY_STEPS` of the cache was read or written.
const PRIORITY_STEPS: u64 = 1024;
/// A collection is due each time 1/`COLLECTIONS` of the cache was allocated.
const COLLECTIONS: u64 = 16;
/// The journal has 1/`JOURNAL_PART` of all buckets, 256 at most.
const JOURNAL_PART: u32 = 128;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    generation: u32,
    /// The step at which the bucket was hit.
    hit: u32,
    live: u16,
    dirty: u16,
    /// The writes into the bucket that have not ended.
    pins: u16,
    /// Whether the bucket has dirty data, by the last collection and by what was allocated since.
    marked_dirty: bool,
}

#[derive(Debug)]
pub(super) struct Buckets {
    all: Vec<Bucket>,
    /// The number of the first buckets, which are the journal's and the tree's.
    metadata: u32,
    ready: VecDeque<u32>,
    /// The buckets that hold the generations. They pin their buckets as writers do.
    priorities: Vec<u32>,
    /// The bucket that is being filled, and how far it is filled.
    open: Option<(u32, u32)>,
    /// The buckets that are invalidated at a time.
    batch: usize,
    /// The next batch is invalidated when no more buckets than this are ready.
    low: usize,
    step: u32,
    step_blocks: u64,
    collect_blocks: u64,
    /// The buckets that the last collection saw to have dirty data or metadata.
    in_use: u32,
}

impl Buckets {
    pub(super) fn new(bytes: u64) -> Self {
        let count = (bytes / (u64::from(BUCKET_BLOCKS) * 4096)) as u32;
        // The lists of free buckets have the kernel's lengths (`cache_alloc`): 1/1024 of all
        // buckets, and four times that.
        let low = (count.next_power_of_two() >> 10).max(1) as usize;
        let metadata = 2 * (count / JOURNAL_PART).clamp(2, 256);
        Self {
            all: vec![Bucket::default(); count as usize],
            metadata,
            ready: (metadata..count).take(5 * low).collect(),
            priorities: Vec::new(),
            open: None,
            batch: 4 * low,
            low,
            step: 0,
            step_blocks: 0,
            collect_blocks: 0,
            in_use: 0,
        }
    }

    const fn blocks(&self) -> u64 {
        self.all.len() as u64 * BUCKET_BLOCKS as u64
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.blocks() * 4096
    }

    /// The journal's first block and length in blocks. The tree's nodes have as much behind it.
    pub(super) const fn journal(&self) -> (u32, u32) {
        (0, self.metadata / 2 * BUCKET_BLOCKS)
    }

    /// Takes buckets of a batch for the priorities and generations of all buckets, 3 bytes each.
    /// The buckets that had them until now are released. Returns the new ones.
    pub(super) fn take_priorities(&mut self, batch: &mut Vec<u32>) -> Vec<u32> {
        let count = (self.all.len() * 3).div_ceil(BUCKET_BLOCKS as usize * 4096);
        let taken = batch.split_off(batch.len().saturating_sub(count));
        for old in std::mem::replace(&mut self.priorities, taken.clone()) {
            self.all[old as usize].pins -= 1;
        }
        taken.iter().for_each(|number| self.all[*number as usize].pins += 1);
        taken
    }

    /// The percentage of buckets that the last collection saw to be dirty or metadata.
    pub(super) const fn in_use_percent(&self) -> u32 {
        (self.in_use as u64 * 100 / self.all.len() as u64) as u32
    }

    /// The buckets in use.
    pub(super) fn in_use(&self) -> u64 {
        u64::from(self.in_use)
    }

    fn of(&mut self, place: u32) -> &mut Bucket {
        &mut self.all[(place / BUCKET_BLOCKS) as usize]
    }

    pub(super) fn is_valid(&self, extent: &Extent) -> bool {
        self.all[(extent.place / BUCKET_BLOCKS) as usize].generation == extent.generation
    }

    /// Blocks are mapped to this place.
    pub(super) fn hold(&mut self, place: u32, blocks: u32, dirty: bool) {
        let bucket = self.of(place);
        bucket.live += blocks as u16;
        bucket.dirty += if dirty { blocks as u16 } else { 0 };
    }

    /// Blocks are no longer mapped to this place.
    pub(super) fn forget(&mut self, place: u32, blocks: u32, dirty: bool) {
        let bucket = self.of(place);
        bucket.live -= blocks as u16;
        bucket.dirty -= if dirty { blocks as u16 } else { 0 };
    }

    /// Blocks are on the origin as well.
    pub(super) fn clean(&mut self, place: u32, blocks: u32) {
        self.of(place).dirty -= blocks as u16;
    }

    /// Notes that a bucket was read.
    pub(super) fn hit(&mut self, place: u32, blocks: u32) {
        let step = self.step;
        self.of(place).hit = step;
        self.moved(blocks);
    }

    /// Counts blocks that were read or written. They are the time that priorities go by.
    fn moved(&mut self, blocks: u32) {
        self.step_blocks += u64::from(blocks);
        let each = (self.blocks() / PRIORITY_STEPS).max(1);
        self.step += (self.step_blocks / each) as u32;
        self.step_blocks %= each;
    }

    /// Allocates up to `blocks` in one piece: the place, the number of blocks, and the generation.
    /// `None` if no bucket is ready.
    pub(super) fn allocate(&mut self, blocks: u32, dirty: bool) -> Option<(u32, u32, u32)> {
        let (number, filled) = match self.open {
            Some(open) => open,
            None => (self.ready.pop_front()?, 0),
        };
        let len = blocks.min(BUCKET_BLOCKS - filled);
        self.open = Some((number, filled + len)).filter(|(_, filled)| *filled < BUCKET_BLOCKS);
        let step = self.step;
        let bucket = &mut self.all[number as usize];
        if filled == 0 {
            (bucket.hit, bucket.marked_dirty) = (step, false);
        }
        bucket.marked_dirty |= dirty;
        bucket.pins += 1;
        let generation = bucket.generation;
        self.moved(len);
        self.collect_blocks += u64::from(len);
        Some((number * BUCKET_BLOCKS + filled, len, generation))
    }

    /// Allocated blocks are mapped, or never will be.
    pub(super) fn unpin(&mut self, place: u32) {
        self.of(place).pins -= 1;
    }

    /// Whether it is time to collect.
    pub(super) fn wants_collection(&self) -> bool {
        self.collect_blocks > self.blocks() / COLLECTIONS
    }

    /// Marks the buckets that have dirty data.
    pub(super) fn collect(&mut self) {
        self.collect_blocks = 0;
        let mut dirty = self.metadata;
        for bucket in &mut self.all {
            bucket.marked_dirty = bucket.dirty > 0 || (bucket.marked_dirty && bucket.pins > 0);
            dirty += u32::from(bucket.marked_dirty);
        }
        self.in_use = dirty;
    }

    /// Whether buckets should be made ready.
    pub(super) fn is_low(&self) -> bool {
        self.ready.len() <= self.low
    }

    /// Gives up the contents of a batch of buckets. They are [`Self::ready`] when their generations
    /// have been written.
    pub(super) fn invalidate(&mut self) -> Vec<u32> {
        let open = self.open.map(|(number, _)| number);
        let age = |bucket: &Bucket| (self.step - bucket.hit).min(PRIORITY_MAX);
        let data = self.all.iter().enumerate().skip(self.metadata as usize);
        let mut reusable: Vec<(u64, u32)> = Vec::new();
        let oldest = data.clone().map(|(_, bucket)| age(bucket)).max().unwrap_or(0);
        let mut ready = vec![false; self.all.len()];
        self.ready.iter().for_each(|number| ready[*number as usize] = true);
        for (number, bucket) in data {
            let is_open = open == Some(number as u32);
            if bucket.pins == 0 && !bucket.marked_dirty && !is_open && !ready[number] {
                let priority = u64::from(oldest - age(bucket)) + u64::from(oldest / 8) + 1;
                reusable.push((priority * u64::from(bucket.live), number as u32));
            }
        }
        if reusable.len() > self.batch {
            reusable.select_nth_unstable(self.batch);
            reusable.truncate(self.batch);
        }
        reusable.sort_unstable();
        for (_, number) in &reusable {
            let bucket = &mut self.all[*number as usize];
            bucket.generation += 1;
            (bucket.live, bucket.dirty) = (0, 0);
        }
        reusable.into_iter().map(|(_, number)| number).collect()
    }

    /// These buckets can be filled.
    pub(super) fn ready(&mut self, numbers: Vec<u32>) {
        self.ready.extend(numbers);
    }
}

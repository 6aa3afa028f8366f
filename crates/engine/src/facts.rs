// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts: what lanes may read of what they share, and never change.
//!
//! A step of a lane or of the coordinator gets `&Facts`. Between two steps the coordinator changes
//! them, in one place: [`crate::cx::Turn::change`]. So lanes that work at the same time read the
//! facts themselves, and no copy of them.

use alloc::vec::Vec;

use crate::fact::canary::Canary;
use crate::fact::memory::{Memory, Span};
use crate::fact::options::Options;
use crate::fact::types::{Block, Key, OriginId};
use crate::format::{Superblock, seal_checksum};
use crate::organ::index::Flat;
use crate::organ::origin::Origin;

/// What lanes may read of what they share.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) superblock: Superblock,
    pub(crate) cache_tag: u64,
    pub(crate) options: Options,
    /// All origins, by ascending ids and places. Those that are gone stay in their places.
    pub(crate) origins: Vec<Origin>,
    /// The dirty limit in force: the one that was set, or a lower one while the end is emptied.
    pub(crate) dirty_limit: u64,
    pub(crate) limit_set: u64,
    /// The limit of the cache without the end that is being emptied.
    pub(crate) limit_without_end: Option<u64>,
    /// The limit of the first origin, which counts where that is alone.
    pub(crate) limit_alone: u64,
    /// Some origin has a dirty limit of its own.
    pub(crate) any_own_limit: bool,
    /// Some origin has a smallest part, and some origin has that or a weight.
    pub(crate) any_min: bool,
    pub(crate) any_part: bool,
    /// Blocks that are shared by weight: half of the cache, without the smallest parts.
    pub(crate) weighed_blocks: u64,
    /// Origins that have a largest part, and whether there are any.
    pub(crate) with_max: Vec<usize>,
    pub(crate) any_max: bool,
    /// The most that was read at once around a miss of any origin, since the opening: the size of
    /// the buffers for that.
    pub(crate) widest_unit: u64,
    /// How often parts and limits were set.
    pub(crate) parts_number: u64,
    /// An origin that has dirty blocks takes none at the moment.
    pub(crate) away: bool,
    /// Everything is being destaged, and writes go to the origin.
    pub(crate) draining: bool,
    /// All requests are answered, and nothing new is begun.
    pub(crate) stopping: bool,
}

impl Facts {
    /// Takes over the limits of the cache, and those that volumes have of their own.
    pub(crate) fn take_limits(&mut self) {
        let limit = self.dirty_limit;
        for origin in &mut self.origins {
            let own = self.superblock.origin(origin.id).map_or_else(Default::default, |record| record.shares);
            origin.set_limits(own, limit, &self.options);
            self.widest_unit = self.widest_unit.max(origin.read_around_blocks);
        }
        self.limit_alone = self.origins.first().map_or(limit, |first| first.dirty_limit);
        self.any_min = self.origins.iter().any(|origin| origin.min_blocks > 0);
        self.any_part = self.origins.iter().any(Origin::has_part);
        let min_blocks: u64 = self.origins.iter().map(|origin| origin.min_blocks).sum();
        self.weighed_blocks = parts_max_blocks(&self.superblock).saturating_sub(min_blocks);
        let has_max = |it: &usize| self.origins[*it].max_blocks < u64::MAX && !self.planted(Canary::MaxIgnored);
        self.with_max = (0..self.origins.len()).filter(has_max).collect();
        self.any_max = !self.with_max.is_empty();
        self.parts_number += 1;
        self.any_own_limit = self.origins.iter().any(|origin| origin.dirty_limit < limit);
    }

    /// The name of a block.
    pub(crate) fn key(&self, flat: Flat) -> Key {
        let origin = &self.origins[self.origin_of(flat)];
        Key { origin: origin.id, block: Block(flat.0 - origin.base.0) }
    }

    /// The place of a block among all, if there is such a block.
    pub(crate) fn flat(&self, key: Key) -> Option<Flat> {
        let it = &self.origins[self.place_of(key.origin)?];
        (key.block.0 < it.blocks).then(|| Flat(it.base.0 + key.block.0))
    }

    /// The place of an origin in the lists of all.
    pub(crate) fn place_of(&self, id: OriginId) -> Option<usize> {
        match self.origins.as_slice() {
            // Mostly there is one.
            [only] => (only.id == id).then_some(0),
            all => all.binary_search_by_key(&id, |origin| origin.id).ok(),
        }
    }

    /// Whether this bug is planted: never, but in tests of the tests.
    pub(crate) fn planted(&self, canary: Canary) -> bool {
        self.options.planted(canary)
    }

    /// Which origin a block belongs to.
    pub(crate) fn origin_of(&self, flat: Flat) -> usize {
        // Mostly there is one, and each request asks some times.
        if self.origins.len() == 1 { 0 } else { self.origins.partition_point(|origin| origin.base <= flat) - 1 }
    }

    /// The checksum of a block in a buffer.
    pub(crate) fn checksum(&self, mem: &dyn Memory, flat: Flat, span: Span) -> u32 {
        self.seal(flat, mem.checksum(span))
    }

    /// The checksum of a block whose content has this CRC-32C.
    pub(crate) fn seal(&self, flat: Flat, crc: u32) -> u32 {
        seal_checksum(crc, self.key(flat), self.cache_tag)
    }
}

/// What reclaim may have to leave to volumes: half of the cache. The other half is what others
/// have, and what reclaim frees.
pub(crate) fn parts_max_blocks(superblock: &Superblock) -> u64 {
    superblock.cache_blocks() / 2
}

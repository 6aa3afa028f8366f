// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index knows which blocks of the origin are where on the cache device. It holds extents in
//! order, as the leaves of bcache's tree do.
//!
//! A key reaches from one block up to a bucket. A new one cuts what it overlaps and is joined to
//! the one before it if both are neighbours on both devices. An extent whose bucket was reused
//! since is stale: it counts for nothing and goes when it is met, or with the next collection.

use std::collections::BTreeMap;

use super::buckets::{BUCKET_BLOCKS, Buckets};
use super::extent::Extent;

/// A part of a range that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: u32,
    pub(super) len: u32,
    /// The place on the cache device; `None`: it isn't there.
    pub(super) place: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    /// The extents, by their first block on the origin.
    extents: BTreeMap<u32, Extent>,
    dirty_blocks: u64,
}

impl Index {
    pub(super) const fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    /// The number of extents.
    pub(super) fn keys(&self) -> usize {
        self.extents.len()
    }

    /// What of a range is cached, in order.
    pub(super) fn find(&self, buckets: &Buckets, start: u32, len: u32, pieces: &mut Vec<Found>) {
        pieces.clear();
        let (mut at, end) = (start, start + len);
        let before = self.extents.range(..=start).next_back().map_or(start, |(first, _)| *first);
        for (&first, extent) in self.extents.range(before..end) {
            if first + extent.len <= at || !buckets.is_valid(extent) {
                continue;
            }
            let from = first.max(at);
            if from > at {
                pieces.push(Found { start: at, len: from - at, place: None });
            }
            let to = (first + extent.len).min(end);
            pieces.push(Found { start: from, len: to - from, place: Some(extent.place + (from - first)) });
            at = to;
        }
        if at < end {
            pieces.push(Found { start: at, len: end - at, place: None });
        }
    }

    /// How many extents a range would be cut out of the middle of: each makes a key more.
    pub(super) fn splits(&self, buckets: &Buckets, start: u32, len: u32) -> u32 {
        let middle = self.extents.range(..start).next_back();
        let is_split = |(first, extent): (&u32, &Extent)| first + extent.len > start + len && buckets.is_valid(extent);
        u32::from(middle.is_some_and(is_split))
    }

    /// Forgets a range.
    pub(super) fn cut(&mut self, buckets: &mut Buckets, start: u32, len: u32) {
        let end = start + len;
        while let Some((&first, &extent)) = self.extents.range(..end).next_back() {
            let to = first + extent.len;
            if to <= start {
                return;
            }
            self.extents.remove(&first);
            if !buckets.is_valid(&extent) {
                continue;
            }
            let gone = to.min(end) - first.max(start);
            buckets.forget(extent.place, gone, extent.dirty);
            self.dirty_blocks -= u64::from(if extent.dirty { gone } else { 0 });
            if to > end {
                let cut = end - first;
                self.extents.insert(end, Extent { len: to - end, place: extent.place + cut, ..extent });
            }
            if first < start {
                self.extents.insert(first, Extent { len: start - first, ..extent });
                return;
            }
        }
    }

    /// Maps a range, in place of what was there.
    pub(super) fn insert(&mut self, buckets: &mut Buckets, start: u32, extent: Extent) {
        self.cut(buckets, start, extent.len);
        buckets.hold(extent.place, extent.len, extent.dirty);
        self.dirty_blocks += u64::from(if extent.dirty { extent.len } else { 0 });
        if let Some((first, before)) = self.extents.range_mut(..start).next_back() {
            let neighbours = first + before.len == start && before.place + before.len == extent.place;
            let alike = before.generation == extent.generation && before.dirty == extent.dirty;
            if neighbours && alike && before.place / BUCKET_BLOCKS == extent.place / BUCKET_BLOCKS {
                before.len += extent.len;
                return;
            }
        }
        self.extents.insert(start, extent);
    }

    /// The dirty extent that begins here.
    pub(super) fn dirty_at(&self, buckets: &Buckets, start: u32) -> Option<Extent> {
        self.extents.get(&start).copied().filter(|extent| extent.dirty && buckets.is_valid(extent))
    }

    /// What was written to the origin from this place is clean, as far as it wasn't rewritten
    /// since.
    pub(super) fn clean(&mut self, buckets: &mut Buckets, start: u32, written: Extent) {
        for (&first, extent) in self.extents.range_mut(start..start + written.len) {
            let same = extent.generation == written.generation && extent.place == written.place + (first - start);
            if same && extent.dirty {
                extent.dirty = false;
                buckets.clean(extent.place, extent.len);
                self.dirty_blocks -= u64::from(extent.len);
            }
        }
    }

    /// Beginnings of dirty extents from a block on, at most so many; whether the end was reached,
    /// and where to go on if not.
    pub(super) fn dirty_from(&self, buckets: &Buckets, from: u32, most: usize, found: &mut Vec<u32>) -> Option<u32> {
        for (&first, extent) in self.extents.range(from..) {
            if extent.dirty && buckets.is_valid(extent) {
                if found.len() == most {
                    return Some(first);
                }
                found.push(first);
            }
        }
        None
    }

    /// Drops what is stale.
    pub(super) fn sweep(&mut self, buckets: &Buckets) {
        self.extents.retain(|_, extent| buckets.is_valid(extent));
    }
}

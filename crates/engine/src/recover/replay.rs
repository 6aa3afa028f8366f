// SPDX-License-Identifier: MIT OR Apache-2.0
//! What replay does to the index, commit by commit.
//!
//! A freed segment takes all its blocks with it. The index can't be asked which those are, and a
//! table of every slot's block would cost as much memory as the index; so they stay for the time
//! being, and a walk over the index takes out those of many segments at once. Until then a segment
//! that was freed and written anew has a table of what is new in it.

use alloc::vec::Vec;

use super::state::Recovery;
use crate::cx::Cx;
use crate::format::{CommitHeader, Entry};
use crate::index::{Flat, Found};
use crate::lane::Lane;
use crate::types::Key;

/// The part of the segments that may be freed before the index is walked: the tables then take less
/// than half a byte per block of the cache, and a walk is due four times at most in replay of a
/// quarter.
const WALK_PART: usize = 16;

impl Lane {
    /// Does to the index what the commit did to it.
    pub(super) fn apply(&mut self, it: &mut Recovery, header: &CommitHeader, slot: u32, cx: &mut Cx<'_>) {
        it.commits += 1;
        self.log.segment_of(slot).last_seq = header.seq;
        for entry in &header.entries {
            if let Entry::Dirty { key, .. } | Entry::Clean { key, .. } | Entry::Cleaned { key, .. } = entry {
                self.expect_key(*key, cx);
            }
        }
        let slots = self.log.segment_slots();
        it.unproven.follow(header, slot);
        for (at, entry) in header.placed(slot) {
            match *entry {
                Entry::Dead => {}
                // Only the lead has the data of clean blocks, and what it has there is torn, or
                // older.
                Entry::Clean { key, .. } if it.member != cx.shared.members.lead => {
                    let Some(flat) = cx.shared.flat(key) else { continue };
                    self.unmap(flat, cx);
                }
                Entry::Dirty { key, checksum } | Entry::Clean { key, checksum } => {
                    let Some(flat) = cx.shared.flat(key) else { continue };
                    if let Some(table) = it.freed.0.get_mut(&(at / slots)) {
                        let table = table.get_or_insert_with(|| alloc::vec![0; slots as usize].into());
                        table[(at % slots) as usize] = flat.0 + 1;
                    }
                    let (dirty, checksum) = (matches!(entry, Entry::Dirty { .. }), self.index.kept(checksum));
                    self.map(flat, Found { slot: at, dirty, hits: 0, checksum }, cx);
                }
                Entry::Invalidate { key, blocks } => {
                    let Some(first) = cx.shared.flat(key) else { continue };
                    self.unmap_range(first, blocks, cx);
                }
                Entry::Cleaned { key, slot } => {
                    let Some(flat) = cx.shared.flat(key) else { continue };
                    if self.index.get(flat).is_some_and(|found| found.slot == slot && found.dirty) {
                        self.clean(flat, slot, cx);
                    }
                }
                Entry::Freed { segment } => {
                    it.freed.0.insert(segment, None);
                    // What is written there next may be clean blocks, which the lead alone has.
                    if let Some(freed) = self.log.segments.get_mut(segment as usize) {
                        freed.mirrored = false;
                    }
                    if it.freed.0.len() > self.log.segments.len() / WALK_PART {
                        self.forget_freed(it, cx);
                    }
                }
            }
        }
    }

    /// The index will be asked for this block: its place is fetched meanwhile, else each entry
    /// waits for RAM.
    pub(super) fn expect_key(&self, key: Key, cx: &Cx<'_>) {
        if let Some(flat) = cx.shared.flat(key) {
            cx.mem.expect(self.index.looks_at(flat));
        }
    }

    fn unmap_range(&mut self, first: Flat, blocks: u32, cx: &mut Cx<'_>) {
        let range = first..Flat(first.0 + u64::from(blocks));
        if u64::from(blocks) <= self.index.len() {
            (range.start.0..range.end.0).for_each(|flat| self.unmap(Flat(flat), cx));
            return;
        }
        let mut gone = Vec::new();
        self.index.for_each(|flat, _| gone.extend(range.contains(&flat).then_some(flat)));
        gone.into_iter().for_each(|flat| self.unmap(flat, cx));
    }

    /// Takes out of the index what may not be durable on its origin.
    pub(super) fn forget_unproven(&mut self, it: &mut Recovery, cx: &mut Cx<'_>) {
        for (key, slot) in core::mem::take(&mut it.unproven).at_end() {
            let Some(flat) = cx.shared.flat(key) else { continue };
            if self.index.get(flat).is_some_and(|found| found.slot == slot && !found.dirty) {
                self.unmap(flat, cx);
            }
        }
    }

    /// Takes out of the index what was in freed segments.
    pub(super) fn forget_freed(&mut self, it: &mut Recovery, cx: &mut Cx<'_>) {
        let freed = core::mem::take(&mut it.freed.0);
        if freed.is_empty() {
            return;
        }
        let slots = self.log.segment_slots();
        let gone = |flat: Flat, slot: u32| match freed.get(&(slot / slots)) {
            None => false,
            Some(None) => true,
            Some(Some(table)) => table[(slot % slots) as usize] != flat.0 + 1,
        };
        let mut blocks = Vec::new();
        self.index.for_each(|flat, found| {
            if gone(flat, found.slot) {
                blocks.push(flat);
            }
        });
        blocks.into_iter().for_each(|flat| self.unmap(flat, cx));
    }
}

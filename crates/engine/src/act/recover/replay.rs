// SPDX-License-Identifier: MIT OR Apache-2.0
//! What replay does to the index, commit by commit.
//!
//! When a segment is freed its blocks leave the index. The index can't say which blocks those are.
//! A table of every slot's block would cost as much memory as the index. So the blocks stay for the
//! time being. A walk over the index takes out the blocks of many freed segments at once. Until
//! then a segment that was freed and written anew has a table of the new blocks in it.

use alloc::vec::Vec;

use super::state::Recovery;
use crate::act::expect::expect_key;
use crate::cx::Cx;
use crate::format::{CommitHeader, Entry};
use crate::lane::Lane;
use crate::organ::eras::Version;
use crate::organ::index::{Flat, Found};

/// When more than one in this many segments is freed, the index is walked. So the tables take less
/// than half a byte per block of the cache. In replay of a quarter of the log a walk happens at
/// most four times.
const WALK_PART: usize = 16;

impl Recovery {
    /// Does to the index what the commit did to it.
    pub(crate) fn apply(&mut self, lane: &mut Lane, header: &CommitHeader, slot: u32, cx: &mut Cx<'_>) {
        self.commits += 1;
        lane.log.commit_found(slot, header.seq);
        for entry in &header.entries {
            if let Entry::Dirty { key, .. } | Entry::Clean { key, .. } | Entry::Cleaned { key, .. } = entry {
                expect_key(lane, *key, cx);
            }
        }
        let slots = lane.log.segment_slots();
        self.unproven.follow(header, slot);
        for (slot, entry) in header.placed(slot) {
            match *entry {
                Entry::Dead => {}
                // Only the lead has the data of clean blocks. Its data is torn here, or older.
                Entry::Clean { key, .. } if self.member != cx.delta.members.lead => {
                    let Some(flat) = cx.facts.flat(key) else { continue };
                    lane.unmap(flat, cx);
                }
                Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } => {
                    let Some(flat) = cx.facts.flat(key) else { continue };
                    if let Some(table) = self.freed.0.get_mut(&(slot / slots)) {
                        let table = table.get_or_insert_with(|| alloc::vec![0; slots as usize].into());
                        table[(slot % slots) as usize] = flat.0 + 1;
                    }
                    let (dirty, checksum) = (matches!(entry, Entry::Dirty { .. }), lane.store.kept(checksum));
                    if let Entry::Dirty { era, .. } = *entry {
                        self.eras.note_written(lane, key, flat, era, Version { slot, checksum });
                    }
                    lane.map(flat, Found { slot, dirty, hits: 0, checksum }, 0, cx);
                }
                Entry::Sent { origin, era } => self.eras.note_sent(origin, era),
                Entry::Group { origin, last } => self.eras.note_group(origin, last),
                Entry::Invalidate { key, blocks } => {
                    let Some(first) = cx.facts.flat(key) else { continue };
                    self.eras.forget_eras(lane, cx, |flat, _| (first..first + blocks).contains(&flat));
                    unmap_range(lane, first, blocks, cx);
                }
                Entry::Cleaned { key, slot } => {
                    let Some(flat) = cx.facts.flat(key) else { continue };
                    self.eras.note_cleaned(lane, key, flat, slot);
                    if lane.store.get(flat).is_some_and(|found| found.slot == slot && found.dirty) {
                        lane.clean(flat, slot, cx);
                    }
                }
                Entry::Freed { segment } => {
                    self.freed.0.insert(segment, None);
                    // The next blocks there may be clean, and the lead alone has clean blocks.
                    lane.log.freed_found(segment);
                    if self.freed.0.len() > lane.log.segments().len() / WALK_PART {
                        self.forget_freed(lane, cx);
                    }
                }
            }
        }
    }
}

fn unmap_range(lane: &mut Lane, first: Flat, blocks: u32, cx: &mut Cx<'_>) {
    let range = first..(first + blocks);
    if u64::from(blocks) <= lane.store.index().len() {
        (range.start.0..range.end.0).for_each(|flat| lane.unmap(Flat(flat), cx));
        return;
    }
    let mut gone = Vec::new();
    lane.store.index().for_each(|flat, _| gone.extend(range.contains(&flat).then_some(flat)));
    gone.into_iter().for_each(|flat| lane.unmap(flat, cx));
}

impl Recovery {
    /// Takes blocks out of the index that may not be durable on their origin.
    pub(crate) fn forget_unproven(&mut self, lane: &mut Lane, cx: &mut Cx<'_>) {
        for (key, slot) in core::mem::take(&mut self.unproven).at_end() {
            let Some(flat) = cx.facts.flat(key) else { continue };
            if lane.store.get(flat).is_some_and(|found| found.slot == slot && !found.dirty) {
                lane.unmap(flat, cx);
            }
        }
    }

    /// Takes blocks out of the index that were in freed segments.
    pub(crate) fn forget_freed(&mut self, lane: &mut Lane, cx: &mut Cx<'_>) {
        let freed = core::mem::take(&mut self.freed.0);
        if freed.is_empty() {
            return;
        }
        let slots = lane.log.segment_slots();
        let gone = |flat: Flat, slot: u32| match freed.get(&(slot / slots)) {
            None => false,
            Some(None) => true,
            Some(Some(table)) => table[(slot % slots) as usize] != flat.0 + 1,
        };
        self.eras.forget_eras(lane, cx, gone);
        let mut blocks = Vec::new();
        lane.store.index().for_each(|flat, found| {
            if gone(flat, found.slot) {
                blocks.push(flat);
            }
        });
        blocks.into_iter().for_each(|flat| lane.unmap(flat, cx));
    }
}

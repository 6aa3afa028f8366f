// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headers of a segment, as they must be for the blocks that are kept in it.
//!
//! Reclaim and `check` go from header to header. A header that is damaged, or does not describe the
//! blocks behind it, is replaced. The new one has the entries of kept blocks, and the rest as dead.
//! Its number is between those of its neighbours. Its epoch 0 is no opening's, so that no replay
//! takes it.

use std::collections::{BTreeMap, BTreeSet};

use flashfront_engine::format::{COMMIT_ENTRIES_MAX, CommitHeader, Entry, NO_SLOT, STREAMS};

use super::blocks::{Live, Slots};
use super::reader::Reader;

/// The new headers of a segment.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Headers to be written.
    pub(super) rebuilt: Vec<(u32, CommitHeader)>,
    /// The number of its last commit.
    pub(super) last_seq: u64,
}

struct Link {
    slot: u32,
    seq: u64,
    rebuilt: Option<CommitHeader>,
}

impl Reader<'_> {
    /// Links the kept blocks of a segment by headers.
    pub(super) fn chain(&self, lane: u32, segment: u32, held: &Slots) -> Chain {
        let slots = self.superblock.segment_blocks;
        let (first, end) = (segment * slots, (segment + 1) * slots);
        let mut links: Vec<Link> = Vec::new();
        let mut unfit: BTreeSet<u32> = BTreeSet::new();
        let mut slot = first;
        while held.range(slot..end).next().is_some() {
            if held.get(slot).is_some() {
                // The header before leads into the middle of data, so it doesn't belong there.
                let Some(link) = links.pop() else { break };
                unfit.insert(link.slot);
                slot = link.slot;
                continue;
            }
            let last_seq = links.last().map_or(0, |link| link.seq);
            let sound = self.header(lane, slot).filter(|it| !unfit.contains(&slot) && it.seq > last_seq);
            if let Some(header) = sound.filter(|it| describes(it, slot, held)) {
                links.push(Link { slot, seq: header.seq, rebuilt: None });
                slot += header.data_blocks() + 1;
            } else {
                let to = self.rebuilt_end(lane, slot, end, held, &unfit);
                let header = self.rebuilt(lane, slot, to, last_seq + 1, held);
                links.push(Link { slot, seq: header.seq, rebuilt: Some(header) });
                slot = to;
            }
        }
        let last_seq = links.last().map_or(0, |link| link.seq);
        let rebuilt = links.into_iter().filter_map(|link| Some((link.slot, link.rebuilt?))).collect();
        Chain { rebuilt, last_seq }
    }

    /// Finds the slot where the commit behind a header at `slot` ends: at the next header, or
    /// behind the last kept block. It never ends at a kept block.
    fn rebuilt_end(&self, lane: u32, slot: u32, end: u32, held: &Slots, unfit: &BTreeSet<u32>) -> u32 {
        let most = end.min(slot + 1 + COMMIT_ENTRIES_MAX as u32);
        let free = |at: &u32| held.get(*at).is_none();
        let header = |at: &u32| free(at) && !unfit.contains(at) && self.header(lane, *at).is_some();
        if let Some(at) = (slot + 1..most).find(header) {
            return at;
        }
        let behind_last = held.range(slot..end).next_back().map_or(slot, |last| last.slot) + 1;
        if behind_last <= most {
            return behind_last;
        }
        // A commit has at most 252 blocks, so that one of the 253 slots is no block.
        (slot + 1..=most).rev().find(free).unwrap_or(most)
    }

    fn rebuilt(&self, lane: u32, slot: u32, to: u32, seq: u64, held: &Slots) -> CommitHeader {
        let entry = |at: u32| match held.get(at) {
            Some(Live { key, checksum, dirty: true, .. }) => Entry::Dirty { key, checksum, era: 0 },
            Some(Live { key, checksum, dirty: false, .. }) => Entry::Clean { key, checksum },
            None => Entry::Dead,
        };
        CommitHeader {
            cache_tag: self.superblock.cache_tag(),
            epoch: 0,
            seq,
            durable_seq: 0,
            heads: [NO_SLOT; STREAMS],
            next_segment: NO_SLOT,
            lane: lane as u16,
            stream: 0,
            unproven: 0,
            entries: (slot + 1..to).map(entry).collect(),
        }
    }
}

/// Whether a header says of all kept blocks behind it what they are.
fn describes(header: &CommitHeader, slot: u32, held: &Slots) -> bool {
    let mut said = BTreeMap::new();
    for (at, entry) in header.placed(slot) {
        if let Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } = *entry {
            said.insert(at, (key, checksum));
        }
    }
    held.range(slot + 1..slot + 1 + header.data_blocks())
        .all(|held| said.get(&held.slot) == Some(&(held.key, held.checksum)))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which clean blocks replay must not take, as the headers say it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{CommitHeader, Entry, Stream};
use crate::fact::types::Key;

/// What the latest commits of promoted blocks hold, as long as it may not be durable on its origin.
#[derive(Debug, Default)]
pub struct UnprovenBlocks(VecDeque<Vec<(Key, u32)>>);

impl UnprovenBlocks {
    /// The next commit is applied, its header at this slot.
    pub fn follow(&mut self, header: &CommitHeader, slot: u32) {
        let count = usize::from(header.unproven);
        if header.stream == Stream::Promoted as u8 && count > 0 {
            let clean = header.placed(slot).filter_map(|(slot, entry)| match *entry {
                Entry::Clean { key, .. } => Some((key, slot)),
                _ => None,
            });
            self.0.push_back(clean.collect());
        }
        self.0.drain(..self.0.len().saturating_sub(count));
    }

    /// Blocks that were never proven, with their slots, at the end of the log. A block that is
    /// still there, and clean, is to be forgotten.
    pub fn at_end(self) -> impl Iterator<Item = (Key, u32)> {
        self.0.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::fact::types::{Block, OriginId};
    use crate::format::{NO_SLOT, STREAMS};

    fn key(block: u64) -> Key {
        Key { origin: OriginId(0), block: Block(block) }
    }

    fn commit(stream: Stream, unproven: u8, block: u64) -> CommitHeader {
        CommitHeader {
            cache_tag: 0,
            epoch: 1,
            seq: 1,
            durable_seq: 0,
            heads: [NO_SLOT; STREAMS],
            next_segment: NO_SLOT,
            lane: 0,
            stream: stream as u8,
            unproven,
            entries: vec![Entry::Dead, Entry::Clean { key: key(block), checksum: 0 }],
        }
    }

    #[test]
    fn only_the_latest_commits_of_promoted_blocks_are_in_doubt() {
        let mut unproven = UnprovenBlocks::default();
        unproven.follow(&commit(Stream::Promoted, 0, 1), 0);
        unproven.follow(&commit(Stream::Promoted, 1, 2), 16);
        unproven.follow(&commit(Stream::Writes, 1, 3), 32);
        unproven.follow(&commit(Stream::Promoted, 2, 4), 48);
        unproven.follow(&commit(Stream::Survivors, 1, 5), 64);
        unproven.follow(&commit(Stream::Promoted, 2, 6), 80);
        assert_eq!(unproven.at_end().collect::<Vec<_>>(), [(key(4), 50), (key(6), 82)]);
    }
}

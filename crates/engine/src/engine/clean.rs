// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clean blocks of the cache, as proof of what their origins hold.
//!
//! A block is clean only when its origin has it durably, and is dropped durably before its origin
//! is written by another way. So a clean block whose origin holds something else was changed by
//! somebody else, whatever crash the log has survived (test:
//! `a_clean_block_is_what_the_origin_holds`).

use alloc::vec::Vec;

use super::Engine;
use crate::fact::types::Key;
use crate::format::seal_checksum;

impl Engine {
    /// Some clean blocks: a sample from all over the cache, of about `most` blocks. Each lane gives
    /// an equal part of these, or all that the lane has. The sample is the same each time that this
    /// log is replayed.
    #[must_use]
    pub fn clean_blocks(&self, most: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        let of_each = most.div_ceil(self.lanes.count().max(1));
        for lane in self.lanes.driven() {
            let before = keys.len();
            // A block's part is a hash of its place, so the first parts are a sample.
            for part in 0..lane.store.index().parts() {
                lane.store.index().scan(part, |flat, found| {
                    keys.extend((!found.dirty).then(|| self.facts.key(flat)));
                });
                if keys.len() - before >= of_each {
                    break;
                }
            }
        }
        keys.truncate(most);
        keys
    }

    /// Whether the cache has this block, and clean.
    #[must_use]
    pub fn is_clean(&self, key: Key) -> bool {
        self.clean(key).is_some()
    }

    /// Whether a block with this CRC-32C is what the cache has, if it has a clean one.
    #[must_use]
    pub fn is_clean_content(&self, key: Key, crc: u32) -> Option<bool> {
        let (kept, found) = self.clean(key)?;
        Some(found == kept(seal_checksum(crc, key, self.facts.cache_tag)))
    }

    /// The checksum of a clean block, and what the index keeps of one.
    fn clean(&self, key: Key) -> Option<(impl Fn(u32) -> u32, u32)> {
        let flat = self.facts.flat(key)?;
        let lane = self.lanes.asked(self.coordinator.router.lane_of(flat));
        let found = lane.store.get(flat).filter(|found| !found.dirty)?;
        Some((|checksum| lane.store.kept(checksum), found.checksum))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Key to slot: chains through the slots themselves, whose keys are kept elsewhere.
//!
//! Chains take 8 to 12 bytes a slot. Nothing is ever rehashed, but when there come to be more slots
//! for the first time. A shadow runs between two requests, which must not wait for a table to be
//! tidied up.

use alloc::vec::Vec;

use crate::policy::mix;

const NONE: u32 = u32::MAX;
/// The key of a slot that is in no chain; no block has it.
pub(crate) const NOBODY: u64 = u64::MAX;

/// Where each key is. All methods take the keys by slot.
#[derive(Default)]
pub(crate) struct Chains {
    /// The first slot of each chain; a power of two of them.
    heads: Vec<u32>,
    /// Slot -> the next one in its chain.
    next: Vec<u32>,
}

impl Chains {
    /// Makes room for `slots` slots, of `most` that there will be at most.
    pub(crate) fn grow(&mut self, slots: usize, most: usize, keys: &[u64]) {
        if slots > self.heads.len() {
            let linked: Vec<u32> = self.slots().collect();
            self.heads = alloc::vec![NONE; (2 * slots).min(most).next_power_of_two()];
            grow(&mut self.next, slots, most, NONE);
            linked.into_iter().for_each(|slot| self.insert(slot, keys));
        } else {
            grow(&mut self.next, slots, most, NONE);
        }
    }

    pub(crate) fn find(&self, key: u64, keys: &[u64]) -> Option<u32> {
        let mut slot = *self.heads.get(self.chain(key))?;
        while slot != NONE && keys[slot as usize] != key {
            slot = self.next[slot as usize];
        }
        (slot != NONE).then_some(slot)
    }

    /// Adds a slot whose key is in no other.
    pub(crate) fn insert(&mut self, slot: u32, keys: &[u64]) {
        let chain = self.chain(keys[slot as usize]);
        self.next[slot as usize] = core::mem::replace(&mut self.heads[chain], slot);
    }

    /// Takes out a slot that is in.
    pub(crate) fn remove(&mut self, slot: u32, keys: &[u64]) {
        let chain = self.chain(keys[slot as usize]);
        let next = self.next[slot as usize];
        let mut before = self.heads[chain];
        if before == slot {
            self.heads[chain] = next;
            return;
        }
        while self.next[before as usize] != slot {
            before = self.next[before as usize];
        }
        self.next[before as usize] = next;
    }

    pub(crate) fn bytes(&self) -> u64 {
        ((self.heads.capacity() + self.next.capacity()) * size_of::<u32>()) as u64
    }

    fn chain(&self, key: u64) -> usize {
        mix(key) as usize & self.heads.len().wrapping_sub(1)
    }

    fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.heads.iter().flat_map(move |head| {
            let linked = |slot: &u32| (*slot != NONE).then_some(*slot);
            core::iter::successors(linked(head), move |slot| linked(&self.next[*slot as usize]))
        })
    }
}

/// Makes a table longer, by doubling it, but never for more than it can need.
pub(crate) fn grow<T: Clone>(table: &mut Vec<T>, len: usize, most: usize, value: T) {
    if len > table.capacity() {
        let capacity = (2 * table.len()).clamp(len, most.max(len));
        table.reserve_exact(capacity - table.len());
    }
    table.resize(len, value);
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec;

    use super::*;

    #[test]
    fn chains_equal_a_map() {
        let (mut chains, mut map) = (Chains::default(), BTreeMap::new());
        let mut keys = vec![u64::MAX; 300];
        assert_eq!(chains.find(7, &keys), None);
        let mut random = 1_u64;
        for step in 0..20_000_usize {
            // Room comes in three steps.
            let slots = [10, 33, 300][(step / 1000).min(2)];
            if step % 1000 == 0 && step <= 2000 {
                chains.grow(slots, 300, &keys);
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (key, slot) = (random >> 33 & 0xff, (random >> 50) as usize % slots);
            if let Some(old) = map.remove(&key) {
                assert_eq!(chains.find(key, &keys), Some(old));
                chains.remove(old, &keys);
                keys[old as usize] = u64::MAX;
            } else if keys[slot] == u64::MAX {
                keys[slot] = key;
                chains.insert(slot as u32, &keys);
                map.insert(key, slot as u32);
            }
            assert_eq!(chains.find(key, &keys), map.get(&key).copied());
        }
        assert!(map.iter().all(|(key, slot)| chains.find(*key, &keys) == Some(*slot)));
        assert_eq!(chains.slots().count(), map.len());
    }
}

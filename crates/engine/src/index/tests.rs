// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index against a map, up to full load.

use alloc::collections::BTreeMap;

use super::{Flat, Found, Index, Mix};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn mix_is_invertible_on_every_width() {
    let mut random = Random(7);
    for bits in 8..=48 {
        let mix = Mix::new(1 << bits);
        for _ in 0..1000 {
            let x = random.below(1 << bits);
            assert!(mix.forward(x) < 1 << mix.bits);
            assert_eq!(mix.backward(mix.forward(x)), x);
        }
    }
}

#[test]
fn index_equals_a_map() {
    for (keys, slots) in [(3000, 1000), (1 << 34, 1000), (1000, 1000)] {
        let mut random = Random(keys);
        let mut index = Index::new(keys, slots).unwrap();
        let mut map = BTreeMap::new();
        for step in 0..60_000u32 {
            let flat = Flat(random.below(keys.min(3000)) * (keys / keys.min(3000)));
            match random.below(8) {
                0..4 if map.len() < slots as usize || map.contains_key(&flat) => {
                    let found = Found {
                        slot: random.below(slots) as u32,
                        dirty: random.below(2) == 0,
                        hits: 0,
                        checksum: index.kept(step.wrapping_mul(2_654_435_761)),
                    };
                    assert_eq!(index.insert(flat, found), map.insert(flat, found));
                }
                4 => {
                    index.touch(flat);
                    if let Some(found) = map.get_mut(&flat) {
                        found.hits = (found.hits + 1).min(3);
                    }
                }
                5 => {
                    index.set_dirty(flat, false);
                    if let Some(found) = map.get_mut(&flat) {
                        found.dirty = false;
                    }
                }
                6 => assert_eq!(index.remove(flat), map.remove(&flat)),
                _ => assert_eq!(index.get(flat), map.get(&flat).copied()),
            }
            assert_eq!(index.len(), map.len() as u64);
        }
        let mut seen = BTreeMap::new();
        index.for_each(|flat, found| assert!(seen.insert(flat, found).is_none(), "visited twice"));
        assert_eq!(seen, map);
    }
}

#[test]
fn nine_and_a_half_bytes_a_slot() {
    let index = Index::new(1 << 30, 1 << 18).unwrap();
    assert!(index.bytes() as f64 / f64::from(1 << 18) < 9.5);
    assert!(Index::new(1 << 56, 1 << 18).is_none(), "no room for a checksum");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index against a map, up to full load.

use alloc::collections::BTreeMap;

use alloc::vec;
use alloc::vec::Vec;

use super::{DISPLACEMENT, DISPLACEMENT_SHIFT, Flat, Found, Index, Mix, OCCUPIED, SPILLED, WAYS, Width};

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
fn nine_bytes_a_slot() {
    let index = Index::new(1 << 30, 1 << 18).unwrap();
    assert!(index.bytes() as f64 / f64::from(1 << 18) < 9.0);
    assert!(Index::new(1 << 56, 1 << 18).is_none(), "no room for a checksum");
}

#[test]
fn division_is_exact() {
    let mut random = Random(11);
    for width in (1..100).chain([511, 512, 513, 0xffff_ffff, 1 << 40, (1 << 40) + 1]) {
        let divider = Width::new(width);
        for _ in 0..1000 {
            let near = random.below(1 << 12) * width;
            for x in [random.below(1 << 56), near, near + width - 1, near.saturating_sub(1)] {
                assert_eq!(divider.divide(x), (x / width, x % width), "{x} by {width}");
            }
        }
    }
}

/// The marks must not wear out: after any number of changes a block that is not there costs no more looks.
#[test]
fn marks_say_where_entries_are_and_no_more() {
    let slots = 1000;
    let mut random = Random(5);
    let mut index = Index::new(1 << 34, slots).unwrap();
    let mut inside = Vec::new();
    for step in 0..200_000u32 {
        if inside.len() == slots as usize {
            let gone = inside.swap_remove(random.below(slots) as usize);
            assert!(index.remove(gone).is_some());
        }
        let flat = Flat(random.below(1 << 34));
        if index.insert(flat, Found { slot: step % slots as u32, dirty: false, hits: 0, checksum: 0 }).is_none() {
            inside.push(flat);
        }
    }
    let mut marks = vec![0u8; index.buckets.len()];
    for (part, bucket) in index.buckets.iter().enumerate() {
        for entry in bucket.0.iter().filter(|entry| *entry & OCCUPIED != 0 && *entry & DISPLACEMENT != 0) {
            let displacement = ((entry & DISPLACEMENT) >> DISPLACEMENT_SHIFT) as usize;
            marks[(part + index.buckets.len() - displacement) % index.buckets.len()] |= 1 << (displacement - 1);
        }
    }
    index.spill.keys().for_each(|mixed| marks[(mixed / index.width.width) as usize] |= 1 << SPILLED);
    for (nth, bucket) in index.buckets.iter().enumerate() {
        let found = (0..WAYS).fold(0, |found, way| found | ((bucket.0[way] >> 63) as u8) << way);
        assert_eq!(found, marks[nth], "bucket {nth}");
    }
    assert!(marks.iter().any(|mark| *mark != 0), "nothing overflowed: not a test");
}

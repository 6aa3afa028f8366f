// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index against a map, up to full load.

use alloc::collections::BTreeMap;

use alloc::vec;
use alloc::vec::Vec;

use super::{DISPLACEMENT, Flat, Found, Index, Mix, OCCUPIED, SPILLED, WAYS, Width, displacement, marks};

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
fn eight_and_a_half_bytes_a_slot() {
    let index = Index::new(1 << 30, 1 << 18).unwrap();
    assert!(index.bytes() as f64 / f64::from(1 << 18) < 8.5);
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

const NOTHING_KNOWN: Found = Found { slot: 0, dirty: false, hits: 0, checksum: 0 };

/// An index that holds as many blocks as a full cache of so many slots, after each was replaced
/// many times.
fn worn(slots: u64, rounds: u64) -> (Index, Vec<Flat>) {
    let mut random = Random(5);
    let mut index = Index::new(1 << 34, slots).unwrap();
    let (full, mut inside) = (slots as usize * 98 / 100, Vec::new());
    for _ in 0..slots * rounds {
        if inside.len() == full {
            let gone = inside.swap_remove(random.below(full as u64) as usize);
            assert!(index.remove(gone).is_some());
        }
        let flat = Flat(random.below(1 << 34));
        if index.insert(flat, NOTHING_KNOWN).is_none() {
            inside.push(flat);
        }
    }
    (index, inside)
}

/// The cost of a full table must not depend on how long it has run. An older table took the next
/// seven buckets, sent no entry on and brought none home. It came to 3.0 buckets a look-up, and 2.3
/// % of the entries in the tree, with 5 % more places.
#[test]
fn it_does_not_wear_out() {
    let (index, inside) = worn(100_000, 12);
    let looks: u64 = index.buckets.iter().map(|bucket| 1 + u64::from((marks(&bucket.0) & 0x7f).count_ones())).sum();
    let looks = looks as f64 / index.buckets.len() as f64;
    assert!(looks < 1.8, "{looks} buckets for a block that is not there");
    let spilled = index.spill.len() as f64 / inside.len() as f64;
    assert!(spilled < 0.001, "{spilled} of all are in the tree");
}

/// A checkpoint walks over the index while it changes. A block that is there all the time must be
/// seen, once.
#[test]
fn a_walk_beside_changes_sees_all_that_stay() {
    let (mut index, mut inside) = worn(2000, 12);
    let mut random = Random(9);
    let staying = inside.split_off(inside.len() / 2);
    let mut seen = Vec::new();
    for part in 0..index.parts() {
        index.scan(part, |flat, _| seen.push(flat));
        for _ in 0..20 {
            let nth = random.below(inside.len() as u64) as usize;
            let new = Flat(random.below(1 << 34));
            assert!(index.remove(core::mem::replace(&mut inside[nth], new)).is_some());
            index.insert(new, NOTHING_KNOWN);
        }
    }
    seen.sort_unstable();
    for flat in staying {
        let times = seen.partition_point(|it| *it <= flat) - seen.partition_point(|it| *it < flat);
        assert_eq!(times, 1, "{flat:?}");
    }
}

/// A bucket can have more blocks than its eight have places for. The rest is in the tree, as good
/// as the others, and comes home when there is room.
#[test]
fn a_crowd_is_in_the_tree_until_there_is_room() {
    let mut index = Index::new(1 << 34, 1000).unwrap();
    let home = 10;
    let crowd: Vec<Flat> = (0..100).map(|nth| Flat(index.mix.backward(home * index.width.width + nth))).collect();
    for (nth, flat) in crowd.iter().enumerate() {
        assert!(index.insert(*flat, Found { slot: nth as u32, ..NOTHING_KNOWN }).is_none());
    }
    assert_eq!(index.spill.len(), 100 - 64);
    for (nth, flat) in crowd.iter().enumerate() {
        index.touch(*flat);
        index.set_dirty(*flat, true);
        let known = Found { slot: nth as u32, dirty: true, hits: 1, checksum: 0 };
        assert_eq!(index.get(*flat), Some(known));
    }
    for (gone, flat) in crowd.iter().enumerate() {
        let mut seen = 0;
        index.scan(home as usize, |_, _| seen += 1);
        assert_eq!(seen, 100 - gone);
        assert_eq!(index.remove(*flat).map(|found| found.slot), Some(gone as u32));
        assert_eq!(index.get(*flat), None);
        if gone < WAYS {
            // These entries were at home. For each of them another one came from the tree.
            assert_eq!(index.spill.len(), 100 - 64 - 1 - gone);
        }
    }
    assert!(index.spill.is_empty() && index.buckets.iter().all(|bucket| marks(&bucket.0) == 0));
    assert_eq!(index.len(), 0);
}

/// The marks must not wear out. After any number of changes a block that is not there costs no more
/// looks.
#[test]
fn marks_say_where_entries_are_and_no_more() {
    let (index, _) = worn(1000, 200);
    let mut expected = vec![0u8; index.buckets.len()];
    for (part, bucket) in index.buckets.iter().enumerate() {
        for entry in bucket.0.iter().filter(|entry| *entry & OCCUPIED != 0 && *entry & DISPLACEMENT != 0) {
            expected[index.home_of(part, *entry) as usize] |= 1 << (displacement(*entry) - 1);
        }
    }
    index.spill.keys().for_each(|mixed| expected[(mixed / index.width.width) as usize] |= 1 << SPILLED);
    for (nth, bucket) in index.buckets.iter().enumerate() {
        assert_eq!(marks(&bucket.0), u64::from(expected[nth]), "bucket {nth}");
    }
    assert!(expected.iter().any(|mark| *mark != 0), "nothing overflowed: not a test");
}

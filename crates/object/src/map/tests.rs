// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map against a plain array, with random changes, while pages go to a store and come back.

use super::*;
use crate::wire::SECTOR_BYTES;

const SECTORS: u64 = 2 * PAGE_SECTORS + 1000;

/// How many sectors of each object are in use, and the pages that were stored.
#[derive(Default)]
struct Books {
    live: BTreeMap<u32, i64>,
    pages: Vec<Option<Vec<u8>>>,
}

impl Freed for BTreeMap<u32, i64> {
    fn sectors(&mut self, object: u32, sectors: u64) {
        *self.entry(object).or_default() -= sectors as i64;
    }

    fn page(&mut self, _: PagePlace) {}
}

/// A few bits that look random.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

impl Books {
    fn fetch(&self, map: &mut Map, numbers: &[u64]) {
        for (number, place) in map.places_of(numbers) {
            let bytes = self.pages[place.at as usize].as_ref().expect("a page that is in use");
            map.load(number, place, bytes, |object, _| self.live.contains_key(&object)).unwrap();
        }
    }

    /// Stores some pages, or all.
    fn checkpoint(&mut self, map: &mut Map, state: &mut u64, is_whole: bool) {
        let mut from = 0;
        while let Some((number, is_loaded)) = map.next_to_store(from, |_, _| false) {
            if !is_loaded {
                self.fetch(map, &[number]);
            }
            let pages = &mut self.pages;
            map.store(number, &mut self.live, |page| {
                let place = PagePlace { object: 0, at: pages.len() as u64, bytes: page.len() as u32, crc: 0 };
                pages.push(Some(page));
                place
            });
            from = number + 1;
            if !is_whole && random(state, 2) == 0 {
                return;
            }
        }
    }
}

#[test]
fn the_map_says_what_an_array_says() {
    for (seed, bytes_max) in (0..20).flat_map(|seed| [(seed, 0), (seed, 2000), (seed, usize::MAX)]) {
        let mut state = seed;
        let (mut map, mut books) = (Map::new(bytes_max), Books::default());
        // Of each sector: the object, and the sector within the stored extent.
        let mut array: Vec<Option<(u32, u64)>> = vec![None; SECTORS as usize];
        for object in 1..400 {
            match random(&mut state, 12) {
                0 => books.checkpoint(&mut map, &mut state, false),
                1 => map.evict(|_, _| false),
                2 => {
                    let start = random(&mut state, SECTORS);
                    let missing = map.missing(start, SECTORS - start);
                    books.fetch(&mut map, &missing);
                    assert!(map.missing(start, SECTORS - start).is_empty());
                    compare(&map, &array, start);
                }
                _ => {}
            }
            let start = random(&mut state, SECTORS - 600);
            if random(&mut state, 4) == 0 {
                let sectors = 1 + random(&mut state, (SECTORS - start).min(40_000));
                map.zero(start, sectors, &mut books.live);
                array[start as usize..(start + sectors) as usize].fill(None);
                continue;
            }
            let sectors = 1 + random(&mut state, 512 - start % 512);
            let stored = (sectors * SECTOR_BYTES) as u32;
            *books.live.entry(object).or_default() += sectors as i64;
            map.put(object, &Record { start, sectors, at: 512, stored, crc: 1 }, &mut books.live);
            for (nth, place) in array[start as usize..(start + sectors) as usize].iter_mut().enumerate() {
                *place = Some((object, nth as u64));
            }
        }
        // A range that was changed as a whole is known without its page.
        map.put(400, &Record { start: 512, sectors: 512, at: 0, stored: 512, crc: 1 }, &mut books.live);
        *books.live.entry(400).or_default() += 512;
        (512..1024).for_each(|sector| array[sector] = Some((400, sector as u64 - 512)));
        assert!(map.missing(600, 100).is_empty());

        let weight =
            map.pages.values().fold(Weight::default(), |sum, page| sum.changed(Weight::default(), page.weight()));
        assert_eq!(map.weight, weight, "seed {seed}");
        let all: Vec<u64> = map.pages.keys().copied().collect();
        books.fetch(&mut map, &all);
        assert!(map.places_in_store().count() == 0);
        compare(&map, &array, 0);
        // After a checkpoint it is known what is in use.
        books.checkpoint(&mut map, &mut state, true);
        compare(&map, &array, 0);
        assert_eq!(map.weight.unstored, 0);
        let mut live = BTreeMap::new();
        array.iter().flatten().for_each(|(object, _)| *live.entry(*object).or_insert(0) += 1);
        books.live.retain(|_, count| *count != 0);
        assert_eq!(books.live, live, "seed {seed}");
        map.evict(|_, _| true);
        assert!(map.places_in_store().count() == 0, "what must stay stays");
        map.evict(|_, _| false);
        assert_eq!(map.places_in_store().count() == 0, map.extents() > 0, "seed {seed}: {bytes_max} bytes");
    }
}

/// Compares a part of the map with the array.
fn compare(map: &Map, array: &[Option<(u32, u64)>], start: u64) {
    let mut at = start;
    for piece in map.pieces(start, SECTORS - start) {
        assert_eq!(piece.start, at);
        for nth in 0..piece.sectors {
            let told = piece.extent.map(|it| (it.object, it.skip() + nth));
            assert_eq!(told, array[(at + nth) as usize], "sector {}", at + nth);
        }
        at += piece.sectors;
    }
    assert_eq!(at, SECTORS);
}

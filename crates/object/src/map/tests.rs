// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map against a plain array, with random changes, while pages go to a store and come back.

use super::*;
use crate::wire::SECTOR_BYTES;

const SECTORS: u64 = 2 * PAGE_SECTORS + 1000;

/// How many sectors of each object are in use, and how many are covered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Uses {
    live: BTreeMap<u32, i64>,
    covered: BTreeMap<u32, i64>,
}

/// A map's store: the pages that were stored, and the uses.
#[derive(Default)]
struct Store {
    uses: Uses,
    pages: Vec<Vec<u8>>,
}

impl Books for Uses {
    fn used(&mut self, object: u32, _: u64) -> bool {
        self.live.contains_key(&object)
    }

    fn freed(&mut self, object: u32, sectors: u64) {
        *self.live.entry(object).or_default() -= sectors as i64;
    }

    fn covered(&mut self, object: u32, sectors: u64) {
        self.freed(object, sectors);
        *self.covered.entry(object).or_default() += sectors as i64;
    }

    fn uncovered(&mut self, object: u32, sectors: u64) {
        *self.live.entry(object).or_default() += sectors as i64;
        *self.covered.entry(object).or_default() -= sectors as i64;
    }

    fn page_freed(&mut self, _: PagePlace) {}
}

/// A few bits that look random.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

impl Store {
    fn fetch(&mut self, map: &mut Map, numbers: &[u64]) {
        for (number, place) in map.places_of(numbers) {
            map.load(number, place, &self.pages[place.at as usize], &mut self.uses).unwrap();
        }
    }

    /// Stores some pages, or all; with `again` those once more that are stored.
    fn checkpoint(&mut self, map: &mut Map, again: Again, mut goes_on: impl FnMut() -> bool) {
        let mut from = 0;
        while let Some(due) = map.next_to_store(from, |_, page| if page.has_changes() { again } else { Again::No }) {
            if !due.is_here {
                self.fetch(map, &[due.number]);
            }
            let pages = &mut self.pages;
            map.store(due, &mut self.uses, |page| {
                let place = PagePlace { object: 0, at: pages.len() as u64, bytes: page.len() as u32, crc: 0 };
                pages.push(page);
                place
            });
            from = due.number + 1;
            if !goes_on() {
                return;
            }
        }
    }

    /// The map as an opening finds it, without its pages. What is covered counts as used there.
    fn opened(&self, map: &Map, bytes_max: usize) -> (Map, Uses) {
        let mut uses = Uses::default();
        let all = self.uses.live.iter().chain(&self.uses.covered);
        all.for_each(|(object, sectors)| *uses.live.entry(*object).or_default() += sectors);
        let mut opened = Map::new(bytes_max);
        map.places().for_each(|(number, place)| opened.note_stored(number, place));
        for (number, place) in map.changes_places() {
            opened.load_changes(number, place, &self.pages[place.at as usize], &mut uses).unwrap();
        }
        (opened, uses)
    }
}

#[test]
fn the_map_says_what_an_array_says() {
    let mut stored_beside = 0;
    for (seed, bytes_max) in (0..20).flat_map(|seed| [(seed, 0), (seed, 2000), (seed, usize::MAX)]) {
        let mut state = seed;
        let (mut map, mut store) = (Map::new(bytes_max), Store::default());
        // Of each sector: the object, and the sector within the stored extent.
        let mut array: Vec<Option<(u32, u64)>> = vec![None; SECTORS as usize];
        for object in 1..400 {
            match random(&mut state, 12) {
                0 => {
                    let again = [Again::No, Again::No, Again::Changes, Again::Whole][random(&mut state, 4) as usize];
                    store.checkpoint(&mut map, again, || random(&mut state, 2) == 0);
                    stored_beside += map.changes_places().count();
                }
                1 => map.evict(&mut store.uses, |_, _| false),
                2 => {
                    let start = random(&mut state, SECTORS);
                    let missing = map.missing(start, SECTORS - start);
                    store.fetch(&mut map, &missing);
                    assert!(map.missing(start, SECTORS - start).is_empty());
                    compare(&map, &array, start);
                }
                3 if random(&mut state, 4) == 0 => {
                    store.checkpoint(&mut map, Again::No, || true);
                    (map, store.uses) = store.opened(&map, bytes_max);
                }
                _ => {}
            }
            let start = random(&mut state, SECTORS - 600);
            if random(&mut state, 12) == 0 {
                let sectors = 1 + random(&mut state, (SECTORS - start).min(40_000));
                map.zero(start, sectors, &mut store.uses);
                array[start as usize..(start + sectors) as usize].fill(None);
                continue;
            }
            let sectors = 1 + random(&mut state, (512 - start % 512).min(20));
            let stored = (sectors * SECTOR_BYTES) as u32;
            *store.uses.live.entry(object).or_default() += sectors as i64;
            map.put(object, &Record { start, sectors, at: 512, stored, crc: 1 }, &mut store.uses);
            for (nth, place) in array[start as usize..(start + sectors) as usize].iter_mut().enumerate() {
                *place = Some((object, nth as u64));
            }
        }
        // A range that was changed as a whole is known without its page.
        *store.uses.live.entry(400).or_default() += 512;
        map.put(400, &Record { start: 512, sectors: 512, at: 0, stored: 512, crc: 1 }, &mut store.uses);
        (512..1024).for_each(|sector| array[sector] = Some((400, sector as u64 - 512)));
        assert!(map.missing(600, 100).is_empty());

        let weight =
            map.pages.values().fold(Weight::default(), |sum, page| sum.changed(Weight::default(), page.weight()));
        assert_eq!(map.weight, weight, "seed {seed}");
        let all: Vec<u64> = map.pages.keys().copied().collect();
        store.fetch(&mut map, &all);
        assert!(map.places_in_store().count() == 0);
        compare(&map, &array, 0);
        // With all pages here it is known what is in use, also after an opening.
        let mut live = BTreeMap::new();
        array.iter().flatten().for_each(|(object, _)| *live.entry(*object).or_insert(0) += 1);
        store.uses.live.retain(|_, count| *count != 0);
        assert_eq!(store.uses.live, live, "seed {seed}");
        store.checkpoint(&mut map, Again::No, || true);
        compare(&map, &array, 0);
        assert_eq!(map.weight.unstored, 0);
        let named = map.places().flat_map(|(number, place)| {
            let mut page = Page::stored(place);
            page.load(place, &store.pages[place.at as usize], &mut ()).unwrap();
            assert!(map.pages.contains_key(&number));
            page.all().iter().map(|it| it.object).collect::<Vec<_>>()
        });
        let uses = |object: &u32| store.uses.live.get(object).or(store.uses.covered.get(object)).copied();
        named.for_each(|object| assert!(uses(&object) > Some(0), "seed {seed}: {object} is named and not in use"));
        let (mut opened, uses) = store.opened(&map, bytes_max);
        let kept = std::mem::replace(&mut store.uses, uses);
        store.fetch(&mut opened, &all);
        compare(&opened, &array, 0);
        let counts = |mut uses: Uses| {
            [&mut uses.live, &mut uses.covered].into_iter().for_each(|it| it.retain(|_, count| *count != 0));
            uses
        };
        let found = std::mem::replace(&mut store.uses, kept);
        assert_eq!(counts(found), counts(store.uses.clone()), "seed {seed}");
        // After a whole checkpoint nothing is covered.
        store.checkpoint(&mut map, Again::Whole, || true);
        assert!(store.uses.covered.values().all(|count| *count == 0), "seed {seed}");
        assert_eq!(map.changes_places().count(), 0);
        compare(&map, &array, 0);
        map.evict(&mut store.uses, |_, _| true);
        assert!(map.places_in_store().count() == 0, "what must stay stays");
        map.evict(&mut store.uses, |_, _| false);
        assert!(map.extents() * EXTENT_BYTES <= bytes_max, "seed {seed}: {bytes_max} bytes");
    }
    assert!(stored_beside > 100, "{stored_beside} times changes were stored beside pages");
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

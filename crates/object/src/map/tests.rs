// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map against a plain array, with random changes.

use super::*;

#[derive(Default)]
struct Counts(BTreeMap<u32, i64>);

impl Freed for Counts {
    fn sectors(&mut self, object: u32, sectors: u64) {
        *self.0.entry(object).or_default() -= sectors as i64;
    }

    fn page(&mut self, _: PagePlace) {}
}

/// A few bits that look random.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn the_map_says_what_an_array_says() {
    const SECTORS: u64 = 2 * PAGE_SECTORS + 1000;
    for seed in 0..20 {
        let mut state = seed;
        let (mut map, mut counts) = (Map::default(), Counts::default());
        // Of each sector: the object, and the sector within the stored extent.
        let mut array: Vec<Option<(u32, u64)>> = vec![None; SECTORS as usize];
        for object in 1..400 {
            let start = random(&mut state, SECTORS - 600);
            if random(&mut state, 4) == 0 {
                let sectors = 1 + random(&mut state, (SECTORS - start).min(40_000));
                map.zero(start, sectors, &mut counts);
                array[start as usize..(start + sectors) as usize].fill(None);
                continue;
            }
            let sectors = 1 + random(&mut state, 512 - start % 512);
            let stored = (sectors * SECTOR_BYTES) as u32;
            map.put(object, &Record { start, sectors, at: 512, stored, crc: 1 }, &mut counts);
            *counts.0.entry(object).or_default() += sectors as i64;
            for (nth, place) in array[start as usize..(start + sectors) as usize].iter_mut().enumerate() {
                *place = Some((object, nth as u64));
            }
        }
        let mut at = 0;
        for piece in map.pieces(0, SECTORS) {
            assert_eq!(piece.start, at);
            for nth in 0..piece.sectors {
                let told = piece.extent.map(|it| (it.object, it.skip() + nth));
                assert_eq!(told, array[(at + nth) as usize], "seed {seed}, sector {}", at + nth);
            }
            at += piece.sectors;
        }
        assert_eq!(at, SECTORS);
        let mut live = BTreeMap::new();
        array.iter().flatten().for_each(|(object, _)| *live.entry(*object).or_insert(0) += 1);
        counts.0.retain(|_, count| *count != 0);
        assert_eq!(counts.0, live, "seed {seed}");
        let mut copy = Map::default();
        for (number, page) in &map.pages {
            let place = PagePlace { object: 0, at: 0, bytes: 0, crc: 0 };
            copy.load(*number, place, &page.encode(), |_, _| true).unwrap();
        }
        assert_eq!(copy.pieces(0, SECTORS), map.pieces(0, SECTORS));
        assert_eq!(copy.extents(), map.extents());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of the map that are damaged in the store.

use std::collections::BTreeSet;

use flashfront_object::{Mode, Name, Told, Trouble, Volume};

use crate::store::{SECTORS, Store, form, random};

/// Sectors in two pages of the map.
const PLACES: [u64; 2] = [80, 40_000];

/// Bytes that were harmed: objects, and places in them.
type Harmed = Vec<(Name, usize)>;

/// Harms a page in each object with pages that are in use.
fn harm(store: &mut Store) -> Harmed {
    let mut beside = store.clone();
    beside.options.map_bytes = 0;
    let requests = beside.open(Mode::Read).expect("it is sound").page_requests(|_, _| true);
    let harmed: Harmed = requests.iter().map(|it| (it.key().name, it.range().0 as usize)).collect();
    flip(store, &harmed);
    harmed
}

/// Harms these bytes, or mends them.
fn flip(store: &mut Store, harmed: &Harmed) {
    for (name, at) in harmed {
        store.objects.entry(*name).and_modify(|body| body[*at] ^= 1);
    }
}

fn close(store: &mut Store, mut volume: Volume) {
    let mut fx = Vec::new();
    volume.close(3, &mut fx);
    let told = store.carry(&mut volume, &mut fx).remove(&3);
    assert!(matches!(told, Some(Ok(Told::Flushed(_)))), "{told:?}");
    assert!(!volume.manifest().is_open);
}

/// What is read, unless that is damaged.
fn read(store: &mut Store, volume: &mut Volume, start: u64, sectors: u64) -> Result<Vec<u8>, Trouble> {
    let mut fx = Vec::new();
    volume.read(9, start, sectors, &mut fx);
    match store.carry(volume, &mut fx).remove(&9).expect("a read ends")? {
        Told::Read(bytes) => Ok(bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_page_costs_the_reads_of_its_own_and_nothing_else() {
    for map_bytes in [0, 1000] {
        let mut store = Store::with_volume();
        store.options.map_bytes = map_bytes;
        let mut fx = Vec::new();
        let mut volume = store.writer(1);
        PLACES.iter().for_each(|place| volume.write(*place, &[1; 1024], &mut fx).unwrap());
        close(&mut store, volume);

        let harmed = harm(&mut store);
        let mut volume = store.writer(2);
        let told = read(&mut store, &mut volume, PLACES[0], 2);
        assert!(matches!(&told, Err(Trouble::Damaged { what, .. }) if what.contains("page 0")), "{told:?}");
        assert_eq!(read(&mut store, &mut volume, PLACES[1], 2), Ok(vec![1; 1024]), "the other page is sound");

        // What is written to the damaged page is there over ends and openings.
        volume.write(PLACES[0] + 1, &[2; 512], &mut fx).unwrap();
        volume.write(PLACES[1] + 1, &[2; 512], &mut fx).unwrap();
        volume.zero(PLACES[0] + 5, 1, &mut fx).unwrap();
        close(&mut store, volume);
        for round in 3..5 {
            let mut volume = store.writer(round);
            assert!(volume.manifest().tail.is_empty(), "the end has made a checkpoint");
            assert_eq!(read(&mut store, &mut volume, PLACES[0] + 1, 1), Ok(vec![2; 512]));
            assert_eq!(read(&mut store, &mut volume, PLACES[0] + 5, 1), Ok(vec![0; 512]));
            assert_eq!(read(&mut store, &mut volume, PLACES[1] + 1, 1), Ok(vec![2; 512]));
            assert!(read(&mut store, &mut volume, PLACES[0], 1).is_err());
            volume.write(PLACES[0] + 2, &[round; 512], &mut fx).unwrap();
            close(&mut store, volume);
        }

        // With the page back, all is there.
        flip(&mut store, &harmed);
        let mut alone = store.open(Mode::Read).unwrap();
        let bytes = store.read(&mut alone, PLACES[0], 3);
        assert_eq!([bytes[0], bytes[512], bytes[1024]], [1, 2, 4]);
        are_books_right(&mut store);
    }
}

/// A page that is written as a whole needs its damaged base no more.
#[test]
fn a_damaged_page_that_is_written_as_a_whole_is_sound() {
    let mut store = Store::with_volume();
    let mut fx = Vec::new();
    let mut volume = store.writer(1);
    volume.write(PLACES[0], &[1; 1024], &mut fx).unwrap();
    close(&mut store, volume);
    harm(&mut store);
    let mut volume = store.writer(2);
    volume.write(PLACES[0] + 8, &[2; 512], &mut fx).unwrap();
    volume.zero(0, PLACES[0] + 8, &mut fx).unwrap();
    volume.zero(PLACES[0] + 9, 40_000, &mut fx).unwrap();
    close(&mut store, volume);
    let mut alone = store.open(Mode::Read).unwrap();
    let bytes = store.read(&mut alone, 0, 1000);
    assert_eq!(bytes.iter().position(|it| *it == 2), Some((PLACES[0] as usize + 8) * 512));
    assert!(alone.page_requests(|_, _| true).is_empty());
}

/// When a writer has had all pages, its books tell of each object what the whole map tells.
fn are_books_right(store: &mut Store) {
    store.options.map_bytes = usize::MAX;
    let (mut volume, mut fx) = (store.writer(9), Vec::new());
    volume.write(0, &[1; 512], &mut fx).expect("a writer writes");
    close(store, volume);
    let mut in_store = store.clone();
    in_store.options.map_bytes = 0;
    let books =
        |volume: &Volume| -> BTreeSet<_> { volume.objects().map(|it| (it.key(), it.live + it.covered)).collect() };
    let counted = books(&store.open(Mode::Read).expect("it is sound"));
    let kept = books(&in_store.open(Mode::Read).expect("it is sound"));
    assert_eq!(kept, counted);
}

/// Pages are harmed and mended while a volume lives. Whatever is read is right, and in the end all
/// is there.
#[test]
fn a_life_with_damaged_pages_loses_nothing() {
    let (mut errors, mut closes) = (0, 0);
    for seed in 0..30 {
        let mut state = seed;
        let mut store = Store::in_form(form(seed));
        store.options.map_bytes = [0, 1000, usize::MAX][seed as usize % 3];
        let (mut volume, mut fx, mut harmed) = (store.writer(1), Vec::new(), Harmed::new());
        let mut array = vec![0u8; (SECTORS * 512) as usize];
        for step in 0..200u64 {
            let start = random(&mut state, SECTORS / 64) * 64;
            let sectors = 1 + random(&mut state, (SECTORS - start).min(60));
            let range = (start * 512) as usize..((start + sectors) * 512) as usize;
            match random(&mut state, 16) {
                0..8 => {
                    let stamp = (step % 250) as u8 + 1;
                    array[range.clone()].fill(stamp);
                    volume.write(start, &vec![stamp; range.len()], &mut fx).unwrap();
                }
                8 => {
                    array[range].fill(0);
                    volume.zero(start, sectors, &mut fx).unwrap();
                }
                9 | 10 => match read(&mut store, &mut volume, start, sectors) {
                    Ok(bytes) => assert!(bytes == array[range], "seed {seed}, step {step}"),
                    Err(_) if !harmed.is_empty() => errors += 1,
                    Err(trouble) => panic!("seed {seed}, step {step}: {trouble}"),
                },
                11 => _ = store.flush(&mut volume).unwrap(),
                12 => volume.checkpoint(&mut fx),
                13 => volume.collect(11, 60, &mut fx),
                14 => {
                    close(&mut store, volume);
                    closes += u64::from(!harmed.is_empty());
                    volume = store.writer(2);
                }
                _ if harmed.is_empty() => harmed = harm(&mut store),
                _ => flip(&mut store, &std::mem::take(&mut harmed)),
            }
            store.carry(&mut volume, &mut fx);
        }
        flip(&mut store, &std::mem::take(&mut harmed));
        assert!(store.read(&mut volume, 0, SECTORS) == array, "seed {seed}");
        store.flush(&mut volume).unwrap();
        close(&mut store, volume);
        let mut alone = store.open(Mode::Read).unwrap();
        assert!(store.read_content(&mut alone) == array, "seed {seed}");
        are_books_right(&mut store);
    }
    assert!(errors > 20 && closes > 20, "{errors} reads met damage, {closes} ends");
}

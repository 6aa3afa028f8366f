// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random lives: each read says what the array says; what the bucket alone gives is the array of
//! the last flush, or a later one.

use std::collections::BTreeSet;

use flashfront_object::{Form, Keys, Kind, Mode, Told, Trouble, Volume, WriteFault};

use crate::store::{SECTORS, Store, form, random};

/// A checkpoint may be on its way, so that bytes of pages are not counted.
fn live_of_data(volume: &Volume) -> u64 {
    volume.objects().filter(|it| it.kind == Kind::Data).map(|it| it.live_bytes()).sum()
}

#[test]
fn a_volume_reads_as_an_array_and_is_found_again_as_it_was_flushed() {
    for seed in 0..15 {
        let mut state = seed;
        let mut store = Store::in_form(form(seed));
        store.options.map_bytes = [usize::MAX, 0, 1000][seed as usize % 3];
        let is_whole = seed % 3 == 0;
        let mut volume = store.writer(1);
        let mut array = vec![0u8; (SECTORS * 512) as usize];
        let mut fx = Vec::new();
        for step in 0..300u64 {
            let start = random(&mut state, SECTORS);
            let sectors = 1 + random(&mut state, (SECTORS - start).min(700));
            let range = (start * 512) as usize..((start + sectors) * 512) as usize;
            match random(&mut state, 16) {
                0..9 => {
                    let sectors = sectors.min(1 + random(&mut state, 40));
                    let range = range.start..range.start + (sectors * 512) as usize;
                    let bytes: Vec<u8> =
                        (0..range.len()).map(|at| ((step as usize * 7 + at / 512) % 251) as u8 + 1).collect();
                    array[range].copy_from_slice(&bytes);
                    volume.write(start, &bytes, &mut fx).unwrap();
                }
                9 => {
                    array[range].fill(0);
                    volume.zero(start, sectors, &mut fx).unwrap();
                }
                10 | 11 => assert!(store.read(&mut volume, start, sectors) == array[range], "seed {seed}, step {step}"),
                12 => {
                    store.flush(&mut volume).unwrap();
                    let mut alone = store.open(Mode::Read).unwrap();
                    assert!(store.read(&mut alone, 0, SECTORS) == array, "seed {seed}, step {step}: the bucket alone");
                    assert!(store.read_content(&mut alone) == array, "seed {seed}, step {step}: by objects");
                    if is_whole {
                        assert_eq!(live_of_data(&alone), live_of_data(&volume));
                    }
                }
                13 => volume.checkpoint(&mut fx),
                14 => volume.collect(11, 60, &mut fx),
                _ => {
                    volume.close(8, &mut fx);
                    store.carry(&mut volume, &mut fx);
                    volume = store.writer(2);
                }
            }
            store.carry(&mut volume, &mut fx);
        }
        assert!(store.read(&mut volume, 0, SECTORS) == array, "seed {seed}");
        // A part of it is not in the store yet.
        assert!(store.read_content(&mut volume) == array, "seed {seed}");
        // After a checkpoint the books of all tell the same. One on its way needs a manifest
        // before.
        store.flush(&mut volume).unwrap();
        volume.close(8, &mut fx);
        store.carry(&mut volume, &mut fx);
        store.options.map_bytes = usize::MAX;
        let mut alone = store.open(Mode::Read).unwrap();
        assert!(store.read_content(&mut alone) == array, "seed {seed}");
        let books =
            |volume: &Volume| -> BTreeSet<_> { volume.objects().map(|it| (it.key(), it.live + it.covered)).collect() };
        let (kept, counted) = (books(&volume), books(&alone));
        let differ: Vec<_> = kept.symmetric_difference(&counted).map(|it| (it, kept.contains(it))).collect();
        assert!(differ.is_empty(), "seed {seed}: by the books (true), and by the map (false): {differ:?}");
    }
}

/// What was written together lies together, wherever in the volume it belongs: one request has it.
#[test]
fn all_content_of_an_object_comes_by_one_request() {
    let mut store = Store::in_form(form(0));
    let mut volume = store.writer(1);
    let mut fx = Vec::new();
    let places = [900, 100, 500, 108, 700, 300];
    for place in places {
        volume.write(place, &[place as u8; 8 * 512], &mut fx).unwrap();
    }
    store.flush(&mut volume).unwrap();
    let mut alone = store.open(Mode::Read).unwrap();
    alone.walk(8, 0, &mut fx);
    let Some(Ok(Told::Content(content))) = store.carry(&mut alone, &mut fx).remove(&8) else { panic!("{fx:?}") };
    assert_eq!((&content.ranges[..], content.next), (&places.map(|place| (place, 8))[..], None));
    alone.read_ranges(9, content.ranges, &mut fx);
    assert_eq!(fx.len(), 1, "{fx:?}");
    let Some(Ok(Told::Read(bytes))) = store.carry(&mut alone, &mut fx).remove(&9) else { panic!("{fx:?}") };
    let wanted: Vec<u8> = places.iter().flat_map(|place| [*place as u8; 8 * 512]).collect();
    assert!(bytes == wanted);
}

#[test]
fn what_is_written_over_is_collected_and_deleted() {
    (0..4).map(form).for_each(is_collected);
}

fn is_collected(form: Form) {
    let mut store = Store::in_form(form);
    let mut volume = store.writer(1);
    let (mut fx, mut state) = (Vec::new(), 5);
    let mut put = 0;
    for round in 0..400u64 {
        let start = random(&mut state, 512) * 8;
        volume.write(start, &[round as u8; 4096], &mut fx).expect("nobody has overtaken it");
        put += 4096;
        if round % 20 == 0 {
            while !matches!(store.carry(&mut volume, &mut fx).remove(&1), Some(Ok(Told::Collected(None)))) {
                volume.collect(1, 50, &mut fx);
            }
            store.flush(&mut volume).expect("a flush ends well");
        }
    }
    volume.checkpoint_whole(&mut fx);
    for _ in 0..4 {
        volume.publish(2, &mut fx);
        store.carry(&mut volume, &mut fx);
    }
    let usage = volume.usage();
    assert_eq!(usage.live_bytes < 100 * 4096, form.compressed, "{usage:?}");
    let stored: usize = store.objects.values().map(Vec::len).sum();
    assert!(volume.retired().is_empty(), "nothing waits to be deleted: {:?}", volume.retired());
    // What compresses well leaves little but the map.
    let most = if form.compressed { put as u64 } else { 3 * usage.live_bytes };
    assert!((stored as u64) < most && stored < put, "{stored} bytes for {usage:?}");
    for entry in volume.objects() {
        assert!(store.objects.contains_key(&entry.key().name), "{entry:?}");
    }
    assert!(volume.objects().any(|it| it.kind == Kind::Map));
}

#[test]
fn without_its_key_a_volume_gives_and_takes_nothing() {
    let mut store = Store::in_form(form(3));
    let mut fx = Vec::new();
    let mut volume = store.writer(1);
    let secret = b"nobody else may read this line! ".repeat(128);
    volume.write(80, &secret, &mut fx).unwrap();
    store.flush(&mut volume).unwrap();
    assert!(store.objects.values().all(|body| !body.windows(16).any(|it| it == &secret[..16])));
    for wrong in [Keys::default(), Keys::new(&[[2; 32]])] {
        let mut other = store.open(Mode::Read).unwrap();
        other.use_keys(wrong);
        other.read(1, 80, 8, &mut fx);
        let told = store.carry(&mut other, &mut fx).remove(&1);
        assert!(matches!(&told, Some(Err(Trouble::Damaged { what, .. })) if what.contains("is not given")), "{told:?}");
    }
    let mut other = store.writer(2);
    other.use_keys(Keys::default());
    assert_eq!(other.write(0, &[1; 512], &mut fx), Err(WriteFault::NoKey));
    // Keys are changed by an opening: the newest one encrypts, the older ones still decrypt.
    other.use_keys(Keys::new(&[[9; 32], [1; 32]]));
    other.write(0, &[1; 512], &mut fx).unwrap();
    store.flush(&mut other).unwrap();
    assert_eq!(other.manifest().form.key, Keys::new(&[[9; 32]]).first());
    let mut third = store.open(Mode::Read).unwrap();
    third.use_keys(Keys::new(&[[9; 32], [1; 32]]));
    assert_eq!(store.read(&mut third, 80, 8), secret);
    assert_eq!(store.read(&mut third, 0, 1), [1; 512]);
}

/// A checkpoint of a map with many extents is as large as what dozens of small flushes wrote. So it
/// comes seldom then, and what is found without the cache is the same.
#[test]
fn small_flushes_of_a_large_map_make_few_checkpoints() {
    let mut store = Store::with_volume();
    let mut volume = store.writer(1);
    let (mut fx, mut state) = (Vec::new(), 9);
    let blocks = 2 * 32_768 / 8;
    for block in 0..blocks {
        volume.write(block * 8, &[1; 4096], &mut fx).unwrap();
        store.carry(&mut volume, &mut fx);
    }
    volume.checkpoint(&mut fx);
    store.carry(&mut volume, &mut fx);
    store.flush(&mut volume).unwrap();
    let (mut checkpoints, flushes) = (0, 100);
    for nth in 0..flushes {
        volume.write(random(&mut state, blocks) * 8, &[nth as u8; 4096], &mut fx).unwrap();
        store.carry(&mut volume, &mut fx);
        let before = volume.manifest().tail.len();
        store.flush(&mut volume).unwrap();
        assert!(volume.manifest().tail.len() <= 20, "an opening has a bound");
        checkpoints += usize::from(volume.manifest().tail.len() <= before);
    }
    assert!((1..=flushes / 20 + 1).contains(&checkpoints), "{checkpoints} checkpoints in {flushes} flushes");
    let mut other = store.open(Mode::Read).unwrap();
    assert_eq!(store.read(&mut other, 0, 4096), store.read(&mut volume, 0, 4096));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A map that is far larger than what may be in RAM: its content is read, and it is cloned.

use std::collections::BTreeMap;

use flashfront_object::{Effect, Manifest, Mode, Name, Told, Volume, Writer};

use crate::store::{Store, random};

/// Pages of the map, extents of a page, and pages that are in RAM.
const PAGES: u64 = 200;
const EXTENTS: u64 = 20;
const PAGES_IN_RAM: u64 = 5;
const PAGE_SECTORS: u64 = 1 << 15;
const EXTENT_BYTES: u64 = 24;
/// Pages that were changed since the checkpoint.
const CHANGED: u64 = 7;

/// The content: stamps of sectors.
type Content = BTreeMap<u64, u8>;

/// A volume with two sectors in a row in many places of each page, and with changes after the last
/// checkpoint.
fn large_volume() -> (Store, Content) {
    let mut store = Store::with_volume();
    let first = Manifest::first([1; 16], [0; 16], PAGES * PAGE_SECTORS, 0, "");
    store.objects.insert(Name::Manifest(1), first.encode());
    store.options.map_bytes = (PAGES_IN_RAM * EXTENTS * EXTENT_BYTES) as usize;
    // No checkpoint comes by itself.
    (store.options.tail, store.options.tail_max) = (1000, 1000);
    let (mut volume, mut fx, mut state, mut content) = (store.writer(1), Vec::new(), 3, Content::new());
    let mut write = |store: &mut Store, volume: &mut Volume, fx: &mut Vec<Effect>, at: u64, stamp: u8| {
        volume.write(at, &[stamp; 1024], fx).expect("a writer writes");
        store.carry(volume, fx);
        content.extend([(at, stamp), (at + 1, stamp)]);
    };
    for nth in 0..EXTENTS {
        let mut pages: Vec<u64> = (0..PAGES).collect();
        for left in (1..pages.len()).rev() {
            pages.swap(left, random(&mut state, left as u64 + 1) as usize);
        }
        for page in pages {
            write(&mut store, &mut volume, &mut fx, page * PAGE_SECTORS + nth * 600, 1 + (page % 50) as u8);
        }
    }
    volume.checkpoint_whole(&mut fx);
    store.carry(&mut volume, &mut fx);
    volume.close(1, &mut fx);
    store.carry(&mut volume, &mut fx);
    let mut volume = store.writer(2);
    for nth in 0..CHANGED {
        // Half of what is there, and half beside it.
        write(&mut store, &mut volume, &mut fx, nth * 29 * PAGE_SECTORS + 601, 100 + nth as u8);
    }
    store.flush(&mut volume).expect("a flush ends well");
    assert_eq!(volume.manifest().tail.len(), 1, "the changes are in no checkpoint");
    (store, content)
}

/// Carries effects out. The map that is in RAM meanwhile has a bound.
fn carry_within(store: &mut Store, volume: &mut Volume, fx: &mut Vec<Effect>, pages: u64) -> Option<Told> {
    let mut told = None;
    while let Some(effect) = fx.pop() {
        let Some((token, answer)) = store.answer(&effect) else {
            let Effect::Told { result, .. } = effect else { panic!("{effect:?}") };
            told = Some(result.expect("nothing is damaged"));
            continue;
        };
        volume.done(token, answer, fx);
        let extents = volume.usage().extents;
        assert!(extents <= (PAGES_IN_RAM + pages) * (EXTENTS + 3), "{extents} extents are in RAM");
    }
    told
}

/// Reads all content by parts.
fn read_content(store: &mut Store, volume: &mut Volume) -> (Content, u64) {
    let (mut content, mut parts, mut from) = (Content::new(), 0, Some(0));
    while let Some(start) = from {
        let mut fx = Vec::new();
        volume.walk(1, start, &mut fx);
        let Some(Told::Content(part)) = carry_within(store, volume, &mut fx, 1) else { panic!("a walk ends") };
        for ranges in part.ranges.chunks(7) {
            volume.read_ranges(2, ranges.to_vec(), &mut fx);
            let Some(Told::Read(bytes)) = carry_within(store, volume, &mut fx, 1) else { panic!("a read ends") };
            let sectors = ranges.iter().flat_map(|(start, sectors)| *start..start + sectors);
            content.extend(sectors.zip(bytes.chunks(512).map(|sector| sector[0])));
        }
        (from, parts) = (part.next, parts + 1);
    }
    (content, parts)
}

#[test]
fn the_content_of_a_large_map_is_read_with_a_part_of_it_in_ram() {
    let (mut store, content) = large_volume();
    let mut alone = store.open(Mode::Read).unwrap();
    assert!(alone.usage().extents < CHANGED + 1, "an opening leaves such a map in the store");
    let (found, parts) = read_content(&mut store, &mut alone);
    assert!(found == content);
    assert!(parts >= PAGES / PAGES_IN_RAM, "{parts} parts");
}

#[test]
fn a_large_map_is_cloned_with_a_part_of_it_in_ram() {
    let (store, content) = large_volume();
    let mut source = store.clone();
    let mut clone = source.open(Mode::Read).unwrap();
    let mut store = Store { source: store.objects.clone(), ..Store::empty() };
    store.options = source.options;
    let mut fx = Vec::new();
    let writer = Writer { id: [9; 16], host: "here".to_owned(), now: 1, ..Writer::default() };
    clone.become_clone(&"source".into(), [8; 16], writer, 1, &mut fx);
    let told = carry_within(&mut store, &mut clone, &mut fx, CHANGED);
    assert_eq!(told, Some(Told::Flushed(1)));
    let stored: usize = store.objects.values().map(Vec::len).sum();
    assert!(stored < 30_000, "pages that the source has as they are don't come along: {stored} bytes");
    let mut found = store.open(Mode::Read).unwrap();
    assert!(read_content(&mut store, &mut found).0 == content);
    // A clone has a life of its own.
    let mut volume = store.writer(3);
    volume.write(0, &[77; 512], &mut fx).unwrap();
    store.flush(&mut volume).unwrap();
    let mut found = store.open(Mode::Read).unwrap();
    assert_eq!(store.read(&mut found, 0, 1), [77; 512]);
    let mut before = source.open(Mode::Read).unwrap();
    assert_eq!(source.read(&mut before, 0, 1), [1; 512]);
}

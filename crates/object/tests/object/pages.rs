// SPDX-License-Identifier: MIT OR Apache-2.0
//! A map of which nothing stays in RAM, with a page that is damaged in the store.

use flashfront_object::{Mode, Name, Trouble, Volume};

use crate::store::Store;

/// Sectors in two pages of the map.
const PLACES: [u64; 2] = [80, 40_000];

#[test]
fn a_damaged_page_costs_the_reads_of_its_own_and_no_writes() {
    let mut store = Store::with_volume();
    store.options.map_bytes = 0;
    let mut fx = Vec::new();
    let mut volume = store.writer(1);
    PLACES.iter().for_each(|place| volume.write(*place, &[1; 512], &mut fx).unwrap());
    volume.close(1, &mut fx);
    store.carry(&mut volume, &mut fx);

    let sound = store.clone();
    // The first page is the first thing behind the head of 36 bytes.
    let maps = store.objects.iter_mut().filter(|(name, _)| matches!(name, Name::Map(_)));
    maps.for_each(|(_, body)| body[36] ^= 1);
    let mut volume = store.writer(2);
    let read = |store: &mut Store, volume: &mut Volume, place| {
        let mut fx = Vec::new();
        volume.read(9, place, 2, &mut fx);
        store.carry(volume, &mut fx).remove(&9).expect("a read ends")
    };
    let told = read(&mut store, &mut volume, PLACES[0]);
    assert!(matches!(&told, Err(Trouble::Damaged { what, .. }) if what.contains("page 0")), "{told:?}");
    assert!(read(&mut store, &mut volume, PLACES[1]).is_ok(), "the other page is sound");

    // Writes to the damaged page become durable. Only an end with a checkpoint fails.
    volume.write(PLACES[0] + 1, &[2; 512], &mut fx).unwrap();
    store.flush(&mut volume).expect("a flush needs no page");
    volume.write(PLACES[0] + 2, &[3; 512], &mut fx).unwrap();
    volume.close(3, &mut fx);
    let told = store.carry(&mut volume, &mut fx).remove(&3);
    assert!(matches!(told, Some(Err(Trouble::Damaged { .. }))), "{told:?}");
    store.flush(&mut volume).expect("what was written is flushed all the same");

    // With the page back, all is there.
    store.objects.extend(sound.objects.into_iter().filter(|(name, _)| matches!(name, Name::Map(_))));
    let mut alone = store.open(Mode::Read).unwrap();
    let bytes = store.read(&mut alone, PLACES[0], 3);
    assert_eq!([bytes[0], bytes[512], bytes[1024]], [1, 2, 3]);
}

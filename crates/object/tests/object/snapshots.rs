// SPDX-License-Identifier: MIT OR Apache-2.0
//! Snapshots keep what is theirs; a volume is rolled back to one.

use flashfront_object::{Mode, Volume, Wanted};

use crate::store::{SECTORS, Store};

fn rewrite(store: &mut Store, volume: &mut Volume, with: u8) {
    let mut fx = Vec::new();
    for nth in 0..64 {
        volume.write(nth * 8, &[with; 4096], &mut fx).expect("a writer writes");
        store.carry(volume, &mut fx);
    }
    volume.checkpoint(&mut fx);
    for _ in 0..4 {
        volume.publish(1, &mut fx);
        store.carry(volume, &mut fx);
    }
}

#[test]
fn a_snapshot_stays_what_it_was_until_it_is_forgotten() {
    let mut store = Store::with_volume();
    let mut volume = store.writer(1);
    rewrite(&mut store, &mut volume, 1);
    let manifest = volume.manifest().number;
    store.wish(Wanted::Snapshot { name: "one".to_owned(), manifest });
    rewrite(&mut store, &mut volume, 2);
    rewrite(&mut store, &mut volume, 3);
    let told = &volume.manifest().snapshots;
    assert_eq!(told.iter().map(|it| (it.name.as_str(), it.manifest)).collect::<Vec<_>>(), [("one", manifest)]);
    let mut old = store.open(Mode::ReadAt(manifest)).unwrap();
    assert_eq!(store.read(&mut old, 0, 512), vec![1; 512 * 512]);
    let before = store.objects.len();
    store.wish(Wanted::Forget { name: "one".to_owned() });
    rewrite(&mut store, &mut volume, 4);
    assert!(volume.retired().is_empty(), "{:?}", volume.retired());
    assert!(store.objects.len() < before + 20);
    assert_eq!(store.read(&mut volume, 0, 512), vec![4; 512 * 512]);
}

#[test]
fn a_volume_is_rolled_back_and_goes_on() {
    let mut store = Store::with_volume();
    let mut volume = store.writer(1);
    rewrite(&mut store, &mut volume, 1);
    let (one, mut fx) = (volume.manifest().number, Vec::new());
    store.wish(Wanted::Snapshot { name: "one".to_owned(), manifest: one });
    rewrite(&mut store, &mut volume, 2);
    let two = volume.manifest().number;
    store.wish(Wanted::Snapshot { name: "two".to_owned(), manifest: two });
    rewrite(&mut store, &mut volume, 3);
    let older = store.open(Mode::ReadAt(one)).unwrap();
    volume.roll_back(older, 5, &mut fx);
    assert!(store.carry(&mut volume, &mut fx)[&5].is_ok());
    assert_eq!(store.read(&mut volume, 0, 512), vec![1; 512 * 512]);
    volume.write(0, &[4; 512], &mut fx).unwrap();
    store.flush(&mut volume).unwrap();
    for _ in 0..4 {
        volume.publish(1, &mut fx);
        store.carry(&mut volume, &mut fx);
    }
    let mut alone = store.open(Mode::Read).unwrap();
    let all = store.read(&mut alone, 0, SECTORS);
    assert_eq!((all[0], all[512], all[512 * 512]), (4, 1, 0));
    let mut second = store.open(Mode::ReadAt(two)).unwrap();
    assert_eq!(store.read(&mut second, 0, 512), vec![2; 512 * 512]);
}

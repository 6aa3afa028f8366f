// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two writers: the second takes over, and the first finds out at its next manifest.

use flashfront_object::{Mode, Name, OpenFault, Trouble, WriteFault};

use crate::store::Store;

#[test]
fn a_writer_that_was_overtaken_is_fenced_and_its_writes_are_not_in_the_bucket() {
    let mut store = Store::with_volume();
    let mut fx = Vec::new();
    let mut first = store.writer(1);
    first.write(0, &[1; 512], &mut fx).unwrap();
    store.flush(&mut first).unwrap();
    let mut second = store.writer(2);
    first.write(0, &[9; 512], &mut fx).unwrap();
    let fenced = store.flush(&mut first);
    assert!(matches!(&fenced, Err(Trouble::Fenced(by)) if by.contains("host 2")), "{fenced:?}");
    assert!(matches!(first.write(0, &[9; 512], &mut fx), Err(WriteFault::Fenced(_))));
    second.write(8, &[2; 512], &mut fx).unwrap();
    store.flush(&mut second).unwrap();
    let mut alone = store.open(Mode::Read).unwrap();
    let bytes = store.read(&mut alone, 0, 9);
    assert_eq!((bytes[0], bytes[8 * 512]), (1, 2));
}

#[test]
fn a_torn_manifest_is_passed_over() {
    let mut store = Store::with_volume();
    let mut fx = Vec::new();
    let mut volume = store.writer(1);
    volume.write(0, &[1; 512], &mut fx).unwrap();
    store.flush(&mut volume).unwrap();
    let next = volume.manifest().number + 1;
    store.objects.insert(Name::Manifest(next), b"FFMANI01".to_vec());
    volume.write(0, &[2; 512], &mut fx).unwrap();
    store.flush(&mut volume).unwrap();
    assert_eq!(volume.manifest().number, next + 1);
    let mut alone = store.open(Mode::Read).unwrap();
    assert_eq!(store.read(&mut alone, 0, 1), [2; 512]);
}

#[test]
fn an_empty_bucket_has_no_volume() {
    assert_eq!(Store::default().open(Mode::Read).unwrap_err(), OpenFault::NoVolume);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two writers: the second takes over, and the first finds out at its next manifest.

use flashfront_object::{Manifest, Mode, Name, OpenFault, Trouble, WriteFault, Writer};

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

/// A writer that was looked at may be followed. One that came between is not fenced.
#[test]
fn a_writer_that_came_between_is_not_fenced() {
    let mut store = Store::with_volume();
    let seen = store.open(Mode::Read).unwrap().manifest().epoch;
    let of = |id: u8| Mode::Write(Writer { id: [id; 16], after: Some(seen), ..Writer::default() });
    let mut first = store.open(of(1)).unwrap();
    let before = store.objects.clone();
    let late = store.open(of(2)).unwrap_err();
    assert!(matches!(&late, OpenFault::Overtaken(by) if by.contains("epoch 2")), "{late}");
    assert_eq!(store.objects, before, "nothing was written");
    first.write(0, &[1; 512], &mut Vec::new()).unwrap();
    store.flush(&mut first).unwrap();
}

#[test]
fn the_last_manifest_says_what_is_owed() {
    let mut store = Store::with_volume();
    for owes in [true, false] {
        let mut volume = store.writer(1);
        assert!(!volume.manifest().owes, "the next opening owes nothing");
        volume.owe(owes);
        let mut fx = Vec::new();
        volume.close(3, &mut fx);
        store.carry(&mut volume, &mut fx);
        let last = store.open(Mode::Read).unwrap().manifest().clone();
        assert_eq!((last.is_open, last.owes), (false, owes));
    }
}

#[test]
fn a_torn_manifest_is_passed_over() {
    let mut store = Store::with_volume();
    let mut fx = Vec::new();
    let mut volume = store.writer(1);
    volume.write(0, &[1; 512], &mut fx).unwrap();
    store.flush(&mut volume).unwrap();
    let next = volume.manifest().number + 1;
    store.objects.insert(Name::Manifest(next), b"FFMANI02".to_vec());
    volume.write(0, &[2; 512], &mut fx).unwrap();
    store.flush(&mut volume).unwrap();
    assert_eq!(volume.manifest().number, next + 1);
    let mut alone = store.open(Mode::Read).unwrap();
    assert_eq!(store.read(&mut alone, 0, 1), [2; 512]);
}

#[test]
fn a_whole_manifest_of_a_newer_version_stops_who_finds_it() {
    let mut store = Store::with_volume();
    let mut fx = Vec::new();
    let mut volume = store.writer(1);
    volume.write(0, &[1; 512], &mut fx).unwrap();
    store.flush(&mut volume).unwrap();
    let next = Name::Manifest(volume.manifest().number + 1);
    let newer = newer_version(volume.manifest());
    store.objects.insert(next, newer.clone());
    volume.write(0, &[2; 512], &mut fx).unwrap();
    let fenced = store.flush(&mut volume);
    assert!(matches!(&fenced, Err(Trouble::Fenced(by)) if by.contains("flags 0x80")), "{fenced:?}");
    let what = "flags 0x80".to_owned();
    let before = store.objects.clone();
    let second = Writer { id: [2; 16], host: String::new(), now: 1, ..Writer::default() };
    for mode in [Mode::Read, Mode::Write(second)] {
        assert_eq!(store.open(mode).unwrap_err(), OpenFault::Foreign { name: next, what: what.clone() });
    }
    assert_eq!(store.objects, before, "nothing was written");
}

/// The next manifest, with a flag that nobody knows.
fn newer_version(manifest: &Manifest) -> Vec<u8> {
    let mut next = manifest.clone();
    next.number += 1;
    let mut bytes = next.encode();
    bytes[60] |= 0x80;
    bytes[12..16].fill(0);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn an_empty_bucket_has_no_volume() {
    assert_eq!(Store::empty().open(Mode::Read).unwrap_err(), OpenFault::NoVolume);
}

/// Manifests above the one that counts are told of, and a later whole one makes them history. If
/// there is no whole one, the volume is damaged, and not absent.
#[test]
fn damaged_manifests_are_told_of() {
    let mut store = Store::with_volume();
    let mut volume = store.writer(1);
    for byte in 1..4 {
        volume.write(0, &[byte; 512], &mut Vec::new()).unwrap();
        store.flush(&mut volume).unwrap();
    }
    let newest = volume.manifest().number;
    drop(volume);
    let harm = |store: &mut Store, number| {
        *store.objects.get_mut(&Name::Manifest(number)).unwrap().last_mut().unwrap() ^= 1;
    };
    let seen = |store: &mut Store, mode| store.open(mode).map(|it| it.passed().keys().copied().collect::<Vec<_>>());
    assert_eq!(seen(&mut store, Mode::Read), Ok(vec![]));
    for number in [newest, newest - 1] {
        harm(&mut store, number);
        assert_eq!(seen(&mut store, Mode::Read), Ok((number..=newest).collect()));
        assert_eq!(store.open(Mode::Read).unwrap().manifest().number, number - 1);
    }
    // Below one that counts it is no news.
    let writer = Writer { id: [9; 16], host: String::new(), now: 1, ..Writer::default() };
    assert_eq!(seen(&mut store, Mode::Write(writer)), Ok(vec![newest - 1, newest]));
    assert_eq!(seen(&mut store, Mode::Read), Ok(vec![]));
    (1..newest - 1).for_each(|number| harm(&mut store, number));
    harm(&mut store, newest + 1);
    let opened = seen(&mut store, Mode::Read);
    assert!(matches!(opened, Err(OpenFault::Damaged { name: Name::Manifest(_), .. })), "{opened:?}");
}

/// Several requests are under way when the first one finds its object absent. The answers to the
/// others come late, and are not those of the next try.
#[test]
fn a_state_that_lacks_objects_is_damaged_and_not_absent() {
    let mut store = Store::with_volume();
    let mut fx = Vec::new();
    let mut volume = store.writer(1);
    for byte in 1..9 {
        volume.write(u64::from(byte) * 8, &[byte; 512], &mut fx).unwrap();
        store.flush(&mut volume).unwrap();
    }
    // Their heads are read by each opening.
    let tail: Vec<Name> = volume.manifest().tail.iter().map(|it| Name::Data(it.stamp)).collect();
    assert!(tail.len() > 2, "{tail:?}");
    for absent in tail {
        let kept = store.objects.remove(&absent);
        let opened = store.open(Mode::Read).map(|it| it.manifest().number);
        assert!(matches!(&opened, Err(OpenFault::Damaged { name, .. }) if *name == absent), "{opened:?}");
        store.objects.extend(kept.map(|body| (absent, body)));
        assert_eq!(store.open(Mode::Read).unwrap().manifest().number, volume.manifest().number);
    }
}

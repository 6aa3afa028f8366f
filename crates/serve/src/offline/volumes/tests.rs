// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes of stopped caches: each change is there when the cache is read again, and what makes no
//! sense changes nothing.

use flashfront_engine::BLOCK_BYTES;

use super::*;
use crate::rig::Bench;

fn open(bench: &Bench) -> Volumes {
    Volumes::open(&bench.cache(), None, None, true).unwrap()
}

fn names(bench: &Bench) -> Vec<String> {
    open(bench).superblock().origins.iter().map(|record| record.name.clone()).collect()
}

fn options(bench: &Bench, name: &str) -> AddOptions {
    let origin = bench.path(&format!("origin-of-{name}"));
    std::fs::File::create(&origin).unwrap().set_len(1 << 20).unwrap();
    let (mode, shares) = (Mode::Writeback, Shares::default());
    AddOptions { name: name.to_owned(), origin, mode, read_only: false, shares }
}

fn remove(bench: &Bench, name: &str) -> Result<u64, VolumesError> {
    open(bench).remove(name, DirtyOnRemove::Refuse, &mut |_, _| {})
}

#[test]
fn volumes_are_added_renamed_set_and_removed() {
    let bench = Bench::formatted();
    let first = names(&bench).remove(0);
    let one = open(&bench).add(&options(&bench, "one")).unwrap();
    let two = open(&bench).add(&options(&bench, "two")).unwrap();
    assert_eq!(names(&bench), [&*first, "one", "two"]);
    open(&bench).rename("one", "other").unwrap();
    let set = SetOptions { mode: Some(Mode::Writearound), read_only: Some(true), ..SetOptions::default() };
    open(&bench).set("two", &set).unwrap();
    let read = open(&bench);
    let record = read.superblock().origin(two).unwrap().clone();
    assert_eq!((record.mode, record.read_only, record.size_bytes), (Mode::Writearound, true, 1 << 20));
    drop(read);
    assert_eq!(remove(&bench, "other").unwrap(), 0);
    let three = open(&bench).add(&options(&bench, "one")).unwrap();
    assert!(three > two && two > one, "no id comes twice");
    assert_eq!(names(&bench), [&*first, "two", "one"]);
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let bench = Bench::formatted();
    let first = names(&bench).remove(0);
    open(&bench).add(&options(&bench, "one")).unwrap();
    let before = std::fs::read(bench.cache()).unwrap();
    let mut alias = options(&bench, "two");
    let link = bench.path("link");
    std::os::unix::fs::symlink(bench.path("origin-of-one"), &link).unwrap();
    alias.origin = link;
    assert!(matches!(open(&bench).add(&alias), Err(VolumesError::OriginTaken { .. })));
    alias.origin = bench.cache();
    assert!(matches!(open(&bench).add(&alias), Err(VolumesError::Mixup(_))));
    let refused = |result: Result<(), VolumesError>, expected: VolumeError| match result {
        Err(VolumesError::Volume { error, .. }) => assert_eq!(error, expected),
        other => panic!("{other:?}"),
    };
    refused(open(&bench).rename("one", &first), VolumeError::NameTaken(OriginId(0)));
    refused(open(&bench).rename("none", "other"), VolumeError::NoSuchVolume);
    refused(open(&bench).rename("one", &"x".repeat(65)), VolumeError::BadName);
    refused(remove(&bench, "none").map(drop), VolumeError::NoSuchVolume);
    assert!(std::fs::read(bench.cache()).unwrap() == before, "something was written");
}

/// A cache of version 1, as `format` of an older program left it.
fn old(bench: &Bench) -> Superblock {
    let device = DeviceFile::open(&bench.cache(), Access::Exclusive).unwrap();
    let mut superblock = superblock::read(&device).unwrap().superblock;
    superblock.table = None;
    superblock.origins.iter_mut().for_each(|record| record.origin_path.clear());
    superblock::write(&device, &mut superblock).unwrap();
    superblock
}

#[test]
fn a_cache_of_version_1_is_converted_once() {
    let bench = Bench::formatted();
    let before = old(&bench);
    let refused = open(&bench).add(&options(&bench, "one"));
    assert!(matches!(refused, Err(VolumesError::Volume { error: VolumeError::NeedsVersion2, .. })));
    assert!(open(&bench).convert().unwrap() > 16);
    assert!(matches!(open(&bench).convert(), Err(VolumesError::Converted { .. })));
    let after = open(&bench).superblock().clone();
    assert_eq!((after.version(), &after.origins), (2, &before.origins));
    open(&bench).add(&options(&bench, "one")).unwrap();
    assert!(crate::offline::check(&bench.cache(), &mut |_, _| {}).unwrap().ok);
}

/// Whatever of a step's writes a power cut leaves: the cache has its volumes, in version 1 or 2.
#[test]
fn a_power_cut_leaves_version_1_or_version_2() {
    let bench = Bench::formatted();
    let before = old(&bench);
    let image = std::fs::read(bench.cache()).unwrap();
    let size = image.len() as u64;
    let mut next = converted(&before).unwrap();
    next.update += 1;
    let (table_at, table) = next.encode_table().unwrap();
    let [first, last] = Superblock::offsets(size);
    let steps = [(table_at, table), (last, next.encode()), (first, next.encode())];
    for done in 0..=steps.len() {
        // The step that is cut off has left nothing, its beginning, its end, or all of it.
        for torn in [0..0, 0..512, 512..4096, 0..4096] {
            let mut cut = image.clone();
            for (nth, (offset, bytes)) in steps.iter().take(done + 1).enumerate() {
                let range = if nth < done { 0..bytes.len() } else { torn.clone() };
                cut[*offset as usize..][range.clone()].copy_from_slice(&bytes[range]);
            }
            let read = superblock::read_with(&bench.cache(), size, |offset, block| {
                block.copy_from_slice(&cut[offset as usize..][..block.len()]);
                Ok(())
            });
            let found = read.unwrap_or_else(|error| panic!("after {done} steps, {torn:?}: {error}")).superblock;
            assert_eq!(found.origins, before.origins, "after {done} steps, {torn:?}");
            assert!(found.version() == 1 || done > 0, "version 2 before its table is durable");
        }
    }
    assert!(table_at >= BLOCK_BYTES && table_at < before.checkpoint_offset(0, 0));
}

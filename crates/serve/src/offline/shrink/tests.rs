// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches that shrink: all dirty data is there afterwards, after a power cut too. Clean data is
//! there as far as there is room. What makes no sense changes nothing.

use std::fs::File;

use flashfront_device::Rng;

use super::*;
use crate::offline::{CheckReport, DamageKind, FormatOptions, SetOptions, Volumes, check, format, grow};
use crate::rig::{Bench, CACHE_BYTES, ORIGIN_BYTES};

/// Dirty blocks, from the first one of the origin on.
const BLOCKS: u64 = 300;
const LESS_BYTES: u64 = 10 << 20;

/// A cache full of clean blocks, and with dirty ones in the last segments that were filled, cleanly
/// stopped: its origin took nothing.
fn filled() -> Bench {
    let bench = Bench::formatted();
    let mut served = bench.serve();
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    // Backwards, since a long stream would go past the cache.
    for block in (BLOCKS..ORIGIN_BYTES / BLOCK_BYTES).rev().step_by(2).take(3200) {
        served.nbd.read_at(block * BLOCK_BYTES, &mut bytes).unwrap();
    }
    served.stop();
    dirtied(bench)
}

fn dirtied(bench: Bench) -> Bench {
    let mut served = bench.serve_frozen();
    (0..BLOCKS / 10).rev().for_each(|nth| served.write(nth * 10, 10));
    served.stop();
    bench
}

fn set_len(bench: &Bench, bytes: u64) {
    File::options().write(true).open(bench.cache()).unwrap().set_len(bytes).unwrap();
}

fn shrink_to(bench: &Bench, bytes: u64) -> Result<CacheShrunk, CacheShrinkError> {
    shrink(&bench.cache(), None, bytes, &mut |_, _| {})
}

fn checked(bench: &Bench) -> CheckReport {
    check(&bench.cache(), &mut |_, _| {}).unwrap()
}

#[test]
fn a_smaller_cache_holds_what_is_dirty_and_as_much_as_fits() {
    let bench = filled();
    let before = checked(&bench);
    assert!(before.ok && before.blocks_dirty == BLOCKS, "{before:?}");
    let shrunk = shrink_to(&bench, LESS_BYTES).unwrap();
    assert_eq!((shrunk.from_bytes, shrunk.to_bytes, shrunk.dirty_blocks), (CACHE_BYTES, LESS_BYTES, BLOCKS));
    assert_eq!(shrunk.clean_kept + shrunk.clean_dropped, before.blocks_cached - BLOCKS);
    assert!(shrunk.clean_kept > 1500 && shrunk.clean_dropped > 500, "{shrunk:?}");
    // The device may be smaller now.
    set_len(&bench, LESS_BYTES);
    let after = checked(&bench);
    assert!(after.ok && after.blocks_dirty == BLOCKS, "{after:?}");
    assert_eq!(after.blocks_cached, BLOCKS + shrunk.clean_kept);
    let mut served = bench.serve_frozen();
    // But for what reclaim wants free at once.
    assert!(served.status().blocks_cached > 1500, "{:?}", served.status());
    served.assert_holds(0, BLOCKS);
    // More than there is free: reclaim goes through segments that were moved.
    (BLOCKS / 100..10).rev().for_each(|nth| served.write(nth * 100, 100));
    served.assert_holds(0, 1000);
    assert_eq!(served.status().counters.corrupt_blocks, 0);
    // Whatever a crash leaves is replayed.
    served.stop_at_once();
    let mut served = bench.serve_frozen();
    served.assert_holds(0, 1000);
    served.stop();
    // Larger again, and smaller.
    set_len(&bench, CACHE_BYTES);
    grow(&bench.cache(), None).unwrap();
    let mut served = bench.serve_frozen();
    served.assert_holds(0, 1000);
    served.stop();
    shrink_to(&bench, CACHE_BYTES - (2 << 20)).unwrap();
    let report = checked(&bench);
    assert!(report.ok && report.blocks_dirty == 1000, "{report:?}");
    let mut served = bench.serve();
    served.drain();
    served.stop();
    let origin = std::fs::read(bench.origin()).unwrap();
    let is_there = |(nth, block): (usize, &[u8])| block.iter().all(|byte| *byte == nth as u8 ^ 0x5a);
    assert!(origin.chunks(BLOCK_BYTES as usize).take(1000).enumerate().all(is_there), "the origin is complete");
}

/// What was done to the device.
enum Done {
    Write(u64, Vec<u8>),
    Sync,
}

/// Shrinks, and says what was done for that.
fn recorded(bench: &Bench, bytes: u64) -> Vec<Done> {
    let device = DeviceFile::open(&bench.cache(), Access::Exclusive).unwrap();
    let mut all = Vec::new();
    let mut put = |put: Put<'_>| {
        all.push(match put {
            Put::Write(offset, bytes) => Done::Write(offset, bytes.to_vec()),
            Put::Sync => Done::Sync,
        });
        match put {
            Put::Write(offset, bytes) => device.write_at(offset, bytes),
            Put::Sync => device.sync(),
        }
    };
    shrink_by(&device, None, (bytes, Closed::Once), &mut |_, _| {}, &mut put).unwrap();
    all
}

/// A power cut behind each step. Of what was not synced any sector may be there.
#[test]
fn a_power_cut_leaves_the_cache_of_before_or_the_smaller_one() {
    let bench = filled();
    let before = std::fs::read(bench.cache()).unwrap();
    let all = recorded(&bench, LESS_BYTES);
    let after = std::fs::read(bench.cache()).unwrap();
    let writes = all.iter().filter(|it| matches!(it, Done::Write(..))).count();
    assert!(writes > 12, "{writes} writes");
    let mut rng = Rng::new(11);
    let (mut durable, mut sizes) = (before, [0, 0]);
    let mut loose: Vec<(u64, &[u8])> = Vec::new();
    for done in &all {
        match done {
            Done::Write(offset, bytes) => loose.push((*offset, bytes)),
            Done::Sync => loose.drain(..).for_each(|(offset, bytes)| {
                durable[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }),
        }
        for round in 0..3 {
            let mut image = durable.clone();
            for (offset, bytes) in &loose {
                for (nth, sector) in bytes.chunks(512).enumerate().filter(|_| rng.below(4) > 0) {
                    image[*offset as usize + nth * 512..][..512].copy_from_slice(sector);
                }
            }
            std::fs::write(bench.cache(), &image).unwrap();
            let report = checked(&bench);
            let torn = [DamageKind::Superblock, DamageKind::Checkpoint];
            assert!(report.damage.iter().all(|it| torn.contains(&it.kind)), "{report:?}");
            assert_eq!(report.blocks_dirty, BLOCKS, "{report:?}");
            let device = DeviceFile::open(&bench.cache(), Access::ReadOnly).unwrap();
            let size = superblock::read(&device).unwrap().superblock.cache_bytes;
            drop(device);
            sizes[usize::from(size == LESS_BYTES)] += 1;
            assert!([CACHE_BYTES, LESS_BYTES].contains(&size));
            if round == 0 {
                // The guard would take what was served of earlier cuts for a newer copy.
                std::fs::remove_dir_all(bench.path("state")).ok();
                let mut served = bench.serve_frozen();
                served.assert_holds(0, BLOCKS);
                served.stop();
            } else if report.ok {
                // Run again, it ends.
                assert_eq!(shrink_to(&bench, LESS_BYTES).unwrap().to_bytes, LESS_BYTES);
                let report = checked(&bench);
                assert!(report.ok && report.blocks_dirty == BLOCKS, "{report:?}");
            }
        }
    }
    assert!(loose.is_empty() && durable == after, "all of it was synced");
    assert!(sizes.iter().all(|count| *count > 5), "cuts before and after: {sizes:?}");
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let refused = |bench: &Bench, bytes: u64, words: &str| {
        let before = std::fs::read(bench.cache()).unwrap();
        let error = shrink_to(bench, bytes).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(std::fs::read(bench.cache()).unwrap() == before, "something was written");
        error
    };
    let bench = filled();
    refused(&bench, CACHE_BYTES + 1, "can't shrink to");
    let CacheShrinkError::TooSmall { least, .. } = refused(&bench, 1 << 20, "`flashfront destage` makes room") else {
        panic!("another error")
    };
    refused(&bench, least - (1 << 20), "the smallest that it can have now is");
    let mut served = bench.serve_frozen();
    assert!(shrink_to(&bench, LESS_BYTES).unwrap_err().to_string().contains("in use"));
    served.write(0, 1);
    served.stop_at_once();
    refused(&bench, LESS_BYTES, "the last stop was not clean");
    bench.serve_frozen().stop();
    // The size that it has: nothing is to be done.
    let before = std::fs::read(bench.cache()).unwrap();
    assert_eq!(shrink_to(&bench, CACHE_BYTES).unwrap().to_bytes, CACHE_BYTES);
    assert!(std::fs::read(bench.cache()).unwrap() == before, "something was written");
    // What was said to be possible is.
    shrink_to(&bench, least).unwrap();
    set_len(&bench, least);
    let report = checked(&bench);
    assert!(report.ok && report.blocks_dirty == BLOCKS, "{report:?}");
    let mut served = bench.serve_frozen();
    served.assert_holds(0, BLOCKS);
    served.stop();
    let (bench, _) = Bench::mirrored();
    refused(&bench, LESS_BYTES, "a mirrored cache does not shrink");
}

/// Lanes that lie back to back: nothing of the log can stay.
#[test]
fn several_lanes_shrink_when_nothing_is_dirty() {
    let bench = Bench::new();
    format(&FormatOptions { lanes: Some(2), segment: Some(crate::config::Size(64 << 10)), ..bench.options() }).unwrap();
    let bench = dirtied(bench);
    let error = shrink_to(&bench, LESS_BYTES).unwrap_err().to_string();
    assert!(error.contains("300 dirty blocks (1200 KiB), which can't be moved between its lanes"), "{error}");
    let mut served = bench.serve();
    served.drain();
    served.stop();
    let shrunk = shrink_to(&bench, LESS_BYTES).unwrap();
    assert_eq!((shrunk.to_bytes, shrunk.clean_kept), (LESS_BYTES, 0));
    set_len(&bench, LESS_BYTES);
    assert!(checked(&bench).ok);
    let bench = dirtied(bench);
    let mut served = bench.serve();
    served.assert_holds(0, BLOCKS);
    served.drain();
    served.stop();
}

/// A start would refuse the smaller cache.
#[test]
fn what_is_kept_for_volumes_has_room() {
    let bench = Bench::formatted();
    let mut stopped = Volumes::open(&bench.cache(), None, None, true).unwrap();
    let (name, now) = (stopped.superblock().origins[0].name.clone(), stopped.superblock().origins[0].shares);
    let parts = |min_bytes| SetOptions {
        shares: Some(flashfront_engine::format::Shares { min_bytes, ..now }),
        ..SetOptions::default()
    };
    stopped.set(&name, &parts(CACHE_BYTES / 4)).unwrap();
    drop(stopped);
    let before = std::fs::read(bench.cache()).unwrap();
    let error = shrink_to(&bench, CACHE_BYTES / 2).unwrap_err().to_string();
    assert!(error.contains("would be more than half of it; say less first"), "{error}");
    assert!(std::fs::read(bench.cache()).unwrap() == before, "something was written");
    Volumes::open(&bench.cache(), None, None, true).unwrap().set(&name, &parts(1 << 20)).unwrap();
    shrink_to(&bench, CACHE_BYTES / 2).unwrap();
    bench.serve().stop();
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches that grow: what they hold is there afterwards, after a power cut too, and what makes no
//! sense changes nothing.

use std::fs::File;

use flashfront_device::Rng;

use super::*;
use crate::offline::{DamageKind, check};
use crate::rig::{Bench, CACHE_BYTES};

const BLOCKS: u64 = 600;
const GROWN_BYTES: u64 = 3 * CACHE_BYTES + 4096;

/// A cache with dirty blocks, cleanly stopped: its origin took nothing. The device has grown since.
fn filled() -> Bench {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, BLOCKS);
    served.stop();
    set_len(&bench, GROWN_BYTES);
    bench
}

fn set_len(bench: &Bench, bytes: u64) {
    File::options().write(true).open(bench.cache()).unwrap().set_len(bytes).unwrap();
}

fn cache_bytes(bench: &Bench) -> u64 {
    let device = DeviceFile::open(&bench.cache(), Access::ReadOnly).unwrap();
    superblock::read(&device).unwrap().superblock.cache_bytes
}

/// The cache is sound but for a copy of its superblock, and its dirty blocks are all there.
fn assert_sound(bench: &Bench) {
    let report = check(&bench.cache(), &mut |_, _| {}).unwrap();
    assert!(report.damage.iter().all(|it| it.kind == DamageKind::Superblock), "{report:?}");
    assert_eq!(report.blocks_dirty, BLOCKS);
}

#[test]
fn a_grown_cache_holds_what_it_held_and_more() {
    let bench = filled();
    // The rest of the device is not used yet.
    let mut served = bench.serve_frozen();
    let before = served.status().capacity_blocks;
    served.assert_holds(0, BLOCKS);
    served.stop();
    let grown = grow(&bench.cache(), None).unwrap();
    assert_eq!((grown.from_bytes, grown.to_bytes), (CACHE_BYTES, GROWN_BYTES));
    assert_sound(&bench);
    let mut served = bench.serve_frozen();
    let status = served.status();
    assert!(status.capacity_blocks > before * 2, "{before}, now {}", status.capacity_blocks);
    assert_eq!(status.blocks_dirty, BLOCKS);
    // More than there was room for before: so it is in the new segments, too.
    let all = (before + BLOCKS).next_multiple_of(100);
    // Backwards, since a long stream would go past the cache.
    (BLOCKS / 100..all / 100).rev().for_each(|nth| served.write(nth * 100, 100));
    served.assert_holds(0, all);
    // Whatever a crash leaves is replayed from them.
    served.stop_at_once();
    let mut served = bench.serve_frozen();
    served.assert_holds(0, all);
    served.stop();
    // Once more, with a checkpoint that has blocks of both parts.
    set_len(&bench, 2 * GROWN_BYTES);
    grow(&bench.cache(), None).unwrap();
    let report = check(&bench.cache(), &mut |_, _| {}).unwrap();
    assert!(report.ok && report.blocks_dirty == all, "{report:?}");
    let mut served = bench.serve();
    served.drain();
    served.stop();
    let origin = std::fs::read(bench.origin()).unwrap();
    let is_there = |(nth, block): (usize, &[u8])| block.iter().all(|byte| *byte == nth as u8 ^ 0x5a);
    assert!(origin.chunks(BLOCK_LEN).take(all as usize).enumerate().all(is_there), "the origin is complete");
}

/// All that a power cut can leave between the first write and the last one.
#[test]
fn a_power_cut_leaves_the_cache_of_before_or_the_grown_one() {
    let bench = filled();
    let before = std::fs::read(bench.cache()).unwrap();
    grow(&bench.cache(), None).unwrap();
    let after = std::fs::read(bench.cache()).unwrap();
    let [_, old_last] = Superblock::offsets(CACHE_BYTES).map(|at| at as usize);
    let [_, new_last] = Superblock::offsets(GROWN_BYTES).map(|at| at as usize);
    let changed: Vec<usize> = (0..after.len())
        .step_by(BLOCK_LEN)
        .filter(|at| before[*at..][..BLOCK_LEN] != after[*at..][..BLOCK_LEN])
        .collect();
    let is_behind = |at: &usize| *at == 0 || *at >= old_last;
    assert!(changed.len() > 4 && changed.iter().all(is_behind), "what the cache was stays: {changed:?}");
    let left = |image: &[u8], expected: u64| {
        std::fs::write(bench.cache(), image).unwrap();
        assert_eq!(cache_bytes(&bench), expected);
        assert_sound(&bench);
    };
    let mut rng = Rng::new(7);
    let mut image = before.clone();
    for _ in 0..20 {
        // Any of the checkpoints, and then all of them and a torn copy at the end.
        for at in changed.iter().copied().filter(|at| *at > old_last && *at < new_last) {
            let from = if rng.below(2) == 0 { &before } else { &after };
            image[at..at + BLOCK_LEN].copy_from_slice(&from[at..at + BLOCK_LEN]);
        }
        left(&image, CACHE_BYTES);
    }
    image[old_last + BLOCK_LEN..new_last].copy_from_slice(&after[old_last + BLOCK_LEN..new_last]);
    for sectors in 0..=8 {
        image[new_last..][..sectors * 512].copy_from_slice(&after[new_last..][..sectors * 512]);
        left(&image, CACHE_BYTES);
    }
    for sectors in 1..8 {
        image[..sectors * 512].copy_from_slice(&after[..sectors * 512]);
        // The first sector says where the last copy is.
        left(&image, GROWN_BYTES);
        let mut other_end = image.clone();
        other_end[..512].copy_from_slice(&before[..512]);
        other_end[512..BLOCK_LEN].copy_from_slice(&after[512..BLOCK_LEN]);
        left(&other_end, CACHE_BYTES);
    }
    image[..BLOCK_LEN].copy_from_slice(&after[..BLOCK_LEN]);
    left(&image, GROWN_BYTES);
    left(&after, GROWN_BYTES);
    // A growth that was cut can be tried again, with the same result.
    std::fs::write(bench.cache(), &before).unwrap();
    grow(&bench.cache(), None).unwrap();
    assert!(std::fs::read(bench.cache()).unwrap() == after);
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let refused = |bench: &Bench, words: &str| {
        let before = std::fs::read(bench.cache()).unwrap();
        let said = grow(&bench.cache(), None).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
        assert!(std::fs::read(bench.cache()).unwrap() == before, "something was written");
    };
    let bench = filled();
    set_len(&bench, CACHE_BYTES);
    refused(&bench, "the cache uses all of its device, 16 MiB");
    set_len(&bench, CACHE_BYTES + (16 << 10));
    refused(&bench, "too little for a segment of each lane");
    set_len(&bench, GROWN_BYTES);
    let mut served = bench.serve_frozen();
    refused(&bench, "in use");
    served.write(0, 1);
    served.stop_at_once();
    refused(&bench, "the last stop was not clean");
    let (bench, _) = Bench::mirrored();
    set_len(&bench, GROWN_BYTES);
    refused(&bench, "a mirrored cache does not grow");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Superblocks that are zeroed, flipped, or from the future. There are two; one is enough.
//!
//! The few offsets used here are the format's (docs/internals/format.md), written down a second
//! time on purpose: if the code changes them, these tests see it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::harness::{MIB, Random, Volume, flashfront, must, output, show};
use crate::refusal::assert_refused;

const BLOCK: usize = 4096;
const VERSION_AT: usize = 8;
const CRC_AT: usize = 12;
const CACHE_MIB: u64 = 32;
/// The first block of the cache device, and the last.
const COPIES: [u64; 2] = [0, CACHE_MIB * MIB - BLOCK as u64];

/// A stopped volume that has served writes, and what its clients saw.
fn stopped() -> (Volume, std::path::PathBuf) {
    let mut volume = Volume::served(CACHE_MIB, 64, "writeback");
    let image = volume.place.sparse("image.img", 64 * MIB);
    let file = File::options().write(true).open(&image).expect("the file is ours");
    let mut client = volume.connect();
    let mut random = Random::new(5);
    for _ in 0..500 {
        let (offset, bytes) = (random.below(64 * MIB / 512 - 64) * 512, random.bytes(512 * 17));
        client.write_at(offset, &bytes, false).expect("the volume can be written");
        file.write_all_at(&bytes, offset).expect("the file is ours");
    }
    client.flush().expect("the volume can be flushed");
    volume.stop();
    (volume, image)
}

/// Changes superblocks in place.
fn change(volume: &Volume, copies: &[u64], change: impl Fn(&mut [u8; BLOCK])) {
    let file = File::options().read(true).write(true).open(&volume.cache).expect("the file is ours");
    for &offset in copies {
        let mut block = [0; BLOCK];
        file.read_exact_at(&mut block, offset).expect("the file is ours");
        assert_eq!(&block[..8], b"FLASHFRT", "a superblock at {offset}");
        change(&mut block);
        file.write_all_at(&block, offset).expect("the file is ours");
    }
}

fn zeroed(block: &mut [u8; BLOCK]) {
    block.fill(0);
}

fn flipped(block: &mut [u8; BLOCK]) {
    block[77] ^= 0x10;
}

fn from_the_future(block: &mut [u8; BLOCK]) {
    block[VERSION_AT..VERSION_AT + 4].copy_from_slice(&99_u32.to_le_bytes());
    block[CRC_AT..CRC_AT + 4].fill(0);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &block[..]) as u32;
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn one_good_superblock_is_enough() {
    for damage in [zeroed, flipped] {
        for copy in COPIES {
            let (mut volume, image) = stopped();
            change(&volume, &[copy], damage);
            volume.start();
            let said = volume.stderr().to_lowercase();
            assert!(said.contains("superblock"), "it must say so: {said}");
            volume.assert_serves(&image);
            volume.drain();
            volume.stop();
            // Both are good again.
            change(&volume, &COPIES, |_| ());
            volume.assert_sound();
            crate::harness::assert_same(&volume.origin, &image);
        }
    }
}

#[test]
fn no_good_superblock_is_too_few() {
    for damage in [zeroed, flipped] {
        let (volume, _) = stopped();
        change(&volume, &COPIES, damage);
        assert_refused(&volume.place, &mut volume.serve(), &["cache.img"]);
        assert_eq!(damage_in_json(&volume), 2, "each copy is reported");
    }
}

/// `check --json` must fail and list damage; in how many places.
#[track_caller]
fn damage_in_json(volume: &Volume) -> usize {
    let report = output(flashfront().arg("check").arg(&volume.cache).arg("--json"));
    let said = show(&report);
    let json: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap_or_else(|_| panic!("no JSON: {said}"));
    assert_eq!((report.status.code(), json["ok"].as_bool()), (Some(1), Some(false)), "{said}");
    json["damage"].as_array().map_or(0, Vec::len)
}

#[test]
fn check_speaks_json_about_whatever_the_device_holds() {
    let (volume, _) = stopped();
    let file = File::options().write(true).open(&volume.cache).expect("the file is ours");
    file.set_len(CACHE_MIB * MIB / 2).expect("the file is ours");
    assert_eq!(damage_in_json(&volume), 1, "truncated");
    file.set_len(CACHE_MIB * MIB).expect("the file is ours");
    file.write_all_at(b"mere text", 0).expect("the file is ours");
    assert_eq!(damage_in_json(&volume), 2, "both copies gone, one by truncation");
    file.set_len(512).expect("the file is ours");
    assert_eq!(damage_in_json(&volume), 2, "a sector");
    // What could not even be opened has no content to speak of.
    std::fs::remove_file(&volume.cache).expect("the file is ours");
    assert_refused(&volume.place, flashfront().arg("check").arg(&volume.cache).arg("--json"), &["cache.img"]);
}

#[test]
fn a_newer_format_is_refused() {
    let (volume, _) = stopped();
    change(&volume, &COPIES, from_the_future);
    assert_refused(&volume.place, &mut volume.serve(), &["cache.img", "version", "99"]);
    assert_refused(&volume.place, flashfront().arg("check").arg(&volume.cache), &["version", "99"]);
    assert_eq!(damage_in_json(&volume), 2);
    // Nor is it overwritten by mistake.
    assert_refused(&volume.place, &mut volume.format(), &["flashfront", "--force"]);
    must(volume.format().arg("--force"));
}

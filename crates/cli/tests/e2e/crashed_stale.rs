// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin that was used by itself after its daemon had died: dirty data is refused, and clean
//! data forgotten. What only the daemon has written is no change (`kill` asks that after each of
//! many kills, in all modes).

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::harness::{MIB, Random, Volume, must, output, show, skip_without, tool};

const CHANGED: &str = "was changed after its daemon had died";

/// A block that no sample is of, and that holds no file system's superblock.
const FAR: u64 = 40 * MIB + 12 * 4096;

fn write(volume: &Volume, offset: u64, byte: u8, blocks: usize) {
    let mut client = volume.connect();
    client.write_at(offset, &vec![byte; blocks * 4096], false).expect("the daemon serves");
    client.flush().expect("the daemon serves");
}

fn read(volume: &Volume, offset: u64) -> u8 {
    let mut block = [0; 4096];
    volume.connect().read_at(offset, &mut block).expect("the daemon serves");
    block[0]
}

/// Writes the origin by itself.
fn put(volume: &Volume, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(&volume.origin).expect("the file is ours");
    file.write_all_at(bytes, offset).expect("the file is ours");
}

/// Serving is refused, and nothing changed; returns what was said.
#[track_caller]
fn refused(volume: &Volume) -> String {
    let before = std::fs::read(&volume.origin).expect("the file is ours");
    let output = output(&mut volume.serve());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = [CHANGED, "dirty block", "--accept-changed-origin", "origin.img"].iter().all(|word| said.contains(word));
    assert!(!output.status.success() && told, "{}", show(&output));
    assert!(std::fs::read(&volume.origin).expect("the file is ours") == before, "the origin was written");
    said
}

/// Dirty data that is durable in the cache, and none of it on the origin.
fn with_dirty(origin_mib: u64) -> Volume {
    let mut volume = Volume::new(16, origin_mib);
    volume.options = vec!["--max-dirty-age=1h"];
    must(&mut volume.format());
    volume
}

#[test]
fn a_file_system_that_was_used_by_itself_is_seen() {
    if skip_without(&["mkfs.ext4", "tune2fs"]) {
        return;
    }
    let mut volume = with_dirty(64);
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(&volume.origin));
    must(volume.format().arg("--force"));
    volume.start();
    write(&volume, FAR, 7, 1);
    volume.kill9();
    must(tool("tune2fs").args(["-c", "7", "-L", "used"]).arg(&volume.origin));
    refused(&volume);
    // Each time anew.
    refused(&volume);
    put(&volume, FAR, &[9; 4096]);
    volume.options.push("--accept-changed-origin");
    volume.start();
    assert!(volume.stderr().contains("dropping all clean data"), "{}", volume.stderr());
    assert_eq!(read(&volume, FAR), 7, "the operator wants what is dirty");
    volume.stop();
}

#[test]
fn a_block_that_the_cache_has_is_compared() {
    let mut volume = with_dirty(64);
    volume.start();
    write(&volume, FAR, 3, 4);
    volume.drain();
    write(&volume, FAR + MIB, 7, 1);
    volume.kill9();
    // Nobody has changed anything.
    volume.start();
    volume.kill9();
    // The state folder is not needed for it.
    std::fs::remove_dir_all(volume.place.file("state")).expect("the folder is ours");
    put(&volume, FAR + 2 * 4096, &[9; 4096]);
    assert!(refused(&volume).contains("no record of its samples"));
    refused(&volume);
    // Put back, all is well.
    put(&volume, FAR + 2 * 4096, &[3; 4096]);
    volume.start();
    assert_eq!((read(&volume, FAR), read(&volume, FAR + MIB)), (3, 7));
    volume.drain();
    // After a kill a block that was destaged just before may count as dirty still.
    volume.stop();
    volume.start();
    volume.kill9();
    // With nothing dirty what is clean is forgotten.
    put(&volume, FAR + 2 * 4096, &[9; 4096]);
    volume.start();
    assert!(volume.stderr().contains("dropping all clean data"), "{}", volume.stderr());
    assert_eq!((read(&volume, FAR), read(&volume, FAR + 2 * 4096), read(&volume, FAR + MIB)), (3, 9, 7));
    volume.stop();
    volume.assert_sound();
}

/// A superblock that clients write through the daemon, in each way that there is, and that is
/// destaged again and again.
#[test]
fn a_superblock_that_the_daemon_writes_is_no_change() {
    const MODES: [&str; 4] = ["--mode=writeback", "--mode=writethrough", "--mode=writearound", "--mode=passthrough"];
    let mut volume = with_dirty(64);
    let mut random = Random::new(5);
    for (round, mode) in MODES.into_iter().enumerate() {
        volume.options = vec!["--max-dirty-age=1h", mode];
        let seen = |volume: &Volume| volume.stderr().matches(CHANGED).count();
        let before = if round == 0 { 0 } else { seen(&volume) };
        for kill in 0..3 {
            volume.start();
            let mut client = volume.connect();
            for nth in 0..8 {
                // Sectors of ext4's and btrfs's superblock, one that a discard leaves undefined,
                // and the last one.
                for at in [1024, 65536 + 512, 2 * MIB, 64 * MIB - 512] {
                    let sector = random.bytes(512);
                    client.write_at(at, &sector, random.below(3) == 0).expect("the daemon serves");
                }
                match random.below(4) {
                    0 => client.flush().expect("the daemon serves"),
                    1 => client.trim(2 * MIB, 4096).expect("the daemon serves"),
                    2 => client.write_zeroes(0, 8192).expect("the daemon serves"),
                    _ if nth == kill * 3 => volume.drain(),
                    _ => {}
                }
            }
            drop(client);
            volume.kill9();
        }
        volume.start();
        assert_eq!(seen(&volume), before, "{mode}: {}", volume.stderr());
        // What somebody else writes over it is seen, whether or not something is dirty.
        write(&volume, FAR, 1 + round as u8, 1);
        volume.kill9();
        put(&volume, 1024, &random.bytes(512));
        if mode == MODES[0] {
            refused(&volume);
            volume.options.push("--accept-changed-origin");
        }
        volume.start();
        assert!(seen(&volume) > before, "{mode}: {}", volume.stderr());
        assert_eq!(read(&volume, FAR), 1 + round as u8, "{mode}");
        volume.stop();
    }
}

/// A sample of the blocks is compared first, and counted once.
#[test]
fn no_more_blocks_are_said_to_be_compared_than_there_are() {
    const BLOCKS: usize = 512;
    let mut volume = with_dirty(16);
    volume.start();
    write(&volume, 0, 7, BLOCKS);
    volume.drain();
    volume.kill9();
    volume.start();
    let said = volume.stderr();
    let line = said.lines().find(|line| line.contains("are what the origin holds")).unwrap_or_else(|| panic!("{said}"));
    let mut words = line.split_whitespace().map(|word| word.parse::<usize>().ok());
    let blocks = words.find_map(|count| count).expect("the line has a number");
    assert!((1..=BLOCKS).contains(&blocks), "{line}");
    volume.stop();
}

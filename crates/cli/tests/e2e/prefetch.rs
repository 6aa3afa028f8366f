// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront prefetch`: what was brought is read without the origin, and nothing else is.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::block_device::{BlockDevice, Mount, skip_without_block_devices};
use crate::harness::{MIB, Random, Volume, flashfront, must, output, show, skip_without, tool};
use crate::volumes::{connect_to, json};

/// An origin with data, served in writearound mode: so the cache has only what was read.
fn served(cache_mib: u64, origin_mib: u64) -> Volume {
    let mut volume = Volume::new(cache_mib, origin_mib);
    let data = Random::new(7).bytes((origin_mib * MIB) as usize);
    File::options().write(true).open(&volume.origin).expect("it is there").write_all_at(&data, 0).expect("it fits");
    must(volume.format().args(["--mode", "writearound"]));
    volume.start();
    volume
}

fn prefetch(volume: &Volume, args: &[&str]) -> Value {
    json(&must(volume.ask("prefetch").args(["data", "--json"]).args(args)))
}

fn counter(volume: &Volume, name: &str) -> u64 {
    volume.gauge(name)
}

/// Reads a range by clients, and counts the blocks that were missed. (While the cache device is
/// the slower one, hits may be read from the origin.)
fn missed(volume: &Volume, from: u64, to: u64) -> u64 {
    let count = || counter(volume, "read_misses") - counter(volume, "bypassed_congested_blocks");
    let before = count();
    let mut client = connect_to(volume, "data");
    let (mut found, mut origin) = (vec![0; 65536], vec![0; 65536]);
    for offset in (from..to).step_by(65536) {
        client.read_at(offset, &mut found).expect("it is read");
        File::open(&volume.origin).expect("it is there").read_exact_at(&mut origin, offset).expect("it has that");
        assert_eq!(found, origin, "at {offset}");
    }
    count() - before
}

#[test]
fn a_range_that_was_brought_is_read_without_the_origin() {
    let mut volume = served(64, 64);
    let done = prefetch(&volume, &["--range", "8MiB..24MiB", "--range", "63MiB.."]);
    assert_eq!((&done["done"], &done["blocks"], &done["blocks_brought"]), (&true.into(), &4352.into(), &4352.into()));
    assert_eq!(missed(&volume, 8 * MIB, 24 * MIB), 0);
    assert_eq!(missed(&volume, 63 * MIB, 64 * MIB), 0);
    assert_ne!(missed(&volume, 0, MIB), 0);
    let before = counter(&volume, "origin_reads");
    let again = prefetch(&volume, &["--range", "8MiB..24MiB"]);
    assert_eq!((&again["done"], &again["blocks_brought"]), (&true.into(), &0.into()));
    assert_eq!(counter(&volume, "origin_reads"), before, "what is there is not read again");
    volume.stop();
    volume.start();
    assert_eq!(missed(&volume, 8 * MIB, 24 * MIB), 0, "it is there after a start, too");
}

#[test]
fn only_free_room_is_used_unless_blocks_may_leave() {
    let volume = served(64, 256);
    // A cache of 64 MiB has room for less than that.
    prefetch(&volume, &["--range", "0..40MiB"]);
    assert_eq!(missed(&volume, 0, 40 * MIB), 0);
    let full = output(volume.ask("prefetch").args(["data", "--json", "--range", "128MiB..176MiB"]));
    let told = json(&String::from_utf8_lossy(&full.stdout));
    assert!(full.status.code() == Some(1) && told["done"] == false, "{}", show(&full));
    let (brought, left) = (told["blocks_brought"].as_u64().expect("a number"), told["blocks_left"].as_u64());
    assert_eq!(brought + left.expect("a number"), 48 * 256, "{told}");
    assert_eq!(missed(&volume, 0, 40 * MIB), 0, "nothing has left");
    let replaced = output(volume.ask("prefetch").args(["data", "--json", "--replace", "--range", "200MiB..216MiB"]));
    let told = json(&String::from_utf8_lossy(&replaced.stdout));
    assert!(told["blocks_brought"].as_u64() > Some(3500), "{told}");
    assert!(missed(&volume, 200 * MIB, 216 * MIB) < 40);
}

#[test]
fn more_than_the_largest_part_is_refused() {
    let volume = served(64, 256);
    must(volume.ask_two(["volume", "set"]).args(["data", "--share-max", "16MiB"]));
    let refused = output(volume.ask("prefetch").args(["data", "--range", "0..17MiB"]));
    let said = String::from_utf8_lossy(&refused.stderr);
    let names = "17.0 MiB are asked for, and volume data may have 16.0 MiB of the cache; ask for less";
    assert!(refused.status.code() == Some(1) && said.contains(names), "{}", show(&refused));
    prefetch(&volume, &["--range", "0..15MiB"]);
    assert_eq!(missed(&volume, 0, 15 * MIB), 0);
}

#[test]
fn what_a_recording_read_is_brought() {
    let volume = served(64, 64);
    let trace = volume.place.file("reads.csv");
    let line =
        |op: &str, mib: u64| format!("{},host,0,{op},{},65536,100\n", 128_166_372_003_061_629_u64 + mib, mib * MIB);
    let text: String = (1..20).map(|mib| line("Read", mib)).chain((30..40).map(|mib| line("Write", mib))).collect();
    std::fs::write(&trace, text).expect("the folder is ours");
    let done = json(&must(volume.ask("prefetch").args(["data", "--json", "--recording"]).arg(&trace)));
    assert_eq!((&done["done"], &done["blocks_brought"]), (&true.into(), &(19 * 16).into()));
    for mib in 1..20 {
        assert_eq!(missed(&volume, mib * MIB, mib * MIB + 65536), 0);
    }
    let of_nobody = output(volume.ask("prefetch").args(["data", "--recording"]).arg(&volume.log));
    assert!(!of_nobody.status.success(), "{}", show(&of_nobody));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let volume = served(64, 64);
    let refused = |args: &[&str], words: &str| {
        let said = output(volume.ask("prefetch").args(args));
        assert!(!said.status.success() && show(&said).contains(words), "{args:?}: {}", show(&said));
    };
    refused(&["date", "--range", "0..1MiB"], "no volume `date`; the daemon has: data");
    refused(&["data", "--range", "0..65MiB"], "and no bytes there");
    refused(&["data", "--range", "7"], "is no range");
    refused(&["data"], "required");
    refused(&["data", "--file", "/proc/self/status"], "neither ext4 nor XFS");
    refused(&["data", "--file", "/nowhere"], "/nowhere: ");
    must(volume.ask("set").args(["--mode", "passthrough"]));
    refused(&["data", "--range", "0..1MiB"], "passthrough mode");
    assert_eq!(counter(&volume, "warmed_blocks"), 0);
    let large = served(64, 256);
    let said = output(large.ask("prefetch").args(["data", "--range", "0..256MiB"]));
    assert!(show(&said).contains("the cache has room for"), "{}", show(&said));
    assert!(
        !output(flashfront().args(["prefetch", "data", "--range", "0..1M", "--control", "/nowhere"])).status.success()
    );
}

/// The extents of a file on the volume's ext4 are found, and no others are brought.
#[test]
fn the_data_of_a_file_is_brought() {
    if skip_without_block_devices() {
        return;
    }
    let mut volume = Volume::new(128, 128);
    must(volume.format().args(["--mode", "writearound"]));
    volume.start();
    let content = Random::new(3).bytes(8 << 20);
    {
        let device = BlockDevice::attach(&volume, 512);
        must(tool("mkfs.ext4").arg("-q").arg(&device.path));
        let mount = Mount::new(&device, &volume);
        std::fs::write(mount.dir.join("x"), &content).expect("it fits");
        must(tool("sync").arg("-f").arg(&mount.dir));
        let before = counter(&volume, "warmed_blocks");
        let done = json(&must(volume.ask("prefetch").args(["data", "--json", "--file"]).arg(mount.dir.join("x"))));
        let blocks = done["blocks"].as_u64().expect("a number");
        assert!(done["done"] == true && (2048..2100).contains(&blocks), "{done}");
        assert_eq!(counter(&volume, "warmed_blocks") - before, done["blocks_brought"].as_u64().expect("a number"));
        mount.unmount();
    }
    let device = BlockDevice::attach(&volume, 512);
    let mount = Mount::new(&device, &volume);
    let before = counter(&volume, "read_misses");
    assert_eq!(std::fs::read(mount.dir.join("x")).expect("it is there"), content);
    let missed = counter(&volume, "read_misses") - before;
    assert!(missed < 512, "{missed} blocks were missed, and the file has 2048");
    mount.unmount();
}

/// A file on another disk of that size has places there, and not on the volume.
#[test]
fn a_file_on_another_disk_of_the_same_size_is_refused() {
    if skip_without_block_devices() {
        return;
    }
    for (mkfs, mib) in [("mkfs.ext4", 64), ("mkfs.xfs", 512)] {
        if skip_without(&[mkfs]) {
            continue;
        }
        let mut volume = Volume::new(64, mib);
        must(&mut volume.format());
        volume.start();
        let image = volume.place.file("other");
        File::create(&image).and_then(|file| file.set_len(mib * MIB)).expect("a sparse file fits");
        let here = (BlockDevice::attach(&volume, 512), true);
        let there = (BlockDevice::of_file(&image, 512), false);
        for (device, is_here) in [here, there] {
            must(tool(mkfs).arg("-q").arg(&device.path));
            let mount = Mount::new(&device, &volume);
            let file = mount.dir.join("x");
            std::fs::write(&file, Random::new(5).bytes(1 << 20)).expect("it fits");
            let before = counter(&volume, "warmed_blocks");
            let said = output(volume.ask("prefetch").args(["data", "--file"]).arg(&file));
            let words = "its file system is not that of volume data, but lies on another disk of the same size";
            assert!(
                said.status.success() == is_here && show(&said).contains(words) != is_here,
                "{mkfs}: {}",
                show(&said)
            );
            assert!(is_here || counter(&volume, "warmed_blocks") == before, "{mkfs}");
            mount.unmount();
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront upgrade` under the files of FUSE: whoever has one open goes on, and a loop device
//! with a file system, too.

use std::fs::{self, File};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::block_device::{BlockDevice, Mount, skip_without_block_devices};
use crate::existing_data::sources;
use crate::fuse::{Shown, skip_without_fuse};
use crate::harness::{MIB, Random, Volume, first, must, output, skip_without, tool};
use crate::kill::verify_disk;
use crate::stamps::Record;
use crate::upgrade::{
    CACHE_MIB, ORIGIN_MIB, WRITERS, assert_origin_holds, killed_after, records, refused, script, upgraded,
};
use crate::writers::{Answered, lock, write_until_over};

/// Requests between two upgrades.
const BETWEEN: u64 = 200;

fn shown() -> Shown {
    Shown::of(Volume::new(CACHE_MIB, ORIGIN_MIB), "writeback")
}

/// A volume that is shown by FUSE, and whose clients of NBD have threads of their own.
fn shown_beside_nbd() -> Shown {
    let mut volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    volume.threads = 2;
    Shown::of(volume, "writeback")
}

fn files(shown: &Shown) -> Vec<File> {
    let open = |_| File::options().read(true).write(true).open(shown.file()).expect("the volume is shown");
    (0..WRITERS).map(open).collect()
}

/// Lets writers write to `files`. `meanwhile` says whether nobody may see an error.
fn beside_writers(files: Vec<File>, records: &[Mutex<Record>], seed: u64, meanwhile: impl FnOnce(&Answered) -> bool) {
    let answered = Answered::default();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..)
            .zip(files)
            .map(|(nth, mut file)| {
                let (answered, mut random) = (&answered, Random::new(seed ^ nth as u64));
                scope.spawn(move || {
                    let written = write_until_over(&mut file, records, nth, &mut random, answered);
                    answered.gone();
                    written
                })
            })
            .collect();
        let all_is_well = meanwhile(&answered);
        answered.end();
        for writer in writers {
            let written = writer.join().expect("no client has panicked");
            assert!(!all_is_well || written.is_ok(), "seed {seed}: {written:?}");
        }
    });
}

#[test]
fn open_files_go_on_over_upgrades_and_failed_ones() {
    if !skip_without_fuse() {
        go_on_over_upgrades(shown());
    }
}

#[test]
fn open_files_go_on_over_upgrades_beside_several_threads() {
    if !skip_without_fuse() {
        go_on_over_upgrades(shown_beside_nbd());
    }
}

fn go_on_over_upgrades(mut shown: Shown) {
    let seed = u64::from(std::process::id());
    let volume = &shown.volume;
    // The second program has taken the descriptor when it fails, and the cache is closed.
    let fails = script(volume, "fails", "exit 3");
    let late = script(volume, "late", "ulimit -f 0; exec \"$FLASHFRONT\" \"$@\"");
    let records = records(seed);
    let mut paused = Vec::new();
    beside_writers(files(&shown), &records, seed, |answered| {
        for nth in 1..=6 {
            answered.wait_for(nth * BETWEEN);
            let report = upgraded(volume);
            assert_eq!(report["clients"], WRITERS, "{report}");
            paused.push(report["paused_ms"].as_u64().expect("it says how long"));
            let said = refused(volume, if nth % 2 == 0 { &fails } else { &late });
            assert!(said.contains("nothing was changed"), "{said}");
            // Another one comes and goes.
            let size = fs::metadata(shown.file()).expect("the folder is served").len();
            assert_eq!(size, ORIGIN_MIB * MIB);
        }
        true
    });
    println!("paused by upgrades, as they say: {paused:?} ms");
    // The writers opened their files before the upgrades, and have closed them after these.
    assert_eq!(first(volume)["clients"], 0);
    volume.drain();
    shown.stop();
    shown.volume.assert_sound();
    assert_origin_holds(&shown.volume, &records, seed);
}

/// The cache is taken off and given back, again and again. Nothing that is read is older than what
/// was written last.
#[test]
fn open_files_go_on_without_the_cache_and_with_it_again() {
    if skip_without_fuse() {
        return;
    }
    let seed = u64::from(std::process::id());
    let mut shown = shown();
    let volume = &shown.volume;
    let records = records(seed);
    beside_writers(files(&shown), &records, seed, |answered| {
        for nth in 1..=4 {
            answered.wait_for(2 * nth * BETWEEN - BETWEEN);
            must(&mut volume.ask_two(["cache", "detach"]));
            assert_eq!(volume.status()["without_cache"], true);
            answered.wait_for(2 * nth * BETWEEN);
            must(volume.ask_two(["cache", "attach"]).arg(&volume.cache));
            assert_eq!(
                (&volume.status()["without_cache"], first(volume)["clients"].as_u64()),
                (&false.into(), Some(WRITERS))
            );
        }
        true
    });
    shown.kill9();
    shown.start();
    for record in &records {
        let mut client = File::options().read(true).write(true).open(shown.file()).expect("the volume is shown");
        verify_disk(&mut client, &mut lock(record), &format!("seed {seed}"), || shown.volume.stderr());
    }
    shown.stop();
    shown.volume.assert_sound();
}

/// Whichever program is killed, and whenever: nothing acknowledged is lost, and the next start
/// clears the folder.
#[test]
fn a_kill_during_an_upgrade_loses_nothing() {
    if skip_without_fuse() {
        return;
    }
    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    let mut shown = shown();
    let records = records(seed);
    for round in 0..8 {
        let at_ms = random.below(200);
        let killed = killed_after(&shown.volume, at_ms);
        let mut kept = false;
        beside_writers(files(&shown), &records, random.next(), |answered| {
            answered.wait_for(BETWEEN);
            let told = output(shown.volume.ask("upgrade").arg("--program").arg(&killed));
            // After a success the new program is killed a moment later.
            kept = !told.status.success() && String::from_utf8_lossy(&told.stderr).contains("nothing was changed");
            kept
        });
        if kept {
            shown.kill9()
        } else {
            shown.ended()
        }
        shown.start();
        for record in &records {
            let mut client = File::options().read(true).write(true).open(shown.file()).expect("the volume is shown");
            let when = format!("seed {seed}, round {round}, {at_ms} ms");
            verify_disk(&mut client, &mut lock(record), &when, || shown.volume.stderr());
        }
    }
    shown.stop();
    shown.volume.assert_sound();
}

#[test]
fn a_file_system_on_a_loop_device_goes_on() {
    if skip_without_fuse() || skip_without_block_devices() || skip_without(&["mkfs.ext4", "e2fsck", "diff"]) {
        return;
    }
    let mut shown = shown();
    let device = BlockDevice::of_file(&shown.file(), 4096);
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(&device.path));
    let mount = Mount::new(&device, &shown.volume);
    let over = AtomicBool::new(false);
    let copies = thread::scope(|scope| {
        let copying = scope.spawn(|| {
            let mut copies = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let copy = mount.dir.join(if copies.len() % 2 == 0 { "one" } else { "other" });
                output(tool("rm").arg("--recursive").arg("--force").arg(&copy));
                must(tool("cp").arg("--recursive").arg(sources()).arg(&copy));
                must(tool("sync").arg("--file-system").arg(&copy));
                copies.push(copy);
            }
            copies
        });
        for _ in 0..4 {
            upgraded(&shown.volume);
        }
        over.store(true, Ordering::SeqCst);
        copying.join().expect("no copy fails")
    });
    for copy in copies.iter().rev().take(2) {
        must(tool("diff").arg("--recursive").arg(sources()).arg(copy));
    }
    drop(mount);
    must(tool("e2fsck").args(["-f", "-n"]).arg(&device.path));
    drop(device);
    // A stop is passed on, and takes the folder away as ever.
    shown.stop();
    shown.volume.assert_sound();
}

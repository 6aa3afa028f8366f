// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache that is maintained while it works: fio verifies, and a file system lives over all of it.
//!
//! The cache moves to other devices, gets a mirror and loses it, grows, and shrinks. It is taken
//! off and comes back, and another program takes over.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use flashfront_serve::frontend::nbd::Client;

use crate::attach::{attach, detach};
use crate::block_device::{BlockDevice, Mount, skip_without_block_devices};
use crate::existing_data::sources;
use crate::filesystem::check;
use crate::fuse::{Shown, skip_without_fuse};
use crate::harness::{MIB, Volume, must, output, show, skip_without, tool};
use crate::replace::{assert_sound, on_device};
use crate::resize::{grow, shrink};
use crate::upgrade::upgraded;

const CACHE_MIB: u64 = 32;
const ORIGIN_MIB: u64 = 64;
/// Bytes that a client writes at once.
const PIECE: usize = 64 << 10;

/// Lets the cache, which is on `first`, be there and on `second` in turn; at last on `first`.
fn move_about(volume: &Volume, first: &Path, second: &Path) {
    must(on_device(volume, ["cache", "replace"], second).arg("--force"));
    must(on_device(volume, ["mirror", "add"], first).arg("--force"));
    must(&mut on_device(volume, ["mirror", "promote"], first));
    must(&mut on_device(volume, ["mirror", "remove"], second));
    let status = volume.status();
    assert_eq!((&status["mirror"], &status["cache_path"]), (&"none".into(), &first.display().to_string().into()));
    assert_eq!(status["corrupt_blocks"], 0, "{status}");
}

#[test]
fn fio_verifies_while_the_cache_moves_from_device_to_device() {
    move_under_fio(1);
}

#[test]
fn fio_verifies_while_the_cache_moves_with_several_threads() {
    move_under_fio(2);
}

fn move_under_fio(threads: usize) {
    if skip_without(&["fio"]) {
        return;
    }
    let mut volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    volume.threads = threads;
    must(&mut volume.format());
    let second = volume.place.sparse("second.img", CACHE_MIB * MIB);
    volume.start();
    let mut command = tool("fio");
    command.args(["--name=v", "--ioengine=nbd", "--rw=randwrite", "--iodepth=16", "--verify=crc32c"]);
    command.args(["--bssplit=512/20:4k/50:64k/20:1m/10", "--size=48m", "--loops=3", "--verify_backlog=64"]);
    command.arg(format!("--uri={}", volume.uri())).current_dir(volume.place.dir());
    let (done, mut rounds) = (AtomicBool::new(false), 0);
    let fio = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let output = output(&mut command);
            done.store(true, Ordering::SeqCst);
            output
        });
        while !done.load(Ordering::SeqCst) || rounds < 1 {
            move_about(&volume, &volume.cache, &second);
            rounds += 1;
        }
        running.join().expect("fio has ended")
    });
    assert!(fio.status.success(), "{}\n{}", show(&fio), volume.stderr());
    println!("{rounds} rounds of moves under fio");
    volume.stop();
    volume.assert_sound();
}

/// Writes all of the volume in pieces, in an order that is no stream.
fn overwrite(client: &mut Client, round: u8) {
    const PIECES: u64 = ORIGIN_MIB * MIB / PIECE as u64;
    for nth in 0..PIECES {
        client.write_at(nth * 7 % PIECES * PIECE as u64, &[round; PIECE], false).expect("the daemon runs");
    }
}

/// A device that comes back has headers of commits from before, which are no damage.
#[test]
fn a_device_that_was_in_the_cache_before_is_sound() {
    let mut volume = Volume::served(CACHE_MIB, ORIGIN_MIB, "writeback");
    let second = volume.place.sparse("second.img", CACHE_MIB * MIB);
    let mut client = volume.connect();
    overwrite(&mut client, 1);
    must(&mut on_device(&volume, ["cache", "replace"], &second));
    overwrite(&mut client, 2);
    must(on_device(&volume, ["cache", "replace"], &volume.cache).arg("--force"));
    client.disconnect().expect("the daemon is there");
    volume.stop();
    volume.assert_sound();
}

/// Copies a folder again and again until it is over; the copies that are there then.
fn copy_until_over(to: &Path, rounds: &AtomicU64, over: &AtomicBool) -> Vec<PathBuf> {
    let copies = ["one", "other"].map(|name| to.join(name));
    for copy in copies.iter().cycle() {
        must(tool("rm").args(["--recursive", "--force"]).arg(copy));
        must(tool("cp").arg("--recursive").arg(sources()).arg(copy));
        must(tool("sync").arg("--file-system").arg(copy));
        let round = rounds.fetch_add(1, Ordering::SeqCst) + 1;
        if round > 1 && over.load(Ordering::SeqCst) {
            break;
        }
    }
    copies.into()
}

#[test]
fn a_file_system_lives_over_all_that_is_done_to_its_cache() {
    if skip_without_fuse() || skip_without_block_devices() || skip_without(&["mkfs.ext4", "e2fsck", "diff"]) {
        return;
    }
    let mut shown = Shown::of(Volume::new(CACHE_MIB, ORIGIN_MIB), "writeback");
    let second = shown.volume.place.sparse("second.img", 2 * CACHE_MIB * MIB);
    let device = BlockDevice::of_file(&shown.file(), 4096);
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(&device.path));
    let mount = Mount::new(&device, &shown.volume);
    let (rounds, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let copies = thread::scope(|scope| {
        let copying = scope.spawn(|| copy_until_over(&mount.dir, &rounds, &over));
        let volume = &shown.volume;
        grow(volume, 2 * CACHE_MIB);
        upgraded(volume);
        move_about(volume, &volume.cache, &second);
        shrink(volume, CACHE_MIB);
        detach(volume);
        attach(volume, &volume.cache);
        upgraded(volume);
        over.store(true, Ordering::SeqCst);
        copying.join().expect("no copy fails")
    });
    println!("{} copies meanwhile", rounds.load(Ordering::SeqCst));
    mount.unmount();
    // Read again, past what the kernel kept of it.
    let mount = Mount::new(&device, &shown.volume);
    for copy in copies {
        must(tool("diff").arg("--recursive").arg(sources()).arg(copy));
    }
    mount.unmount();
    must(&mut check("ext4", &device.path));
    drop(device);
    shown.volume.drain();
    shown.stop();
    assert_sound(&shown.volume.cache);
    must(&mut check("ext4", &shown.volume.origin));
}

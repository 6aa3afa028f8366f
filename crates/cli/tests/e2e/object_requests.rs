// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many requests a volume in a store costs, counted by the proxy before a real server. The
//! prices of the book (docs/guide/object-store.md) are these counts.

use std::fs;

use crate::harness::{BLOCK, Disk, Form, MIB, Maker, Random, Store, Volume, flashfront, must, prefix, write};

/// What is written, and read.
const MUCH: u64 = 32 * MIB;

/// The requests of a piece of work, printed for a GiB.
fn counted(disk: &Disk, what: &str, work: impl FnOnce()) -> (u64, u64) {
    let before = disk.store.proxy().seen();
    work();
    let after = disk.store.proxy().seen();
    let (puts, gets) = (after.puts - before.puts, after.gets - before.gets);
    let per_gib = 1024 * MIB / MUCH;
    println!("{what}: {} PUTs, {} GETs for each GiB", puts * per_gib, gets * per_gib);
    (puts, gets)
}

/// Random blocks, long runs, and what is read by a host with an empty cache.
#[test]
fn requests_are_few() {
    let Some(store) = Store::server(Maker::Moto) else { return };
    let mut disk = Disk::with(store, Form::PLAIN, &["--size", "64MiB"]);
    disk.start();
    let mut random = Random::new(3);
    let blocks = MUCH / BLOCK;
    let mut client = disk.volume.connect();
    let (puts, _) = counted(&disk, "random blocks of 4 KiB, one FLUSH", || {
        for nth in 0..blocks {
            // Each second block of the volume, in no order.
            let at = nth * 2654435761 % blocks * 2 * BLOCK;
            client.write_at(at, &random.bytes(BLOCK as usize), false).expect("the volume takes writes");
        }
        client.flush().expect("the cache device is well");
        disk.volume.drain();
    });
    // Each batch of destage is an object and a manifest: most are far smaller than 8 MiB.
    assert!(puts <= 160, "{puts} PUTs for random blocks");
    disk.volume.stop();

    let other = {
        let mut volume = Volume::new(128, 1);
        volume.origin.clone_from(&disk.volume.origin);
        disk.format(&volume);
        let mut serve = volume.serve();
        volume.start_by(disk.known(&mut serve));
        volume
    };
    let mut client = other.connect();
    let (_, gets) = counted(&disk, "read in order, from an empty cache", || {
        let mut bytes = vec![0; MIB as usize];
        for at in (0..2 * MUCH).step_by(MIB as usize) {
            client.read_at(at, &mut bytes).expect("the volume can be read");
        }
    });
    assert!(gets <= MUCH / (16 << 10), "{gets} GETs to read what was written at random");

    let export = |url: &str, out: &str| {
        let file = disk.volume.place.file(out);
        must(disk.known(flashfront().args(["object", "export", url]).arg(file)));
    };
    let url = disk.store.url(&disk.volume.place, "store");
    let (_, gets) = counted(&disk, "export: random blocks", || export(&url, "scattered"));
    assert!(gets <= MUCH / MIB + 32, "{gets} GETs to export what was written at random");

    let file = disk.volume.place.file("image");
    fs::write(&file, random.bytes(MUCH as usize)).expect("the folder is ours");
    let url = disk.store.url(&disk.volume.place, "image");
    let (puts, _) = counted(&disk, "import: long runs", || {
        must(disk.known(flashfront().args(["object", "import"]).arg(&file).arg(&url)));
    });
    assert!(puts <= 3 * MUCH / (8 * MIB) + 8, "{puts} PUTs for long runs");
    let (_, gets) = counted(&disk, "export: long runs", || export(&url, "out"));
    assert!(gets <= MUCH / (2 * MIB) + 32, "{gets} GETs for long runs");
}

/// FLUSHes of a client share requests to the store, and the store has what they have covered.
#[test]
fn flushes_share_requests() {
    let Some(store) = Store::server(Maker::Moto) else { return };
    let mut disk = Disk::with(store, Form::PLAIN, &["--size", "64MiB"]);
    disk.start();
    let flushes = 500;
    let before = disk.store.proxy().seen().puts;
    write(&disk.volume, 0..flushes);
    disk.volume.drain();
    let puts = disk.store.proxy().seen().puts - before;
    println!("{flushes} FLUSHes: {puts} PUTs");
    // Eras that go one by one need an object and a manifest each.
    assert!(puts <= flushes / 2, "{puts} PUTs for {flushes} FLUSHes");
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), flushes), flushes);
}

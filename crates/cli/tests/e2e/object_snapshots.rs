// SPDX-License-Identifier: MIT OR Apache-2.0
//! Snapshots: taken while clients write, served by many hosts at once, and cloned a hundred times.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{
    BLOCK, Disk, Form, SIZE, Store, Volume, first, flashfront, must, output, payload, place, prefix, show, write,
};

/// The flag of an export that nobody may write.
const READ_ONLY: u16 = 2;

/// A host that serves a snapshot of the disk, with a cache of its own.
fn reader(disk: &Disk, snapshot: &str) -> Volume {
    let mut volume = Volume::new(64, 1);
    volume.origin = format!("{}@{snapshot}", disk.volume.origin.display()).into();
    disk.format(&volume);
    start(disk, &mut volume);
    volume
}

fn start(disk: &Disk, volume: &mut Volume) {
    let mut serve = volume.serve();
    volume.start_by(disk.known(&mut serve));
}

fn content_of(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    volume.connect().read_at(0, &mut bytes).expect("the snapshot can be read");
    bytes
}

/// Three hosts serve a snapshot while the volume's daemon writes. Nobody is fenced, and nobody can
/// write the snapshot.
#[test]
fn a_snapshot_is_served_by_many_hosts_beside_the_writer() {
    for store in std::iter::once(Store::Folder).chain(Store::servers()) {
        let mut disk = Disk::new(store, Form::BOTH);
        disk.start();
        write(&disk.volume, 0..40);
        disk.volume.drain();
        disk.object("snapshot", &["gold"]);
        let mut readers = [reader(&disk, "gold"), reader(&disk, "gold"), reader(&disk, "gold")];
        write(&disk.volume, 40..80);
        disk.volume.drain();
        for volume in &mut readers {
            assert_eq!(prefix(&content_of(volume), 80), 40);
            let status = first(volume);
            assert_eq!((&status["read_only"], &status["fenced"]), (&true.into(), &false.into()), "{status}");
            let mut client = volume.connect();
            assert!(client.info().flags & READ_ONLY != 0, "clients are told");
            client.write_at(0, &payload(1), false).expect_err("a snapshot is never written");
            let name = status["name"].as_str().expect("a name");
            let said = show(&output(volume.ask_two(["volume", "set"]).args([name, "--writable"])));
            assert!(said.contains("a snapshot is never written"), "{said}");
        }
        // A reader that was killed comes back with its cache. The others go on.
        readers[0].kill9();
        start(&disk, &mut readers[0]);
        let counters = readers[0].status();
        assert_eq!(prefix(&content_of(&readers[0]), 80), 40);
        assert!(counters["blocks_cached"].as_u64() > Some(0), "the cache is warm: {counters}");
        assert!(!readers[0].stderr().contains("dropping all clean data"), "{}", readers[0].stderr());
        readers.iter_mut().for_each(Volume::stop);

        assert_eq!(first(&disk.volume)["fenced"], false);
        write(&disk.volume, 80..90);
        disk.volume.drain();
        disk.volume.stop();
        assert_eq!(prefix(&disk.content(), 90), 90);
        let info: Value = serde_json::from_str(&disk.object("info", &["--json"])).expect("JSON");
        assert_eq!(info["epoch"], 2, "a reader has taken the volume over: {info}");
        // A cache of the snapshot is none of the volume. A snapshot must be there.
        readers[1].origin.clone_from(&disk.volume.origin);
        let said = show(&output(disk.known(&mut readers[1].serve())));
        assert!(said.contains("is not the origin that the cache"), "{said}");
        readers[1].origin = format!("{}@silver", disk.volume.origin.display()).into();
        let said = show(&output(disk.known(&mut readers[1].serve())));
        assert!(said.contains("there is no snapshot `silver`; there are: gold"), "{said}");
    }
}

/// The objects of a store, by kind, and their bytes.
fn objects(root: &std::path::Path) -> BTreeMap<String, (u64, u64)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).expect("a folder").map(|it| it.expect("an entry").path()));
        } else {
            let kind = path.parent().and_then(|it| it.file_name()).expect("a kind").to_string_lossy().into_owned();
            let (count, bytes) = found.entry(kind).or_insert((0, 0));
            *count += 1;
            *bytes += path.metadata().expect("a file").len();
        }
    }
    found
}

/// A golden image is cloned a hundred times. Each clone costs a manifest, the root of a map, and a
/// hold on the snapshot, and no data. Clones are written, and stay apart.
#[test]
fn a_hundred_clones_share_the_data_of_one_image() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    disk.start();
    disk.volume.connect().write_at(0, &payload(7).repeat(1024), true).expect("the volume takes writes");
    disk.volume.drain();
    disk.volume.stop();
    disk.object("snapshot", &["gold"]);
    let gold = disk.exported("");
    let (root, url) = (disk.volume.place.file("store"), disk.volume.origin.display().to_string());
    let before = objects(&root);
    let clones = disk.volume.place.file("clones");
    let target = |nth: u32| format!("file://{}", clones.join(nth.to_string()).display());
    for nth in 0..100 {
        must(flashfront().args(["object", "clone", &format!("{url}@gold"), &target(nth)]));
    }
    let (after, made) = (objects(&root), objects(&clones));
    assert_eq!(after["data"], before["data"], "the image's data was written again");
    assert_eq!(after["wish"].0, before["wish"].0 + 100, "{after:?}");
    assert_eq!(made.keys().collect::<Vec<_>>(), ["manifest", "map"], "{made:?}");
    assert_eq!((made["manifest"].0, made["map"].0), (100, 100));
    let bytes: u64 = made.values().map(|it| it.1).sum();
    assert!(bytes < 100 * 2048, "a clone has {} bytes", bytes / 100);

    // Two of them are written by two hosts at once.
    let mut hosts = [3, 77].map(|nth| {
        let mut volume = Volume::new(64, 1);
        volume.origin = target(nth).into();
        disk.format(&volume);
        start(&disk, &mut volume);
        volume
    });
    for (volume, mark) in hosts.iter().zip([1, 2]) {
        assert!(content_of(volume) == gold);
        volume.connect().write_at(place(0), &payload(mark), true).expect("a clone takes writes");
    }
    for (volume, mark) in hosts.iter_mut().zip([1, 2]) {
        volume.drain();
        let seen = content_of(volume);
        assert!(seen[..BLOCK as usize] == payload(mark) && seen[BLOCK as usize..] == gold[BLOCK as usize..]);
        volume.stop();
    }
    assert!(disk.exported("") == gold);
    assert_eq!(objects(&root)["data"], before["data"]);
}

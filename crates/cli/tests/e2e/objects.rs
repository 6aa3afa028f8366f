// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes in an object store behind the cache: in a folder, and in real servers where they are
//! installed. Daemons are killed, writers overtake each other, stores go away.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::harness::{
    BLOCK, Disk, Form, SIZE, Store, Volume, first, flashfront, key_file, must, output, payload, place, prefix, show,
    wait_for, write,
};

fn survives(store: Store, form: Form) {
    let mut disk = Disk::new(store, form);
    for round in 0..3 {
        disk.start();
        write(&disk.volume, round * 50..round * 50 + 50);
        disk.volume.kill9();
        // The store alone has some first writes, whatever the cache still holds.
        prefix(&disk.content(), 150);
    }
    disk.start();
    disk.volume.drain();
    let status = first(&disk.volume);
    assert_eq!((&status["unsent_bytes"], &status["unsent_age_s"]), (&0.into(), &0.into()), "{status}");
    assert_eq!((&status["fenced"], &status["destage"]), (&false.into(), &"ordered".into()));
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), 150), 150);
    // A clean stop leaves the volume so that the next start knows it.
    disk.start();
    disk.volume.stop();
    assert!(!disk.volume.stderr().contains("was changed"), "{}", disk.volume.stderr());
}

/// A killed daemon loses nothing, and the store alone is an exact prefix at any time.
#[test]
fn a_killed_daemon_loses_nothing() {
    for form in Form::ALL {
        survives(Store::Folder, form);
    }
}

#[test]
fn a_killed_daemon_loses_nothing_in_a_server() {
    for (store, form) in Store::servers().zip([Form::PLAIN, Form::BOTH]) {
        survives(store, form);
    }
}

/// Another host takes over while the first one sleeps. The first one finds that out, acknowledges
/// no further write, and changes nothing.
#[test]
fn a_writer_that_slept_is_fenced() {
    for store in std::iter::once(Store::Folder).chain(Store::servers()) {
        let mut disk = Disk::new(store, Form::PLAIN);
        disk.start();
        write(&disk.volume, 0..40);
        disk.volume.signal(Signal::STOP);
        let before = prefix(&disk.content(), 40);
        let mut other = disk.other_host();
        let mut mine = vec![0; SIZE as usize];
        other.connect().read_at(0, &mut mine).expect("the volume can be read");
        assert_eq!(prefix(&mine, 40), before);
        other.connect().write_at(SIZE - BLOCK, &payload(99), false).expect("the new writer writes");
        other.drain();

        disk.volume.signal(Signal::CONT);
        let mut client = disk.volume.connect();
        let refused = (0..).find(|nth| {
            let written = client.write_at(place(*nth), &payload(1000 + nth), false);
            written.and_then(|()| client.flush()).is_err()
        });
        assert!(refused.is_some());
        wait_for(&disk.volume, |it| it["fenced"] == true);
        let status = first(&disk.volume);
        assert!(status["fenced_by"].as_str().is_some_and(|by| by.contains("epoch 3")), "{status}");
        assert_eq!(status["read_only"], true);
        assert!(disk.volume.stderr().contains("opened by another writer"), "{}", disk.volume.stderr());
        assert!(must(&mut disk.volume.ask("status")).contains("FENCED"));
        // Reads go on.
        client.read_at(0, &mut vec![0; BLOCK as usize]).expect("the cache has it");
        // A fenced daemon stops, says what it keeps, and changes nothing any more.
        let crashes = !disk.store.is_server();
        disk.volume.signal(if crashes { Signal::KILL } else { Signal::TERM });
        assert!(!disk.volume.exit().success());
        let stderr = disk.volume.stderr();
        assert!(crashes || stderr.contains("They are lost to that volume"), "{stderr}");
        other.stop();
        let content = disk.content();
        assert_eq!(prefix(&content, 40), before, "the fenced writer has changed something");
        assert!(content[(SIZE - BLOCK) as usize..] == payload(99));
        // What the first cache still has is older: it is refused, with what to do.
        let started = output(disk.known(&mut disk.volume.serve()));
        let said = show(&started);
        let why = if crashes { "opened by another writer since" } else { "was changed since the last clean stop" };
        assert!(!started.status.success() && said.contains(why), "{said}");
    }
}

/// No client notices a store that is away, until the cache is full. `status` tells since when.
#[test]
fn a_store_that_is_away_is_waited_for() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    disk.start();
    write(&disk.volume, 0..20);
    disk.volume.drain();
    let (store, hidden) = (disk.volume.place.file("store"), disk.volume.place.file("hidden"));
    fs::rename(&store, &hidden).expect("it can be moved");
    fs::write(&store, b"no folder").expect("a file can be made");
    write(&disk.volume, 20..60);
    wait_for(&disk.volume, |it| it["origin_state"] == "away");
    let status = first(&disk.volume);
    assert!(status["away_why"].as_str().is_some_and(|why| why.contains("data/")), "{status}");
    assert!(status["unsent_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{status}");
    write(&disk.volume, 60..80);
    fs::remove_file(&store).expect("it was made");
    fs::rename(&hidden, &store).expect("it can be moved");
    disk.volume.drain();
    assert_eq!(first(&disk.volume)["origin_state"], "up");
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), 80), 80);
}

#[test]
fn one_of_three_creators_wins() {
    let volume = Volume::new(1, 1);
    let url = PathBuf::from(format!("file://{}", volume.place.file("race").display()));
    let create = || flashfront().args(["object", "create"]).arg(&url).args(["--size", "1GiB"]).output();
    let ended: Vec<bool> = std::thread::scope(|scope| {
        let creators: Vec<_> = (0..3).map(|_| scope.spawn(create)).collect();
        let ended = |it: std::thread::ScopedJoinHandle<'_, std::io::Result<std::process::Output>>| {
            it.join().expect("no panic").expect("it ends").status.success()
        };
        creators.into_iter().map(ended).collect()
    });
    assert_eq!(ended.iter().filter(|it| **it).count(), 1, "{ended:?}");
}

/// Without its key an encrypted volume is neither served nor read, and its writer goes on.
#[test]
fn an_encrypted_volume_wants_its_key() {
    let mut disk = Disk::new(Store::Folder, Form::BOTH);
    disk.start();
    let line = b"nobody else may read this line! ".repeat(BLOCK as usize / 32);
    disk.volume.connect().write_at(BLOCK, &line, true).expect("the volume takes writes");
    disk.volume.drain();
    let wrong = key_file(11);
    for keys in [Some(wrong.path()), None] {
        let known = |command: &mut std::process::Command| {
            command.envs(keys.map(|path| ("FLASHFRONT_OBJECT_KEYS", path)));
            show(&output(command))
        };
        for verb in ["info", "gc", "export"] {
            let mut command = flashfront();
            command.args(["object", verb]).arg(&disk.volume.origin);
            match verb {
                "gc" => _ = command.arg("--force"),
                "export" => _ = command.arg(disk.volume.place.file("stolen")),
                _ => {}
            }
            let said = known(&mut command);
            assert!(said.contains("exit status: 1") && said.contains("which is not given"), "{verb}: {said}");
        }
        let mut other = Volume::new(64, 1);
        other.origin.clone_from(&disk.volume.origin);
        let said = known(&mut other.format());
        assert!(said.contains("which is not given"), "{said}");
    }
    assert_eq!(first(&disk.volume)["fenced"], false);
    disk.volume.stop();
    let mut left = vec![disk.volume.place.file("store")];
    let mut objects = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).expect("a folder").map(|it| it.expect("an entry").path()));
        } else {
            let bytes = fs::read(&path).expect("a file");
            assert!(!bytes.windows(16).any(|it| it == &line[..16]), "{}", path.display());
            objects += 1;
        }
    }
    assert!(objects > 3);
    assert!(disk.content()[BLOCK as usize..2 * BLOCK as usize] == line);
}

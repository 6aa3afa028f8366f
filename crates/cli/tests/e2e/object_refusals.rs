// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is refused has changed nothing: no writer is fenced, and no volume is left open.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Disk, Form, Store, Volume, first, flashfront, must, output, prefix, show, write};

/// The epoch of the newest manifest, and whether a writer has the volume open.
fn state(disk: &Disk) -> (u64, bool) {
    let info: Value = serde_json::from_str(&disk.object("info", &["--json"])).expect("JSON");
    (info["epoch"].as_u64().expect("a number"), info["open"] == true)
}

/// A mistyped name of a snapshot takes nothing over, with `--force` or without.
#[test]
fn a_rollback_to_a_snapshot_that_is_not_there_fences_nobody() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    let before = state(&disk);
    let said = show(&output(&mut disk.object_command("rollback", &["nix"])));
    assert!(said.contains("there is no snapshot `nix`"), "{said}");
    assert_eq!(state(&disk), before, "a refused rollback has opened the volume");

    disk.start();
    write(&disk.volume, 0..10);
    disk.volume.drain();
    disk.object("snapshot", &["kept"]);
    let before = state(&disk);
    for (verb, more) in
        [("rollback", &["nix", "--force"][..]), ("snapshot", &["kept"]), ("snapshot", &["nix", "--forget"])]
    {
        let said = show(&output(&mut disk.object_command(verb, more)));
        assert!(said.contains("exit status: 1") && said.contains("there is"), "{verb}: {said}");
    }
    assert_eq!(state(&disk), before);
    write(&disk.volume, 10..20);
    disk.volume.drain();
    assert_eq!(first(&disk.volume)["fenced"], false);
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), 20), 20);
    // The snapshot that is there is gone back to, and the volume is closed.
    disk.object("rollback", &["kept"]);
    assert!(!state(&disk).1);
    assert_eq!(prefix(&disk.content(), 20), 10);
}

/// A volume that is too large for the cache is refused before its writer is fenced. Where the
/// daemon destages in free order, `volume add` says what that means for a volume in a store.
#[test]
fn a_volume_that_is_refused_was_not_taken_over() {
    let mut volume = Volume::served(64, 16, "writeback");
    let create = |name: &str, size: &str| {
        let url = format!("file://{}", volume.place.file(name).display());
        let said = must(flashfront().args(["object", "create", &url, "--size", size]));
        assert_eq!(said.contains("no cache is sure to serve more than 256 TiB"), name == "large", "{said}");
        url
    };
    let (large, small) = (create("large", "1PiB"), create("small", "16MiB"));
    must(flashfront().args(["object", "snapshot", &small, "gold"]));
    let info = |url: &str| must(flashfront().args(["object", "info", url, "--json"]));
    let before = [info(&large), info(&small)];
    let add = |volume: &Volume, name: &str, url: &str| {
        show(&output(volume.ask_two(["volume", "add"]).args(["--name", name, "--origin", url])))
    };
    let said = add(&volume, "gold", &format!("{small}@gold"));
    assert!(said.contains("exit status: 0") && !said.contains("free order"), "a snapshot is only read: {said}");
    must(volume.ask_two(["volume", "remove"]).arg("gold"));
    let said = add(&volume, "large", &large);
    assert!(said.contains("exit status: 1") && said.contains("larger than the 256 TiB together"), "{said}");
    assert_eq!([info(&large), info(&small)], before, "a refused volume was taken over");
    // The daemon goes on, and takes another one.
    let said = add(&volume, "small", &small);
    assert!(said.contains("exit status: 0") && said.contains("destages in free order"), "{said}");
    let info: Value = serde_json::from_str(&info(&small)).expect("JSON");
    assert_eq!((&info["open"], &info["epoch"]), (&true.into(), &2.into()), "{info}");
    volume.stop();
}

/// A daemon with nothing to send that was overtaken stops as any other.
#[test]
fn an_overtaken_daemon_with_nothing_to_send_stops() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    disk.start();
    write(&disk.volume, 0..10);
    disk.volume.drain();
    let mut other = disk.other_host();
    write(&other, 10..20);
    other.drain();
    disk.volume.stop();
    let stderr = disk.volume.stderr();
    assert!(stderr.contains("opened by another writer") && !stderr.contains("reading samples"), "{stderr}");
    other.stop();
    assert_eq!(prefix(&disk.content(), 20), 20);
}

/// The newest manifest of a disk in a folder.
fn newest_manifest(disk: &Disk) -> PathBuf {
    let folder = fs::read_dir(disk.volume.place.file("store").join("manifest")).expect("a folder");
    folder.map(|it| it.expect("an entry").path()).max().expect("a manifest")
}

fn objects(disk: &Disk) -> usize {
    let folder = |kind| fs::read_dir(disk.volume.place.file("store").join(kind)).map_or(0, Iterator::count);
    folder("data") + folder("map")
}

/// A damaged newest manifest is told of by all who look, and nothing is deleted that it names.
#[test]
fn a_damaged_newest_manifest_is_told_of_and_nothing_of_it_is_deleted() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    for range in [0..10, 10..30] {
        disk.start();
        write(&disk.volume, range);
        disk.volume.drain();
        disk.volume.kill9();
    }
    let path = newest_manifest(&disk);
    let whole = fs::read(&path).expect("a file");
    let mut flipped = whole.clone();
    flipped[60] ^= 1;
    for (damaged, why) in [(&flipped[..], "its checksum is wrong"), (&whole[..whole.len() / 2], "and says")] {
        fs::write(&path, damaged).expect("it can be written");
        let before = objects(&disk);
        for data in [&["--json"][..], &["--data", "--json"]] {
            let checked = output(&mut disk.object_command("check", data));
            let found: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
            assert_eq!((found["ok"].as_bool(), checked.status.code()), (Some(false), Some(1)), "{found}");
            let what = found["damage"][0]["what"].as_str().expect("a text");
            assert!(what.contains(why) && what.contains("counts"), "{found}");
            let object = found["damage"][0]["object"].as_str().expect("a name");
            assert!(path.ends_with(object.trim_start_matches('/')) || object.contains("manifest/"), "{found}");
        }
        let info: Value = serde_json::from_str(&disk.object("info", &["--json"])).expect("JSON");
        assert!(info["passed_over"].as_str().is_some_and(|it| it.contains(why)), "{info}");
        let file = disk.volume.place.file("old");
        let mut export = disk.object_command("export", &[]);
        let said = show(&output(export.arg(&file)));
        assert!(said.contains("exit status: 0") && said.contains("is damaged"), "{said}");
        fs::remove_file(&file).expect("it was exported");
        for (verb, more) in [("gc", &[][..]), ("rollback", &["kept"])] {
            let said = show(&output(&mut disk.object_command(verb, more)));
            assert!(said.contains("exit status: 1") && said.contains("would be lost for good"), "{verb}: {said}");
        }
        assert_eq!(objects(&disk), before);
    }
    // The daemon's next start says so, too, and goes on from the state that counts.
    disk.start();
    disk.volume.stop();
    assert!(disk.volume.stderr().contains("is damaged"), "{}", disk.volume.stderr());
}

/// A snapshot is not what these verbs are about, and of two sources of keys one may be named.
#[test]
fn what_is_named_wrongly_is_refused() {
    let disk = Disk::new(Store::Folder, Form::PLAIN);
    for verb in ["info", "check", "gc"] {
        let url = format!("{}@kept", disk.volume.origin.display());
        let said = show(&output(flashfront().args(["object", verb, &url])));
        assert!(said.contains("exit status: 2") && said.contains("without the snapshot `kept`"), "{said}");
    }
    let mut info = disk.object_command("info", &[]);
    info.env("FLASHFRONT_OBJECT_KEYS", "/none").env("FLASHFRONT_OBJECT_KEYS_COMMAND", "true");
    let said = show(&output(&mut info));
    assert!(said.contains("exit status: 1") && said.contains("both are set"), "{said}");
}

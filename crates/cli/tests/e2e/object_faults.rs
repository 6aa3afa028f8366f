// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands say of volumes in an object store that are not as they should be, and of daemons
//! that can't go on with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Disk, Form, Store, answer, flashfront, free_port, output, place, show, wait_for, write};

fn checked(disk: &Disk, more: &[&str]) -> Value {
    let more: Vec<&str> = ["--json"].iter().chain(more).copied().collect();
    serde_json::from_slice(&output(&mut disk.object_command("check", &more)).stdout).expect("JSON")
}

fn objects(disk: &Disk, kind: &str) -> Vec<PathBuf> {
    let folder = disk.volume.place.file("store").join(kind);
    let files = fs::read_dir(folder).map_or(Vec::new(), |all| all.map(|it| it.expect("an entry").path()).collect());
    files.into_iter().filter(|it| it.is_file()).collect()
}

/// A disk that was written, stopped, and kept as `kept`.
fn written() -> Disk {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    disk.start();
    write(&disk.volume, 0..40);
    disk.volume.drain();
    disk.volume.stop();
    disk.object("snapshot", &["kept"]);
    disk
}

/// A drain that another writer makes vain ends, and the daemon is not well.
#[test]
fn a_drain_of_a_fenced_daemon_ends() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    let port = free_port();
    let mut serve = disk.volume.serve();
    serve.arg("--http").arg(format!("127.0.0.1:{port}"));
    disk.known(&mut serve);
    disk.volume.start_by(&mut serve);
    write(&disk.volume, 0..10);
    disk.volume.drain();
    let health = || answer(port, "/healthz");
    assert!(health().contains("200 OK"), "{}", health());
    let mut other = disk.other_host();
    write(&other, 10..20);
    other.drain();
    let mut client = disk.volume.connect();
    client.write_at(place(0), &[1; 4096], false).expect("the cache takes it");
    // The FLUSH may be refused already.
    let _ = client.flush();
    let said = show(&output(&mut disk.volume.ask("drain")));
    assert!(said.contains("exit status: 1") && said.contains("never reach the store"), "{said}");
    wait_for(&disk.volume, |it| it["fenced"] == true);
    assert!(health().contains("503") && health().contains("volume data: fenced"), "{}", health());
    disk.volume.kill9();
    other.stop();
}

/// A damaged object is told of for each state that needs it, and by its own name.
#[test]
fn check_names_each_state_that_needs_a_damaged_object() {
    let disk = written();
    let check = |more: &[&str]| {
        let found = checked(&disk, more);
        let damage = found["damage"].as_array().expect("a list").clone();
        let states: Vec<Option<String>> = damage.iter().map(|it| it["snapshot"].as_str().map(str::to_owned)).collect();
        let names: Vec<String> = damage.iter().map(|it| it["object"].as_str().expect("a name").to_owned()).collect();
        (found["ok"] == true, states, names)
    };
    assert!(check(&["--data"]).0);
    let both = vec![None, Some("kept".to_owned())];
    let data = objects(&disk, "data").into_iter().max_by_key(|it| fs::metadata(it).expect("a file").len());
    let data = data.expect("the volume has data");
    let whole = fs::read(&data).expect("a file");
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("it has bytes") ^= 1;
    fs::write(&data, flipped).expect("it can be written");
    let (ok, states, names) = check(&["--data"]);
    assert!(!ok && states == both && names[0] == names[1] && names[0].contains("data/"), "{states:?} {names:?}");
    let said = show(&output(&mut disk.object_command("check", &["--data"])));
    assert!(said.contains("damaged     in 1 object\n"), "{said}");
    fs::write(&data, whole).expect("it can be written");

    // Without the map no state can be opened, and the map is to blame.
    for map in objects(&disk, "map") {
        fs::remove_file(map).expect("it is there");
    }
    let (ok, states, names) = check(&[]);
    assert!(!ok && states == both && names.iter().all(|it| it.contains("map/")), "{states:?} {names:?}");
    let said = show(&output(disk.object_command("export", &[]).arg(disk.volume.place.file("out"))));
    assert!(said.contains("object check") && said.contains("--data` says what else is damaged"), "{said}");
}

/// The hold of a clone that was emptied holds nothing.
#[test]
fn an_emptied_wish_is_damage() {
    let disk = written();
    let clone = format!("{}-clone", disk.volume.origin.display());
    let url = format!("{}@kept", disk.volume.origin.display());
    let said = show(&output(flashfront().args(["object", "clone", &url, &clone])));
    assert!(said.contains("exit status: 0"), "{said}");
    assert_eq!(checked(&disk, &[])["ok"], true);
    let wish = objects(&disk, "wish").into_iter().max().expect("the clone has a hold");
    fs::write(&wish, b"").expect("it can be written");
    let found = checked(&disk, &[]);
    assert_eq!(found["ok"], false, "{found}");
    assert!(found["damage"][0]["object"].as_str().is_some_and(|it| it.contains("wish/")), "{found}");
}

#[test]
fn info_and_check_count_alike() {
    let disk = written();
    disk.object("gc", &[]);
    let info: Value = serde_json::from_str(&disk.object("info", &["--json"])).expect("JSON");
    let found = checked(&disk, &[]);
    for key in ["live_bytes", "dead_bytes"] {
        assert_eq!(info[key], found[key], "{key}: {info} {found}");
    }
    assert!(found["other_bytes"].as_u64().is_some_and(|it| it > 0), "{found}");
}

#[test]
fn an_empty_volume_is_collected_by_few_manifests() {
    let disk = Disk::new(Store::Folder, Form::PLAIN);
    disk.object("gc", &[]);
    assert!(objects(&disk, "manifest").len() <= 4, "{:?}", objects(&disk, "manifest"));
}

/// A volume inside another one would be deleted with it. So none is made inside one or around one,
/// in any way.
#[test]
fn a_volume_is_not_made_inside_or_around_another_one() {
    for store in std::iter::once(Store::Folder).chain(Store::servers()) {
        let disk = Disk::new(store, Form::PLAIN);
        let url = |name: &str| disk.store.url(&disk.volume.place, name);
        let inner = url("deep/down/inner");
        let create =
            |url: &str| show(&output(disk.known(flashfront().args(["object", "create", url, "--size", "1MiB"]))));
        assert!(create(&inner).contains("exit status: 0"));
        disk.object("snapshot", &["monday"]);
        let file = disk.volume.place.file("image");
        fs::write(&file, vec![7; 1 << 20]).expect("the folder is ours");
        for outer in [url("deep"), url("deep/down")] {
            let import = show(&output(disk.known(flashfront().args(["object", "import"]).arg(&file).arg(&outer))));
            let from = format!("{}@monday", disk.volume.origin.display());
            let clone = show(&output(disk.known(flashfront().args(["object", "clone", &from, &outer]))));
            for said in [create(&outer), import, clone] {
                assert!(said.contains("exit status: 1") && said.contains("are below this place"), "{said}");
                assert!(said.contains(&format!("the volume {inner} are")), "{said}");
            }
        }
        for beside in [url("dee"), url("deep-down"), url("deep/down/inner2"), url("deep/other")] {
            let said = create(&beside);
            assert!(said.contains("exit status: 0"), "{said}");
        }
    }
    let disk = Disk::new(Store::Folder, Form::PLAIN);
    let outer = disk.volume.origin.display().to_string();
    for inner in [format!("{outer}/inner"), format!("{outer}/data/deep")] {
        let said = show(&output(flashfront().args(["object", "create", &inner, "--size", "1MiB"])));
        assert!(said.contains("exit status: 1") && said.contains("is around this place"), "{said}");
    }
    let beside = format!("{outer}-beside");
    let said = show(&output(flashfront().args(["object", "create", &beside, "--size", "1PiB"])));
    assert!(said.contains("exit status: 0") && said.contains(", 1 PiB\n"), "{said}");
}

#[test]
fn keys_that_others_can_read_are_told_of() {
    let disk = Disk::new(Store::Folder, Form::BOTH);
    let keys = disk.keys.as_ref().expect("the volume is encrypted").path();
    let said = |mode: u32, command: &mut Command| {
        fs::set_permissions(keys, fs::Permissions::from_mode(mode)).expect("the file is ours");
        show(&output(command))
    };
    for (mode, is_told) in [(0o600, false), (0o644, true), (0o640, true)] {
        let told = said(mode, &mut disk.object_command("info", &[]));
        assert!(told.contains("exit status: 0"), "{told}");
        assert_eq!(told.contains("other users can read the keys"), is_told, "{told}");
    }
}

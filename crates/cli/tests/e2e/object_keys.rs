// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encrypted volumes as their users see them: keys that a command prints, and a key that is
//! changed.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Disk, Form, Store, flashfront, key, must, output, prefix, show, write};

const COMMAND: &str = "FLASHFRONT_OBJECT_KEYS_COMMAND";

/// The number of the key that encrypts.
fn number(disk: &Disk) -> String {
    let info: Value = serde_json::from_str(&disk.object("info", &["--json"])).expect("JSON");
    info["key"].as_str().expect("the volume is encrypted").to_owned()
}

fn set(keys: &Path, bytes: &[u8]) {
    let lines: Vec<String> = bytes.iter().map(|byte| key(*byte)).collect();
    fs::write(keys, lines.join("\n")).expect("the file is ours");
}

/// The key is changed between two starts. Both are needed, until all was written anew.
#[test]
fn a_key_is_changed_and_the_old_one_is_needed_for_what_it_has_encrypted() {
    for form in Form::ALL.into_iter().filter(|it| it.is_encrypted) {
        let mut disk = Disk::new(Store::Folder, form);
        let keys = disk.keys.as_ref().expect("the volume is encrypted").path().to_owned();
        disk.start();
        write(&disk.volume, 0..40);
        disk.volume.drain();
        disk.volume.stop();
        let old = number(&disk);

        set(&keys, &[20, 10]);
        disk.start();
        // Other places are written now: the old key is left in the store.
        write(&disk.volume, 40..60);
        disk.volume.drain();
        disk.volume.stop();
        let new = number(&disk);
        assert_ne!(old, new, "the next opening encrypts with the first key");
        assert_eq!(prefix(&disk.content(), 60), 60);

        // The old key alone opens nothing. The new one alone reads what it has encrypted.
        set(&keys, &[10]);
        let said = show(&output(&mut disk.object_command("info", &[])));
        assert!(said.contains("exit status: 1") && said.contains(&new), "{said}");
        set(&keys, &[20]);
        disk.object("info", &[]);
        let file = disk.volume.place.file("half");
        let said = show(&output(&mut disk.object_command("export", &[file.to_str().expect("text")])));
        assert!(said.contains("exit status: 1") && said.contains(&old) && !file.exists(), "{said}");
        let said = show(&output(&mut disk.object_command("check", &["--data"])));
        assert!(said.contains("exit status: 1") && said.contains(&old) && !said.contains("sound"), "{said}");

        // What was exported and imported has the new key alone.
        set(&keys, &[20, 10]);
        let whole = disk.exported("");
        fs::write(&file, &whole).expect("the folder is ours");
        disk.volume.origin = disk.store.url(&disk.volume.place, "anew").into();
        let mut import = flashfront();
        import.args(["object", "import"]).arg(&file).arg(&disk.volume.origin).arg("--encrypt");
        must(disk.known(&mut import));
        set(&keys, &[20]);
        assert!(disk.exported("") == whole);
    }
}

/// A command prints the key, as that of a vault does. Nothing tells the key to anybody.
#[test]
fn a_command_prints_the_keys() {
    let mut disk = Disk::new(Store::Folder, Form::BOTH);
    let keys = disk.keys.take().expect("the volume is encrypted");
    let prints = format!("cat {}", keys.path().display());
    let mut serve = disk.volume.serve();
    disk.volume.start_by(serve.env(COMMAND, &prints));
    write(&disk.volume, 0..20);
    disk.volume.drain();
    disk.volume.stop();
    assert!(!disk.volume.stderr().contains(&key(10)), "the log has the key");

    for (command, why) in [
        ("exit 3", "it ended with exit status: 3"),
        ("true", "there is no key in it"),
        ("echo 00; echo secret", "line 1 is no key"),
        (r"printf '\377'", "it printed no text"),
    ] {
        let said = show(&output(disk.volume.serve().env(COMMAND, command)));
        assert!(said.contains("exit status: 1") && said.contains(why) && !said.contains("secret"), "{said}");
        let said = show(&output(disk.object_command("info", &[]).env(COMMAND, command)));
        assert!(said.contains("exit status: 1") && said.contains(why), "{said}");
    }
    let info: Value =
        serde_json::from_str(&must(disk.object_command("info", &["--json"]).env(COMMAND, &prints))).expect("JSON");
    assert_eq!(info["epoch"], 2, "a start without keys has taken the volume over: {info}");
    let mut serve = disk.volume.serve();
    disk.volume.start_by(serve.env(COMMAND, &prints));
    disk.volume.stop();
    disk.keys = Some(keys);
    assert_eq!(prefix(&disk.content(), 20), 20);
}

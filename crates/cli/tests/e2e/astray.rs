// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that is an origin loses its name while it is served: the operator is told, and can save
//! what was written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::process::Signal;

use crate::harness::{MIB, Volume, first, must, output, show};

#[test]
fn what_a_removed_origin_got_can_be_saved_until_the_stop() {
    for replaced in [false, true] {
        let mut volume = Volume::served(32, 64, "writeback");
        volume.connect().write_at(MIB, &[7; 4096], true).expect("the volume takes it");
        match replaced {
            true => {
                let other = volume.place.sparse("other.img", 64 * MIB);
                fs::rename(other, &volume.origin).expect("files can be renamed");
            }
            false => fs::remove_file(&volume.origin).expect("the file is ours"),
        }
        volume.connect().write_at(2 * MIB, &[8; 4096], true).expect("the volume goes on");
        let told = must(&mut volume.ask("status"));
        assert!(told.contains("ASTRAY") && told.contains("origin was removed"), "{told}");
        let refused = show(&output(volume.ask("upgrade").arg("--json")));
        assert!(refused.contains("exit status: 1") && refused.contains("nothing was changed"), "{refused}");
        volume.drain();
        let said = first(&volume)["origin_astray"].as_str().expect("it is told").to_owned();
        let open = said.split("--sparse=always ").nth(1).and_then(|it| it.split(' ').next()).expect("a path is told");
        let saved = volume.place.file("saved.img");
        fs::copy(open, &saved).expect("the open file can be copied");
        let mut block = [0; 4096];
        for (at, byte) in [(MIB, 7), (2 * MIB, 8)] {
            File::open(&saved).and_then(|it| it.read_exact_at(&mut block, at)).expect("the file is ours");
            assert_eq!(block, [byte; 4096]);
        }
        volume.signal(Signal::TERM);
        assert!(!volume.exit().success(), "the origin is not complete");
        let log = volume.stderr();
        assert!(log.contains("this file of an origin had been removed"), "{log}");
        // The copy, by its name, is the origin.
        fs::rename(&saved, &volume.origin).expect("files can be renamed");
        volume.start();
        let mut client = volume.connect();
        client.read_at(2 * MIB, &mut block).expect("the volume can be read");
        assert_eq!(block, [8; 4096]);
        drop(client);
        volume.stop();
    }
}

#[test]
fn an_origin_that_was_renamed_may_get_its_name_back() {
    let mut volume = Volume::served(32, 64, "writeback");
    let other = volume.place.file("other.img");
    fs::rename(&volume.origin, &other).expect("files can be renamed");
    let told = must(&mut volume.ask("status"));
    assert!(told.contains("ASTRAY") && told.contains("has another name now"), "{told}");
    fs::rename(&other, &volume.origin).expect("files can be renamed");
    let told = must(&mut volume.ask("status"));
    assert!(!told.contains("ASTRAY"), "{told}");
    volume.connect().write_at(MIB, &[7; 4096], true).expect("the volume takes it");
    volume.drain();
    volume.stop();
    let mut block = [0; 4096];
    File::open(&volume.origin).and_then(|it| it.read_exact_at(&mut block, MIB)).expect("the file is ours");
    assert_eq!(block, [7; 4096]);
}

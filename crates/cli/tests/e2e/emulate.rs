// SPDX-License-Identifier: MIT OR Apache-2.0
//! `serve --emulate-cache`, `--emulate-origin`: nobody can miss that it is on, and the data is what
//! was written. That the pace is that of the device is tested in virtual time, in the command's own
//! tests.

use crate::harness::{Daemon, MIB, Volume, flashfront, must, output, show};

#[test]
fn emulated_devices_are_announced_and_keep_data() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let emulated = ["--emulate-cache", "samsung-850-pro", "--emulate-origin", "wd-re-4tb"];
    let daemon = Daemon::spawn(volume.serve().args(emulated), &volume.log);
    daemon.ready();
    for option in emulated.chunks(2).map(|option| option.join(" ")) {
        let told = daemon.stderr().lines().any(|line| line.contains("A DEVICE IS EMULATED") && line.contains(&option));
        assert!(told, "{option}\n{}", daemon.stderr());
    }
    let mut client = volume.connect();
    let (data, mut bytes) = ([7; 8192], [0; 8192]);
    client.write_at(3 * MIB, &data, true).expect("written");
    client.read_at(3 * MIB, &mut bytes).expect("read");
    assert_eq!(bytes, data);
    drop(client);
    daemon.stop();
}

#[test]
fn an_origin_is_emulated_without_its_cache_too() {
    let volume = Volume::new(32, 64);
    let mut serve = flashfront();
    serve.args(["serve", "--without-cache", "--accept-missing-dirty-data", "--emulate-origin", "wd-re-4tb"]);
    serve.arg("--nbd").arg(format!("unix:{}", volume.socket.display())).arg("--origin").arg(&volume.origin);
    serve.arg("--control").arg(&volume.control).arg("--state").arg(volume.place.file("state"));
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    daemon.ready();
    assert!(daemon.stderr().contains("A DEVICE IS EMULATED (--emulate-origin wd-re-4tb)"), "{}", daemon.stderr());
    let mut client = volume.connect();
    client.write_at(MIB, &[5; 4096], true).expect("written");
    drop(client);
    daemon.stop();
}

#[test]
fn unknown_devices_and_a_cache_that_is_not_there_are_refused() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    for (line, says) in [
        (&["--emulate-origin", "floppy"][..], "wd-re-4tb-uncached"),
        (&["--emulate-cache", "floppy"], "intel-p4500"),
        (&["--emulate-origin", "wd-re-4tb", "--inject", "cache:eio"], "cannot be used with"),
    ] {
        let refused = output(volume.serve().args(line));
        assert_eq!(refused.status.code(), Some(2), "{line:?}: {}", show(&refused));
        assert!(show(&refused).contains(says), "{line:?}: {}", show(&refused));
    }
}

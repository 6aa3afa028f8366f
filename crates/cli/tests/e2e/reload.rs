// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGHUP: a running daemon takes over what it can of its changed file, and says what it can't.

use std::path::Path;

use rustix::process::Signal;

use crate::harness::{Daemon, Volume, flashfront, must};

/// Writes a configuration for the volume; `rest` are lines of the section `[policy]`, `top` those
/// before all sections.
fn write(file: &Path, volume: &Volume, top: &str, mode: &str, rest: &str) {
    let text = format!(
        "cache = {:?}\ncontrol = {:?}\nstate = {:?}\n{top}\n[[volume]]\norigin = {:?}\nmode = {mode:?}\n[[listen]]\nnbd = {:?}\n[policy]\n{rest}\n",
        volume.cache,
        volume.control,
        volume.place.file("state"),
        volume.origin,
        format!("unix:{}", volume.socket.display()),
    );
    std::fs::write(file, text).expect("a file can be written here");
}

#[test]
fn a_running_daemon_takes_over_what_it_can_and_names_the_rest() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let file = volume.place.file("flashfront.toml");
    write(&file, &volume, "", "writeback", "dirty_limit = \"10 MiB\"");
    let daemon = Daemon::spawn(flashfront().args(["serve", "--config"]).arg(&file), &volume.log);
    daemon.ready();
    let mut client = volume.connect();
    client.write_at(0, &[1; 4096], true).expect("the volume can be written");

    write(
        &file,
        &volume,
        "threads = 2\nlog_level = \"warn\"",
        "writethrough",
        "dirty_limit = \"4 MiB\"\nread_around = \"0B\"",
    );
    daemon.signal(Signal::HUP);
    daemon.says("taken over: dirty_limit is 4 MiB, sequential_bypass is 4 MiB, the mode of data is writethrough");
    daemon.says("reload: log_level is warn");
    daemon.says("threads, [policy] read_around");
    let status = volume.status();
    assert_eq!((&status["dirty_limit_blocks"], &status["mode"]), (&1024.into(), &"writethrough".into()), "{status}");
    assert_eq!(status["threads"], 1, "{status}");
    client.write_at(0, &[2; 4096], true).expect("nobody was disconnected");

    // A mistake changes nothing, and its line is named.
    write(&file, &volume, "", "writeback", "dirty_limit = \"2 MiB\"\nread_arund = \"0B\"");
    daemon.signal(Signal::HUP);
    daemon.says("unknown field `read_arund`");
    assert!(
        daemon.stderr().contains("nothing was changed") && daemon.stderr().contains("line 12"),
        "{}",
        daemon.stderr()
    );
    write(&file, &volume, "", "writeback", "dirty_limit = \"99%\"");
    daemon.signal(Signal::HUP);
    daemon.says("the dirty limit 99% can't be kept");
    std::fs::remove_file(&file).expect("the file is ours");
    daemon.signal(Signal::HUP);
    daemon.says("No such file");
    let status = volume.status();
    assert_eq!((&status["dirty_limit_blocks"], &status["mode"]), (&1024.into(), &"writethrough".into()), "{status}");
    drop(client);
    // A message of a level that was switched off.
    assert!(!daemon.stderr().contains("taken over: dirty_limit is 2"), "{}", daemon.stderr());
    daemon.stop();
    assert!(!volume.stderr().contains("the origin is complete"), "log_level is warn now: {}", volume.stderr());
}

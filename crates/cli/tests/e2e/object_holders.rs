// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in an object store is opened unasked by the cache that had it, on the machine where it
//! was. All others must be told to take it over. Names of hosts tell nothing (ADR 0077).

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{
    Disk, Form, Store, Volume, first, flashfront, is_root, must, output, prefix, show, skip, tool, wait_for, write,
};

fn info(disk: &Disk) -> Value {
    serde_json::from_str(&disk.object("info", &["--json"])).expect("JSON")
}

/// Two daemons with two caches are on one machine. The second one is refused, and the first one
/// notices nothing. Told to, the second one takes over, and may come back from then on.
#[test]
fn a_second_cache_on_one_machine_takes_nothing_over_unasked() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    disk.start();
    write(&disk.volume, 0..20);
    disk.volume.drain();
    let mut other = disk.other_cache();
    let cache = info(&disk)["cache"].as_str().expect("the writer has a cache").to_owned();
    let said = disk.refused(&mut other.serve());
    assert!(said.contains(&format!("the cache {cache} on")), "{said}");
    // A daemon without a cache, and one that gets the volume added, are others, too.
    let mut bare = flashfront();
    bare.arg("serve").args(["--without-cache", "--accept-missing-dirty-data"]).arg("--origin").arg(&disk.volume.origin);
    bare.arg("--control").arg(&other.control).arg("--nbd").arg(format!("unix:{}", other.socket.display()));
    disk.refused(&mut bare);
    let mut third = Volume::served(64, 16, "writeback");
    let add = third.ask_two(["volume", "add"]).args(["--name", "more", "--origin"]).arg(&disk.volume.origin).output();
    let said = show(&add.expect("it runs"));
    assert!(said.contains("exit status: 1") && said.contains("has the volume open to write"), "{said}");
    third.stop();
    write(&disk.volume, 20..40);
    disk.volume.drain();
    assert_eq!((&first(&disk.volume)["fenced"], &info(&disk)["epoch"]), (&false.into(), &2.into()));

    let mut serve = other.serve();
    other.start_by(disk.known(serve.arg("--take-over")));
    write(&other, 40..60);
    other.drain();
    let mut late = disk.volume.connect();
    assert!(late.write_at(0, &[9; 4096], false).and_then(|()| late.flush()).is_ok(), "the cache takes it");
    wait_for(&disk.volume, |it| it["fenced"] == true);
    drop(late);
    disk.volume.kill9();
    // The one that took over was killed, too: it goes on, and the first one does not.
    other.kill9();
    disk.refused(&mut disk.volume.serve());
    let mut serve = other.serve();
    other.start_by(disk.known(&mut serve));
    write(&other, 60..80);
    other.drain();
    other.stop();
    assert_eq!(prefix(&disk.content(), 80), 80);
    // A clean stop with nothing to bring lets anybody come.
    let mut next = disk.other_cache();
    let mut serve = next.serve();
    next.start_by(disk.known(&mut serve));
    next.stop();
}

/// A daemon that is stopped with writes in its cache closes the volume, and says what it owes. Its
/// cache alone goes on without a word.
#[test]
fn what_a_stopped_cache_owes_keeps_others_out() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    disk.volume.options = vec!["--inject", "origin:nospace,op=write"];
    disk.start();
    write(&disk.volume, 0..20);
    disk.volume.signal(Signal::TERM);
    assert!(!disk.volume.exit().success(), "{}", disk.volume.stderr());
    disk.volume.options.clear();
    let told = info(&disk);
    assert_eq!((&told["open"], &told["owed"]), (&false.into(), &true.into()), "{told}");
    let other = disk.other_cache();
    for mut command in [other.serve(), disk.object_command("gc", &[])] {
        let said = show(&output(disk.known(&mut command)));
        assert!(said.contains("exit status: 1") && said.contains("holds writes that the store lacks"), "{said}");
    }
    assert_eq!(info(&disk)["epoch"], told["epoch"]);
    disk.start();
    disk.volume.drain();
    disk.volume.stop();
    assert_eq!(info(&disk)["owed"], false);
    disk.object("gc", &[]);
    assert_eq!(prefix(&disk.content(), 20), 20);
}

/// A start that takes the volume over and then fails leaves it as it was. What the cache owed, it
/// still owes. A cache that owed nothing keeps nobody out.
#[test]
fn a_start_that_fails_owes_what_was_owed_before() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    let file = disk.volume.place.file("config.toml");
    let (cache, control, origin) = (&disk.volume.cache, &disk.volume.control, &disk.volume.origin);
    let state = disk.volume.place.file("state");
    let text = format!(
        "cache = {cache:?}\ncontrol = {control:?}\nstate = {state:?}\n[[listen]]\nnbd = \"unix:{}\"\n[[volume]]\nname = \"data\"\norigin = {origin:?}\ndirty_limit = \"64 KiB\"\n",
        disk.volume.socket.display()
    );
    fs::write(&file, text).expect("the folder is ours");
    let fails = |disk: &Disk| {
        let before = info(disk)["epoch"].as_u64();
        let said = show(&output(disk.known(flashfront().arg("serve").arg("--config").arg(&file))));
        assert!(
            said.contains("exit status: 2") && said.contains("a dirty limit of a volume's own is at least"),
            "{said}"
        );
        let told = info(disk);
        assert_eq!(told["epoch"].as_u64(), before.map(|epoch| epoch + 1), "it was taken over: {told}");
        (told["open"].clone(), told["owed"].clone())
    };
    assert_eq!(fails(&disk), (false.into(), false.into()), "a new cache owes nothing");
    let mut other = disk.other_cache();
    let mut serve = other.serve();
    other.start_by(disk.known(&mut serve));
    other.stop();
    disk.volume.options = vec!["--inject", "origin:nospace,op=write"];
    disk.start();
    write(&disk.volume, 0..20);
    disk.volume.signal(Signal::TERM);
    assert!(!disk.volume.exit().success(), "{}", disk.volume.stderr());
    disk.volume.options.clear();
    assert_eq!(fails(&disk), (false.into(), true.into()), "its writes are in the cache alone");
    let said = show(&output(disk.known(&mut other.serve())));
    assert!(said.contains("exit status: 1") && said.contains("holds writes that the store lacks"), "{said}");
    disk.start();
    disk.volume.drain();
    disk.volume.kill9();
    assert_eq!(fails(&disk), (false.into(), true.into()), "after a crash nobody knows before a replay");
    disk.start();
    disk.volume.stop();
    assert_eq!(info(&disk)["owed"], false);
    assert_eq!(prefix(&disk.content(), 20), 20);
}

/// A cloned machine has the cache and the name of the first one, and another identity.
#[test]
fn another_machine_with_the_same_cache_takes_nothing_over_unasked() {
    const MACHINE_ID: &str = "/etc/machine-id";
    if !is_root() || !Path::new(MACHINE_ID).exists() {
        return skip("it takes root and a machine with an identity");
    }
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    disk.start();
    write(&disk.volume, 0..20);
    disk.volume.drain();
    disk.volume.kill9();
    let id = disk.volume.place.file("machine-id");
    fs::write(&id, "0123456789abcdef0123456789abcdef\n").expect("it can be written");
    let serve = disk.volume.serve();
    let mut elsewhere = tool("unshare");
    elsewhere.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/machine-id; exec \"$@\""]).arg(&id);
    let said = disk.refused(elsewhere.arg(serve.get_program()).args(serve.get_args()));
    assert!(said.contains("on another machine with the name"), "{said}");
    disk.start();
    write(&disk.volume, 20..40);
    disk.volume.drain();
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), 40), 40);
    let said = must(&mut disk.object_command("info", &[]));
    assert!(said.contains("writer      none; the last one was on"), "{said}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volumes of a cache: what each does, and what operators change about them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use flashfront_serve::frontend::nbd::{Client, Listen, connect};
use rustix::process::Signal;
use serde_json::Value;

use crate::fuse::skip_without_fuse;
use crate::harness::{Daemon, MIB, Volume, flashfront, must, output, show};

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON, {error}: {text}"))
}

#[test]
fn what_a_volume_does_is_told_by_list_show_and_top() {
    let mut volume = Volume::served(64, 64, "writeback");
    let mut client = volume.connect();
    client.write_at(0, &[1; 1 << 20], true).expect("the volume can be written");
    let mut bytes = vec![0; 1 << 20];
    client.read_at(0, &mut bytes).expect("the volume can be read");

    let listed = json(&must(volume.ask_two(["volume", "list"]).arg("--json")));
    let one = &listed.as_array().expect("a list")[0];
    let mode = (&one["name"], &one["mode"], &one["id"]);
    assert_eq!(mode, (&"data".into(), &"writeback".into(), &0.into()), "{listed}");
    assert_eq!(one["blocks_cached"], 256, "{listed}");
    assert_eq!(one["size_bytes"], 64 << 20, "{listed}");
    assert_eq!(one["origin_path"], volume.origin.display().to_string(), "{listed}");
    assert_eq!(one["uris"].as_array().map(Vec::len), Some(1), "{listed}");

    let shown = json(&must(volume.ask_two(["volume", "show"]).args(["data", "--json"])));
    for recent in [&shown["recent"]["minute"], &shown["recent"]["hour"], &shown["recent"]["day"]] {
        assert_eq!((&recent["hit_bytes"], &recent["written_bytes"]), (&(1 << 20).into(), &(1 << 20).into()), "{shown}");
        assert_eq!((&recent["miss_requests"], &recent["evicted_blocks"]), (&0.into(), &0.into()), "{shown}");
        assert!(recent["latency_us"]["hit"]["p99"].as_f64() > Some(0.0), "{shown}");
    }
    assert_eq!(shown["flash_written_bytes"], 1 << 20, "{shown}");
    assert_eq!(volume.status()["recent"]["hour"]["hit_bytes"], 1 << 20, "of all volumes");
    let text = must(volume.ask_two(["volume", "show"]).arg("data"));
    assert!(text.contains("1.00 MiB since the start; of the last day's of all volumes 100.0 %"), "{text}");

    let top = json(&must(volume.ask("top").args(["--once", "--json"])));
    let row = &top["volumes"][0];
    assert_eq!((&row["name"], &row["gain"]), (&"data".into(), &1.0.into()), "{top}");
    assert_eq!(top["all"]["cached_bytes"], 1 << 20, "{top}");
    let text = must(volume.ask("top").args(["--once", "--sort", "gain"]));
    assert!(text.lines().count() == 3 && text.contains("\ndata "), "{text}");

    must(volume.ask_two(["volume", "set"]).args(["data", "--mode", "writethrough"]));
    assert_eq!(volume.status()["volumes"][0]["mode"], "writethrough");
    let unknown = output(volume.ask_two(["volume", "show"]).arg("dato"));
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        unknown.status.code() == Some(2) && said.contains("no volume `dato`; there are: data"),
        "{}",
        show(&unknown)
    );
    drop(client);
    volume.stop();
}

/// A connection to a volume by its name.
pub(crate) fn connect_to(volume: &Volume, name: &str) -> Client {
    let connected = connect(&Listen::Unix(volume.socket.clone()), name, true);
    connected.unwrap_or_else(|error| panic!("{name}: {error}\n{}", volume.stderr()))
}

/// Each MiB of a volume holds its own byte.
pub(crate) fn fill(client: &mut Client, seed: u8) {
    for nth in 0..MIBS {
        let bytes = vec![seed ^ nth as u8; MIB as usize];
        client.write_at(nth * MIB, &bytes, false).expect("the volume can be written");
    }
    client.flush().expect("the volume can be flushed");
}

fn assert_filled(client: &mut Client, seed: u8) {
    let mut bytes = vec![0; MIB as usize];
    for nth in 0..MIBS {
        client.read_at(nth * MIB, &mut bytes).expect("the volume can be read");
        assert!(bytes.iter().all(|byte| *byte == seed ^ nth as u8), "the MiB at {nth} differs");
    }
}

const MIBS: u64 = 8;

/// Waits until the daemon has noticed that the last client of a volume has gone.
#[track_caller]
fn wait_for_no_clients(volume: &Volume, name: &str) {
    wait_until(volume, name, "clients", &0.into());
}

/// Waits until the status says this of a volume.
#[track_caller]
fn wait_until(volume: &Volume, name: &str, key: &str, value: &Value) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let status = volume.status();
        let of = |it: &&Value| it["name"] == name;
        let found = &status["volumes"].as_array().and_then(|all| all.iter().find(of)).expect("it is there")[key];
        if found == value {
            return;
        }
        assert!(Instant::now() < end, "{name}: {key} is still {found}");
        std::thread::sleep(Duration::from_millis(20)); // pacing: a poll of the status
    }
}

/// A change that must be refused with these words, and exit code 1.
#[track_caller]
pub(crate) fn refused(volume: &Volume, args: &[&str], words: &str) {
    let output = output(volume.ask_two(["volume", args[0]]).args(&args[1..]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains(words), "{args:?}, {words:?}: {}", show(&output));
}

#[test]
fn volumes_come_and_go_while_clients_are_served() {
    let mut volume = Volume::served(64, 64, "writeback");
    let second = volume.place.sparse("second.img", 64 * MIB);
    let path = |path: &Path| path.display().to_string();
    let mut data = volume.connect();
    fill(&mut data, 1);
    let add = ["--name", "home", "--origin", &path(&second), "--json"];
    assert_eq!(json(&must(volume.ask_two(["volume", "add"]).args(add)))["done"], true);
    let mut home = connect_to(&volume, "home");
    fill(&mut home, 2);

    let alias = volume.place.file("alias.img");
    std::os::unix::fs::symlink(&second, &alias).expect("a link can be made");
    let (alias, second_path) = (path(&alias), path(&second));
    refused(&volume, &["add", "--name", "home", "--origin", &alias], "there is a volume `home` already");
    refused(&volume, &["add", "--name", "more", "--origin", &alias], "the origin of `home`");
    refused(&volume, &["add", "--name", "more", "--origin", &path(&volume.cache)], "a cache device");
    refused(&volume, &["add", "--name", "a/b", "--origin", &second_path], "the volume name `a/b` can't be used");
    refused(&volume, &["add", "--name", "more", "--origin", "/nowhere"], "/nowhere");
    let own = format!("nbd+unix:///home?socket={}", volume.socket.display());
    refused(&volume, &["add", "--name", "more", "--origin", &own], "leads to this daemon itself, by unix:");
    refused(&volume, &["rename", "home", "data"], "there is a volume `data` already");
    refused(&volume, &["rename", "hone", "house"], "no volume `hone`; there are: data, home");
    refused(&volume, &["remove", "home", "--destage"], "volume `home` has 1 client");
    must(volume.ask_two(["volume", "rename"]).args(["home", "house"]));
    assert_filled(&mut home, 2);
    drop(home);

    // The origins take nothing, so that what is written stays dirty. The second one is not named:
    // the cache knows where it is.
    volume.kill9();
    volume.options = vec!["--inject", "origin:nospace,op=write"];
    volume.start_several();
    assert_filled(&mut connect_to(&volume, "data"), 1);
    let mut house = connect_to(&volume, "house");
    house.write_at(0, &vec![3; MIB as usize], true).expect("the volume can be written");
    drop(house);
    wait_for_no_clients(&volume, "house");
    refused(&volume, &["remove", "house"], "that its origin lacks; --destage writes them there first");

    volume.kill9();
    volume.options.clear();
    volume.start_several();
    let (mut house, mut bytes) = (connect_to(&volume, "house"), vec![0; MIBS as usize * MIB as usize]);
    house.read_at(0, &mut bytes).expect("the volume can be read");
    let expected = |nth: usize| if nth == 0 { 3 } else { 2 ^ nth as u8 };
    for (nth, all) in bytes.chunks(MIB as usize).enumerate() {
        for (block, bytes) in all.chunks(4096).enumerate() {
            let differs = bytes.iter().find(|byte| **byte != expected(nth));
            assert_eq!(differs, None, "block {block} of the MiB at {nth}, which should be {}", expected(nth));
        }
    }
    drop(house);
    assert_filled(&mut connect_to(&volume, "data"), 1);
    wait_for_no_clients(&volume, "house");
    must(volume.ask_two(["volume", "set"]).args(["house", "--read-only"]));
    let mut house = connect_to(&volume, "house");
    let listed = must(&mut volume.ask_two(["volume", "list"]));
    assert!(listed.lines().any(|line| line.starts_with("house") && line.contains("writeback, read-only")), "{listed}");
    assert!(house.info().read_only() && house.write_at(0, &[0; 4096], false).is_err(), "it is read-only");
    drop(house);
    wait_for_no_clients(&volume, "house");
    let removed = output(volume.ask_two(["volume", "remove"]).args(["house", "--destage", "--json"]));
    assert!(removed.status.success(), "{}\n{}", show(&removed), volume.stderr());
    assert_eq!(json(&String::from_utf8_lossy(&removed.stdout))["done"], true);
    let gone = connect(&Listen::Unix(volume.socket.clone()), "house", true);
    assert!(gone.is_err(), "it is not on offer any more");
    let bytes = std::fs::read(&second).expect("the origin can be read");
    assert!((0..MIBS as usize).all(|nth| bytes[nth * MIB as usize] == expected(nth)), "the origin is complete");
    refused(&volume, &["remove", "data", "--destage"], "the only volume of the cache");
    assert_filled(&mut connect_to(&volume, "data"), 1);
    volume.stop();
    volume.assert_sound();
    let listed = json(&must(flashfront().args(["volume", "list", "--json", "--cache"]).arg(&volume.cache)));
    let names: Vec<&Value> = listed.as_array().expect("a list").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["data"], "of the stopped cache");
}

/// What an operator is refused must not be done later. But the dirty blocks of the volume that goes
/// may be given up after all.
#[test]
fn no_change_waits_behind_a_volume_that_is_destaged_before_it_goes() {
    let mut volume = Volume::served(64, 64, "writeback");
    let second = volume.place.sparse("second.img", 64 * MIB);
    must(volume.ask_two(["volume", "add"]).args(["--name", "home", "--origin"]).arg(&second));
    volume.kill9();
    // The origins take nothing.
    volume.options = vec!["--inject", "origin:nospace,op=write"];
    volume.start_several();
    for name in ["data", "home"] {
        let mut client = connect_to(&volume, name);
        client.write_at(0, &vec![3; MIB as usize], true).expect("the volume can be written");
        drop(client);
        wait_for_no_clients(&volume, name);
    }
    let mut waits = volume.ask_two(["volume", "remove"]);
    let waits = waits.args(["home", "--destage"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut waits = waits.spawn().expect("the command can be started");
    wait_until(&volume, "home", "removing", &true.into());
    assert!(must(&mut volume.ask_two(["volume", "list"])).contains(", removing"));
    let third = volume.place.sparse("third.img", 64 * MIB).display().to_string();
    let words = "volume `home` is being removed, and its dirty blocks are written to its origin first";
    refused(&volume, &["remove", "data", "--discard-dirty"], words);
    refused(&volume, &["add", "--name", "more", "--origin", &third], words);
    refused(&volume, &["rename", "data", "date"], words);
    must(volume.ask_two(["volume", "remove"]).args(["home", "--discard-dirty"]));
    let told = volume.stderr();
    assert!(told.contains("volume home: removed by the operator, who gave up 1 MiB of dirty blocks"), "{told}");
    waits.wait().expect("a command that waits for the end of a volume ends with it");
    must(volume.ask_two(["volume", "rename"]).args(["data", "date"]));
    volume.kill9();
    volume.options.clear();
    volume.start_several();
    let mut bytes = vec![0; MIB as usize];
    connect_to(&volume, "date").read_at(0, &mut bytes).expect("the volume can be read");
    assert!(bytes.iter().all(|byte| *byte == 3), "the other volume keeps its dirty blocks");
    volume.stop();
    volume.assert_sound();
}

/// The file, the folder of FUSE and the sockets of vhost-user-blk follow the volumes.
#[test]
fn a_volume_of_the_file_is_added_and_shows_everywhere() {
    if skip_without_fuse() {
        return;
    }
    let volume = Volume::new(64, 64);
    must(volume.format().args(["--name", "root"]));
    let (file, folder) = (volume.place.file("config.toml"), volume.place.socket("files"));
    std::fs::create_dir(&folder).expect("a folder can be made");
    let origin = volume.place.sparse("second.img", 64 * MIB);
    let guests = volume.place.socket("{volume}.guest");
    let text = format!(
        "cache = {:?}\ncontrol = {:?}\nstate = {:?}\n[[listen]]\nfuse = {folder:?}\n[[listen]]\nvhost_user_blk = \"unix:{}\"\n",
        volume.cache,
        volume.control,
        volume.place.file("state"),
        guests.display()
    );
    std::fs::write(&file, &text).expect("the folder is ours");
    let mut serve = flashfront();
    let daemon = Daemon::spawn(serve.arg("serve").arg("--config").arg(&file), &volume.log);
    daemon.ready();
    let home = format!("[[volume]]\nname = \"home\"\norigin = {origin:?}\nmode = \"writethrough\"\n");
    std::fs::write(&file, text.clone() + &home).expect("the folder is ours");
    daemon.signal(Signal::HUP);
    daemon.says("volume home: added");
    assert_eq!(std::fs::metadata(folder.join("home")).expect("it is shown").len(), 64 * MIB);
    assert!(volume.place.socket("home.guest").exists() && volume.place.socket("root.guest").exists());
    let own = folder.join("root").display().to_string();
    refused(&volume, &["add", "--name", "more", "--origin", &own], "root leads to this daemon itself, by ");
    let shown = File::options().write(true).open(folder.join("home")).expect("the file can be opened");
    shown.write_all_at(&[7; 4096], 0).expect("the file can be written");
    drop(shown);
    let first = std::fs::read(&origin).expect("the origin can be read")[0];
    assert_eq!(first, 7, "in writethrough the origin has it");
    std::fs::write(&file, &text).expect("the folder is ours");
    daemon.signal(Signal::HUP);
    daemon.says("home, which the file does not name, stay as they are");
    must(volume.ask_two(["volume", "rename"]).args(["home", "house"]));
    assert!(folder.join("house").exists() && !folder.join("home").exists());
    wait_for_no_clients(&volume, "house");
    must(volume.ask_two(["volume", "remove"]).arg("house"));
    assert!(!folder.join("house").exists());
    std::fs::write(&file, text + &home.replace("home", "hone")).expect("the folder is ours");
    daemon.stop();
    let refused = output(flashfront().arg("serve").arg("--config").arg(&file));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("the cache has no volume `hone`"), "{}", show(&refused));
}

/// Origins grow behind a daemon with a client that writes, and behind a stopped cache.
#[test]
fn a_volume_grows_with_its_origin() {
    let mut volume = Volume::served(64, 64, "writeback");
    let origin = volume.origin.clone();
    let grow = |to: u64| File::options().write(true).open(&origin).expect("it is ours").set_len(to).expect("room");
    let told = |volume: &Volume| volume.status()["volumes"][0]["origin_bytes"].clone();
    let mut client = volume.connect();
    fill(&mut client, 1);
    refused(&volume, &["grow", "data"], "its origin has no more; make the origin larger first");
    refused(&volume, &["grow", "date"], "no volume `date`; there are: data");
    assert_eq!(told(&volume), Value::Null);
    grow(96 * MIB);
    assert_eq!(told(&volume), 96 * MIB);
    let text = must(&mut volume.ask("status"));
    assert!(text.contains("data: the origin is larger than the volume"), "{text}");
    let text = must(volume.ask_two(["volume", "show"]).arg("data"));
    assert!(text.contains("(96.0 MiB): flashfront volume grow data"), "{text}");
    assert_eq!(json(&must(volume.ask_two(["volume", "grow"]).args(["data", "--json"])))["done"], true);
    assert_eq!(told(&volume), Value::Null);
    assert!(client.write_at(64 * MIB, &[9; 4096], true).is_err(), "who is connected keeps the size");
    let mut client = volume.connect();
    assert_eq!(client.info().size_bytes, 96 * MIB);
    client.write_at(90 * MIB, &[9; 4096], true).expect("the new part can be written");

    // A daemon that dies has lost nothing of it.
    volume.kill9();
    volume.start();
    let mut client = volume.connect();
    let mut bytes = [0; 4096];
    client.read_at(90 * MIB, &mut bytes).expect("the new part can be read");
    assert_eq!((bytes, client.info().size_bytes), ([9; 4096], 96 * MIB));
    assert_filled(&mut client, 1);
    drop(client);
    volume.drain();
    volume.stop();

    // The next start serves a larger origin, as large as it was.
    let cache = ["--cache", &volume.cache.display().to_string()].map(str::to_owned);
    let offline = |more: &[&str]| output(flashfront().args(["volume", "grow", "data"]).args(&cache).args(more));
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said(&offline(&[])).contains("make the origin larger first"));
    grow(128 * MIB);
    volume.start();
    assert_eq!((volume.connect().info().size_bytes, told(&volume)), (96 * MIB, Value::from(128 * MIB)));
    assert!(volume.stderr().contains("`flashfront volume grow data` gives clients the rest"), "{}", volume.stderr());
    volume.stop();
    grow(160 * MIB);
    assert!(offline(&["--json"]).status.success(), "{}", said(&offline(&[])));
    volume.start();
    let mut client = volume.connect();
    assert_eq!(client.info().size_bytes, 160 * MIB);
    client.read_at(90 * MIB, &mut bytes).expect("the volume can be read");
    assert_eq!(bytes, [9; 4096]);
    assert_filled(&mut client, 1);
    drop(client);
    volume.stop();
    // Smaller is never served.
    grow(128 * MIB);
    assert!(said(&offline(&[])).contains("less than the 160 MiB of its volume"), "{}", said(&offline(&[])));
    let refused = output(&mut volume.serve());
    assert!(said(&refused).contains("the end of the volume is gone"), "{}", show(&refused));
}

/// A program that has the file open sees the new size, as `losetup --set-capacity` must.
#[test]
fn the_file_of_a_volume_grows() {
    if skip_without_fuse() {
        return;
    }
    let volume = Volume::new(64, 64);
    must(&mut volume.format());
    let folder = volume.place.socket("files");
    std::fs::create_dir(&folder).expect("a folder can be made");
    let daemon = Daemon::spawn(volume.serve_nowhere().arg("--fuse").arg(&folder), &volume.log);
    daemon.ready();
    let shown = File::options().read(true).write(true).open(folder.join("data")).expect("the file can be opened");
    assert_eq!(shown.metadata().expect("it is there").len(), 64 * MIB);
    File::options().write(true).open(&volume.origin).expect("it is ours").set_len(80 * MIB).expect("there is room");
    must(volume.ask_two(["volume", "grow"]).arg("data"));
    assert_eq!(shown.metadata().expect("it is there").len(), 80 * MIB);
    let mut bytes = [0; 4096];
    shown.write_all_at(&[5; 4096], 79 * MIB).expect("the new part can be written");
    shown.read_exact_at(&mut bytes, 79 * MIB).expect("the new part can be read");
    assert_eq!(bytes, [5; 4096]);
    drop(shown);
    daemon.stop();
}

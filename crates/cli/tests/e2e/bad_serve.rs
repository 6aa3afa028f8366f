// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `serve` and its companions refuse: wrong devices, changed origins, places in use, typos.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::harness::{MIB, Place, Random, Volume, flashfront, must, output, show};
use crate::refusal::{Table, assert_refused, refused};

/// `serve` with these devices and a place to listen.
fn serve(volume: &Volume, cache: &Path, origin: &Path) -> Command {
    let mut command = flashfront();
    command.arg("serve").arg("--cache").arg(cache).arg("--origin").arg(origin);
    command.arg("--control").arg(&volume.control);
    command.arg("--nbd").arg(format!("unix:{}", volume.socket.display()));
    command
}

/// A formatted volume with noise on its origin.
fn formatted() -> Volume {
    let volume = Volume::new(32, 64);
    fill(&volume.origin, 1);
    must(&mut volume.format());
    volume
}

/// Overwrites all of an origin.
fn fill(path: &Path, seed: u64) {
    let bytes = fs::metadata(path).expect("the file is ours").len();
    fs::write(path, Random::new(seed).bytes(bytes as usize)).expect("the file is ours");
}

/// Writes every other block of 32 MiB, so that a stop right after leaves dirty blocks. Returns
/// false if the machine destages faster than that.
fn leave_dirty(volume: &mut Volume) -> bool {
    volume.start();
    let mut client = volume.connect();
    for block in (0..8192_u64).step_by(2) {
        client.write_at(block * 4096, &[0x77; 4096], false).expect("the volume can be written");
    }
    client.flush().expect("the volume can be flushed");
    drop(client);
    volume.stop();
    let said = must(flashfront().arg("check").arg(&volume.cache).arg("--json"));
    let report: serde_json::Value = serde_json::from_str(&said).expect("check speaks JSON");
    report["blocks_dirty"].as_u64() > Some(0)
}

#[test]
fn serve_refuses_devices_that_do_not_fit() {
    let volume = formatted();
    let missing = volume.place.file("missing.img");
    let blank = volume.place.sparse("blank.img", 32 * MIB);
    let smaller = volume.place.sparse("smaller.img", 48 * MIB);
    let another = formatted();
    let mut table = Table::default();
    let cases = [
        ("missing cache", &missing, &volume.origin, vec!["missing.img"]),
        ("missing origin", &volume.cache, &missing, vec!["missing.img"]),
        ("unformatted cache", &blank, &volume.origin, vec!["blank.img", "no Flashfront cache"]),
        ("cache is the origin", &volume.cache, &volume.cache, vec!["cache.img"]),
        ("cache and origin swapped", &volume.origin, &volume.cache, vec!["cache.img", "swapped"]),
        ("the origin is a cache", &another.cache, &volume.cache, vec!["cache.img", "swapped"]),
        ("a smaller origin", &volume.cache, &smaller, vec!["smaller.img", "size"]),
    ];
    for (name, cache, origin, words) in cases {
        table.case(name, refused(&volume.place, &mut serve(&volume, cache, origin), &words));
    }
    table.assert();
}

#[test]
fn serve_refuses_an_origin_that_shrank() {
    let mut volume = formatted();
    volume.start();
    volume.stop();
    let origin = File::options().write(true).open(&volume.origin).expect("the file is ours");
    origin.set_len(63 * MIB).expect("the file is ours");
    assert_refused(&volume.place, &mut volume.serve(), &["origin.img", "size"]);
}

#[test]
fn serve_refuses_dirty_data_for_a_changed_origin() {
    let mut volume = formatted();
    if !leave_dirty(&mut volume) {
        panic!("nothing is dirty after 16 MiB of scattered writes and a stop at once");
    }
    fill(&volume.origin, 2);
    assert_refused(&volume.place, &mut volume.serve(), &["origin.img", "changed", "dirty"]);
    // The same, seen from the other side: the cache of one origin before another one.
    let other = volume.place.sparse("other.img", 64 * MIB);
    fill(&other, 3);
    let mut wrong = serve(&volume, &volume.cache, &other);
    assert_refused(&volume.place, &mut wrong, &["other.img", "not the origin"]);
}

#[test]
fn serve_drops_clean_data_of_a_changed_origin() {
    let mut volume = formatted();
    volume.start();
    let copy = volume.place.file("copy.img");
    fs::copy(&volume.origin, &copy).expect("the copy can be made");
    for _ in 0..3 {
        volume.assert_serves(&copy);
    }
    assert!(volume.gauge("blocks_cached") > 0, "{}", volume.status());
    volume.drain();
    volume.stop();
    fill(&volume.origin, 2);
    fs::copy(&volume.origin, &copy).expect("the copy can be made");
    volume.start();
    assert!(volume.stderr().contains("changed"), "it must say so: {}", volume.stderr());
    volume.assert_serves(&copy);
    volume.stop();
    volume.assert_sound();
    crate::harness::assert_same(&volume.origin, &copy);
}

#[test]
fn serve_refuses_a_second_daemon() {
    let mut volume = formatted();
    volume.start();
    let elsewhere = volume.place.socket("second");
    let mut second = volume.serve_nowhere();
    second.arg("--nbd").arg(format!("unix:{}", elsewhere.display()));
    let refusal = output(&mut second);
    let said = show(&refusal);
    assert!(!refusal.status.success() && said.contains("in use"), "same devices: {said}");

    // Other devices, the same socket.
    let other = formatted();
    let mut same_socket = other.serve_nowhere();
    same_socket.arg("--nbd").arg(format!("unix:{}", volume.socket.display()));
    let name = volume.socket.display().to_string();
    assert_refused(&other.place, &mut same_socket, &[&name, "in use"]);

    // The first one has not noticed anything.
    let mut client = volume.connect();
    client.write_at(4096, &[3; 512], true).expect("the volume can be written");
    volume.stop();
    volume.assert_sound();
}

#[test]
fn serve_replaces_the_socket_of_a_dead_daemon() {
    let mut volume = formatted();
    volume.start();
    volume.kill9();
    assert!(volume.socket.exists() && volume.control.exists(), "a killed daemon leaves its sockets");
    volume.start();
    volume.stop();
    assert!(!volume.socket.exists() && !volume.control.exists(), "a stopped one removes them");
    // What is no socket is not ours to replace.
    fs::write(&volume.socket, "a letter").expect("the file is ours");
    let name = volume.socket.display().to_string();
    assert_refused(&volume.place, &mut volume.serve(), &[&name]);
    assert_eq!(fs::read(&volume.socket).expect("it is still there"), b"a letter");
}

#[test]
fn serve_refuses_what_is_misspelt_or_unsafe() {
    let volume = formatted();
    let place = &volume.place;
    let mut table = Table::default();
    let flags: [(&str, &[&str], &[&str]); 8] = [
        ("dirty limit too low", &["--nbd", "tcp:127.0.0.1:0", "--dirty-limit", "1MiB"], &["1 MiB", "1028 KiB"]),
        ("dirty limit too high", &["--nbd", "tcp:127.0.0.1:0", "--dirty-limit", "100%"], &["100%", "87%"]),
        ("every address", &["--nbd", "tcp:0.0.0.0:0"], &["0.0.0.0", "--insecure", "--tls-certificates"]),
        ("every address, IPv6", &["--nbd", "tcp:[::]:0"], &["::", "--insecure"]),
        ("no scheme", &["--nbd", "/tmp/socket"], &["/tmp/socket", "unix:"]),
        ("no port", &["--nbd", "tcp:localhost"], &["tcp:localhost", "port"]),
        ("http on every address", &["--nbd", "tcp:127.0.0.1:0", "--http", "0.0.0.0:0"], &["0.0.0.0"]),
        ("unknown flag", &["--nbd", "tcp:127.0.0.1:0", "--fast"], &["--fast"]),
    ];
    for (name, flags, words) in flags {
        table.case(name, refused(place, volume.serve_nowhere().args(flags), words));
    }
    table.case("nowhere to listen", refused(place, &mut volume.serve_nowhere(), &["--nbd"]));

    let good = format!(
        "cache = {:?}\ncontrol = {:?}\n[[volume]]\nname = \"data\"\norigin = {:?}\n[[listen]]\nnbd = \"unix:{}\"\n",
        volume.cache,
        volume.control,
        volume.origin,
        volume.socket.display()
    );
    let policy = |line: &str| format!("{good}[policy]\n{line}\n");
    let configs = [
        ("unknown key", format!("speed = 11\n{good}"), vec!["speed"]),
        ("unknown policy key", policy("dirty_limt = \"5%\""), vec!["dirty_limt"]),
        ("unknown mode", good.replace("name =", "mode = \"writeup\"\nname ="), vec!["writeup"]),
        ("bad size", policy("sequential_bypass = \"much\""), vec!["much"]),
        ("bad share", policy("dirty_limit = \"130%\""), vec!["130%"]),
        ("not TOML", "cache: x".into(), vec!["1"]),
        ("nothing", String::new(), vec!["cache"]),
    ];
    for (name, text, words) in configs {
        let path = place.file("config.toml");
        fs::write(&path, text).expect("the file is ours");
        let words: Vec<&str> = words.into_iter().chain(["config.toml"]).collect();
        let mut command = flashfront();
        command.arg("serve").arg("--config").arg(&path);
        table.case(&format!("config: {name}"), refused(place, &mut command, &words));
    }
    let mut missing = flashfront();
    missing.arg("serve").arg("--config").arg(place.file("no.toml"));
    table.case("config: missing", refused(place, &mut missing, &["no.toml"]));

    // The config that all those differ from works.
    let path = place.file("config.toml");
    fs::write(&path, good).expect("the file is ours");
    let daemon = crate::harness::Daemon::spawn(flashfront().arg("serve").arg("--config").arg(&path), &volume.log);
    daemon.ready();
    daemon.stop();
    table.assert();
}

/// A unit tries again after exit code 1, and not after 2 (`RestartPreventExitStatus=2`).
#[test]
fn only_what_another_try_may_change_is_tried_again() {
    let volume = formatted();
    let place = &volume.place;
    let (cache, origin, socket) = (&volume.cache, &volume.origin, volume.socket.display());
    let good = format!(
        "cache = {cache:?}\n[[volume]]\nname = \"data\"\norigin = {origin:?}\n[[listen]]\nnbd = \"unix:{socket}\"\n"
    );
    let path = place.file("config.toml");
    let latin = [good.as_bytes(), b"# the disk of Andr\xe9\n"].concat();
    let much = format!("buffer_bytes = \"100 TiB\"\n{good}").into_bytes();
    let other = good.replace("\"data\"", "\"date\"").into_bytes();
    let mut table = Table::default();
    for (name, text, words, code) in [
        ("no text", Some(latin), &["config.toml", "UTF-8", "line 7"][..], 2),
        ("more buffers than RAM", Some(much), &["buffer_bytes", "100 TiB"], 2),
        ("a volume of another cache", Some(other), &["no volume `date`"], 2),
        ("a file that may come", None, &["config.toml", "can't be read"], 1),
    ] {
        fs::remove_file(&path).ok();
        if let Some(text) = text {
            fs::write(&path, text).expect("the file is ours");
        }
        table.case(name, ends_with(code, place, &path, words));
    }
    table.case("a folder", ends_with(2, place, &place.file(""), &["is a folder"]));
    table.case("a file without end", ends_with(2, place, Path::new("/dev/zero"), &["/dev/zero", "16 MiB"]));
    table.assert();
}

/// `serve` with this file must be refused with this code.
fn ends_with(code: i32, place: &Place, config: &Path, words: &[&str]) -> Result<(), String> {
    let mut serve = flashfront();
    serve.arg("serve").arg("--config").arg(config);
    refused(place, &mut serve, words)?;
    let output = output(&mut serve);
    if output.status.code() == Some(code) { Ok(()) } else { Err(format!("not exit code {code}: {}", show(&output))) }
}

#[test]
fn the_other_verbs_refuse_too() {
    let mut volume = formatted();
    let blank = volume.place.sparse("blank.img", 32 * MIB);
    let missing = volume.place.file("missing.img");
    let control = volume.control.display().to_string();
    let mut table = Table::default();
    for verb in ["status", "set", "drain"] {
        let mut command = volume.ask(verb);
        if verb == "set" {
            command.args(["--mode", "writethrough"]);
        }
        let name = format!("{verb} without a daemon");
        table.case(&name, refused(&volume.place, &mut command, &[&control]));
    }
    for verb in ["check", "dump"] {
        let name = format!("{verb} of a blank file");
        table.case(&name, refused(&volume.place, flashfront().arg(verb).arg(&blank), &["blank.img"]));
        let name = format!("{verb} of nothing");
        table.case(&name, refused(&volume.place, flashfront().arg(verb).arg(&missing), &["missing.img"]));
    }
    table.case("no such verb", refused(&volume.place, flashfront().arg("fly"), &["fly"]));

    volume.start();
    let before = volume.status();
    let words: [(&[&str], &str); 9] = [
        (&["--dirty-limit", "4KiB", "--mode", "writethrough"], "1028 KiB"),
        (&["--dirty-limit", "100%"], "87%"),
        (&["--dirty-limit", "20%", "--volume", "data"], "--mode"),
        (&["--dirty-limit", "banana"], "banana"),
        (&["--dirty-limit", "130%"], "130%"),
        (&["--dirty-limit", "-5"], "-5"),
        (&["--sequential-bypass", "4 parsec"], "parsec"),
        (&["--mode", "writeup"], "writeup"),
        (&[], "--mode"),
    ];
    for (flags, word) in words {
        let refusal = output(volume.ask("set").args(flags));
        let said = show(&refusal);
        let good = !refusal.status.success() && said.contains(word) && !said.contains("panicked");
        table.case(&format!("set {flags:?}"), if good { Ok(()) } else { Err(said) });
    }
    let after = volume.status();
    for key in ["mode", "dirty_limit_blocks"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    volume.stop();
    table.assert();
}

#[test]
fn serve_refuses_a_truncated_cache() {
    let volume = formatted();
    for bytes in [31 * MIB, 4096, 0] {
        let cache = volume.place.file("short.img");
        fs::copy(&volume.cache, &cache).expect("the copy can be made");
        File::options().write(true).open(&cache).and_then(|it| it.set_len(bytes)).expect("the file is ours");
        assert_refused(&volume.place, &mut serve(&volume, &cache, &volume.origin), &["short.img"]);
    }
}

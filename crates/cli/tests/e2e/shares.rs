// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes with limits of their own: by commands, by the configuration file, and while no daemon
//! runs.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, MIB, Random, Volume, flashfront, must};
use crate::volumes::{connect_to, fill, json, refused};

/// What the status has of a volume.
fn of(volume: &Volume, name: &str) -> Value {
    let status = volume.status();
    let volumes = status["volumes"].as_array().expect("a list");
    volumes.iter().find(|it| it["name"] == name).expect("it is there").clone()
}

/// The dirty limit in bytes, and the dirty age in milliseconds.
fn limits(volume: &Volume, name: &str) -> (u64, u64) {
    let it = of(volume, name);
    let number = |key: &str| it[key].as_u64().expect("a number");
    (number("dirty_limit_bytes"), number("dirty_age_ms"))
}

#[test]
fn a_volume_has_limits_of_its_own() {
    let mut volume = Volume::served(64, 64, "writeback");
    let origin = volume.place.sparse("second.img", 64 * MIB);
    let add = ["--name", "home", "--dirty-age", "30s", "--dirty-limit"];
    refused(&volume, &[&["add", "--origin", "/dev/null"][..], &add, &["1 MiB"]].concat(), "is at least 1028 KiB");
    must(volume.ask_two(["volume", "add"]).args(add).arg("2 MiB").arg("--origin").arg(&origin));
    assert_eq!(limits(&volume, "home"), (2 * MIB, 30_000));
    assert_eq!(limits(&volume, "data"), (0, 0));
    let text = must(volume.ask_two(["volume", "show"]).arg("home"));
    assert!(text.contains("limits      dirty limit 2 MiB, dirty age 30s"), "{text}");
    refused(&volume, &["set", "home", "--dirty-limit", "1 MiB"], "so that the longest request fits");
    refused(&volume, &["set", "hone", "--dirty-limit", "2 MiB"], "no volume `hone`");

    // 8 MiB are written.
    let mut client = connect_to(&volume, "home");
    fill(&mut client, 1);
    let dirty = of(&volume, "home")["blocks_dirty"].as_u64().expect("a number");
    assert!(dirty <= 512, "{dirty} blocks are dirty");
    drop(client);
    let done = json(&must(volume.ask_two(["volume", "set"]).args(["home", "--dirty-limit", "none", "--json"])));
    assert_eq!((&done["done"], limits(&volume, "home")), (&Value::from(true), (0, 30_000)));
    must(volume.ask_two(["volume", "set"]).args(["data", "--dirty-limit", "3 MiB"]));
    assert!(volume.stderr().contains("limits of its own from none to dirty limit 3 MiB"), "{}", volume.stderr());
    volume.kill9();
    volume.start_several();
    assert_eq!((limits(&volume, "data"), limits(&volume, "home")), ((3 * MIB, 0), (0, 30_000)));
    volume.drain();
    volume.stop();
    let set =
        |more: &[&str]| must(flashfront().args(["volume", "set", "data", "--cache"]).arg(&volume.cache).args(more));
    set(&["--dirty-age", "1min"]);
    volume.start_several();
    assert_eq!(limits(&volume, "data"), (3 * MIB, 60_000));
    volume.stop();
}

/// A smallest part: set by commands, told by `volume list` and `volume show`, kept over a crash.
#[test]
fn a_volume_has_a_smallest_part_of_the_cache() {
    let mut volume = Volume::served(64, 64, "writearound");
    let origin = volume.place.sparse("second.img", 64 * MIB);
    refused(&volume, &["set", "data", "--share-min", "60%"], "are more than half of the cache");
    must(volume.ask_two(["volume", "set"]).args(["data", "--share-min", "20 MiB"]));
    let add = ["add", "--name", "home", "--share-min", "15 MiB", "--origin"];
    refused(&volume, &[&add[..], &["/dev/null"]].concat(), "take something from another volume");
    must(volume.ask_two(["volume", "add"]).args(["--name", "home", "--share-min", "4 MiB", "--origin"]).arg(&origin));
    let parts = |volume: &Volume| {
        let listed = json(&must(volume.ask_two(["volume", "list"]).arg("--json")));
        ["data", "home"].map(|name| {
            let volumes = listed.as_array().expect("a list");
            let it = volumes.iter().find(|it| it["name"] == name).expect("it is listed");
            it["share_min_bytes"].as_u64().expect("a number")
        })
    };
    assert_eq!(parts(&volume), [20 * MIB, 4 * MIB]);
    let text = must(volume.ask_two(["volume", "show"]).arg("home"));
    assert!(text.contains("limits      smallest part 4 MiB"), "{text}");
    volume.kill9();
    volume.start_several();
    assert_eq!(parts(&volume), [20 * MIB, 4 * MIB]);
    must(volume.ask_two(["volume", "set"]).args(["data", "--share-min", "none"]));
    assert_eq!(parts(&volume), [0, 4 * MIB]);
    volume.stop();
    let set = |part: &str| {
        let mut command = flashfront();
        command.args(["volume", "set", "data", "--share-min", part, "--cache"]).arg(&volume.cache);
        command
    };
    let refused = crate::harness::output(&mut set("60%"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("are more than half of the cache"), "{said}");
    must(&mut set("10%"));
    volume.start_several();
    assert!(parts(&volume)[0] > 5 * MIB, "{:?}", parts(&volume));
    volume.stop();
}

/// A largest part: what a volume reads stays within it, and it is kept over a crash.
#[test]
fn a_volume_has_a_largest_part_of_the_cache() {
    let mut volume = Volume::served(64, 64, "writearound");
    let origin = volume.place.sparse("second.img", 64 * MIB);
    refused(&volume, &["set", "data", "--share-max", "1 MiB"], "so that the longest request fits");
    refused(&volume, &["set", "data", "--share-min", "9 MiB", "--share-max", "8 MiB"], "say both");
    let add = ["--name", "home", "--mode", "writeback", "--share-max", "4 MiB", "--origin"];
    must(volume.ask_two(["volume", "add"]).args(add).arg(&origin));
    let text = must(volume.ask_two(["volume", "show"]).arg("home"));
    assert!(text.contains("limits      largest part 4 MiB"), "{text}");
    let mut client = connect_to(&volume, "home");
    let mut bytes = vec![0; 65536];
    for nth in 0..1024 {
        client.read_at(nth / 2 * 2 * 65536 % (64 * MIB), &mut bytes).expect("it is read");
        if nth % 64 == 63 {
            let cached = of(&volume, "home")["blocks_cached"].as_u64().expect("a number");
            assert!(cached <= 1024, "{cached} blocks");
        }
    }
    assert!(of(&volume, "home")["blocks_cached"].as_u64() > Some(256));
    fill(&mut client, 3);
    let it = of(&volume, "home");
    assert!(it["blocks_dirty"].as_u64() <= Some(1024), "{it}");
    drop(client);
    volume.drain();
    volume.kill9();
    volume.start_several();
    let it = of(&volume, "home");
    assert_eq!(it["share_max_bytes"], 4 * MIB);
    must(volume.ask_two(["volume", "set"]).args(["home", "--share-max", "none"]));
    assert_eq!(of(&volume, "home")["share_max_bytes"], 0);
    volume.stop();
}

/// Weights: set by commands, told by `volume show` and `status`, kept over a crash. The heavier one
/// of two volumes that ask for the same has more of the cache.
#[test]
fn volumes_have_weights() {
    let mut volume = Volume::served(64, 64, "writearound");
    let origin = volume.place.sparse("second.img", 64 * MIB);
    must(volume.ask_two(["volume", "add"]).args(["--name", "home", "--mode", "writearound", "--origin"]).arg(&origin));
    for bad in ["0", "10001", "heavy"] {
        let refused = crate::harness::output(volume.ask_two(["volume", "set"]).args(["home", "--weight", bad]));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("is neither a whole number from 1 to 10000"), "{said}");
    }
    must(volume.ask_two(["volume", "set"]).args(["data", "--weight", "900"]));
    must(volume.ask_two(["volume", "set"]).args(["home", "--weight", "100", "--read-around", "0B"]));
    let text = must(volume.ask_two(["volume", "show"]).arg("home"));
    assert!(text.contains("limits      weight 100, read around 0 B"), "{text}");
    volume.kill9();
    volume.start_several();
    let weights = |volume: &Volume| ["data", "home"].map(|name| of(volume, name)["weight"].as_u64().expect("a number"));
    assert_eq!(weights(&volume), [900, 100]);
    let mut clients = ["data", "home"].map(|name| connect_to(&volume, name));
    let (mut random, mut block) = (Random::new(7), vec![0; 4096]);
    for _ in 0..60_000 {
        for client in &mut clients {
            client.read_at(random.below(16384) * 4096, &mut block).expect("it is read");
        }
    }
    let [heavy, light] = ["data", "home"].map(|name| of(&volume, name)["blocks_cached"].as_u64().expect("a number"));
    assert!(heavy * 10 > light * 12, "{heavy} and {light} blocks");
    drop(clients);
    must(volume.ask_two(["volume", "set"]).args(["data", "--weight", "none"]));
    assert_eq!(weights(&volume), [0, 100]);
    volume.stop();
}

/// A bypass and a read-around of a volume's own: by commands, at once, and kept over a restart.
#[test]
fn a_volume_has_a_bypass_of_its_own() {
    let mut volume = Volume::served(64, 64, "writearound");
    let origin = volume.place.sparse("second.img", 64 * MIB);
    must(volume.ask_two(["volume", "add"]).args(["--name", "home", "--mode", "writearound", "--origin"]).arg(&origin));
    let own = |volume: &Volume| {
        let it = of(volume, "home");
        (it["sequential_bypass_bytes"].as_u64(), it["read_around_bytes"].as_u64())
    };
    let set = |volume: &Volume, to: &[&str]| must(volume.ask_two(["volume", "set"]).arg("home").args(to));
    assert_eq!(own(&volume), (None, None));
    refused(&volume, &["set", "home", "--read-around", "5KiB"], "can't be read around a miss");
    refused(&volume, &["set", "home", "--read-around", "1MiB"], "at most 256 KiB");
    let mut client = connect_to(&volume, "home");
    let mut bypassed = |volume: &Volume, from: u64| {
        let count = |volume: &Volume| volume.status()["bypassed_sequential"].as_u64().expect("a number");
        let (before, mut bytes) = (count(volume), vec![0; 65536]);
        for nth in 0..16 {
            client.read_at(from + nth * 65536, &mut bytes).expect("it is read");
        }
        count(volume) - before
    };
    assert_eq!(bypassed(&volume, 0), 0);
    set(&volume, &["--sequential-bypass", "256 KiB", "--read-around", "128 KiB"]);
    assert_eq!(own(&volume), (Some(256 << 10), Some(128 << 10)));
    assert_eq!(bypassed(&volume, 8 * MIB), 12);
    let text = must(volume.ask_two(["volume", "show"]).arg("home"));
    assert!(text.contains("limits      sequential bypass 256 KiB, read around 128 KiB"), "{text}");
    volume.kill9();
    volume.start_several();
    assert_eq!(own(&volume), (Some(256 << 10), Some(128 << 10)));
    set(&volume, &["--sequential-bypass", "0B", "--read-around", "0B"]);
    assert_eq!(own(&volume), (Some(0), Some(0)));
    set(&volume, &["--sequential-bypass", "none", "--read-around", "none"]);
    assert_eq!(own(&volume), (None, None));
    volume.stop();
}

/// The noise is written, and the policy is the one that keeps nothing from what comes. What is
/// evicted is counted: a hit may be read from the origin where both are on the same disk.
#[test]
fn a_noisy_volume_takes_no_blocks_from_a_quiet_one() {
    const LEN: u64 = 65536;
    let mut volume = Volume::new(64, 64);
    must(volume.format().args(["--mode", "writearound"]));
    volume.options = vec!["--policy=fifo"];
    volume.start();
    let origin = volume.place.sparse("second.img", 256 * MIB);
    let add = ["--name", "noisy", "--mode", "writeback", "--origin"];
    must(volume.ask_two(["volume", "add"]).args(add).arg(&origin));
    let mut quiet = connect_to(&volume, "data");
    let mut noisy = connect_to(&volume, "noisy");
    let mut read_quiet = || {
        let mut bytes = vec![0; LEN as usize];
        for nth in 0..256 {
            quiet.read_at(nth % 128 * 4 * LEN, &mut bytes).expect("it is read");
        }
    };
    // Twice the cache in each round.
    let mut noise = |round: u64| {
        let bytes = vec![1; LEN as usize];
        for nth in 0..2048 {
            noisy.write_at((round * 2048 + nth) * 37 % 4096 * LEN, &bytes, false).expect("it is written");
        }
    };
    let evicted = |volume: &Volume, name| of(volume, name)["evicted_blocks"].as_u64().expect("a number");
    read_quiet();
    let takes = |round| {
        noise(round);
        evicted(&volume, "data") > 0
    };
    assert!((0..20).any(takes), "the noise takes nothing");
    must(volume.ask_two(["volume", "set"]).args(["data", "--share-min", "16 MiB"]));
    // Reclaim had chosen some blocks before.
    noise(0);
    read_quiet();
    let (before, others_before) = (evicted(&volume, "data"), evicted(&volume, "noisy"));
    let takes_elsewhere = |round| {
        noise(round);
        evicted(&volume, "noisy") > others_before + 16_384
    };
    assert!((1..40).any(takes_elsewhere), "the noise takes no room at all");
    assert_eq!(evicted(&volume, "data"), before);
    assert_eq!(of(&volume, "data")["evicted_below_min"], 0);
    drop((quiet, noisy));
    volume.stop();
}

/// A key that is there is set at each start and by SIGHUP; a key that is not there changes nothing.
#[test]
fn limits_of_volumes_come_from_the_file() {
    let volume = Volume::new(64, 64);
    must(&mut volume.format());
    let file = volume.place.file("config.toml");
    let write = |limits: &str| {
        let (cache, control, state) = (&volume.cache, &volume.control, volume.place.file("state"));
        let nbd = format!("unix:{}", volume.socket.display());
        let text = format!(
            "cache = {cache:?}\ncontrol = {control:?}\nstate = {state:?}\n[[listen]]\nnbd = {nbd:?}\n[[volume]]\nname = \"data\"\norigin = {:?}\n{limits}",
            volume.origin
        );
        std::fs::write(&file, text).expect("the folder is ours");
    };
    let spawn = || {
        let daemon = Daemon::spawn(flashfront().arg("serve").arg("--config").arg(&file), &volume.log);
        daemon.ready();
        daemon
    };
    write("dirty_limit = \"2 MiB\"\n");
    let daemon = spawn();
    assert_eq!(limits(&volume, "data"), (2 * MIB, 0));
    write("dirty_age = \"10s\"\n");
    daemon.signal(Signal::HUP);
    daemon.says("volume data: set by the operator: limits of its own");
    assert_eq!(limits(&volume, "data"), (2 * MIB, 10_000));
    write("dirty_limit = \"64 KiB\"\n");
    daemon.signal(Signal::HUP);
    daemon.says("volume data: not changed");
    assert_eq!(limits(&volume, "data"), (2 * MIB, 10_000));
    daemon.stop();
    let refused = crate::harness::output(flashfront().arg("serve").arg("--config").arg(&file));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("volume `data`: a dirty limit of a volume's own is at least"), "{said}");
    write("dirty_limit = \"none\"\nshare_min = \"8 MiB\"\n");
    let daemon = spawn();
    assert_eq!(limits(&volume, "data"), (0, 10_000));
    assert_eq!(of(&volume, "data")["share_min_bytes"], 8 * MIB);
    write("weight = 0\n");
    daemon.signal(Signal::HUP);
    daemon.says("is neither a whole number from 1 to 10000");
    write("weight = 300\n");
    daemon.signal(Signal::HUP);
    daemon.says("weight 300");
    assert_eq!(of(&volume, "data")["weight"], 300);
    write("weight = \"none\"\n");
    daemon.signal(Signal::HUP);
    daemon.says("weight 300, dirty age 10s to");
    write("share_min = \"60%\"\n");
    daemon.signal(Signal::HUP);
    daemon.says("are more than half of the cache");
    write("share_min = \"25%\"\n");
    daemon.signal(Signal::HUP);
    daemon.says("smallest part 8 MiB, dirty age 10s to smallest part");
    write("sequential_bypass = \"0B\"\nread_around = \"32 KiB\"\n");
    daemon.signal(Signal::HUP);
    daemon.says("dirty age 10s, sequential bypass 0 B, read around 32 KiB");
    assert_eq!(of(&volume, "data")["read_around_bytes"], 32 << 10);
    daemon.stop();
}

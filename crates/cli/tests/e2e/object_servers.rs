// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes in real object stores (moto's server, azurite, SeaweedFS), behind a proxy with bad
//! weather: busy answers, broken ones, cut connections. Daemons and servers are killed.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{
    BLOCK, Disk, Form, MIB, SIZE, Store, Volume, Weather, first, flashfront, must, output, payload, prefix, show,
    skip_without, tool, wait_for, write, write_by,
};

/// The weather in which a quarter of all requests is spoilt.
const STORM: Weather =
    Weather { busy: 10, broken: 8, cut: 7, late: Duration::from_millis(60), is_away: false, strips_conditions: false };

/// fio writes and reads back by checksums; its report.
fn fio(volume: &Volume, mib: u64, seed: u64) -> Value {
    let mut fio = tool("fio");
    fio.args(["--name=verify", "--ioengine=nbd", "--iodepth=16", "--rw=randwrite", "--bs=4k", "--fsync=256"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_backlog=512", "--output-format=json"]);
    fio.arg(format!("--uri={}", volume.uri())).arg(format!("--size={mib}m")).arg(format!("--randseed={seed}"));
    fio.arg("--verify_state_save=0").current_dir(volume.place.dir());
    let text = must(&mut fio);
    let report = text.find('{').map_or("", |start| &text[start..]);
    let report = serde_json::Deserializer::from_str(report).into_iter::<Value>().next();
    let report = report.and_then(Result::ok).unwrap_or_else(|| panic!("fio says no JSON: {text}"));
    assert_eq!(report["jobs"][0]["error"], 0, "{report}");
    report
}

/// No client notices that one of four requests to the store fails.
#[test]
fn fio_verifies_through_a_storm() {
    if skip_without(&["fio"]) {
        return;
    }
    for store in Store::servers() {
        let mut disk = Disk::new(store, Form::PLAIN);
        disk.start();
        disk.store.proxy().set(STORM);
        // Eras share requests, so one round may meet few faults.
        for seed in 1.. {
            fio(&disk.volume, SIZE / MIB, seed);
            disk.volume.drain();
            if disk.store.proxy().seen().spoilt > 5 {
                break;
            }
        }
        let mut mine = vec![0; SIZE as usize];
        disk.volume.connect().read_at(0, &mut mine).expect("the volume can be read");
        disk.volume.kill9();
        // The other host sees the same bytes, through the same storm.
        let mut other = disk.other_host();
        let mut theirs = vec![0; SIZE as usize];
        other.connect().read_at(0, &mut theirs).expect("the volume can be read");
        assert!(mine == theirs, "the store lacks something");
        other.stop();
        disk.store.proxy().set(Weather::default());
        assert!(disk.content() == mine);
    }
}

/// The daemon, the server, and both are killed. The server comes back with what it had
/// acknowledged.
#[test]
fn killed_daemons_and_servers_lose_nothing() {
    for store in Store::servers() {
        let mut disk = Disk::new(store, Form::PLAIN);
        disk.start();
        let mut written = 0;
        for round in 0..6 {
            write(&disk.volume, written..written + 10);
            let (kills_daemon, kills_server) = (round % 3 != 1, round % 3 != 0);
            if kills_server {
                disk.store.as_server().kill9();
            }
            // Clients go on without the server.
            write(&disk.volume, written + 10..written + 20);
            written += 20;
            if kills_daemon {
                disk.volume.kill9();
            }
            if kills_server {
                disk.store.as_server().start_again();
            }
            prefix(&disk.content(), written);
            if kills_daemon {
                disk.start();
            }
        }
        disk.volume.drain();
        assert_eq!(prefix(&disk.content(), written), written);
        disk.volume.stop();
    }
}

/// A server that has forgotten everything has no volume: the start is refused, and says so.
#[test]
fn a_bucket_that_comes_back_empty_is_refused() {
    for store in Store::servers() {
        let mut disk = Disk::new(store, Form::PLAIN);
        disk.start();
        write(&disk.volume, 0..10);
        disk.volume.drain();
        disk.volume.stop();
        disk.store.as_server().kill9();
        let port = disk.store.as_server().start_empty();
        disk.store.proxy().forget(port);
        let refused = output(disk.known(&mut disk.volume.serve()));
        let said = show(&refused);
        assert!(!refused.status.success() && said.contains("there is no volume here"), "{said}");
    }
}

/// The place of the n-th write of an outage: no stream, which would go past the cache.
fn scattered(nth: u64) -> u64 {
    nth * 40_503 % (256 * MIB / BLOCK) * BLOCK
}

/// An outage is no client's error. When the cache is full of dirty data, writers wait, and nothing
/// is lost. `status` says since when the store is away, what is unsent, and why.
#[test]
fn an_outage_slows_writers_when_the_cache_is_full() {
    let Some(store) = Store::servers().next() else { return };
    // The cache has 64 MiB, and so the volume is larger.
    let mut disk = Disk::with(store, Form::PLAIN, &["--size", "256MiB"]);
    disk.start();
    disk.store.proxy().set(Weather { is_away: true, ..Weather::default() });
    let blocks = 96 * MIB / BLOCK;
    thread::scope(|scope| {
        let volume = &disk.volume;
        let mut client = volume.connect();
        let writer = scope.spawn(move || {
            for nth in 0..blocks {
                client.write_at(scattered(nth), &payload(nth), false).expect("an outage is no client's error");
            }
            client.flush().expect("the cache device is well");
        });
        wait_for(volume, |it| it["origin_state"] == "away");
        // The cache fills, until nothing moves any more.
        let limit = volume.gauge("dirty_limit_blocks");
        while volume.gauge("blocks_dirty") < limit * 9 / 10 && !writer.is_finished() {
            thread::sleep(Duration::from_millis(50)); // pacing: a poll of the daemon
        }
        let status = first(volume);
        // The table breaks lines where they are full.
        let table = must(&mut volume.ask("status"));
        let said = table.split_whitespace().collect::<Vec<_>>().join(" ");
        let waits = !writer.is_finished();
        disk.store.proxy().set(Weather::default());
        // Before this a failed assertion would wait for the writer for ever.
        assert!(waits, "all was taken with a cache of 64 MiB");
        assert!(status["away_why"].as_str().is_some_and(|it| !it.is_empty()), "{status}");
        assert!(status["unsent_bytes"].as_u64() >= Some(limit * BLOCK / 2), "{status}");
        assert!(said.contains("check the network, the server and its rights"), "{said}");
        writer.join().expect("the writer goes on");
    });
    disk.volume.drain();
    assert_eq!(first(&disk.volume)["origin_state"], "up");
    disk.volume.stop();
    let content = disk.content();
    for nth in 0..blocks {
        let at = scattered(nth) as usize;
        assert!(content[at..at + BLOCK as usize] == payload(nth), "block {nth}");
    }
}

/// Snapshots and clones are taken while clients write. Each is a state in which the volume was.
#[test]
fn snapshots_under_load_are_states_of_the_volume() {
    for store in Store::servers() {
        let mut disk = Disk::new(store, Form::PLAIN);
        disk.start();
        let kept = thread::scope(|scope| {
            let volume = &disk.volume;
            let mut client = volume.connect();
            let writer = scope.spawn(move || write_by(&mut client, 0..150));
            let mut kept = 0;
            while !writer.is_finished() || kept < 3 {
                let name = format!("at{kept}");
                disk.object("snapshot", &[&name]);
                let mut clone = flashfront();
                let from = format!("{}@{name}", volume.origin.display());
                clone.args(["object", "clone", &from, &disk.store.url(&volume.place, &format!("clone{kept}"))]);
                must(disk.known(&mut clone));
                kept += 1;
            }
            writer.join().expect("the writer ends well");
            kept
        });
        disk.volume.drain();
        let mut before = 0;
        for nth in 0..kept {
            let has = prefix(&disk.exported(&format!("@at{nth}")), 150);
            assert!(has >= before, "a later snapshot has less: {has} after {before}");
            before = has;
            let url = disk.volume.origin.clone();
            disk.volume.origin = disk.store.url(&disk.volume.place, &format!("clone{nth}")).into();
            assert_eq!(prefix(&disk.content(), 150), has);
            disk.volume.origin = url;
        }
        assert_eq!(prefix(&disk.content(), 150), 150);
        disk.volume.stop();
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon counts its requests to a store: as many as the store has seen, with their bytes. The
//! faults that a proxy makes are counted, too.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{
    BLOCK, Disk, Form, Maker, Store, Volume, Weather, first, free_port, get, must, payload, place, wait_for, write,
};

/// What a daemon writes to see whether the store keeps conditions.
const PROBE: u64 = "first".len() as u64;

/// The bytes of all files in a folder.
fn bytes_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder");
    let each = entries.map(|it| it.expect("an entry").path());
    each.map(|path| if path.is_dir() { bytes_of(&path) } else { fs::metadata(&path).expect("a file").len() }).sum()
}

/// A figure of `status` over all kinds of requests.
fn sum(volume: &Value, figure: &str) -> u64 {
    let kinds = volume["store"].as_object().expect("the volume is in a store");
    kinds.values().map(|kind| kind[figure].as_u64().expect("a number")).sum()
}

/// The value of a metric of the volume `data`, whose labels end so.
#[track_caller]
fn metric(text: &str, name: &str, labels: &str) -> f64 {
    let start = format!("flashfront_{name}{{volume=\"data\"{labels}}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start));
    value.unwrap_or_else(|| panic!("{start} is missing from\n{text}")).parse().expect("a number")
}

/// Each byte that a daemon says it has sent is in the folder.
#[test]
fn what_is_sent_is_what_the_store_has() {
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    let folder = disk.volume.place.file("store");
    let before = bytes_of(&folder);
    let port = free_port();
    let mut serve = disk.volume.serve();
    disk.volume.start_by(serve.args(["--http", &format!("127.0.0.1:{port}")]));
    let idle = first(&disk.volume);
    let blocks = 40;
    for nth in 0..blocks {
        let written = disk.volume.connect().write_at(place(nth), &payload(nth), false);
        written.expect("the volume takes writes");
    }
    disk.volume.connect().flush().expect("the cache device is well");
    disk.volume.drain();
    let expected = bytes_of(&folder) - before + PROBE;
    wait_for(&disk.volume, |it| it["store"]["put"]["bytes"] == expected);
    let now = first(&disk.volume);
    let puts = |status: &Value| status["store"]["put"]["requests"].as_u64().expect("a number");
    assert!(puts(&now) >= puts(&idle) + 2, "a flush is an object and a manifest: {now}");
    assert!(expected >= blocks * BLOCK, "{now}");
    assert_eq!((sum(&now, "errors"), sum(&now, "retries")), (0, 0), "{now}");

    let text = get(port, "/metrics");
    assert_eq!(metric(&text, "volume_store_sent_bytes_total", ""), expected as f64);
    let gets = now["store"]["get"]["bytes"].as_f64().expect("a number");
    assert!(metric(&text, "volume_store_received_bytes_total", "") >= gets);
    for kind in ["get", "put", "list", "delete"] {
        let label = format!(",kind=\"{kind}\"");
        let requests = metric(&text, "volume_store_requests_total", &label);
        assert!(requests >= now["store"][kind]["requests"].as_f64().expect("a number"), "{kind}: {text}");
        assert_eq!(metric(&text, "store_request_duration_seconds_count", &label), requests, "{kind}: {text}");
        for none in ["errors", "throttled", "retries"] {
            assert_eq!(metric(&text, &format!("volume_store_{none}_total"), &label), 0.0);
        }
    }
    let said = must(&mut disk.volume.ask("status"));
    assert!(said.lines().any(|line| line.starts_with("  store") && line.contains("get (p99")), "{said}");
    disk.volume.stop();
}

/// The daemon counts as many requests as the server has got. Each that the server refuses is an
/// error, and is sent again.
#[test]
fn each_request_counts_and_each_fault() {
    let Some(store) = Store::server(Maker::Moto) else { return };
    let mut disk = Disk::new(store, Form::PLAIN);
    let before = disk.store.proxy().seen();
    disk.start();
    write(&disk.volume, 0..20);
    disk.volume.drain();
    let proxy = disk.store.proxy();
    // A request that is under way is in the one count only.
    wait_for(&disk.volume, |it| {
        let (kinds, seen) = (&it["store"], proxy.seen());
        let counted = |kind: &str| kinds[kind]["requests"].as_u64().expect("a number");
        counted("put") == seen.puts - before.puts && counted("get") + counted("list") == seen.gets - before.gets
    });
    assert_eq!(sum(&first(&disk.volume), "errors"), 0);

    proxy.set(Weather { busy: 30, ..Weather::default() });
    let calm = proxy.seen().spoilt;
    let mut written = 20;
    while proxy.seen().spoilt < calm + 8 {
        write(&disk.volume, written..written + 20);
        written += 20;
        disk.volume.drain();
    }
    proxy.set(Weather::default());
    wait_for(&disk.volume, |it| {
        let spoilt = proxy.seen().spoilt - calm;
        ["errors", "throttled", "retries"].iter().all(|figure| sum(it, figure) == spoilt)
    });
    let said = must(&mut disk.volume.ask("status"));
    assert!(said.contains("as the store wants fewer requests"), "{said}");
    disk.volume.stop();
}

/// A read whose GET the store never answers ends: the GET is sent a second time, and that answer is
/// taken.
#[test]
fn a_get_that_is_slow_is_sent_a_second_time() {
    let Some(store) = Store::server(Maker::Moto) else { return };
    let mut disk = Disk::new(store, Form::PLAIN);
    disk.start();
    // Objects of a block each, far from each other: each is a GET for who has an empty cache.
    let (blocks, apart) = (160, 16 * BLOCK);
    let mut client = disk.volume.connect();
    for nth in 0..blocks {
        client.write_at(nth * apart, &payload(nth), false).expect("the volume takes writes");
        client.flush().expect("the cache device is well");
    }
    drop(client);
    disk.volume.drain();
    disk.volume.stop();

    let mut other = Volume::new(64, 1);
    other.origin.clone_from(&disk.volume.origin);
    disk.format(&other);
    let mut serve = other.serve();
    other.start_by(disk.known(serve.args(["--read-around=0B"])));
    let mut client = other.connect();
    let mut read = |nth: u64| {
        let mut bytes = vec![0; BLOCK as usize];
        client.read_at(nth * apart, &mut bytes).expect("the volume can be read");
        assert!(bytes == payload(nth), "block {nth}");
    };
    (0..blocks - 1).for_each(&mut read);
    let proxy = disk.store.proxy();
    let before = sum(&first(&other), "hedged");
    proxy.hold_next_get();
    read(blocks - 1);
    assert_eq!(proxy.seen().held, 1, "the first GET still waits");
    let now = first(&other);
    let (hedged, gets) = (sum(&now, "hedged"), now["store"]["get"]["requests"].as_u64().expect("a number"));
    assert!(hedged > before && hedged * 20 <= gets, "{now}");
    proxy.release();
    other.stop();
}

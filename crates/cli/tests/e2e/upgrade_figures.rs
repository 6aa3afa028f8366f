// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a daemon go on over an upgrade, and over one that fails after the cache was
//! closed. No counter falls, and the last hour is still there.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{Daemon, Volume, free_port, get, must};
use crate::resize::shrink;
use crate::upgrade::{refused, script, upgraded};

/// What a daemon tells of itself.
struct Told {
    status: Value,
    /// The samples of counters and histograms, by their names with labels.
    metrics: BTreeMap<String, f64>,
    history: Value,
    of_volume: Value,
}

impl Told {
    fn by(volume: &Volume, port: u16) -> Self {
        let json = |path: &str| serde_json::from_str(&get(port, path)).expect("JSON");
        let metrics = get(port, "/metrics");
        let counter = |line: &&str| {
            let name = line.split(['{', ' ']).next().expect("a line has a name");
            ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end))
        };
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        Self {
            status: volume.status(),
            metrics: metrics.lines().filter(|line| !line.starts_with('#')).filter(counter).map(sample).collect(),
            history: json("/api/history?range=10m"),
            of_volume: json(&format!(
                "/api/history?range=10m&volume={}",
                volume.status()["volumes"][0]["name"].as_str().expect("a name")
            )),
        }
    }

    fn number(&self, pointer: &str) -> u64 {
        self.status.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {}", self.status))
    }

    /// The steps of a series that have a value, by their numbers.
    fn steps(history: &Value, name: &str) -> BTreeMap<i64, f64> {
        let first = history["first"].as_i64().expect("a number");
        let values = history["series"][name].as_array().expect("a series");
        (first..).zip(values).filter_map(|(step, value)| Some((step, value.as_f64()?))).collect()
    }

    /// Everything that was told before goes on.
    fn goes_on_from(&self, before: &Self, when: &str) {
        assert!(before.metrics.len() > 100, "{:?}", before.metrics);
        for (name, was) in &before.metrics {
            let is = self.metrics.get(name).unwrap_or_else(|| panic!("{when}: {name} is gone"));
            assert!(is >= was, "{when}: {name} fell from {was} to {is}");
        }
        let counted =
            ["read_bytes", "written_bytes", "hit_requests", "miss_requests", "write_requests", "flush_requests"];
        let counted = counted.map(|key| format!("/volumes/0/{key}"));
        let recent = ["minute", "hour", "day"].map(|window| format!("/volumes/0/recent/{window}/write_requests"));
        let all = ["hour", "day"].map(|window| format!("/recent/{window}/flash_written_bytes"));
        for pointer in counted.iter().chain(&recent[1..]).chain(&all).map(String::as_str).chain(["/uptime_s"]) {
            let (was, is) = (before.number(pointer), self.number(pointer));
            assert!(is >= was, "{when}: {pointer} fell from {was} to {is}");
        }
        for (history, was) in [(&self.history, &before.history), (&self.of_volume, &before.of_volume)] {
            for name in ["written_bytes_per_s", "write_max_us"] {
                let (was, is) = (Self::steps(was, name), Self::steps(history, name));
                assert!(!was.is_empty(), "{name}");
                for (step, value) in was {
                    assert_eq!(is.get(&step), Some(&value), "{when}: {name}, step {step}");
                }
            }
        }
    }
}

/// Writes and reads, until the history tells of it.
fn work(volume: &Volume, port: u16) -> Told {
    let (mut client, mut bytes) = (volume.connect(), [7; 4096]);
    let mut seen = None;
    loop {
        for block in 0..40 {
            client.write_at(block * 8192, &bytes, false).expect("the volume can be written");
            client.read_at(block * 8192, &mut bytes).expect("the volume can be read");
            client.read_at((1 << 20) + block * 8192, &mut bytes).expect("the volume can be read");
        }
        client.flush().expect("the volume can be flushed");
        let told = Told::by(volume, port);
        let newest = Told::steps(&told.history, "write_max_us").into_keys().next_back();
        // A step that began later than the first look is all of this life.
        if newest > *seen.get_or_insert(newest) {
            return told;
        }
    }
}

fn served(threads: usize) -> (Volume, Daemon, u16) {
    let mut volume = Volume::new(48, 64);
    volume.threads = threads;
    must(&mut volume.format());
    let port = free_port();
    let daemon = Daemon::spawn(volume.serve().args(["--http", &format!("127.0.0.1:{port}")]), &volume.log);
    daemon.ready();
    (volume, daemon, port)
}

#[test]
fn counters_and_history_go_on_over_upgrades_and_failed_ones() {
    for threads in [1, 2] {
        let (volume, daemon, port) = served(threads);
        let fails = script(&volume, "fails", "exec \"$FLASHFRONT\" \"$@\" --inject cache:eio,op=read");
        for round in 0..2 {
            let before = work(&volume, port);
            upgraded(&volume);
            Told::by(&volume, port).goes_on_from(&before, &format!("round {round}, upgraded"));

            let before = work(&volume, port);
            let said = refused(&volume, &fails);
            assert!(said.contains("The daemon serves on"), "{said}");
            Told::by(&volume, port).goes_on_from(&before, &format!("round {round}, failed"));
        }
        // A new start begins anew.
        daemon.stop();
        let daemon = Daemon::spawn(volume.serve().args(["--http", &format!("127.0.0.1:{port}")]), &volume.log);
        daemon.ready();
        let told = Told::by(&volume, port);
        assert_eq!((told.number("/writes"), told.number("/volumes/0/recent/day/write_requests")), (0, 0));
        assert!(Told::steps(&told.history, "written_bytes_per_s").values().all(|rate| *rate == 0.0));
        daemon.stop();
    }
}

#[test]
fn counters_and_history_go_on_when_the_cache_gets_another_size() {
    let (volume, daemon, port) = served(1);
    let before = work(&volume, port);
    shrink(&volume, 32);
    Told::by(&volume, port).goes_on_from(&before, "shrunk");
    daemon.stop();
}

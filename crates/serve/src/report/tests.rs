// SPDX-License-Identifier: MIT OR Apache-2.0
use flashfront_engine::{Block, OriginStatus};

use super::*;

fn key(origin: u32, block: u64) -> Key {
    Key { origin: OriginId(origin), block: Block(block) }
}

fn named(name: &str) -> VolumeFacts {
    VolumeFacts { name: name.to_owned(), ..VolumeFacts::default() }
}

fn status() -> Status {
    Status {
        origins: vec![OriginStatus {
            id: OriginId(0),
            mode: Mode::Writethrough,
            size_bytes: 1 << 30,
            blocks_dirty: 3,
            ..OriginStatus::default()
        }],
        lost: vec![key(0, 11), key(0, 9), key(0, 10), key(0, 20), key(1, 21)],
        ..Status::default()
    }
}

#[test]
fn keys_are_a_contract() {
    let facts = Facts { volumes: vec![named("data")], ..Facts::default() };
    let value = serde_json::to_value(StatusReport::new(&status(), &facts)).unwrap();
    for key in [
        "mode",
        "blocks_cached",
        "blocks_dirty",
        "dirty_limit_blocks",
        "read_hits",
        "read_misses",
        "writes",
        "origin_reads",
        "origin_writes",
        "cache_reads",
        "cache_writes",
        "origin_reads_bytes",
        "origin_writes_bytes",
        "cache_reads_bytes",
        "cache_writes_bytes",
        "corrupt_blocks",
        "lost_blocks",
        "lost",
        "rss_bytes",
        "version",
        "uptime_s",
        "pid",
        "backend",
        "volumes",
        "draining",
        "drains",
        "cache_failed",
        "without_cache",
        "flash_writes_per_day_bytes",
        "flash_writes_left_bytes",
        "shadow_bytes",
        "what_if",
        "cache_path",
        "mirror_path",
    ] {
        assert!(value.get(key).is_some(), "{key} is missing");
    }
    for key in ["name", "origin_path", "uris", "mode", "durability", "policy", "size_bytes", "blocks_dirty"] {
        assert!(value["volumes"][0].get(key).is_some(), "{key} is missing");
    }
    assert_eq!(value["mode"], "writethrough");
    assert_eq!(value["lost_blocks"], 5);
    assert_eq!(value["volumes"][0]["name"], "data");
}

#[test]
fn a_mirror_that_is_left_out_is_none() {
    let members = ["/dev/a", "/dev/b"].map(|path| Some(path.to_owned()));
    let facts = Facts { members, lead: 1, ..Facts::default() };
    let paths = |mirror| {
        let report = StatusReport::new(&Status { mirror, ..status() }, &facts);
        (report.cache_path.unwrap(), report.mirror_path)
    };
    let lead = "/dev/b".to_owned();
    assert_eq!(paths(MirrorStatus::Whole), (lead.clone(), Some("/dev/a".to_owned())));
    assert_eq!(paths(MirrorStatus::Alone { member: 1 }), (lead, None));
}

#[test]
fn without_a_cache_nothing_is_said_about_one() {
    let counters = Counters { writes: 7, commits: 3, cache_writes: 1, cache_writes_bytes: 4096, ..Counters::default() };
    let engine = Status { counters, capacity_blocks: 900, dirty_limit_blocks: 257, segments: 60, ..status() };
    let report = StatusReport::new(&engine, &Facts { without_cache: true, ..Facts::default() });
    assert!(report.without_cache);
    let CounterReport { writes, commits, cache_writes, cache_writes_bytes, .. } = report.counters;
    assert_eq!([writes, commits, cache_writes, cache_writes_bytes], [7, 0, 0, 0]);
    assert_eq!((report.capacity_blocks, report.dirty_limit_blocks, report.segments), (0, 0, 0));
}

#[test]
fn the_report_survives_a_round_trip() {
    let report = StatusReport::new(&status(), &Facts::default());
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<StatusReport>(&text).unwrap(), report);
}

#[test]
fn lost_neighbours_become_one_range() {
    let facts = Facts { volumes: vec![named("a"), VolumeFacts { id: OriginId(1), ..named("b") }], ..Facts::default() };
    let range = |origin: &str, lba, blocks| LostRange { origin: origin.to_owned(), lba, blocks };
    assert_eq!(
        lost_ranges(&status().lost, |id| volume_facts(&facts, id).name),
        [range("a", 72, 3), range("a", 160, 1), range("b", 168, 1)]
    );
}

#[test]
fn different_modes_are_mixed() {
    assert_eq!(common_mode([Mode::Writeback, Mode::Passthrough].into_iter()), "mixed");
    assert_eq!(common_mode([].into_iter()), "none");
}

#[test]
fn this_process_uses_memory() {
    assert!(rss_bytes() > 100 * 1024);
}

#[test]
fn a_guests_memory_is_not_the_daemons() {
    let text = "VmRSS:\t 1036288 kB\nRssAnon:\t    6554 kB\nRssFile:\t    6758 kB\nRssShmem:\t 1022976 kB\n";
    assert_eq!(own_kib(text), Some(6554 + 6758));
    assert_eq!(own_kib(""), None);
}

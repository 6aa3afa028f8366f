// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the table of `status`.

use flashfront_engine::shadow::{Totals, WhatIf};
use flashfront_engine::{MirrorStatus, Mode, OriginId, OriginStatus, Status};
use flashfront_serve::daemon::OriginErrors;
use flashfront_serve::latency::{Durations, Kind, Summary};
use flashfront_serve::report::{Facts, LinkReport, LostRange, VolumeFacts};

use super::*;

fn what_if(size_percent: u32, read_hits: u64, filled: bool) -> WhatIf {
    let totals = Totals { reads: 1000, read_hits, origin_read_blocks: 1000 - read_hits, ..Totals::default() };
    WhatIf { size_percent, totals: Totals { absorbed_blocks: 7, ..totals }, filled }
}

fn sizes() -> Vec<WhatIf> {
    vec![what_if(50, 400, true), what_if(100, 600, true), what_if(200, 700, true), what_if(400, 800, false)]
}

#[test]
fn other_sizes_are_compared_with_the_present_one() {
    let status = Status { shadow_bytes: 1, ..Default::default() };
    let unknown = table(&StatusReport::new(&status, &Facts::default()), None).unwrap();
    assert!(unknown.contains("what if     another size would do better is not known yet"), "{unknown}");
    let status = Status { what_if: sizes(), ..status };
    let text = table(&StatusReport::new(&status, &Facts::default()), None).unwrap();
    for line in [
        "what if     the cache were      hits  origin reads  origin writes  flash writes",
        "            half as large     40.0 %         1.50x              -         1.00x",
        "            as it is          60.0 %         1.00x              -         1.00x",
        "            twice as large    70.0 %         0.75x              -         1.00x",
        "            4 times as large  80.0 %         0.50x              -         1.00x",
        "            (4x not full yet: it may get better still)",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is missing from\n{text}");
    }
}

fn minute() -> Summary {
    Summary { p50_ns: 12_345, p99_ns: 8_123_456, max_ns: 500_000_000_000, count: 1_000_000_000, bytes: 0 }
}

#[test]
fn what_took_how_long_is_a_table() {
    let text = table(&report(), None).unwrap();
    let lines = "
last minute        p50         p99     longest      requests
  hit            12 us     8.12 ms    500.00 s 1,000,000,000
  miss           12 us     8.12 ms    500.00 s 1,000,000,000
  write          12 us     8.12 ms    500.00 s 1,000,000,000
  flush          12 us     8.12 ms    500.00 s 1,000,000,000
";
    assert!(text.contains(lines), "{text}");
    let quiet = StatusReport::new(&Status::default(), &Facts::default());
    assert!(!table(&quiet, None).unwrap().contains("last minute"));
}

/// A report with a volume that has a value in every field.
fn report() -> StatusReport {
    let volume = VolumeFacts {
        id: OriginId(0),
        name: "data".to_owned(),
        origin_path: "/dev/sdb".to_owned(),
        uris: ["nbd+unix:///data?socket=/run/disk.sock", "file:///mnt/data"].map(str::to_owned).into(),
        read_only: false,
        shares: Default::default(),
        clients: 1,
        origin_bytes: Some(101 << 40),
        removing: false,
        durability: "flush".to_owned(),
        destage: "free".to_owned(),
        policy: "gated".to_owned(),
        origin_error: Some("no space left (ENOSPC)".to_owned()),
        origin_astray: None,
        origin_hang: None,
        origin_link: LinkReport::default(),
        failed: OriginErrors { reads: 1, writes: 12_345 },
        durations: Kind::ALL.map(|_| Durations { minute: minute(), ..Durations::default() }),
        grown: Default::default(),
    };
    let facts = Facts {
        backend: "io_uring".to_owned(),
        volumes: vec![volume],
        members: ["/dev/nvme0n1", "/dev/nvme1n1"].map(|path| Some(path.to_owned())),
        uptime_s: 1_000_000,
        clients: 1000,
        threads: 64,
        lane_threads: 16,
        lanes: 16,
        opening: true,
        request_buffer_bytes: 1 << 35,
        ..Facts::default()
    };
    let origin = OriginStatus {
        id: OriginId(0),
        mode: Mode::Writethrough,
        size_bytes: 100 << 40,
        blocks_dirty: 123_456_789,
        ..OriginStatus::default()
    };
    let status = Status {
        origins: vec![origin],
        mirror: MirrorStatus::Whole,
        mirror_lacks_blocks: 1234,
        cache_failed: true,
        blocks_cached: 234_567_890,
        capacity_blocks: 345_678_901,
        blocks_dirty: 123_456_789,
        dirty_limit_blocks: 172_839_450,
        flash_writes_per_day_bytes: Some(1 << 40),
        flash_writes_left_bytes: -(1 << 39),
        index_bytes: 1 << 32,
        buffer_bytes: 1 << 34,
        window_bytes: 1 << 30,
        ram_front_bytes: 1 << 36,
        shadow_bytes: 1 << 22,
        what_if: sizes(),
        requests_in_flight: 10_000,
        ..Status::default()
    };
    let mut report = StatusReport::new(&status, &facts);
    report.lost_blocks = 1_000_000_000;
    report.counters.corrupt_blocks = 1_000_000_000;
    let range = |nth: u64| LostRange { origin: "data".to_owned(), lba: nth << 40, blocks: 1 << 40 };
    report.lost = (0..25).map(range).collect();
    report
}

#[test]
fn a_volume_is_shown_with_its_origin_and_its_addresses() {
    let text = table(&report(), None).unwrap();
    let lines = "\
volume      data  100 TiB  writethrough  471 GiB dirty
  origin    /dev/sdb
  at        nbd+unix:///data?socket=/run/disk.sock
            file:///mnt/data
  policy    gated, durability flush
REFUSED     data: the origin refuses dirty data: no space left (ENOSPC); it is
            tried again
SIZE        data: the origin is larger than the volume (101 TiB): flashfront
            volume grow data
FAILED      data: 1 read and 12,345 writes of the origin; see the log
";
    assert!(text.contains(lines), "{text}");
    assert!(text.contains("cache       /dev/nvme0n1  lead\ncache       /dev/nvme1n1  mirror\n"), "{text}");
}

#[test]
fn a_fenced_volume_says_by_whom_and_is_no_origin_to_be_mended() {
    let mut report = report();
    (report.volumes[0].fenced, report.volumes[0].fenced_by) = (true, Some("other-host, epoch 7".to_owned()));
    let text = table(&report, None).unwrap();
    assert!(text.contains("FENCED      data: another writer") && text.contains("other-host"), "{text}");
    assert!(!text.contains("REFUSED"), "{text}");
}

#[test]
fn no_line_is_longer_than_80_columns() {
    let all = report();
    let before = StatusReport { counters: Default::default(), ..all.clone() };
    let alone = StatusReport { mirror: "alone".to_owned(), ..all.clone() };
    let bare = StatusReport { without_cache: true, ..all.clone() };
    for (report, before) in [(&all, Some((&before, 1.0))), (&all, None), (&alone, None), (&bare, None)] {
        let text = table(report, before).unwrap();
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{} columns: {line}\n{text}", line.chars().count());
        }
    }
}

#[test]
fn a_word_longer_than_a_line_stays_whole() {
    let (mut out, path) = (String::new(), "/x".repeat(60));
    entry(&mut out, "cache", &format!("{path}  lead")).unwrap();
    assert!(out.starts_with(&format!("cache       {path}\n")), "{out}");
}

#[test]
fn the_table_says_what_matters() {
    let engine = Status { capacity_blocks: 1000, dirty_limit_blocks: 500, ..Default::default() };
    let before = StatusReport::new(&engine, &Facts::default());
    let mut report = before.clone();
    report.counters.reads = 3000;
    report.counters.read_hits = 3;
    report.counters.read_misses = 1;
    report.blocks_dirty = 250;
    report.cache_failed = true;
    report.lost_blocks = 2;
    report.lost = vec![LostRange { origin: "data".to_owned(), lba: 8, blocks: 2 }];
    let text = table(&report, Some((&before, 2.0))).unwrap();
    assert!(text.contains("[###############...............]"), "{text}");
    assert!(text.contains("75.0 % since the start"), "{text}");
    assert!(text.contains("1,500"), "{text}");
    assert!(text.contains("FAILED"), "{text}");
    assert!(text.contains("sector 8, 2 blocks"), "{text}");
    report.counters.joined_blocks = 512;
    report.counters.waiting_neighbour_blocks = 256;
    let text = table(&report, None).unwrap();
    assert!(text.contains("  in RAM            1.00 MiB") && text.contains("joined              2.00 MiB"), "{text}");
    let plain = table(&before, None).unwrap();
    assert!(!plain.contains("joined") && !plain.contains("in RAM"), "{plain}");
    assert!(plain.contains("hits        - of") && !plain.contains("LOST"), "{plain}");
    assert!(!plain.contains("what if") && !plain.contains("budget"), "{plain}");
    assert!(!plain.contains("FAILED") && !plain.contains("NO CACHE"), "{plain}");
    let budget = |left| {
        let limited = StatusReport { flash_writes_per_day_bytes: 200 << 30, ..before.clone() };
        table(&StatusReport { flash_writes_left_bytes: left, ..limited }, None).unwrap()
    };
    assert!(budget(3 << 30).contains("budget      3.00 GiB of flash writes saved up, 200 GiB a day"));
    assert!(budget(-5 << 20).contains("budget      used up, 5.00 MiB of debt, 200 GiB"));
    let alone = table(&StatusReport { without_cache: true, ..before }, None).unwrap();
    assert!(alone.contains("NO CACHE") && !alone.contains("cached") && !alone.contains("hits"), "{alone}");
}

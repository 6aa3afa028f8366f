// SPDX-License-Identifier: MIT OR Apache-2.0
use flashfront_engine::{OriginId, OriginStatus, Status};
use flashfront_serve::report::{Facts, VolumeFacts};

use super::*;

/// A report of two volumes that have answered these reads of 4 KiB from the cache.
fn report(hits: [u64; 2]) -> StatusReport {
    let origin = |(id, dirty)| OriginStatus { id: OriginId(id), blocks_dirty: dirty, ..OriginStatus::default() };
    let status = Status { origins: [(0, 1), (1, 0)].map(origin).to_vec(), ..Status::default() };
    let named =
        |(id, name): (u32, &str)| VolumeFacts { id: OriginId(id), name: name.to_owned(), ..VolumeFacts::default() };
    let facts = Facts { volumes: [(0, "quiet"), (1, "busy")].map(named).to_vec(), ..Facts::default() };
    let mut report = StatusReport::new(&status, &facts);
    for (volume, hits) in report.volumes.iter_mut().zip(hits) {
        (volume.hit_requests, volume.hit_bytes, volume.read_bytes) = (hits, hits * 4096, hits * 4096);
        (volume.miss_requests, volume.recent.hour.hit_bytes) = (10, hits * 4096);
        report.recent.hour.hit_bytes += hits * 4096;
    }
    report
}

#[test]
fn rates_are_those_between_the_readings() {
    let (all, volumes) = rows(&report([10, 100]), &report([20, 500]), 2.0);
    let rates = |row: &Row| (row.requests_per_s, row.read_bytes_per_s, row.hit_ratio);
    assert_eq!(rates(&volumes[0]), (5.0, 5.0 * 4096.0, Some(1.0)));
    assert_eq!(rates(&volumes[1]), (200.0, 200.0 * 4096.0, Some(1.0)));
    assert_eq!(rates(&all), (205.0, 205.0 * 4096.0, Some(1.0)));
    assert_eq!((volumes[1].gain, all.gain), (Some(500.0 / 520.0), Some(1.0)));
    let (_, idle) = rows(&report([10, 100]), &report([10, 100]), 2.0);
    assert_eq!((idle[0].hit_ratio, idle[0].requests_per_s), (None, 0.0));
}

#[test]
fn a_volume_that_came_and_one_that_was_renamed_are_told_apart() {
    let (mut before, mut now) = (report([10, 100]), report([20, 500]));
    now.volumes[0].name = "renamed".to_owned();
    before.volumes.remove(1);
    let (_, volumes) = rows(&before, &now, 1.0);
    assert_eq!((volumes[0].name.as_str(), volumes[0].requests_per_s), ("renamed", 10.0));
    assert_eq!(volumes[1].requests_per_s, 510.0, "all of a new volume is new");
}

#[test]
fn the_busiest_comes_first_and_each_key_sorts() {
    let (_, mut volumes) = rows(&report([10, 100]), &report([20, 500]), 2.0);
    let order = |volumes: &mut Vec<Row>, by| {
        sort(volumes, by);
        volumes[0].name.clone()
    };
    assert_eq!(order(&mut volumes, Sort::Bytes), "busy");
    assert_eq!(order(&mut volumes, Sort::Dirty), "quiet");
    assert_eq!(order(&mut volumes, Sort::Name), "busy");
    assert_eq!(order(&mut volumes, Sort::Gain), "busy");
    let keys: std::collections::BTreeSet<u8> = Sort::value_variants().iter().map(|it| it.key()).collect();
    assert_eq!(keys.len(), Sort::value_variants().len(), "each key means one thing");
    for by in Sort::value_variants() {
        let line = KEYS.lines().find(|line| line.trim_start().starts_with(by.name()));
        assert!(line.is_some() && by.key() != b'q', "{by:?}");
    }
}

#[test]
fn a_picture_fills_no_more_than_its_window() {
    let (all, volumes) = rows(&report([10, 100]), &report([20, 500]), 2.0);
    for columns in [10, 26, 80, 200] {
        let lines = lines(&all, &volumes, columns);
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.chars().count() <= columns.max(16)), "{lines:?}");
    }
    let lines = lines(&all, &volumes, 80);
    assert!(lines[0].contains("dirty") && !lines[0].contains("cached"), "{lines:?}");
    let wide = table::lines(&all, &volumes, usize::MAX);
    assert!(wide[0].contains("gain") && wide[3].contains("96.2 %"), "{wide:?}");
}

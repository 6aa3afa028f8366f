// SPDX-License-Identifier: MIT OR Apache-2.0
use flashfront_engine::Counters;

use super::*;
use crate::latency::Kind;

const UNIX: Duration = Duration::from_secs(1_800_000_000);

fn s(seconds: u64) -> Time {
    Time(seconds * NS_PER_S)
}

/// The moment after `hits` hits of 4 KiB of each of `volumes` volumes.
fn after(hits: u64, volumes: usize) -> Moment {
    let traffic = Traffic { requests: [hits, hits, 0, 0], bytes: [hits * 4096, 0, 0, 0], ..Traffic::default() };
    let counters = Counters { read_hits: hits * 3, read_misses: hits, ..Counters::default() };
    Moment { whole: Whole { counters, blocks_cached: hits, ..Whole::default() }, volumes: vec![traffic; volumes] }
}

fn history(volumes: usize) -> History {
    let names: Vec<String> = (0..volumes).map(|nth| format!("v{nth}")).collect();
    History::new(&names, s(0), &after(0, volumes))
}

/// A history of one hit a second that takes 1 ms; `at` says which seconds are recorded.
fn lived(volumes: usize, at: impl Iterator<Item = u64>) -> History {
    let mut history = history(volumes);
    for second in at {
        let mut fresh: Vec<Fresh> = (0..volumes).map(|_| Fresh::default()).collect();
        fresh.iter_mut().for_each(|it| it[Kind::Hit as usize].record(1_000_000));
        history.record(Time(s(second).0 + 1000), &after(second, volumes), &fresh);
    }
    history
}

fn read(history: &History, query: &str, now: u64) -> HistoryReport {
    history.read(&Query::parse(query).unwrap(), s(now), UNIX).unwrap()
}

/// The values of a series, with none as -1.
fn values(report: &HistoryReport, name: &str) -> Vec<f64> {
    let series = report.series.iter().find(|it| it.0 == name).unwrap_or_else(|| panic!("no series {name}"));
    series.1.iter().map(|it| if it.0.is_nan() { -1.0 } else { f64::from(it.0) }).collect()
}

fn near(values: &[f64], expected: f64) -> bool {
    values.iter().all(|it| (it - expected).abs() < expected * 0.01)
}

#[test]
fn a_range_has_the_finest_resolution_that_covers_it() {
    let history = lived(1, 1..=100);
    for (range, step_s, values) in [
        ("10m", 1, 600),
        ("1s", 1, 1),
        ("90s", 1, 90),
        ("11m", 10, 66),
        ("1h", 10, 360),
        ("2h", 10, 720),
        ("24h", 60, 1440),
    ] {
        let report = read(&history, &format!("range={range}"), 100);
        assert_eq!((report.step_s, report.series[0].1.len()), (step_s, values), "{range}");
        assert!(report.series.iter().all(|it| it.1.len() == values), "{range}");
    }
    // Without a range it is an hour.
    assert_eq!(read(&history, "", 100).series[0].1.len(), 360);
}

#[test]
fn each_resolution_tells_the_same_of_the_same_time() {
    let history = lived(2, 1..=1800);
    for range in ["10m", "1h", "24h"] {
        let report = read(&history, &format!("range={range}"), 1800);
        let known = |name| values(&report, name).into_iter().filter(|it| *it >= 0.0).collect::<Vec<_>>();
        // Two volumes, each with a hit and a miss a second.
        assert!(near(&known("hits_per_s"), 2.0) && near(&known("misses_per_s"), 2.0), "{range}");
        assert!(near(&known("read_bytes_per_s"), 8192.0), "{range}");
        assert!(near(&known("request_hit_ratio"), 0.5) && near(&known("hit_ratio"), 0.75), "{range}");
        // A level is told as it is at the end: 1800 blocks.
        assert_eq!(known("cached_bytes").last(), Some(&(1800.0 * 4096.0)), "{range}");
        for name in ["hit_p50_us", "hit_p99_us", "hit_max_us"] {
            assert!(known(name).iter().all(|it| (it - 1000.0).abs() < 70.0), "{range} {name}");
        }
        // Kinds of requests that did not happen have no figures.
        assert!(known("flush_p99_us").is_empty() && !known("hit_p99_us").is_empty());
        let of_one = read(&history, &format!("range={range}&volume=v1"), 1800);
        assert!(
            near(&values(&of_one, "hits_per_s").split_off(values(&of_one, "hits_per_s").len() - 10), 1.0),
            "{range}"
        );
        assert!(of_one.series.iter().all(|it| it.0 != "hit_ratio"), "blocks are counted for the daemon alone");
    }
}

#[test]
fn nothing_is_recorded_before_the_start_nor_in_gaps() {
    // The ends of seconds 4 to 6 have no record.
    let history = lived(1, (1..=3).chain(7..=9));
    let report = read(&history, "range=12s", 9);
    let expected = [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0];
    let found = values(&report, "hits_per_s");
    for (nth, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 0.01, "{nth}: {found} instead of {expected}");
    }
    assert_eq!((report.first, report.next), (-3, 9));
    assert!(serde_json::to_string(&report).unwrap().contains("\"hits_per_s\":[null,null,null,"));
    // A gap that is longer than what is kept, as of a machine that slept.
    let history = lived(1, (1..=3).chain([5000, 5001]));
    let found = values(&read(&history, "range=10m", 5001), "hits_per_s");
    assert_eq!((found.len(), found.iter().filter(|it| **it >= 0.0).count()), (600, 2));
}

#[test]
fn the_end_of_a_report_is_when_its_last_step_ended() {
    let history = lived(1, 1..=25);
    let report = history.read(&Query::parse("range=1h").unwrap(), Time(25_500_000_000), UNIX).unwrap();
    assert_eq!((report.next, report.end_unix_ms), (2, (UNIX.as_millis() - 5_500) as u64));
}

#[test]
fn who_asks_again_gets_what_is_new() {
    let mut history = lived(1, 1..=30);
    let next = read(&history, "range=10m", 30).next;
    history.record(s(31), &after(40, 1), &[Fresh::default()]);
    let report = read(&history, &format!("range=10m&from={next}"), 31);
    assert_eq!((report.first, report.next), (30, 31));
    assert!(near(&values(&report, "hits_per_s"), 10.0));
    // A number of an earlier daemon, or a number that is long gone, does no harm.
    assert_eq!(read(&history, "range=10m&from=99999", 31).series[0].1.len(), 0);
    assert_eq!(read(&history, "range=10m&from=0", 31).series[0].1.len(), 31);
}

#[test]
fn the_newest_rows_stay_when_a_ring_is_full() {
    let mut history = lived(1, 1..=1234);
    let cached = |history: &History| values(&read(history, "range=10m", 0), "cached_bytes");
    let expected = |last: u64| (last - 599..=last).map(|it| (it * 4096) as f64).collect::<Vec<_>>();
    assert_eq!(cached(&history), expected(1234));
    history.record(s(1235), &after(1235, 1), &[Fresh::default()]);
    assert_eq!(cached(&history), expected(1235));
}

#[test]
fn ram_has_a_bound() {
    let mut history = history(VOLUMES_MAX + 8);
    let before = history.bytes();
    for second in 1..=700 {
        history.record(s(second), &after(second, VOLUMES_MAX + 8), &[]);
    }
    assert_eq!(history.bytes(), before, "it grows with time");
    assert!(before <= BYTES_MAX, "{before} bytes");
    let of_one = self::history(1).bytes();
    assert!(of_one < 1 << 20, "{of_one} bytes of a daemon with one volume");
    assert!(history.read(&Query::parse("volume=v31").unwrap(), s(0), UNIX).is_ok());
    let refused = history.read(&Query::parse("volume=v32").unwrap(), s(0), UNIX).unwrap_err();
    assert!(matches!(&refused, Refused::Volume(said) if said.contains("first 32 volumes")), "{refused}");
}

#[test]
fn a_bad_question_is_told_what_is_allowed() {
    for bad in
        ["range=7d", "range=0s", "range=1ms", "range=1y", "range=soon", "range=", "span=1h", "from=-1", "range=1h&x=2"]
    {
        let refused = Query::parse(bad).expect_err(bad);
        assert!(matches!(&refused, Refused::Question(said) if said.contains("from 1s to 24h")), "{bad}: {refused}");
    }
    for good in ["", "range=1h", "range=10min&volume=data", "volume=a.b-c&from=17", "range=1h30m"] {
        assert!(Query::parse(good).is_ok(), "{good}");
    }
}

#[test]
fn without_a_cache_nothing_is_told_of_one() {
    let counters = Counters { cache_reads: 1, cache_writes_bytes: 2, origin_reads: 3, ..Counters::default() };
    let whole = Whole {
        counters,
        blocks_cached: 4,
        dirty_limit_blocks: 5,
        clients: 6,
        what_if: [Some(0.5); 4],
        ..Whole::default()
    };
    let left = whole.without_cache();
    let expected = Counters { origin_reads: 3, ..Counters::default() };
    assert_eq!(left, Whole { counters: expected, clients: 6, ..Whole::default() });
}

#[test]
fn volumes_come_and_go_and_keep_their_own_history() {
    let mut history = lived(2, 1..=10);
    // The first volume goes, the second one gets another name, and a new one comes.
    let moment = Moment { volumes: vec![after(10, 1).volumes[0], after(500, 1).volumes[0]], ..after(10, 2) };
    history.follow(&["renamed".to_owned(), "new".to_owned()], &[Some(1), None], &moment);
    for second in 11..=20 {
        let volumes = vec![after(second, 1).volumes[0], after(500 + 2 * (second - 10), 1).volumes[0]];
        let moment = Moment { volumes, ..after(second, 2) };
        history.record(Time(s(second).0 + 1000), &moment, &[Fresh::default(), Fresh::default()]);
    }
    let hits = |volume: &str| values(&read(&history, &format!("range=15s&volume={volume}"), 20), "hits_per_s");
    assert!(near(&hits("renamed")[..15], 1.0), "{:?}", hits("renamed"));
    let new = hits("new");
    assert!(new[..5].iter().all(|it| *it < 0.0) && near(&new[6..15], 2.0), "{new:?}");
    let query = Query::parse("range=10s&volume=v0").unwrap();
    assert!(history.read(&query, s(20), UNIX).is_err(), "it is gone");
    let all = values(&read(&history, "range=5s", 20), "hits_per_s");
    assert!(near(&all[..5], 3.0), "{all:?}");
}

#[test]
fn a_history_goes_on_where_another_one_was() {
    for until in [1, 5, 700, 8000] {
        let before = lived(2, 1..=until);
        let (figures, bytes) = before.figures(&[7, 9]);
        assert!(bytes.len() <= BYTES_MAX);
        let figures = serde_json::to_vec(&figures).unwrap();
        let mut figures: HistoryFigures = serde_json::from_slice(&figures).unwrap();
        let now = Time(s(until).0 + 2000);
        let known = [(9, "v1".to_owned()), (8, "new".to_owned()), (7, "v0".to_owned())];
        let go_on = |figures: &HistoryFigures, bytes| History::go_on(now, &after(until, 3), &known, figures, bytes);
        let mut history = go_on(&figures, &bytes).unwrap();
        for range in ["10m", "1h", "24h"] {
            let told = |history: &History, volume: &str| {
                let report = read(history, &format!("range={range}{volume}"), until + 1);
                ["hits_per_s", "hit_max_us", "dirty_bytes"].map(|name| (report.next, values(&report, name)))
            };
            for volume in ["", "&volume=v0", "&volume=v1"] {
                assert_eq!(told(&history, volume), told(&before, volume), "{until} s, {range}{volume}");
            }
            assert!(told(&history, "&volume=new").iter().all(|it| it.1.iter().all(|value| *value == -1.0)));
        }
        let fresh: Vec<Fresh> = (0..3).map(|_| Fresh::default()).collect();
        history.record(Time(s(until + 1).0 + 2000), &after(until + 1, 3), &fresh);
        for volume in ["v0", "v1", "new"] {
            let rates = values(&read(&history, &format!("range=1s&volume={volume}"), until + 1), "hits_per_s");
            assert!(near(&rates, 1.0), "{volume}: {rates:?}");
        }
        assert!(go_on(&figures, &bytes[1..]).is_none(), "a value is missing");
        figures.series[0].push('x');
        assert!(go_on(&figures, &bytes).is_none(), "these are other series");
    }
}

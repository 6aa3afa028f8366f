// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/metrics` against a parser that takes nothing but OpenMetrics 1.0: names, types, labels, order,
//! histograms.

use std::collections::{BTreeMap, HashSet};

use flashfront_engine::{AnswerKind, Answered, Mode, OriginId, OriginStatus, Status, Time};

use super::encode;
use crate::latency::Latencies;
use crate::report::{Facts, StatusReport, VolumeFacts};

/// A line with a value.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// A metric family: its type and its samples.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<Sample>,
}

fn is_name(text: &str) -> bool {
    let mut all = text.chars();
    let first = all.next().is_some_and(|it| it.is_ascii_alphabetic() || it == '_');
    first && all.all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// The labels between braces, and what follows them.
fn labels(mut text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return (labels, rest);
        }
        let (name, rest) = text.split_once("=\"").expect("a label has a value");
        assert!(is_name(name), "label {name:?}");
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().expect("a value has an end") {
                (at, '"') => break at,
                (_, '\\') => match chars.next().expect("a character is escaped").1 {
                    'n' => value.push('\n'),
                    it @ ('\\' | '"') => value.push(it),
                    it => panic!("{it:?} needs no escape"),
                },
                (_, it) => value.push(it),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "label {name} is there twice");
        text = rest[end + 1..].strip_prefix(',').unwrap_or(&rest[end + 1..]);
    }
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a name ends");
    let (name, rest) = line.split_at(end);
    let (labels, rest) = rest.strip_prefix('{').map_or((BTreeMap::new(), rest), labels);
    let value = rest.strip_prefix(' ').expect("one space before the value");
    assert!(is_name(name) && !value.contains(' '), "{line}");
    Sample { name: name.to_owned(), labels, value: value.parse().expect("a number") }
}

/// Returns the suffixes that a name may have behind the family's name.
fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_sum", "_count"],
        other => panic!("type {other}"),
    }
}

/// Reads an exposition; panics at whatever is not allowed.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let text = text.strip_suffix("# EOF\n").expect("EOF is the last line");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut helped, mut seen) = (String::new(), HashSet::new(), HashSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(is_name(name) && helped.contains(name), "{line}: the help comes first");
            let family = Family { kind: kind.to_owned(), samples: Vec::new() };
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} is there twice");
            current = name.to_owned();
        } else {
            let sample = sample(line);
            let family = families.get_mut(&current).expect("a type comes first");
            let suffix = sample.name.strip_prefix(&current).unwrap_or_else(|| panic!("{line} in {current}"));
            assert!(suffixes(&family.kind).contains(&suffix), "{line}: no {}", family.kind);
            assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "{line} is there twice");
            family.samples.push(sample);
        }
    }
    families
}

/// Bounds, counts, `_sum` and `_count` of one histogram; its rules are checked.
fn histogram(family: &Family, labels: &[(&str, &str)]) -> (Vec<(f64, f64)>, f64, f64) {
    let is_ours =
        |sample: &&Sample| labels.iter().all(|(name, value)| sample.labels.get(*name).is_some_and(|it| it == value));
    let of = |suffix: &'static str| family.samples.iter().filter(is_ours).filter(move |it| it.name.ends_with(suffix));
    let buckets =
        of("_bucket").map(|it| (it.labels["le"].parse().expect("a bound"), it.value)).collect::<Vec<(f64, f64)>>();
    assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
    let [sum, count] = ["_sum", "_count"].map(|suffix| of(suffix).map(|it| it.value).collect::<Vec<_>>());
    assert_eq!((sum.len(), count.len()), (1, 1), "{labels:?}");
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, count[0])));
    (buckets, sum[0], count[0])
}

#[test]
fn the_text_is_openmetrics_and_its_histograms_add_up() {
    let mut latencies = Latencies::default();
    let now = Time(1_000_000_000_000);
    for (kind, ns) in [(AnswerKind::Hit, 10_000), (AnswerKind::Hit, 10_001), (AnswerKind::Hit, 31_000_000_000)] {
        latencies.record(Answered { origin: OriginId(1), kind, since: Time(now.0 - ns), bytes: 512 }, now);
    }
    let names = ["a", "b \"\\\n"];
    let volume = |(id, name): (u32, &str)| VolumeFacts {
        id: OriginId(id),
        name: name.to_owned(),
        durations: latencies.of(OriginId(id), now),
        ..VolumeFacts::default()
    };
    let facts = Facts { volumes: (0..).zip(names).map(volume).collect(), ..Facts::default() };
    let origin = |id| OriginStatus {
        id: OriginId(id),
        mode: Mode::Writearound,
        size_bytes: 1,
        blocks_dirty: 0,
        ..OriginStatus::default()
    };
    let status = Status { origins: vec![origin(0), origin(1)], ..Status::default() };
    let families = parse(&encode(&StatusReport::new(&status, &facts)));

    let durations = &families["flashfront_request_duration_seconds"];
    assert_eq!(durations.kind, "histogram");
    let (buckets, sum, count) = histogram(durations, &[("volume", names[1]), ("kind", "hit")]);
    let at = |bound: f64| buckets.iter().find(|it| it.0 == bound).expect("a bucket").1;
    assert_eq!((at(0.000_005), at(0.000_01), at(0.000_025), at(30.0), count), (0.0, 1.0, 2.0, 2.0, 3.0));
    assert!((sum - 31.000_020_001).abs() < 1e-9, "{sum}");
    // The others are there from the start, so that rates begin at 0.
    for (volume, kind) in [(names[0], "hit"), (names[1], "miss"), (names[1], "write"), (names[0], "flush")] {
        assert_eq!(histogram(durations, &[("volume", volume), ("kind", kind)]).2, 0.0);
    }
    let modes = &families["flashfront_volume_mode"].samples;
    let on: Vec<_> = modes.iter().filter(|it| it.value == 1.0).map(|it| &*it.labels["mode"]).collect();
    assert_eq!((modes.len(), on), (8, vec!["writearound"; 2]));
}

#[test]
fn many_volumes_share_the_last_histogram() {
    let (mut latencies, now) = (Latencies::default(), Time(1_000_000_000_000));
    let ids = 0..70_u32;
    for id in ids.clone() {
        let since = Time(now.0 - 10_000);
        latencies.record(Answered { origin: OriginId(id), kind: AnswerKind::Hit, since, bytes: 512 }, now);
    }
    let volume = |id| VolumeFacts {
        id: OriginId(id),
        name: format!("v{id}"),
        durations: latencies.of(OriginId(id), now),
        ..VolumeFacts::default()
    };
    let facts = Facts { volumes: ids.clone().map(volume).collect(), ..Facts::default() };
    let origins = ids.map(|id| OriginStatus { id: OriginId(id), ..OriginStatus::default() }).collect();
    let families = parse(&encode(&StatusReport::new(&Status { origins, ..Status::default() }, &facts)));
    let durations = &families["flashfront_request_duration_seconds"];
    let count = |volume| histogram(durations, &[("volume", volume), ("kind", "hit")]).2;
    assert_eq!((count("v0"), count("v63"), count("(others)")), (1.0, 1.0, 6.0));
    let hits = &families["flashfront_volume_hit_bytes"];
    assert!(hits.samples.iter().any(|it| it.labels["volume"] == "v69" && it.value == 512.0), "all have their counters");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The newcomer's minute: `flashfront try`, as a script sees it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Place, flashfront, must};

#[test]
fn try_compares_with_and_without_and_leaves_nothing_behind() {
    let place = Place::new();
    let text = must(flashfront().args(["try", "--json"]).current_dir(place.dir()).env("TMPDIR", place.dir()));
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    for side in ["without", "with"] {
        for key in ["iops", "p50_us", "p99_us", "hit_ratio"] {
            assert!(report[side][key].is_number(), "{side}.{key}: {report}");
        }
        assert!(report[side]["iops"].as_f64() > Some(0.0), "{report}");
    }
    assert_eq!(report["without"]["hit_ratio"].as_f64(), Some(0.0), "{report}");
    assert!(report["with"]["hit_ratio"].as_f64() > Some(0.3), "{report}");
    assert_eq!(left_behind(place.dir()), Vec::<String>::new());
}

fn left_behind(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the folder is ours");
    entries.map(|entry| entry.expect("the folder is ours").path().display().to_string()).collect()
}

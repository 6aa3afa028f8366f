// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim adapt` as scripts and people meet it.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Place, flashfront, must, output, show};
use crate::sim_report::{assert_self_contained, charts};

/// Small and short: 8 MiB, of which a turnover takes some nine rounds.
fn adapt() -> Command {
    let mut adapt = flashfront();
    adapt.args(["sim", "adapt", "--cache-blocks", "2048", "--rounds", "12"]);
    adapt
}

#[test]
fn sim_adapt_gives_scripts_one_object_for_each_case_and_policy() {
    let text = must(adapt().args(["--policy", "flashfront,lru,smq", "--json"]));
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let names: Vec<_> = rows.iter().map(|row| (row["case"].as_str(), row["policy"].as_str())).collect();
    let order = ["fits", "larger"].map(|case| ["flashfront", "lru", "smq"].map(|policy| (Some(case), Some(policy))));
    assert_eq!(names, order.concat());
    for row in &rows {
        assert_eq!((&row["cache_blocks"], &row["reads"]), (&2048.into(), &24_576.into()));
        assert_eq!(row["hit_ratios"].as_array().map(Vec::len), Some(96));
        for key in
            ["junk_blocks", "compulsory_blocks", "flash_blocks_written", "hit_ratio_last_round", "static_optimum"]
        {
            assert!(row[key].is_number(), "{key} is missing in {row}");
        }
    }
    let lru = |case: &str| rows.iter().find(|row| row["case"] == case && row["policy"] == "lru").expect("is there");
    assert_eq!(lru("fits")["origin_reads_per_compulsory"], 1.0);
    assert!(lru("fits")["turnover_reads"].is_null(), "it never asks for all blocks");
    let larger = lru("larger");
    let number = |key: &str| larger[key].as_f64().unwrap_or_else(|| panic!("{key} is missing in {larger}"));
    let below = (number("static_optimum") - number("hit_ratio_after_turnover")) * 100.0;
    assert!((number("points_below_optimum_after_turnover") - below).abs() < 1e-3 && below > 0.0, "{larger}");
    assert!(number("hit_ratio_after_turnover") <= number("unlimited_hit_ratio_after_turnover"), "{larger}");
    assert_eq!(must(adapt().args(["--policy", "flashfront,lru,smq", "--json"])), text, "the same seed gives the same");
}

#[test]
fn sim_adapt_writes_curves_and_a_report() {
    let place = Place::new();
    let report = place.file("adapt.html");
    let csv = must(adapt().args(["--policy", "all", "--csv", "--report"]).arg(&report));
    let columns = csv.lines().next().map_or(0, |head| head.split(',').count());
    assert!(csv.lines().all(|line| line.split(',').count() == columns));
    assert_eq!(csv.lines().filter(|line| line.starts_with("larger,lru,")).count(), 96);
    // What JSON has of the whole is in CSV too.
    let head: Vec<&str> = csv.lines().next().unwrap_or_default().split(',').collect();
    let last = |start: &str| csv.lines().rfind(|line| line.starts_with(start)).expect("is there").split(',');
    for key in ["turnover_reads", "points_below_optimum_after_turnover", "worst_turnover_points_below_lru"] {
        let at = head.iter().position(|it| *it == key).unwrap_or_else(|| panic!("{key} is missing in {head:?}"));
        assert!(last("larger,flashfront,").nth(at).is_some_and(|it| it.parse::<f64>().is_ok()), "{key}");
        assert!(last("fits,flashfront,").nth(at).is_some_and(str::is_empty), "{key}: it never asks for all blocks");
    }
    let page = fs::read_to_string(&report).expect("the report is there");
    assert_self_contained(&page);
    for word in ["static optimum", "unlimited", "turnover", "smq_4k", "96.0 MiB", "--cache-blocks 2048"] {
        assert!(page.contains(word), "{word} is missing");
    }
    // Hits and origin reads over time, in both cases.
    assert_eq!(charts(&page), 4);
}

#[test]
fn sim_adapt_gives_people_two_tables_and_refuses_what_it_can_t_simulate() {
    let text = must(adapt().args(["--policy", "lru,fifo"]));
    for word in ["fits: a cache of 8.00 MiB", "larger: ", "static optimum", "turnover after", "lru ", "fifo "] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    let loads =
        must(adapt().args(["--load", "loop,hot-junk,phases,scan-and-hot", "--policy", "flashfront,lru", "--json"]));
    let worst = |line: &str| -> (String, Option<f64>) {
        let row: Value = serde_json::from_str(line).expect("a line of JSON");
        (row["case"].to_string(), row["worst_round_points_below_lru"].as_f64())
    };
    let worst: Vec<_> = loads.lines().map(worst).collect();
    let names: Vec<&str> = worst.iter().step_by(2).map(|it| it.0.trim_matches('"')).collect();
    assert_eq!(names, ["loop_0.9", "loop_1.1", "phases", "scan_and_hot", "hot_junk"]);
    assert!(worst.iter().skip(1).step_by(2).all(|it| it.1 == Some(0.0)), "an LRU is as good as an LRU: {worst:?}");
    let over = |line: &str| -> Option<f64> {
        serde_json::from_str::<Value>(line).expect("a line of JSON")["worst_turnover_points_below_lru"].as_f64()
    };
    let over: Vec<Option<f64>> = loads.lines().map(over).collect();
    assert_eq!(over[..2], [None; 2], "0.9 caches are never turned over");
    assert!(
        over.iter().skip(2).all(Option::is_some) && over.iter().skip(3).step_by(2).all(|it| *it == Some(0.0)),
        "{over:?}"
    );
    for arguments in [
        ["--load", "none"],
        ["--cache-blocks", "100"],
        ["--rounds", "0"],
        ["--cache-blocks", "-2048"],
        ["--rounds", "-1"],
        ["--seed", "-1"],
        ["--policy", "best"],
        ["--report", "/dev/null"],
    ] {
        let output = output(flashfront().args(["sim", "adapt"]).args(arguments));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(arguments[0]), "{}", show(&output));
        assert!(output.stdout.is_empty() && !stderr.contains("panicked"), "{}", show(&output));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim compare` as scripts and people meet it: the first task of a suite.

use std::fs;

use serde_json::Value;

use crate::harness::{Place, flashfront, must};
use crate::refusal::{Table, refused};
use crate::sim_report::{assert_self_contained, charts};

#[test]
fn sim_compare_puts_published_and_simulated_figures_side_by_side() {
    let place = Place::new();
    let report = place.file("report.html");
    let mut compare = flashfront();
    compare.args(["sim", "compare", "--suite", "caches-2015", "--systems", "hdd,flashfront", "--until", "2", "--json"]);
    let pictures = place.file("pictures");
    let answer = must(compare.arg("--report").arg(&report).arg("--pictures").arg(&pictures));
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let cell = |task: &str, system: &str, metric: &str| {
        let cells = answer["cells"].as_array().expect("cells").iter();
        let is = |cell: &&Value| cell["task"] == task && cell["system"] == system && cell["metric"] == metric;
        cells.clone().find(is).unwrap_or_else(|| panic!("no {task} {system} {metric} in {answer}")).clone()
    };
    let hdd = cell("1", "hdd", "kbps");
    assert_eq!((&hdd["suite"], hdd["published"].as_f64()), (&Value::from("caches-2015"), Some(173_630.0)));
    assert!(hdd["simulated"].as_f64().is_some_and(|it| it > 150_000.0), "{hdd}");
    // Ours was not there in 2015. The second pass comes from the cache.
    let ours = cell("2", "flashfront", "kbps");
    assert_eq!(ours["published"], Value::Null);
    assert!(ours["simulated"].as_f64() > hdd["simulated"].as_f64().map(|it| it * 1.5), "{ours}, {hdd}");
    // But for one of 65,536 requests (128 KiB), as measured.
    assert!(cell("2", "flashfront", "data_read_kb")["simulated"].as_f64().is_some_and(|kib| kib <= 1024.0));
    let page = fs::read_to_string(&report).expect("a report");
    assert_self_contained(&page);
    assert!(page.contains("flashfront") && page.contains("173630"), "{page}");
    let names = fs::read_dir(&pictures).expect("pictures").map(|it| it.expect("an entry").path());
    // With the feature `png` there is another file beside each.
    let names: Vec<_> = names.filter(|name| name.extension().is_some_and(|it| it == "svg")).collect();
    assert_eq!(names.len(), charts(&page), "{names:?}");
    for name in names {
        let picture = fs::read_to_string(&name).expect("a picture");
        assert!(picture.contains("<svg xmlns=") && picture.trim_end().ends_with("</svg>"), "{picture}");
        // A file of somebody else's is left alone.
        fs::write(&name, "mine").expect("written");
    }
    let again = ["sim", "compare", "--suite", "caches-2015", "--systems", "hdd", "--until", "1", "--report"];
    let mut again_into = flashfront();
    again_into.args(again).arg(&report).arg("--pictures").arg(&pictures);
    let refusal = refused_in_any_case(&mut again_into);
    assert!(refusal.contains("no picture of flashfront"), "{refusal}");
}

/// What it says on stderr; that it failed is made sure of.
fn refused_in_any_case(command: &mut std::process::Command) -> String {
    let output = command.output().expect("it starts");
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn sim_compare_refuses_what_it_does_not_know() {
    let place = Place::new();
    let mut table = Table::default();
    for (name, args, words) in [
        ("suite", ["--suite", "nope", "--until", "1"], ["nope", "caches-2015"]),
        ("system", ["--suite", "caches-2015", "--systems", "zfs"], ["zfs", "flashfront"]),
        ("task", ["--suite", "caches-2015", "--until", "22"], ["22", "8b"]),
    ] {
        let mut compare = flashfront();
        table.case(name, refused(&place, compare.args(["sim", "compare"]).args(args), &words));
    }
    table.assert();
}

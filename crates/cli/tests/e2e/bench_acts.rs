// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront bench` with jobs that are not fio's: git on folders, a trace on a file and on NBD;
//! its report, and its exit codes.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Place, flashfront, must, skip_without, tool};
use crate::sim_report::assert_self_contained;

fn bench(place: &Place, args: &[&str]) -> Command {
    let mut command = flashfront();
    command.current_dir(place.file(".")).arg("bench").args(args);
    command
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&must(command)).expect("JSON")
}

fn row<'a>(results: &'a Value, target: &str, job: &str) -> &'a Value {
    let rows = results["results"].as_array().expect("rows");
    let found = rows.iter().find(|row| row["target"] == target && row["job"] == job);
    found.unwrap_or_else(|| panic!("no {job} on {target} in {results}"))
}

#[test]
fn git_is_measured_on_two_folders_and_leaves_nothing_there() {
    if skip_without(&["git"]) {
        return;
    }
    let place = Place::new();
    for folder in ["a", "b"] {
        fs::create_dir(place.file(folder)).expect("a folder");
    }
    let targets = ["git", "--target", "a", "--target", "b", "--scale", "1/512", "--repeats", "2"];
    let results = json(bench(&place, &targets).args(["--json", "--report", "report.html", "--out", "out"]));
    for (target, job) in [("a", "clone"), ("a", "grep"), ("b", "clone"), ("b", "grep again")] {
        let row = row(&results, target, job);
        assert_eq!((&row["headline"], row["repeats"].as_u64()), (&Value::from("seconds"), Some(2)), "{row}");
        let runs = row["runs"].as_array().expect("runs");
        assert!(runs.iter().all(|run| run["measured"]["seconds"].as_f64() > Some(0.0)), "{row}");
        assert!(runs[0]["commands"].to_string().contains("\"git\""), "{row}");
    }
    assert!(row(&results, "b", "clone")["ratio"]["median"].as_f64() > Some(0.0));
    for folder in ["a", "b"] {
        assert_eq!(fs::read_dir(place.file(folder)).expect("a folder").count(), 0);
    }
    let page = fs::read_to_string(place.file("report.html")).expect("a report");
    assert_self_contained(&page);
    for part in ["Suite <b>git</b>", "aria-label=\"Seconds\"", "grep again", "How many times as fast as a"] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
}

/// Three reads, two writes, a discard and a FLUSH, up to byte 1,179,648.
const TRACE: &str = "fio version 3 iolog\n0 a add\n0 a open\n10 a read 0 4096\n20 a write 8192 8192\n\
    30 a read 512 512\n40 a sync 0 0\n50 a trim 65536 4096\n60 a write 1048576 131072\n\
    20060 a read 4096 4096\n70000 a close\n";

fn with_trace(bytes: u64) -> Place {
    let place = Place::new();
    fs::write(place.file("trace"), TRACE).expect("written");
    let target = fs::File::create(place.file("target")).expect("a file");
    target.set_len(bytes).expect("a size");
    place
}

fn requests(row: &Value) -> [Option<u64>; 4] {
    ["read", "write", "trim", "sync"].map(|it| row["directions"][it]["requests"].as_u64())
}

#[test]
fn a_trace_is_replayed_request_by_request() {
    let place = with_trace(4 << 20);
    let replay = ["replay", "trace", "--target", "target", "--json"];
    // Without the user's word nothing is written.
    let refused = bench(&place, &replay).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--destroy-data target"), "{refused:?}");
    let is_empty = |path: &Path| fs::read(path).expect("the file").iter().all(|byte| *byte == 0);
    assert!(is_empty(&place.file("target")));
    for more in [&["--out", "fast"][..], &["--timed", "--out", "timed"]] {
        let results = json(bench(&place, &replay).args(["--destroy-data", "target"]).args(more));
        let row = row(&results, "target", "trace");
        assert_eq!(requests(row), [Some(3), Some(2), Some(1), Some(1)], "{more:?}: {row}");
        assert_eq!(row["directions"]["write"]["bytes"].as_u64(), Some(8192 + 131_072));
        assert_eq!(row["others"]["widened_requests"].as_f64(), Some(1.0));
    }
    let target = fs::read(place.file("target")).expect("the file");
    let blocks: Vec<usize> = (0..1024).filter(|nth| target[nth * 4096..][..4096].iter().any(|it| *it != 0)).collect();
    assert_eq!(blocks, [&[2, 3][..], &(256..288).collect::<Vec<_>>()].concat(), "where the trace wrote");
}

#[test]
fn a_trace_is_replayed_over_nbd() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let place = with_trace(4 << 20);
    let program = std::path::absolute(flashfront().get_program()).expect("a path");
    // nbdkit serves while the command runs, and ends with it.
    let script = format!(
        "'{}' bench replay trace --target \"n=$uri\" --destroy-data \"$uri\" --json --out out",
        program.display()
    );
    let mut nbdkit = tool("nbdkit");
    nbdkit.current_dir(place.file(".")).args(["-U", "-", "memory", "4M", "--run", &script]);
    let results: Value = serde_json::from_str(&must(&mut nbdkit)).expect("JSON");
    let row = row(&results, "n", "trace");
    assert_eq!(requests(row), [Some(3), Some(2), Some(1), Some(1)], "{row}");
}

#[test]
fn a_bench_ends_with_the_exit_code_of_its_condition() {
    let place = with_trace(1 << 20);
    let code = |trace: &str, more: &[&str], condition: &str| {
        let mut command = bench(&place, &["replay", trace, "--target", "target", "--destroy-data", "target"]);
        let output = command.args(more).args(["--assert", condition]).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (holds, told) = code("trace", &["--wrap", "--out", "a"], "iops(read) > 0 and p99_us(trace) < 60e6");
    assert_eq!(holds, Some(0), "{told}");
    assert!(told.contains("assert: holds"), "{told}");
    let (fails, told) = code("trace", &["--wrap", "--out", "b"], "not seconds(trace) < 600");
    assert_eq!(fails, Some(1), "{told}");
    // The trace is larger than the target: nobody can say how fast it is there.
    let (unmeasured, told) = code("trace", &["--out", "c"], "iops(read) > 0");
    assert_eq!(unmeasured, Some(125), "{told}");
    let (wrong, told) = code("trace", &["--out", "d"], "iops(read, targte) > 0");
    assert_eq!(wrong, Some(2), "{told}");
    assert!(told.contains("Did you mean `target`?"), "{told}");
    assert!(!place.file("d").exists(), "nothing ran");
    let (no_trace, told) = code("nowhere", &["--out", "e"], "iops(read) > 0");
    assert_eq!(no_trace, Some(125), "{told}");
}

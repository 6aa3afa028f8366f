// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim run` as scripts and people meet it: scenarios of a second or two.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Place, flashfront, must, output, show, tool};
use crate::refusal::{Table, refused};
use crate::sim_report::{assert_self_contained, charts};

/// 16 MiB of random writes and reads of them, beside the disk; phases with names that CSV and HTML
/// have to quote.
const TINY: &str = r#"
summary = "a <tiny> one"
origin = "wd-re-4tb"
cache = "samsung-850-pro"
interval = "100ms"
beside = ["origin"]

[engine]
dirty-limit = "64MiB"

[[phase]]
name = "write, <b>"
beside = true
job = [{ name = "writer", pattern = "random", reads = 0, block = "4KiB", depth = 8, span = "1GiB", total = "16MiB", writes-per-flush = 64 }]

[[phase]]
name = "read"
idle-before = "1s"
job = [{ pattern = "random", reads = 100, block = "4KiB", depth = 8, span = "16MiB", time = "500ms" }]

[[target]]
name = "of the disk"
measure = "rate"
phase = "write, <b>"
by = "origin"
at-least = 1.5

[[target]]
name = "dirty"
measure = "dirty"
at-most = 1.0
"#;

fn scenario(place: &Place, name: &str, text: &str) -> PathBuf {
    let path = place.file(name);
    fs::write(&path, text).expect("a file can be made here");
    path
}

fn run(scenario: &Path) -> Command {
    let mut run = flashfront();
    run.args(["sim", "run"]).arg(scenario);
    run
}

#[test]
fn sim_run_gives_scripts_targets_and_what_happened_over_time() {
    let place = Place::new();
    let tiny = scenario(&place, "tiny.toml", TINY);
    let text = must(run(&tiny).arg("--json"));
    let line: Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!(line["scenario"], "tiny");
    let targets = line["targets"].as_array().expect("a list");
    let names: Vec<_> = targets.iter().map(|it| (it["name"].as_str(), it["target"].as_str())).collect();
    assert_eq!(names, [(Some("of the disk"), Some(">= 1.5")), (Some("dirty"), Some("<= 1"))]);
    assert!(targets.iter().all(|it| it["holds"] == true && it["measured"].is_number()), "{targets:?}");

    let systems = line["systems"].as_array().expect("a list");
    let phases = |nth: usize| systems[nth]["phases"].as_array().expect("a list");
    assert_eq!((&systems[0]["system"], phases(0).len()), (&Value::from("flashfront"), 2));
    assert_eq!((&systems[1]["system"], phases(1).len()), (&Value::from("origin"), 1), "it runs what is to be compared");
    for phase in [&phases(0)[0], &phases(1)[0]] {
        let of = |key: &str| phase["series"].as_array().expect("a list").iter().filter_map(|it| it[key].as_u64()).sum();
        let moved: u64 = of("write_bytes");
        assert_eq!(moved, 16 << 20, "every answer is in one interval");
        let to_origin: u64 = of("origin_write_bytes");
        assert_eq!(Some(to_origin), phase["origin_write_bytes"].as_u64(), "and so is every write of the device");
    }
    // But for the commit that is still open.
    assert!(phases(0)[0]["cache_write_bytes"].as_u64() >= Some(15 << 20));
    assert_eq!(must(run(&tiny).arg("--json")), text, "virtual time knows no chance");
}

#[test]
fn sim_run_writes_csv_and_a_report() {
    let place = Place::new();
    let (tiny, report) = (scenario(&place, "tiny.toml", TINY), place.file("out.html"));
    let csv = must(run(&tiny).args(["--csv", "--report"]).arg(&report));
    let (head, rows) = csv.split_once('\n').expect("a head");
    for row in rows.lines() {
        let rest = ["flashfront,\"write, <b>\",", "origin,\"write, <b>\",", "flashfront,read,"];
        let rest = rest.iter().find_map(|begin| row.strip_prefix(begin));
        let rest = rest.unwrap_or_else(|| panic!("neither system nor phase: {row}"));
        assert_eq!(rest.split(',').count() + 2, head.split(',').count(), "{row}");
    }
    // 500 ms in steps of 100 ms, and what was in flight then.
    assert!((5..=6).contains(&rows.lines().filter(|row| row.starts_with("flashfront,read,")).count()), "{csv}");

    let page = fs::read_to_string(&report).expect("the report is there");
    assert_self_contained(&page);
    for word in
        ["Scenario tiny", "a &lt;tiny&gt; one", "write, &lt;b&gt;", "of the disk", "holds", "writer", "limit, 64.0 MiB"]
    {
        assert!(page.contains(word), "{word} is missing");
    }
    // MB/s and what is dirty, in both phases: a second of rest is too short to destage all.
    assert_eq!(charts(&page), 4);
    assert!(page.contains("stroke-dasharray"), "the origin is told from ours without colour too");
}

#[test]
fn a_scenario_may_have_a_budget_of_flash_writes() {
    let place = Place::new();
    // Reads of what is not in the cache yet.
    let cold = TINY.replace("span = \"16MiB\", time", "offset = \"2GiB\", span = \"1GiB\", time");
    assert_ne!(cold, TINY);
    let written = |name: &str, text: &str| {
        let text = must(run(&scenario(&place, name, text)).arg("--json"));
        let line: Value = serde_json::from_str(&text).expect("one JSON object");
        line["systems"][0]["phases"][1]["cache_write_bytes"].as_u64().expect("a number")
    };
    let free = written("free.toml", &cold);
    let limited =
        written("limited.toml", &cold.replace("[engine]", "[engine]\nflash-writes-per-day = \"0.0001 DWPD\""));
    assert!(limited * 4 < free, "{limited} of {free}");
}

#[test]
fn a_missed_target_is_told_and_a_failure() {
    let place = Place::new();
    let report = place.file("out.html");
    let missed = scenario(&place, "missed.toml", &TINY.replace("at-least = 1.5", "at-least = 1e6"));
    let output = output(run(&missed).arg("--report").arg(&report));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(stdout.contains("MISSED  of the disk") && stdout.contains("holds   dirty"), "{}", show(&output));
    assert!(fs::read_to_string(&report).is_ok_and(|page| page.contains("MISSED")), "all the more it is reported");
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused_with_file_and_key() {
    let place = Place::new();
    let mut table = Table::default();
    for (name, old, new, words) in [
        ("an unknown key", "summary", "colour = 1\nsummary", &["unknown field", "colour"][..]),
        ("an unknown key of a job", "depth = 8, span = \"1GiB\"", "dept = 8, span = \"1GiB\"", &["dept"]),
        ("an unknown device", "wd-re-4tb", "floppy", &["origin", "floppy", "wd-re-4tb"]),
        ("an unknown cache device", "samsung-850-pro", "floppy", &["cache", "floppy"]),
        ("a key that is missing", "origin = \"wd-re-4tb\"", "", &["missing field", "origin"]),
        ("a phase without jobs", "job = [{ pattern", "bound = [{ pattern", &["phase `read`", "[[phase.job]]"]),
        (
            "a span outside of the origin",
            "span = \"16MiB\"",
            "span = \"16TiB\"",
            &["phase `read`", "job1", "span = 16"],
        ),
        ("an endless job", "time = \"500ms\"", "seed = 2", &["phase `read`", "never ends", "total", "time"]),
        ("a job of no time", "time = \"500ms\"", "time = \"0s\"", &["phase `read`", "never ends"]),
        ("a job of no bytes", "total = \"16MiB\"", "total = \"0B\"", &["writer", "never ends"]),
        ("no requests in flight", "depth = 8", "depth = 0", &["writer", "depth = 0", "65536"]),
        ("too many sequences", "depth = 8", "streams = 65537", &["writer", "streams = 65537", "65536"]),
        ("bursts without a rate", "depth = 8", "on = \"1s\"", &["writer", "`on` and `off`"]),
        ("bursts without a pause", "depth = 8", "rate = 9, on = \"1s\"", &["writer", "`on` and `off`"]),
        ("a limit above what can be kept", "\"64MiB\"", "\"100%\"", &["dirty-limit", "100%", "87%"]),
        ("a limit below one request", "\"64MiB\"", "\"8KiB\"", &["dirty-limit", "8 KiB", "1028 KiB"]),
        ("a bound that is no number", "at-least = 1.5", "at-least = nan", &["of the disk", "no bound"]),
        ("a target of no phase", "phase = \"write, <b>\"", "phase = \"none\"", &["of the disk", "phase = `none`"]),
        ("a target without a bound", "at-most = 1.0", "", &["target `dirty`", "at-least", "at-most"]),
        ("two phases of one name", "name = \"read\"", "name = \"write, <b>\"", &["phase `write, <b>`", "twice"]),
        (
            "a target by what does not run",
            "by = \"origin\"",
            "by = \"cache\"",
            &["of the disk", "by = `cache`", "does not run"],
        ),
        ("no interval", "interval = \"100ms\"", "interval = \"0s\"", &["interval"]),
        ("no budget", "[engine]", "[engine]\nflash-writes-per-day = \"a lot\"", &["a lot", "DWPD"]),
        ("an unknown policy", "[engine]", "[engine]\npolicy = \"best\"", &["policy", "best"]),
    ] {
        assert!(TINY.contains(old), "{name}");
        let path = scenario(&place, "bad.toml", &TINY.replacen(old, new, 1));
        let words: Vec<&str> = words.iter().copied().chain(["bad.toml"]).collect();
        table.case(name, refused(&place, &mut run(&path), &words));
        assert_eq!(output(&mut run(&path)).status.code(), Some(2), "{name}: a wrong value in a file");
    }
    table.case("no file", refused(&place, &mut run(&place.file("none.toml")), &["none.toml", "no such file"]));
    table.assert();
}

#[test]
fn ctrl_c_ends_a_run_and_leaves_no_report() {
    let place = Place::new();
    let (pipe, report) = (place.file("endless.toml"), place.file("out.html"));
    must(tool("mkfifo").arg(&pipe));
    let mut command = run(&pipe);
    let child = command.arg("--report").arg(&report).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Whoever runs this test in the background of a script has Ctrl-C ignored: SIGTERM never is.
    let child = child.spawn().expect("the program can be started");
    // It takes signals over before it reads its scenario; years of it.
    let text = TINY.replace("500ms", "10000h");
    let opened = fs::OpenOptions::new().write(true).open(&pipe);
    opened.and_then(|mut pipe| pipe.write_all(text.as_bytes())).expect("it reads the pipe");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("it runs");
    let output = child.wait_with_output().expect("it can be waited for");
    assert_eq!(output.status.code(), Some(143), "{}", show(&output));
    assert!(show(&output).contains("interrupted") && output.stdout.is_empty(), "{}", show(&output));
    assert!(!report.exists());
}

/// Sequential reads, then a mix by two clones; on their own files.
const JOB: &str = "[global]
ioengine=libaio
direct=1
gtod_reduce=1
size=16m
[scan]
rw=read
bs=128k
[mix]
stonewall
rw=randrw
rwmixread=67
bs=8k
iodepth=8
numjobs=2
";

fn run_job(job: &Path) -> Command {
    let mut run = flashfront();
    run.args(["sim", "run", "--job"]).arg(job);
    run
}

#[test]
fn sim_run_takes_a_job_of_fio_and_runs_it_beside_others() {
    let place = Place::new();
    let (job, report) = (scenario(&place, "two.fio", JOB), place.file("out.html"));
    let output = output(run_job(&job).args(["--systems", "hdd,ssd,gflash", "--json", "--report"]).arg(&report));
    assert!(output.status.success(), "{}", show(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("without effect") && stderr.contains("gtod_reduce"), "{stderr}");
    let line: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&line["scenario"], &line["targets"]), (&Value::from("two"), &Value::Array(Vec::new())));
    let systems = line["systems"].as_array().expect("a list");
    let names: Vec<_> = systems.iter().filter_map(|it| it["system"].as_str()).collect();
    assert_eq!(names, ["flashfront", "hdd", "ssd", "gflash"]);
    for system in systems {
        let phases = system["phases"].as_array().expect("a list");
        let names: Vec<_> = phases.iter().filter_map(|it| it["phase"].as_str()).collect();
        assert_eq!(names, ["scan", "mix"], "stonewall parts them");
        let answered = |phase: &Value, key: &str| -> u64 {
            phase["series"].as_array().expect("a list").iter().filter_map(|it| it[key].as_u64()).sum()
        };
        assert_eq!((answered(&phases[0], "read_bytes"), answered(&phases[0], "write_bytes")), (16 << 20, 0));
        let (read, written) = (answered(&phases[1], "read_bytes"), answered(&phases[1], "write_bytes"));
        assert_eq!(read + written, 32 << 20);
        assert!((0.6..0.74).contains(&(read as f64 / f64::from(32 << 20))), "{read}");
        assert_eq!(phases[1]["jobs"].as_array().map(Vec::len), Some(1), "clones are told as one");
    }
    let page = fs::read_to_string(&report).expect("the report is there");
    assert_self_contained(&page);
    for word in ["Job two", "wd-re-4tb", "samsung-850-pro", "gflash", "scan", "mix"] {
        assert!(page.contains(word), "{word} is missing");
    }
}

#[test]
fn a_job_that_can_not_be_run_is_refused_with_file_line_and_option() {
    let place = Place::new();
    let mut table = Table::default();
    for (name, old, new, words) in [
        (
            "an unknown option",
            "gtod_reduce=1",
            "gtod_reduse=1",
            &["line 4", "gtod_reduse", "docs/laboratory/scenarios.md"][..],
        ),
        ("lengths that are none", "bs=128k", "bssplit=4k/60:8k/50", &["line 8", "bssplit", "4k/60:64k/40"]),
        ("a size that is none", "size=16m", "size=many", &["line 5", "`size`", "`many`"]),
        ("a job that doesn't fit", "size=16m", "size=16t", &["line 6", "job `scan`", "behind the volume"]),
    ] {
        assert!(JOB.contains(old), "{name}");
        let path = scenario(&place, "bad.fio", &JOB.replacen(old, new, 1));
        let words: Vec<&str> = words.iter().copied().chain(["bad.fio"]).collect();
        table.case(name, refused(&place, &mut run_job(&path), &words));
    }
    let job = scenario(&place, "good.fio", JOB);
    for (flag, value, words) in [
        ("--systems", "hdd,zfs", &["--systems", "`zfs`", "gflash"][..]),
        ("--origin", "floppy", &["--origin", "floppy", "wd-re-4tb"]),
        ("--cache", "floppy", &["--cache", "floppy"]),
        ("--cache-size", "255MiB", &["--cache-size", "255 MiB", "256 MiB", "238 GiB"]),
        ("--origin-size", "5TB", &["--origin-size", "wd-re-4tb"]),
        ("--cache-size", "300GB", &["--cache-size", "238 GiB"]),
    ] {
        table.case(flag, refused(&place, run_job(&job).args([flag, value]), words));
    }
    table.assert();
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim replay` as scripts and people meet it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Place, flashfront, must, output, show, tool};
use crate::refusal::refused;

/// 40 blocks, each read four times in a loop, and a line that is none.
fn loop_of_blocks(place: &Place) -> PathBuf {
    let path = place.file("loop.trace");
    let lines: String = (0..160).map(|nth| format!("{}\n", nth % 40)).collect();
    fs::write(&path, lines + "fourty\n").expect("a file can be made here");
    path
}

#[test]
fn sim_replay_gives_scripts_one_object_for_each_policy() {
    let place = Place::new();
    let trace = loop_of_blocks(&place);
    let mut replay = flashfront();
    replay.args(["sim", "replay"]).arg(&trace);
    let text = must(replay.args(["--format", "blocks", "--cache-blocks", "20", "--policy", "all", "--json"]));
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let names: Vec<&str> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    for name in ["flashfront", "lru", "fifo", "clock", "2q", "arc", "lirs", "s3fifo", "sieve", "wtinylfu", "belady"] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    for row in &rows {
        for key in [
            "requests",
            "accesses",
            "unique_blocks",
            "cache_blocks",
            "hit_ratio",
            "read_hit_ratio",
            "flash_blocks_written",
            "fill_blocks",
            "reinserted_blocks",
            "origin_read_blocks",
            "origin_reads",
            "origin_write_blocks",
            "bad_lines",
        ] {
            assert!(row[key].is_number(), "{key} is missing in {row}");
        }
        assert_eq!((&row["accesses"], &row["unique_blocks"]), (&160.into(), &40.into()));
        assert_eq!(row["bad_lines"], 1);
        assert_eq!((&row["damaged"], &row["page_cache_blocks"]), (&false.into(), &0.into()));
    }
    let hits = |name: &str| rows[names.iter().position(|it| *it == name).expect("is there")]["hit_ratio"].as_f64();
    assert_eq!(hits("lru"), Some(0.0), "a loop twice the cache");
    assert!(hits("belady") > Some(0.3));
}

#[test]
fn sim_replay_gives_people_a_table_and_says_what_it_left_out() {
    let place = Place::new();
    let trace = loop_of_blocks(&place);
    let mut replay = flashfront();
    let output = output(replay.args(["sim", "replay", "--format", "blocks"]).arg(&trace));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("footprint 160 KiB"), "{}", show(&output));
    assert!(stderr.contains("1 bad line was left out") && stderr.contains("161"), "{}", show(&output));
}

#[test]
fn sim_replay_refuses_what_it_can_t_replay() {
    let place = Place::new();
    let trace = loop_of_blocks(&place);
    let noise = place.file("noise");
    fs::write(&noise, [0x93; 4096]).expect("a file can be made here");
    let empty = place.sparse("empty", 0);
    let replay = |args: &[&str], path: &PathBuf| {
        let mut replay = flashfront();
        replay.args(["sim", "replay"]).args(args).arg(path);
        replay
    };
    for (args, path, words) in [
        (&[][..], &noise, &["noise", "--format"][..]),
        (&["--format", "blocks", "--strict"], &trace, &["loop.trace", "161", "without --strict"]),
        (&["--format", "blocks"], &place.file("none"), &["none", "can't be opened"]),
        (&[], &PathBuf::from("-"), &["say /dev/stdin"]),
        (&[], &empty, &["empty: the trace is empty"]),
        (&["--cache-fraction", "-0.1"], &trace, &["-0.1", "more than 0 and at most 1"]),
        (&["--cache-blocks", "-1"], &trace, &["invalid value '-1' for '--cache-blocks"]),
        (&["--flash-writes-per-day", "1 DWPD", "--policy", "lru"], &trace, &["is for flashfront", "--policy"]),
        (&["--flash-writes-per-day", "a lot"], &trace, &["a lot", "DWPD"]),
        (&["--flash-writes-per-day", "-1"], &trace, &["`-1` is no budget", "DWPD"]),
        (&["--page-cache-blocks", "-1"], &trace, &["invalid value '-1' for '--page-cache-blocks"]),
        (&["--format", "blocks", "--report", "-"], &trace, &["--report -", "not to stdout"]),
        (&["--format", "blocks"], &place.dir().to_owned(), &["can't read the trace", "directory"]),
        (&["--format", "blocks"], &PathBuf::from("/dev/null"), &["not a regular file", "--cache-blocks"]),
    ] {
        refused(&place, &mut replay(args, path), words).unwrap_or_else(|why| panic!("{args:?}: {why}"));
    }
}

/// Runs which read a trace differently differ in what they say of it.
#[test]
fn sim_replay_says_how_the_trace_was_read() {
    let place = Place::new();
    let trace = place.file("doubled.csv");
    // Each request twice within a microsecond, on a disk that begins at sector 63.
    let lines =
        (0..64).map(|nth| format!("{},h,0,Read,{},4096,1\n", nth / 2 * 100_000_000_u64, (63 + nth % 16 / 2 * 8) * 512));
    fs::write(&trace, lines.collect::<String>()).expect("a file can be made here");
    let replay = |args: &[&str]| {
        let mut replay = flashfront();
        replay.args(["sim", "replay", "--cache-blocks", "4"]).arg(&trace).args(args);
        replay
    };
    let row =
        |args: &[&str]| -> Value { serde_json::from_str(&must(replay(args).arg("--json"))).expect("a line of JSON") };
    let (plain, other) = (row(&[]), row(&["--drop-echoes", "1", "--shift-grid", "--page-cache-blocks", "8"]));
    assert_eq!(
        (&plain["requests"], &plain["echoes_dropped"], &plain["drop_echoes_ms"]),
        (&64.into(), &0.into(), &Value::Null)
    );
    assert_eq!(
        (&other["requests"], &other["echoes_dropped"], &other["drop_echoes_ms"]),
        (&32.into(), &32.into(), &1.into())
    );
    assert_eq!((&plain["grid_phases"], &other["grid_phases"]), (&serde_json::json!([0]), &serde_json::json!([7])));
    assert_eq!((&other["page_cache_blocks"], &other["page_cache_hits"]), (&8.into(), &24.into()));
    let csv = must(&mut replay(&["--drop-echoes", "1", "--csv"]));
    let columns: Vec<_> = csv.lines().map(|line| line.split(',').collect::<Vec<_>>()).collect();
    assert_eq!(columns[0].len(), columns[1].len(), "{csv}");
    let dropped = columns[0].iter().position(|it| *it == "echoes_dropped").map(|at| columns[1][at]);
    assert_eq!(dropped, Some("32"), "{csv}");
    let held = row(&["--occupancy"]);
    assert_eq!((&held["live_blocks"], &plain["live_blocks"]), (&4.into(), &Value::Null), "{held}");
    let csv = must(&mut replay(&["--occupancy", "--csv"]));
    let columns: Vec<_> = csv.lines().map(|line| line.split(',').collect::<Vec<_>>()).collect();
    assert!(columns[0].contains(&"live_unread_blocks") && columns[0].len() == columns[1].len(), "{csv}");
    let told = output(&mut replay(&["--drop-echoes", "1", "--shift-grid", "--policy", "flashfront_disk,lru"]));
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("32 echoes") && told.contains("sector 7 modulo 8"), "{told}");
    let (_, table) = told.split_once('\n').expect("a table below the first line");
    for part in table.split("\n\n") {
        let ends: Vec<_> = part.lines().map(str::len).collect();
        assert!(ends.iter().all(|end| *end == ends[0] && *end <= 80), "columns are below each other: {told}");
    }
}

/// Nothing that comes through the pipe is a request, so that no batch ever fills.
#[test]
fn sim_replay_is_interrupted_also_where_there_is_no_request() {
    let mut replay = flashfront();
    replay.args(["sim", "replay", "/dev/stdin", "--format", "blkparse", "--cache-blocks", "4"]);
    replay.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = replay.spawn().expect("the program can be started");
    let mut pipe = child.stdin.take().expect("it is a pipe");
    let lines = "8,0 0 1 0.000000001 100 D R 8 + 8 [x]\n".repeat(1 << 14);
    // It takes signals over before it reads.
    pipe.write_all(lines.as_bytes()).expect("it reads its trace");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    // Two gigabytes more if it heard nothing; then it ends for another reason.
    let _ = (0..1 << 12).try_for_each(|_| pipe.write_all(lines.as_bytes()));
    drop(pipe);
    let output = child.wait_with_output().expect("it can be waited for");
    assert_eq!(output.status.code(), Some(143), "{}", show(&output));
    assert!(show(&output).contains("interrupted"), "{}", show(&output));
}

/// Traces one behind the other, each of which begins at the same time. The requests of the second
/// are no echo of the first, however many times it goes back.
#[test]
fn sim_replay_takes_joined_traces_one_behind_the_other() {
    let place = Place::new();
    let trace = place.file("joined.csv");
    let hour = (0..60).map(|nth| format!("{},h,0,Read,{},4096,1\n", nth * 600_000_000_u64, nth * 4096));
    fs::write(&trace, hour.collect::<String>().repeat(4)).expect("a file can be made here");
    let replay = |path: &PathBuf, args: &[&str]| {
        let mut replay = flashfront();
        replay.args(["sim", "replay", "--cache-blocks", "4", "--drop-echoes", "20"]).arg(path).args(args);
        output(&mut replay)
    };
    let (line, said) = (replay(&trace, &["--json"]), show(&replay(&trace, &[])));
    let line: Value = serde_json::from_slice(&line.stdout).expect("a line of JSON");
    assert_eq!((&line["requests"], &line["echoes_dropped"], &line["times_back"]), (&240.into(), &0.into(), &3.into()));
    assert!(said.contains("step back") && said.contains("3 times"), "{said}");
    let untimed = place.file("blocks");
    fs::write(&untimed, "1\n2\n1\n".repeat(9)).expect("a file can be made here");
    let said = show(&replay(&untimed, &["--format", "blocks"]));
    assert!(said.contains("no request has a time"), "{said}");
}

#[test]
fn sim_replay_says_what_it_guessed_and_what_is_damaged() {
    let place = Place::new();
    let guessed = place.file("arc.lis");
    fs::write(&guessed, "1 1 0 0\n100 1 0 0\n".repeat(9)).expect("a file can be made here");
    let replay = |path: &PathBuf, args: &[&str]| {
        let mut replay = flashfront();
        replay.args(["sim", "replay", "--cache-blocks", "4"]).arg(path).args(args);
        output(&mut replay)
    };
    let said = show(&replay(&guessed, &[]));
    assert!(said.contains("taken for arc-4k") && said.contains("arc, arc-4k look alike"), "{said}");
    assert!(!show(&replay(&guessed, &["--format", "arc-4k"])).contains("guess"));
    let said = show(&replay(&guessed, &["--action", "issue"]));
    assert!(said.contains("--action does nothing here"), "{said}");

    // Its checksum is wrong, and before that most of the lines are.
    let (lines, packed) = (place.file("lines"), place.file("lines.gz"));
    fs::write(&lines, "12\n".to_owned() + &"x1\n".repeat(20)).expect("a file can be made here");
    let mut bytes = Vec::new();
    bytes.extend(must_bytes(tool("gzip").arg("-c").arg(&lines)));
    let end = bytes.len();
    bytes[end - 8] ^= 1;
    fs::write(&packed, bytes).expect("a file can be made here");
    let found = replay(&packed, &["--format", "blocks", "--json"]);
    let said = show(&found);
    let row: Value = serde_json::from_slice(&found.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&row["damaged"], &row["bad_lines"]), (&true.into(), &21.into()));
    for words in ["cut or damaged", "get the file anew", "these figures tell nothing", "20 bad lines were left out"] {
        assert!(said.contains(words), "{words:?} is missing in {said}");
    }
}

fn must_bytes(command: &mut std::process::Command) -> Vec<u8> {
    let output = output(command);
    assert!(output.status.success(), "{}", show(&output));
    output.stdout
}

/// A second trace that never ends, and somebody who has seen enough.
#[test]
fn an_interrupted_replay_reports_what_it_has() {
    let place = Place::new();
    let (trace, pipe, report) = (loop_of_blocks(&place), place.file("endless"), place.file("out.html"));
    must(tool("mkfifo").arg(&pipe));
    let mut replay = flashfront();
    replay.args(["sim", "replay", "--format", "blocks", "--cache-blocks", "20", "--json", "--report"]).arg(&report);
    let child =
        replay.arg(&trace).arg(&pipe).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("flashfront can be started");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("the pipe was asked for"))
        .read_line(&mut line)
        .expect("a pipe can be read");
    assert!(line.contains("loop.trace"), "{line}");
    // Whoever runs this test in the background of a script has Ctrl-C ignored: SIGTERM never is.
    kill_process(Pid::from_child(&child), Signal::TERM).expect("our own child can be signalled");
    let endless = thread::spawn(move || {
        let mut pipe = File::options().write(true).open(pipe).expect("a pipe can be opened");
        // Until nobody reads it any more.
        while pipe.write_all(&b"7\n".repeat(1 << 15)).is_ok() {}
    });
    let ended = child.wait_with_output().expect("our own child can be waited for");
    endless.join().expect("it ends with its reader");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(143), "{said}");
    assert!(
        said.contains("endless: interrupted") && said.contains("the report has only the first 1 of 2 traces"),
        "{said}"
    );
    assert!(fs::read_to_string(&report).is_ok_and(|page| page.contains("loop.trace")), "the report is there");
}

/// Hits and origin reads at 64 sizes, of a file and of a made trace.
#[test]
fn sim_sizes_tells_hits_and_origin_reads_at_64_sizes() {
    let place = Place::new();
    let trace = place.file("random.blocks");
    // Blocks of a hundred in turn, and after each the first of all.
    let lines: String = (0..2000).map(|nth| format!("{}\n0\n", nth % 100)).collect();
    fs::write(&trace, lines).expect("a file can be made here");
    let sizes = |args: &[&str]| {
        let mut sizes = flashfront();
        sizes.args(["sim", "sizes", "--format", "blocks"]).arg(&trace).args(args);
        must(&mut sizes)
    };
    let lines = sizes(&["--json", "--policy", "lru"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines.len(), 64);
    let blocks: Vec<_> = lines.iter().map(|line| line["cache_blocks"].as_u64().expect("a size")).collect();
    assert!(blocks.is_sorted() && (blocks[0], blocks[63]) == (1, 100), "{blocks:?}");
    // An LRU of the whole loop misses each block once, of less all but the first.
    assert_eq!((&lines[63]["hits"], &lines[63]["origin_read_blocks"]), (&3900.into(), &100.into()));
    assert_eq!(lines[63]["origin_reads"], 100, "each request is of one block");
    assert_eq!(lines[60]["hits"], 2019, "{}", lines[60]);
    let told = sizes(&["--policy", "lru"]);
    assert!(told.lines().count() > 64 && told.contains("97.5 %"), "{told}");
    let mut unknown = flashfront();
    let said = show(&output(unknown.args(["sim", "sizes", "made:nothing"])));
    assert!(said.contains("nothing") && said.contains("made:workstation"), "{said}");
}

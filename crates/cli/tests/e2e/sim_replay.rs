// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim replay` as scripts and people meet it.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Place, flashfront, must, output, show};
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
            "origin_write_blocks",
            "bad_lines",
        ] {
            assert!(row[key].is_number(), "{key} is missing in {row}");
        }
        assert_eq!((&row["accesses"], &row["unique_blocks"]), (&160.into(), &40.into()));
        assert_eq!(row["bad_lines"], 1);
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
    assert!(stderr.contains("1 bad lines were left out") && stderr.contains("161"), "{}", show(&output));
}

#[test]
fn sim_replay_refuses_what_it_can_t_replay() {
    let place = Place::new();
    let trace = loop_of_blocks(&place);
    let noise = place.file("noise");
    fs::write(&noise, [0x93; 4096]).expect("a file can be made here");
    let replay = |args: &[&str], path: &PathBuf| {
        let mut replay = flashfront();
        replay.args(["sim", "replay"]).args(args).arg(path);
        replay
    };
    for (args, path, words) in [
        (&[][..], &noise, &["noise", "--format"][..]),
        (&["--format", "blocks", "--strict"], &trace, &["loop.trace", "161"]),
        (&["--format", "blocks"], &place.file("none"), &["none", "can't be opened"]),
        (&["--format", "blocks"], &place.dir().to_owned(), &["not a regular file"]),
    ] {
        refused(&place, &mut replay(args, path), words).unwrap_or_else(|why| panic!("{args:?}: {why}"));
    }
}

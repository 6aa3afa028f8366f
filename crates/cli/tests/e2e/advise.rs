// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront advise` as scripts and people meet it.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Place, flashfront, must, output, show};
use crate::refusal::refused;

/// 20,000 reads of 2,000 blocks that lie far apart, a hundred a second; and a line that is none.
fn hot_blocks(place: &Place) -> PathBuf {
    let mut lines = String::new();
    for nth in 0..20_000_u64 {
        let (seconds, sector) = (nth as f64 / 100.0, nth * 7919 % 2000 * 8192);
        writeln!(lines, "{seconds:.2} ; {sector} ; 8 ; R ; 0.0 ; 0.0").expect("a string takes all");
    }
    let path = place.file("hot.load");
    fs::write(&path, lines + "no request\n").expect("a file can be made here");
    path
}

#[test]
fn advise_gives_scripts_one_object() {
    let place = Place::new();
    let trace = hot_blocks(&place);
    let text = must(flashfront().arg("advise").arg(&trace).args(["--cache-size", "128MiB,64MiB,64MiB", "--json"]));
    let found: Value = serde_json::from_str(&text).expect("one object");
    assert_eq!((&found["requests"], &found["reads"], &found["writes"]), (&20_000.into(), &20_000.into(), &0.into()));
    assert_eq!((&found["bad_lines"], &found["touched_bytes"]), (&1.into(), &(2000 * 4096).into()));
    let trials = found["trials"].as_array().expect("a list");
    let sizes: Vec<_> = trials.iter().map(|it| it["cache_bytes"].as_u64()).collect();
    assert_eq!(sizes, [None, Some(64 << 20), Some(128 << 20)], "each once, in order, the disk alone first");
    for trial in trials {
        for key in ["mean_ns", "flash_write_bytes", "origin_ios", "late_ns", "took_ns"] {
            assert!(trial[key].is_u64(), "{key} is missing in {trial}");
        }
        assert_eq!(trial["reads"]["requests"], 10_000, "the second half");
    }
    let advice = &found["advice"];
    assert_eq!((&advice["helps"], &advice["cache_bytes"]), (&true.into(), &(64 << 20).into()), "{advice}");
    assert_eq!(advice["mode"], "writethrough");
    // 8 MiB that are read over and over need no SSD; whoever has no RAM to give needs one.
    assert_eq!((&advice["needs_cache"], &advice["because"]["kind"]), (&false.into(), &"fits_ram".into()), "{advice}");
    assert!(advice["because"]["text"].as_str().is_some_and(|text| text.starts_with("No, because ")), "{advice}");
    assert!(found["ram"]["around"]["mean_ns"].is_u64() && found["probe"].is_null(), "{found}");
    assert_eq!(found["converged"], true, "{}", found["growth"]);
    let curve = found["growth"]["touched_bytes"].as_array().expect("a curve");
    assert_eq!((curve.len(), &curve[31]), (32, &(2000 * 4096).into()));
}

#[test]
fn advise_probes_a_device_and_only_reads_it() {
    let place = Place::new();
    let (trace, disk) = (hot_blocks(&place), place.file("disk"));
    let content: Vec<u8> = (0..64_u32 << 20).map(|at| (at / 4096) as u8).collect();
    fs::write(&disk, &content).expect("a file can be made here");
    let about = || fs::metadata(&disk).and_then(|about| about.modified()).expect("it is there");
    let before = about();
    let mut advise = flashfront();
    advise.arg("advise").arg(&trace).arg("--origin").arg(&disk).args(["--probe-for", "500ms", "--json"]);
    let output = output(&mut advise);
    if String::from_utf8_lossy(&output.stderr).contains("O_DIRECT") {
        eprintln!("skipped: no O_DIRECT here");
        return;
    }
    assert!(output.status.success(), "{}", show(&output));
    let found: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let probe = &found["probe"];
    assert!(probe["scale"].as_f64().is_some_and(|scale| scale > 0.0), "{probe}");
    assert_eq!((&probe["model"], &probe["device_bytes"]), (&found["origin"], &(64 << 20).into()), "{probe}");
    assert_eq!(probe["reads"].as_array().map(Vec::len), Some(7), "{probe}");
    assert_eq!(about(), before, "nothing was written to it");
    assert!(fs::read(&disk).expect("it is there") == content, "not a byte is another");
}

#[test]
fn advise_tells_people_what_to_buy_and_draws_it() {
    let place = Place::new();
    let (trace, report) = (hot_blocks(&place), place.file("report.html"));
    let mut advise = flashfront();
    advise.arg("advise").arg(&trace).args(["--ram", "0", "--with", "bcache,lvmcache"]).arg("--report").arg(&report);
    let output = output(&mut advise);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for words in [
        "20,000 requests in 3 min 19 s",
        "disk alone",
        "A cache helps: with 64.0 MiB",
        "smallest that was tried",
        "Mode: writethrough",
        "dm-cache-smq",
        "Recording: long enough",
    ] {
        assert!(output.status.success() && stdout.contains(words), "{words}: {}", show(&output));
    }
    assert!(stderr.contains("1 bad line was left out"), "{}", show(&output));
    let page = fs::read_to_string(&report).expect("a report was written");
    assert!(
        page.contains("<svg")
            && page.contains("A cache helps")
            && page.contains("What the trace touches")
            && !page.contains("<script"),
        "{page}"
    );
}

#[test]
fn advise_refuses_what_it_can_t_answer() {
    let place = Place::new();
    let trace = hot_blocks(&place);
    let far = place.file("far.load");
    fs::write(&far, "0.0 ; 9000000000000 ; 8 ; R ; 0.0 ; 0.0\n").expect("a file can be made here");
    for (args, path, words) in [
        (&[][..], &place.file("none"), &["none", "can't be opened"][..]),
        (&[], &far, &["far.load", "none of the known formats", "--format"]),
        (&[], &PathBuf::from("/dev/null"), &["not a regular file"]),
        (&["--strict"], &trace, &["hot.load", "without --strict"]),
        (&["--cache-size", "1MiB"], &trace, &["--cache-size", "1.00 MiB", "64.0 MiB"]),
        (&["--cache-size", "1TiB"], &trace, &["--cache-size", "samsung-850-pro"]),
        (&["--origin", "a-disk"], &trace, &["a-disk", "wd-re-4tb"]),
        (&["--origin", "/dev/null"], &trace, &["/dev/null", "neither a block device"]),
        (&["--origin", "/nowhere/disk"], &trace, &["/nowhere/disk", "can't be opened"]),
        (&["--cache", "./none", "--probe-for", "1ms"], &trace, &["--probe-for", "500ms"]),
        (&["--for", "1h"], &trace, &["no block device", "--for"]),
        (&["--out", "a.trace"], &trace, &["--out", "--fleet"]),
        (&["--ram", "1MiB"], &trace, &["--ram", "64.0 MiB"]),
        (&["--with", "zfs"], &trace, &["zfs", "bcache"]),
        (&["--report", "-"], &trace, &["--report -", "not to stdout"]),
    ] {
        refused(&place, flashfront().arg("advise").args(args).arg(path), words)
            .unwrap_or_else(|why| panic!("{args:?}: {why}"));
    }
}

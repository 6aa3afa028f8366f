// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront bench` with the real fio, on files, an NBD export, a block device, and a volume of
//! its own.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::block_device::{BlockDevice, skip_without_block_devices};
use crate::harness::{MIB, Place, Volume, flashfront, must, output, show, skip_without, tool};

/// The suite `quick` with 4 MiB, a moment for each job, and its results in a folder of that name.
fn quick(place: &Place, out: &str) -> Command {
    let mut bench = flashfront();
    bench.args(["bench", "quick", "--scale", "1/1024", "--runtime", "250ms", "--out"]).arg(place.file(out));
    bench.current_dir(place.dir());
    bench
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn rows(results: &Value) -> &Vec<Value> {
    results["results"].as_array().expect("a list")
}

#[track_caller]
fn refused(bench: &mut Command, words: &[&str]) {
    let output = output(bench);
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    for word in words {
        assert!(stderr.contains(word), "{word} is missing in: {stderr}");
    }
}

/// Ends the bench when it has told of a run.
fn ended_after(mut child: Child, run: &str) -> Output {
    let mut lines = BufReader::new(child.stderr.take().expect("stderr is a pipe")).lines();
    let mut said = String::new();
    for line in &mut lines {
        let line = line.expect("programs speak UTF-8");
        said += &(line.clone() + "\n");
        if line.starts_with(run) {
            // SIGTERM, which no script's background ignores.
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process number")).expect("not zero");
            kill_process(pid, Signal::TERM).expect("our own child can be signalled");
            break;
        }
    }
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let mut stdout = Vec::new();
    child.stdout.take().expect("stdout is a pipe").read_to_end(&mut stdout).expect("a pipe can be read");
    let status = child.wait().expect("our own child can be waited for");
    Output { status, stdout, stderr: (said + &rest.join("\n")).into_bytes() }
}

#[test]
fn bench_takes_targets_in_turns_and_goes_on_after_an_interruption() {
    if skip_without(&["fio"]) {
        return;
    }
    let place = Place::new();
    let mut bench = quick(&place, "r");
    bench.args(["--repeats", "2", "--job", "read", "--job", "random read", "--json"]);
    bench.args(["--target", "file=new.img", "--target", "fresh"]);
    let child = bench.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let output = ended_after(child.expect("the program starts"), "turn 1  fresh  read ");
    assert_eq!(output.status.code(), Some(143), "{}", show(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("next        flashfront bench --resume"), "{stderr}");
    let first = json(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(first["complete"], false, "{first}");
    assert!((3..8).contains(&runs(&first).len()), "{first}");

    // What a power cut in the middle of a run would leave is no hindrance.
    std::fs::create_dir(place.file("r/run")).expect("the folder is ours");
    std::fs::write(place.file("r/run/log_iops.9.log"), "100, 999999999, 0, 0, 0\n").expect("the folder is ours");
    std::fs::write(place.file("r/fresh-origin.img"), "left").expect("the folder is ours");

    let second = json(&must(flashfront().args(["bench", "--json", "--resume"]).arg(place.file("r"))));
    assert_eq!(second["complete"], true);
    let all = runs(&second);
    assert_eq!(all.len(), 8, "two jobs, two targets, two repeats: {all:?}");
    for run in runs(&first) {
        assert!(all.contains(&run), "a finished run is kept as it was: {run}");
    }
    for row in rows(&second) {
        for key in ["iops", "bandwidth_kib_s", "p50_us", "p99_us"] {
            assert!(row[key].as_f64().is_some_and(|it| it > 0.0), "{key} of {row}");
        }
        assert_eq!((row["repeats"].as_u64(), row["ratio"].is_null()), (Some(2), row["target"] == "file"), "{row}");
    }
    assert!(second["environment"]["fio"].as_str().is_some_and(|it| it.starts_with("fio-")), "{second}");
    assert!(second["quiet"].is_boolean());
    // Nothing stays but the results.
    let mut left: Vec<_> = std::fs::read_dir(place.file("r")).expect("the folder is there").collect();
    left.sort_by_key(|entry| entry.as_ref().map(std::fs::DirEntry::file_name).ok());
    let left: Vec<String> = left.iter().flatten().map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!((left, place.file("new.img").exists()), (vec!["request.json".into(), "results.json".into()], false));
    // The file has more than is printed: rates over time, and times in bins.
    let saved = std::fs::read(place.file("r/results.json")).expect("it is there");
    let results: Value = serde_json::from_slice(&saved).expect("JSON");
    let measured = &rows(&results)[0]["runs"][0]["measured"];
    assert!(measured["directions"]["read"]["bins"].as_object().is_some_and(|it| !it.is_empty()), "{measured}");
    assert!(measured["series"].as_array().is_some_and(|it| !it.is_empty()), "{measured}");
    for run in runs(&results) {
        let points = run["measured"]["series"].as_array().expect("a list");
        let rates = points.iter().filter_map(|point| point["read_iops"].as_f64());
        assert!(rates.fold(0.0, f64::max) < 1e8, "a dead run's rates are nobody's: {points:?}");
    }
}

/// All runs, without what a later run changes.
fn runs(results: &Value) -> Vec<Value> {
    rows(results).iter().flat_map(|row| row["runs"].as_array().expect("a list").clone()).collect()
}

#[test]
fn bench_overwrites_only_what_is_named_in_full() {
    if skip_without(&["fio"]) {
        return;
    }
    let place = Place::new();
    let disk = place.sparse("disk.img", 8 * MIB);
    let before = place.hashes();
    let mut bench = quick(&place, "r");
    bench.args(["--job", "write", "--target"]).arg(&disk);
    refused(&mut bench, &["would overwrite", "--destroy-data", "disk.img"]);
    bench.args(["--destroy-data", "disk.img"]);
    refused_as_wrong(&mut bench, "--destroy-data disk.img names nothing that this bench uses");
    let mut without_time = flashfront();
    without_time.args(["bench", "git", "--runtime", "1s", "--target"]).arg(place.dir());
    refused_as_wrong(&mut without_time, "--runtime: the jobs of git end with their work");
    assert_eq!((place.hashes(), place.file("r").exists()), (before.clone(), false), "nothing was changed");

    let mut bench = quick(&place, "r");
    bench.args(["--job", "write", "--target"]).arg(&disk).arg("--destroy-data").arg(&disk);
    let told = must(bench.arg("--dry-run"));
    assert!(told.contains("--rw=write") && told.contains("disk.img") && !told.contains("--readonly"), "{told}");
    assert_eq!((place.hashes(), place.file("r").exists()), (before.clone(), false), "nothing was run");
    let mut bench = quick(&place, "r");
    bench.args(["--job", "write", "--csv", "--target"]).arg(&disk).arg("--destroy-data").arg(&disk);
    let csv = must(&mut bench);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("target,job,iops,") && lines[1].contains(",write,"), "{csv}");
    assert_ne!(place.hashes(), before, "fio has written");
}

#[track_caller]
fn refused_as_wrong(bench: &mut Command, words: &str) {
    let output = output(bench);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains(words), "{}", show(&output));
}

#[test]
fn bench_never_writes_to_a_mounted_device() {
    if skip_without_block_devices() || skip_without(&["fio", "mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    let device = BlockDevice::of_file(&place.sparse("disk.img", 64 * MIB), 512);
    must(tool("mkfs.ext4").arg("-q").arg(&device.path));
    let name = device.path.to_str().expect("a plain path");
    let bench = || {
        let mut bench = quick(&place, "r");
        bench.args(["--job", "write", "--target", name]);
        bench
    };
    refused(&mut bench(), &["ext4 file system", "--destroy-data"]);
    let mounted = Mounted::new(&device.path, &place.socket("m"));
    refused(bench().args(["--destroy-data", name]), &["in use", "mount"]);
    // What only reads may run, and in the file system, too.
    let mut reads = quick(&place, "reads");
    reads.args(["--reads-only", "--job", "read", "--json", "--target", name, "--target"]);
    reads.arg(format!("folder={}", mounted.0.display()));
    assert_eq!(rows(&json(&must(&mut reads))).len(), 2);
    let left = std::fs::read_dir(&mounted.0).expect("it is mounted").flatten().map(|it| it.file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["lost+found"], "its file is removed");
}

struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(device: &Path, folder: &Path) -> Self {
        std::fs::create_dir(folder).expect("a folder can be made here");
        must(tool("mount").args([device, folder]));
        Self(folder.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        output(tool("umount").arg(&self.0));
    }
}

#[test]
fn bench_measures_an_export_if_it_is_large_enough() {
    if skip_without(&["fio"]) {
        return;
    }
    let mut volume = Volume::served(64, 8, "writeback");
    let uri = volume.uri();
    let mut bench = quick(&volume.place, "r");
    bench.args(["--job", "random read", "--json", "--target", &format!("served={uri}")]);
    let results = json(&must(&mut bench));
    let row = &rows(&results)[0];
    assert!(row["target"] == "served" && row["iops"].as_f64().is_some_and(|it| it > 0.0), "{row}");
    // 32 MiB are asked for of 8.
    let mut large = flashfront();
    large.args(["bench", "quick", "--scale", "1/128", "--reads-only", "--dry-run", "--target", &uri]);
    refused(&mut large, &["has 8 MiB", "needs 32 MiB", "1/512"]);
    volume.stop();
}

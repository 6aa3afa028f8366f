// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x bench [PART]`: what is promised of speed and memory, measured on this machine.
//!
//! Parts: `in-process` and `nbd` (speed, as ratios in one run: the default), `threads`,
//! `huge-pages`, `vhost-user-blk`, `engine`, `memory`, `predicted`, `recovery`.
//! Medians; losing rows stay. Results go to bench/runs/DATE-PROCESSOR/ with `--keep`, else to the
//! screen only; `--json`: only the JSON.

mod engine;
mod memory;
mod nbd;
mod predicted;
mod server;
mod variants;
mod vhost;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::run::{Failed, cargo, root, run, stdout_of, target};

const ROUNDS: usize = 5;

/// What one part found: the rows of its table, and a JSON text if there is more to keep.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) summary: String,
    pub(crate) json: Option<String>,
}

/// A part: its name, whether it runs unasked, what it does with the folder for its files.
struct Part {
    name: &'static str,
    unasked: bool,
    measure: fn(&Path) -> Result<Found, Failed>,
}

const PARTS: [Part; 9] = [
    Part { name: "in-process", unasked: true, measure: in_process },
    Part { name: "nbd", unasked: true, measure: nbd::nbd },
    Part { name: "threads", unasked: false, measure: variants::threads },
    Part { name: "huge-pages", unasked: false, measure: variants::huge_pages },
    Part { name: "vhost-user-blk", unasked: false, measure: vhost::vhost_user_blk },
    Part { name: "engine", unasked: false, measure: engine::engine },
    Part { name: "memory", unasked: false, measure: memory::memory },
    Part { name: predicted::NAME, unasked: false, measure: predicted::predicted },
    Part { name: "recovery", unasked: false, measure: recovery },
];

const FLAGS: [&str; 3] = ["--dir", "--json", "--keep"];

/// Runs the benchmarks. `--keep` writes them into the tree; `--dir DIR`: where the files are made.
pub(crate) fn bench(args: &[String]) -> Result<(), Failed> {
    let dir = args.iter().position(|arg| arg == "--dir").and_then(|at| args.get(at + 1));
    if let Some(unknown) = args.iter().find(|arg| arg.starts_with("--") && !FLAGS.contains(&arg.as_str())) {
        return Err(Failed::Usage(format!("no flag {unknown}; there are {}", FLAGS.join(", "))));
    }
    let named: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--") && Some(*arg) != dir).collect();
    if let Some(unknown) = named.iter().find(|name| PARTS.iter().all(|part| part.name != name.as_str())) {
        let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        return Err(Failed::Usage(format!("no part {unknown}; there are {}", names.join(", "))));
    }
    let dir = dir.map_or_else(|| root().join("bench/out"), PathBuf::from);
    fs::create_dir_all(&dir).map_err(|error| Failed::File { path: dir.clone(), error })?;
    for part in &PARTS {
        if !(named.iter().any(|name| *name == part.name) || named.is_empty() && part.unasked) {
            continue;
        }
        let found = (part.measure)(&dir)?;
        let json = found.json.as_deref().unwrap_or_default();
        if args.iter().any(|arg| arg == "--json") {
            println!("{json}");
        } else {
            println!("{}\n{json}", found.summary);
        }
        if args.iter().any(|arg| arg == "--keep") {
            keep(part.name, &format!("cargo x bench {} --keep", part.name), &found)?;
        }
    }
    Ok(())
}

/// The engine and the pump beside their own cache file, with one driver.
fn in_process(dir: &Path) -> Result<Found, Failed> {
    let json = in_process_json(dir)?;
    let mut summary = String::new();
    in_process_table(&mut summary, &json);
    Ok(Found { summary, json: Some(json.to_string()) })
}

fn in_process_json(dir: &Path) -> Result<Value, Failed> {
    run(&mut cargo(["build", "--release", "-p", "flashfront-serve", "--example", "in_process"]))?;
    let program = target().join("release/examples/in_process");
    parse(&stdout_of(Command::new(program).arg(dir).arg(ROUNDS.to_string()))?)
}

fn in_process_table(summary: &mut String, json: &Value) {
    let _ = writeln!(
        summary,
        "\n| in process, on a file; median of {ROUNDS} rounds' ratios | 1 job | 2 jobs | 4 jobs |\n|---|--:|--:|--:|"
    );
    for (key, what) in [
        ("write_ratio_median", "4 KiB random write, writeback / raw 1 MiB sequential write in pages of 2 MiB"),
        ("write_cold_ratio_median", "the same with payload that is cold in the processor's caches"),
        (
            "write_to_copied_ratio_median",
            "4 KiB random write, writeback / raw 1 MiB sequential write of what is copied first",
        ),
        ("write_to_random_ratio_median", "4 KiB random write, writeback / raw 4 KiB random write"),
        ("read_ratio_median", "4 KiB random read hits / raw 4 KiB random read"),
        ("flash_bytes_per_user_byte", "bytes written to the cache file / bytes written"),
    ] {
        let of_jobs = json["jobs"].as_array().into_iter().flatten();
        let cells: Vec<String> = of_jobs.map(|of| format!("{:.2}", of[key].as_f64().unwrap_or(f64::NAN))).collect();
        let _ = writeln!(summary, "| {what} | {} |", cells.join(" | "));
    }
}

/// The median, of an odd number of values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A program's JSON.
pub(crate) fn parse(text: &str) -> Result<Value, Failed> {
    serde_json::from_str(text).map_err(|error| Failed::Usage(format!("no JSON ({error}): {text}")))
}

/// How long full caches of several sizes take to open, on a device model, by one thread and by as
/// many as there are processors.
fn recovery(_: &Path) -> Result<Found, Failed> {
    run(&mut cargo(["build", "--release", "-p", "flashfront-proof", "--example", "recovery"]))?;
    let program = target().join("release/examples/recovery");
    let threads = match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => "1".to_owned(),
        all => format!("1,{all}"),
    };
    Ok(Found { summary: stdout_of(Command::new(program).args(["--threads", &threads]))?, json: None })
}

/// A file without holes: the first write into one costs the file system more than later ones.
fn fill(path: &Path, bytes: u64) -> Result<(), Failed> {
    use std::io::Write as _;
    let write = || -> std::io::Result<()> {
        let mut file = fs::File::create(path)?;
        let zeroes = vec![0; 4 << 20];
        (0..bytes / zeroes.len() as u64).try_for_each(|_| file.write_all(&zeroes))?;
        file.sync_all()
    };
    write().map_err(|error| Failed::File { path: path.into(), error })
}

/// Writes the results into the tree, with the machine and the date.
pub(crate) fn keep(part: &str, command: &str, found: &Found) -> Result<(), Failed> {
    let say = |program: &str, args: &[&str]| stdout_of(Command::new(program).args(args).current_dir(root()));
    let date = say("date", &["+%F"])?;
    // Not all kinds have a name there.
    let processor = say("sh", &["-c", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | grep -m1 . || uname -m"])?;
    let machine = say("sh", &["-c", "uname -srm; nproc; free -m | head -2; df -T . | tail -1"])?;
    let commit = say("git", &["rev-parse", "--short", "HEAD"])?;
    let (date, processor, commit) = (date.trim(), processor.trim(), commit.trim());
    // Where devices have the pace of models the machine matters little.
    let place = if part == predicted::NAME { part.to_owned() } else { slug(processor) };
    let dir = root().join(format!("bench/runs/{date}-{place}"));
    // With each part: they are run again one by one, at other commits.
    let summary = format!(
        "# {part}, {date}\n\nCommit {commit}, `{command}`. Absolute figures of a shared machine mean little.\n\n{}\n```\n{processor}\n{machine}```\n",
        found.summary
    );
    fs::create_dir_all(&dir).map_err(|error| Failed::File { path: dir.clone(), error })?;
    let mut files = vec![(format!("{part}.md"), summary.as_str())];
    files.extend(found.json.iter().map(|json| (format!("{part}.json"), json.as_str())));
    for (name, text) in files {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| Failed::File { path, error })?;
    }
    println!("kept in {}", dir.display());
    Ok(())
}

/// Lower case, with hyphens for all that is no letter or digit.
fn slug(text: &str) -> String {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

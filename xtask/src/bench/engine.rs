// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x bench engine`: the engine's own cost of a 4 KiB request, on null devices and on a real
//! file.
//!
//! Instructions are callgrind's: the difference between a short run and a longer one, so that the
//! setting up is not counted. They repeat within a percent. Times are medians. On null devices they
//! are the thread's processor time in runs of a million requests. Times of several threads are by
//! the clock, in turns with one thread. Each pair of `case` and `jobs` has one row;
//! docs/laboratory/performance.md explains the fields.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::found::{Found, parse};
use super::in_process;
use crate::run::{Failed, example, stdout_of};

const ROUNDS: usize = 5;
const REQUESTS: u64 = 1_000_000;
/// Requests of the two runs that are counted.
const COUNTED: [u64; 2] = [20_000, 120_000];
const JOBS: [u64; 3] = [1, 2, 4];
const NULL: [&str; 3] = ["write_null", "read_hit_null", "read_miss_null"];
const FILE: [&str; 7] = [
    "write_file",
    "write_cold_file",
    "read_hit_file",
    "raw_seq_write_file",
    "raw_seq_copied_write_file",
    "raw_rand_write_file",
    "raw_rand_read_file",
];
/// The cache whose memory is measured, on null devices.
const MEMORY_GIB: u64 = 256;

pub(super) fn engine(dir: &Path) -> Result<Found, Failed> {
    let program = example("flashfront-proof", "null_devices")?;
    let mut rows = Vec::new();
    for case in NULL {
        for payload in ["bare", "payload"] {
            let instructions = instructions(&program, case, payload, dir)?;
            for jobs in JOBS {
                let ns = ns_per_op(&program, case, payload, jobs)?;
                let instructions = (jobs == 1).then_some(instructions);
                rows.push(row(&null_row(case, payload), payload == "payload", jobs, ns, Some(ns), instructions));
            }
        }
    }
    let threads = lane_threads(&program)?;
    let ns = ns_per_op(&program, "copy_null", "payload", 1)?;
    rows.push(row("copy_null", true, 1, ns, Some(ns), None));
    let file = in_process::json(dir)?;
    for of_jobs in file["jobs"].as_array().into_iter().flatten() {
        let jobs = of_jobs["jobs"].as_u64().unwrap_or(0);
        for case in FILE {
            let [ns, cpu_ns] = ["ns_per_op", "cpu_ns_per_op"].map(|key| of_jobs[key][case].as_f64());
            rows.push(row(case, true, jobs, ns.unwrap_or(f64::NAN), cpu_ns, None));
        }
    }
    let memory = parse(&stdout_of(Command::new(&program).args(["memory", &MEMORY_GIB.to_string()]))?)?;
    let per_block = &memory["dirty"]["rss_bytes_per_block"];
    rows.push(json!({ "case": "memory_256_gib", "rss_bytes_per_block": per_block, "counted": memory }));
    let mut summary = table(&rows);
    summary += &threads_table(&threads);
    rows.extend(threads);
    in_process::table(&mut summary, &file);
    let _ = writeln!(summary, "\nRAM per cached block, {MEMORY_GIB} GiB full, a tenth dirty: {per_block} B.");
    Ok(Found { summary, json: Some(Value::Array(rows).to_string()) })
}

/// Names a case on null devices: one without payload is another case.
fn null_row(case: &str, payload: &str) -> String {
    if payload == "payload" { case.to_owned() } else { format!("{case}_{payload}") }
}

fn row(case: &str, payload: bool, jobs: u64, ns: f64, cpu_ns: Option<f64>, instructions: Option<f64>) -> Value {
    json!({
        "case": case, "payload": payload, "jobs": jobs, "ns_per_op": ns.round(), "cpu_ns_per_op": cpu_ns.map(f64::round),
        "instructions_per_op": instructions, "ops_per_s": (1e9 / ns).round(),
    })
}

/// The median of the rounds.
fn ns_per_op(program: &Path, case: &str, payload: &str, jobs: u64) -> Result<f64, Failed> {
    let args = [case, payload, &jobs.to_string(), &REQUESTS.to_string()];
    let all = (0..ROUNDS).map(|_| figure(program, &args, "ns_per_op")).collect::<Result<Vec<_>, _>>()?;
    Ok(median(all))
}

fn figure(program: &Path, args: &[&str], key: &str) -> Result<f64, Failed> {
    let text = stdout_of(Command::new(program).args(args))?;
    let ns = parse(&text)?[key].as_f64();
    ns.ok_or_else(|| Failed::Usage(format!("no {key} from {}: {text}", args.join(" "))))
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Four lanes by one thread, and by as many as there are processors, four at most, in turns. The
/// copies alone say how much of a gain the memory that all threads share allows.
fn lane_threads(program: &Path) -> Result<Vec<Value>, Failed> {
    let most = std::thread::available_parallelism().map_or(1, |all| all.get().min(4));
    let (jobs, requests) = (JOBS[2].to_string(), (4 * REQUESTS).to_string());
    let mut rows = Vec::new();
    let cases = NULL.iter().flat_map(|case| [(*case, "payload"), (*case, "bare")]);
    for (case, payload) in cases.chain([("copy_null", "payload")]) {
        let mut taken = vec![Vec::new(); most];
        for _ in 0..ROUNDS {
            for (threads, taken) in (1..).zip(&mut taken) {
                let args = [case, payload, &jobs, &requests, &format!("{threads}")];
                taken.push(figure(program, &args, "clock_ns_per_op")?);
            }
        }
        for (threads, ns) in (1..).zip(&taken) {
            let faster = median(taken[0].iter().zip(ns).map(|(one, these)| one / these).collect());
            rows.push(json!({
                "case": format!("{}_4_lanes", null_row(case, payload)), "threads": threads,
                "clock_ns_per_op": median(ns.clone()).round(), "requests_of_one_thread": faster,
            }));
        }
    }
    Ok(rows)
}

fn threads_table(rows: &[Value]) -> String {
    let mut text = String::from(
        "\n| 4 lanes, 128 in flight | threads for lanes | ns / request, by the clock | requests, of one thread's |\n|---|--:|--:|--:|\n",
    );
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        let (ns, faster) = (number("clock_ns_per_op"), number("requests_of_one_thread"));
        let case = row["case"].as_str().unwrap_or_default();
        let _ = writeln!(text, "| `{case}` | {} | {ns:.0} | {faster:.2} |", row["threads"]);
    }
    text
}

/// Counts the instructions of one request by callgrind. It knows no AVX-512, so checksums of
/// payload take other instructions than they do without it.
fn instructions(program: &Path, case: &str, payload: &str, dir: &Path) -> Result<f64, Failed> {
    let mut totals = [0.0; COUNTED.len()];
    for (total, requests) in totals.iter_mut().zip(COUNTED) {
        let out = dir.join("callgrind.out");
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", out.display()));
        stdout_of(valgrind.arg(program).args([case, payload, "1", &requests.to_string()]))?;
        let text = std::fs::read_to_string(&out).map_err(|error| Failed::File { path: out.clone(), error })?;
        std::fs::remove_file(&out).map_err(|error| Failed::File { path: out.clone(), error })?;
        let counted = text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
        let counted = counted.and_then(|counted| counted.trim().parse().ok());
        *total = counted.ok_or_else(|| Failed::Usage(format!("{}: callgrind wrote no total", out.display())))?;
    }
    Ok(((totals[1] - totals[0]) / (COUNTED[1] - COUNTED[0]) as f64).round())
}

fn table(rows: &[Value]) -> String {
    let mut text = String::from(
        "| case | payload | jobs | ns / request | requests / s | instructions / request |\n|---|---|--:|--:|--:|--:|\n",
    );
    for row in rows.iter().filter(|row| row["jobs"].is_u64()) {
        let payload = if row["payload"] == true { "yes" } else { "no" };
        let instructions = row["instructions_per_op"].as_f64().map_or("-".into(), |it| format!("{it:.0}"));
        let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        let _ = writeln!(
            text,
            "| `{}` | {payload} | {} | {:.0} | {:.0} | {instructions} |",
            row["case"].as_str().unwrap_or_default(),
            row["jobs"],
            number("ns_per_op"),
            number("ops_per_s")
        );
    }
    text
}

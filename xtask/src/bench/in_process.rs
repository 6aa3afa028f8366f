// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x bench in-process`: the engine and the pump beside their own cache file, in one process.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::found::{Found, parse};
use crate::run::{Failed, example, stdout_of};

const ROUNDS: usize = 5;

/// Measures the engine and the pump beside their own cache file, with one driver.
pub(super) fn in_process(dir: &Path) -> Result<Found, Failed> {
    let json = json(dir)?;
    let mut summary = String::new();
    table(&mut summary, &json);
    Ok(Found { summary, json: Some(json.to_string()) })
}

/// Runs the benchmark; its JSON.
pub(super) fn json(dir: &Path) -> Result<Value, Failed> {
    let program = example("flashfront-serve", "in_process")?;
    parse(&stdout_of(Command::new(program).arg(dir).arg(ROUNDS.to_string()))?)
}

/// Adds the rows of the table.
pub(super) fn table(summary: &mut String, json: &Value) {
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

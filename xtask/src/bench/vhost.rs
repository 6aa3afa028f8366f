// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures front-ends: the same load in process, over vhost-user-blk and over NBD, in turns.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::found::{Found, median, parse};
use crate::run::{Failed, example, stdout_of};

const ROUNDS: usize = 5;
/// No RAM front; and one with room for all that is read.
const RAM_FRONTS_MIB: [u64; 2] = [0, 512];

pub(super) fn vhost_user_blk(dir: &Path) -> Result<Found, Failed> {
    let program = example("flashfront-serve", "front_ends")?;
    let mut summary = String::from(
        "| 4 KiB random, 32 in flight | vhost-user-blk / in process | / NBD (fio) | the same polled / in process | / NBD | IOPS of the rounds: in process/vhost-user-blk/polled/NBD |\n|---|--:|--:|--:|--:|---|\n",
    );
    let mut costs = String::from(
        "\n| processor time of the daemon's thread for a request, us | in process | vhost-user-blk | the same polled | NBD |\n|---|--:|--:|--:|--:|\n",
    );
    let mut all = Vec::new();
    for front in RAM_FRONTS_MIB {
        let json = stdout_of(Command::new(&program).arg(dir).arg(ROUNDS.to_string()).arg(front.to_string()))?;
        let rounds = parse(&json)?;
        for what in ["read hits", "writes"] {
            let rows: Vec<&Value> =
                rounds["rows"].as_array().into_iter().flatten().filter(|row| row["what"] == what).collect();
            let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or(f64::NAN);
            let all_of = |key: &str| rows.iter().map(|row| number(row, key)).collect();
            let front = if front > 0 { ", RAM front" } else { "" };
            let _ = write!(summary, "| {what}{front} | ");
            for key in ["of_in_process", "of_nbd", "polled_of_in_process", "polled_of_nbd"] {
                let _ = write!(summary, "{:.2} | ", median(all_of(key)));
            }
            for row in &rows {
                let [a, b, c, d] = ["in_process", "vhost_user_blk", "polled", "nbd"].map(|key| number(row, key));
                let _ = write!(summary, "{a:.0}/{b:.0}/{c:.0}/{d:.0} ");
            }
            summary.push_str("|\n");
            let _ = write!(costs, "| {what}{front} | ");
            for key in ["in_process_cpu_us", "vhost_user_blk_cpu_us", "polled_cpu_us", "nbd_cpu_us"] {
                let _ = write!(costs, "{:.2} | ", median(all_of(key)));
            }
            costs.push('\n');
        }
        all.push(json.trim().to_owned());
    }
    Ok(Found { summary: summary + &costs, json: Some(format!("[{}]\n", all.join(",\n"))) })
}

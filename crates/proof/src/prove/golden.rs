// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints a hash of all effects for each of many runs, in a fixed order.
//!
//! A change of structure must not change what the engine does. If the output is the same text
//! before and after such a change, the effects are the same. Each I/O, reply and event came at the
//! same time, in the same order, with the same payload.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use flashfront_proof::panics;
use flashfront_proof::sweep::{WORKLOADS, effects_hash};
use flashfront_proof::torture::live;

use super::{USAGE, on_all_cores, one_line};

/// The number of torture lives that are hashed by default. They take a minute of two processors.
const SEEDS: u64 = 200;

pub(crate) fn main(args: &[&str]) -> Result<bool, String> {
    let seeds = match args {
        [] => SEEDS,
        ["--seeds", number] => number.parse().map_err(|_| format!("`{number}` is no number"))?,
        _ => return Err(USAGE.to_owned()),
    };
    panics::keep();
    let runs = WORKLOADS.len() as u64 + seeds;
    let next = AtomicU64::new(0);
    let lines = Mutex::new(vec![String::new(); runs as usize]);
    on_all_cores(
        |_, _| {
            loop {
                let nth = next.fetch_add(1, Ordering::SeqCst);
                if nth >= runs {
                    return;
                }
                let line = line(nth);
                lines.lock().expect("nobody panics while noting")[nth as usize] = line;
            }
        },
        |_| format!("golden: {} of {runs} runs", next.load(Ordering::SeqCst).min(runs)),
    );
    for line in lines.lock().expect("nobody panics while noting").iter() {
        println!("{line}");
    }
    Ok(true)
}

/// Makes the nth line of the output. The workloads of the sweep come first; each is played once
/// without a power cut.
fn line(nth: u64) -> String {
    if let Some(workload) = WORKLOADS.get(nth as usize) {
        return match panics::caught(|| effects_hash(workload)) {
            Ok(hash) => format!("workload {}: {hash:016x}", workload.name),
            Err(failure) => format!("workload {}: FAILED: {}", workload.name, one_line(&failure)),
        };
    }
    let seed = nth - WORKLOADS.len() as u64;
    match live(seed, &[]) {
        Ok(life) => format!("seed {seed}: {:016x} after {} inputs, {} answers", life.hash, life.steps, life.answers),
        Err(failure) => format!("seed {seed}: FAILED: {}", one_line(&failure)),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows what the log of the daemon's policy holds while a trace is replayed, by the next access of
//! each block. It prints a line eight times in the trace, with tabs between the figures.
//!
//! `cargo run --release -p flashfront-sim --example occupancy -- [--shifted] [--echoes MS] TRACE
//! FRACTION...`
//!
//! The device has an eighth more blocks than that fraction of the trace's footprint. Live blocks
//! are of three kinds: never asked for again, written next, read next. The program holds the trace
//! in RAM.

use std::collections::HashMap;

use flashfront_sim::policy::{self, Access, Changes};
use flashfront_sim::replay::{GridChoice, Progress, Size, Source};
use flashfront_sim::trace::Options;

/// The number of lines for each size.
const LOOKS: usize = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut grid, mut echoes_ns, mut path, mut fractions) = (GridChoice::Aligned, None, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--shifted" => grid = GridChoice::Detected,
            "--echoes" => {
                let ms: u64 = arguments.next().ok_or("--echoes needs a value")?.parse()?;
                echoes_ns = Some(ms * 1_000_000);
            }
            _ if path.is_none() => path = Some(argument),
            _ => fractions.push(argument.parse::<f64>()?),
        }
    }
    let path = path.ok_or("a trace is needed")?;
    let source = Source { path: path.into(), options: Options::default(), grid, echoes_ns, page_cache_blocks: 0 };
    let mut blocks = source.open(&Progress::default())?;
    let mut asked: Vec<Access> = Vec::new();
    loop {
        let batch = blocks.batch()?;
        if batch.is_empty() {
            break;
        }
        asked.extend(batch);
    }
    let mut next = HashMap::new();
    for (nth, access) in asked.iter_mut().enumerate().rev() {
        access.next = next.insert(access.key, nth as u64).unwrap_or(u64::MAX);
    }
    println!("fraction\tpart\tslots\tlive\tdead\tnever\twritten_next\tread_next");
    for fraction in fractions {
        play(&asked, fraction, next.len() as u64)?;
    }
    Ok(())
}

/// Replays with one size.
fn play(asked: &[Access], fraction: f64, unique: u64) -> Result<(), Box<dyn std::error::Error>> {
    let slots = Size::Fraction(fraction).blocks(unique) * 9 / 8;
    let spec = policy::by_name("flashfront").ok_or("the daemon's policy has another name")?;
    let (mut policy, mut changes) = ((spec.build.new)(slots as usize), Changes::default());
    // The blocks in the log, each with the access that asks for it next.
    let mut held: HashMap<u64, u64> = HashMap::new();
    let step = (asked.len() / LOOKS).max(1);
    for (nth, access) in asked.iter().enumerate() {
        changes.evicted.clear();
        (changes.admitted, changes.waited) = (false, false);
        let hit = policy.access(access, &mut changes);
        if changes.admitted || hit && !changes.waited {
            held.insert(access.key, access.next);
        }
        changes.evicted.iter().for_each(|gone| _ = held.remove(gone));
        if (nth + 1) % step == 0 {
            let (mut never, mut written, mut read) = (0, 0, 0);
            for at in held.values() {
                match asked.get(*at as usize) {
                    None => never += 1,
                    Some(next) if next.write => written += 1,
                    Some(_) => read += 1,
                }
            }
            let log = policy.occupancy().ok_or("the daemon's policy is a log")?;
            let part = (nth + 1) / step;
            let (live, dead) = (log.live_blocks, log.dead_blocks);
            println!("{fraction}\t{part}\t{slots}\t{live}\t{dead}\t{never}\t{written}\t{read}");
        }
    }
    Ok(())
}

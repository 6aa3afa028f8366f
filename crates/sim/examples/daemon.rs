// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays a trace to the engine itself, on models of devices in virtual time. Prints its figures
//! beside those of `sim replay`: hits of reads, and blocks written to flash for each access.
//!
//! `cargo run --release -p flashfront-sim --example daemon -- [--fraction X]... [--format F]
//! [--in-flight N] [--disk NAME] [--read-around] [--synthetic PERCENT] FILE...`
//!
//! The requests come one after the other, N in flight at once, without regard to the trace's times.
//! Sizes are shares of the blocks that the trace asks for, at least 64 MiB. `--synthetic` makes a
//! trace: 1.2 million log-uniform blocks of 1 GiB, and PERCENT of them are writes.

use std::collections::HashMap;
use std::fs::File;

use flashfront_device::Rng;
use flashfront_device::sim::known;
use flashfront_engine::{BLOCK_BYTES, Mode, Options};
use flashfront_sim::policy::flashfront::Flashfront as Replayed;
use flashfront_sim::system::{Ask, Asker, Flashfront, FlashfrontSpec};
use flashfront_sim::trace::{self, Grid, Op, Reader};

type Failure = Box<dyn std::error::Error>;

/// Blocks of a request: the first, their number, and whether the request writes them.
type Asked = (u64, u64, bool);

struct Setup {
    in_flight: usize,
    disk: String,
    read_around: bool,
}

fn main() -> Result<(), Failure> {
    let mut setup = Setup { in_flight: 16, disk: "wd-re-4tb".to_owned(), read_around: false };
    let (mut options, mut fractions) = (trace::Options::default(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    println!(
        "trace\tMiB\tread hits: replay\tengine\tall hits: replay\tengine\tflash per access: replay\tengine\treinserted: replay\tengine\torigin writes: replay\tengine\tcached\tdirty\treads per s"
    );
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--format" => options.format = Some(trace::Format::named(&value()?).ok_or("no such format")?),
            "--fraction" => fractions.push(value()?.parse::<f64>()?),
            "--in-flight" => setup.in_flight = value()?.parse()?,
            "--disk" => setup.disk = value()?,
            "--read-around" => setup.read_around = true,
            "--synthetic" => compare("synthetic", &synthetic(value()?.parse()?), &fractions, &setup)?,
            path => compare(path, &requests(path, &options)?, &fractions, &setup)?,
        }
    }
    Ok(())
}

fn synthetic(writes: u64) -> Vec<Asked> {
    let mut rng = Rng::new(7);
    let blocks = 1_u64 << 18;
    let scatter = |rank: u64| rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
    (0..1_200_000)
        .map(|_| {
            let rank = 2_f64.powf(rng.below(18_000_000) as f64 / 1e6) as u64;
            (scatter(rank), 1, rng.below(100) < writes)
        })
        .collect()
}

fn requests(path: &str, options: &trace::Options) -> Result<Vec<Asked>, Failure> {
    // Stretches of 1 MiB get new numbers in the order in which they first come. So a sparse trace
    // fits before one disk.
    let mut stretches = HashMap::new();
    let mut requests: Vec<Asked> = Vec::new();
    for record in Reader::new(File::open(path)?, options)? {
        let record = record?;
        if !matches!(record.op, Op::Read | Op::Write) {
            continue;
        }
        let write = record.op == Op::Write;
        let mut first = true;
        for access in Grid::ALIGNED.accesses(&record) {
            let next = stretches.len() as u64;
            let stretch = *stretches.entry((record.device, access.block / 256)).or_insert(next);
            let block = stretch * 256 + access.block % 256;
            match requests.last_mut() {
                Some((start, blocks, _)) if !first && *start + *blocks == block && *blocks < 256 => *blocks += 1,
                _ => requests.push((block, 1, write)),
            }
            first = false;
        }
    }
    Ok(requests)
}

fn compare(name: &str, requests: &[Asked], fractions: &[f64], setup: &Setup) -> Result<(), Failure> {
    let mut seen = HashMap::new();
    requests
        .iter()
        .for_each(|&(start, blocks, _)| (start..start + blocks).for_each(|block| _ = seen.insert(block, ())));
    for fraction in if fractions.is_empty() { &[0.05, 0.1, 0.25] } else { fractions } {
        let wanted = (seen.len() as f64 * fraction) as u64 / 256;
        if wanted < 64 {
            continue;
        }
        let last = requests.iter().map(|(start, blocks, _)| start + blocks).max().unwrap_or_default();
        let (engine, hits, rate) = run(requests, wanted, last, setup)?;
        let capacity = (engine.capacity_blocks + 4096.min(engine.capacity_blocks / 32)) as usize;
        let mut replayed = if setup.read_around { Replayed::before_disk(capacity) } else { Replayed::new(capacity) };
        for &(start, blocks, write) in requests {
            (start..start + blocks).for_each(|block| _ = replayed.ask(block, write));
            replayed.request_over();
        }
        let (ours, it) = (replayed.totals(), &engine.counters);
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let accesses = ours.accesses;
        let flash = ours.fill_blocks + ours.absorbed_blocks + ours.reinserted_blocks;
        println!(
            "{name}\t{}\t{:.2}\t{:.2}\t{:.2}\t{:.2}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.2}\t{:.2}\t{rate:.0}",
            engine.capacity_blocks / 256,
            100.0 * share(ours.read_hits, ours.reads),
            100.0 * share(it.read_hits, it.read_hits + it.read_misses),
            100.0 * share(ours.hits, accesses),
            100.0 * share(hits, accesses),
            share(flash, accesses),
            share(it.cache_writes_bytes / BLOCK_BYTES, accesses),
            share(ours.reinserted_blocks, accesses),
            share(it.reinserted_blocks, accesses),
            share(ours.origin_write_blocks, accesses),
            share(it.origin_writes_bytes / BLOCK_BYTES, accesses),
            share(engine.blocks_cached, engine.capacity_blocks),
            share(engine.blocks_dirty, engine.capacity_blocks),
        );
    }
    Ok(())
}

fn run(
    requests: &[Asked],
    segments: u64,
    blocks: u64,
    setup: &Setup,
) -> Result<(flashfront_engine::Status, u64, f64), Failure> {
    let model = |name: &str| known().into_iter().find(|it| it.name == name).map(|it| it.model);
    let system = Flashfront::new(&FlashfrontSpec {
        origin: model(&setup.disk).ok_or("no such disk")?,
        origin_bytes: blocks.next_multiple_of(256) * BLOCK_BYTES,
        cache: model("intel-p4500").ok_or("no such SSD")?,
        cache_bytes: (segments + 8) << 20,
        mode: Mode::Writeback,
        options: Options {
            sequential_bypass_bytes: 0,
            read_around_blocks: if setup.read_around { 16 } else { 1 },
            ..Options::default()
        },
    });
    let mut client = Asker::new(system, setup.in_flight);
    for &(start, blocks, write) in requests {
        client.ask(if write { Ask::Write } else { Ask::Read }, start * BLOCK_BYTES, blocks * BLOCK_BYTES);
    }
    let status = client.system.status();
    let hits = status.counters.read_hits + status.counters.write_hits;
    Ok((status, hits, requests.len() as f64 / (client.now.0 as f64 / 1e9)))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays traces to the engine itself, on models of devices in virtual time: with the default order
//! of destage, and in the order of FLUSHes. It shows what the order costs the origin.
//!
//! `cargo run --release -p flashfront-sim --example ordered -- [--format F] [--in-flight N]
//! [--origin NAME] [--flush-every N] TRACE...`
//!
//! Block traces have no FLUSHes: one is sent after each N writes (16). The requests come one after
//! the other, without regard to the trace's times. The cache has a quarter of the blocks that the
//! trace asks for, at least 64 MiB. In the end all is drained, so both orders have the same origin.

use std::collections::{HashMap, HashSet};
use std::fs::File;

use flashfront_device::sim::known;
use flashfront_engine::{BLOCK_BYTES, Destage, Mode, Options};
use flashfront_sim::system::{Ask, Asker, Flashfront, FlashfrontSpec, System};
use flashfront_sim::trace::{self, Grid, Op, Reader};

type Failure = Box<dyn std::error::Error>;

/// Blocks of a segment, and of a stretch of the trace: 1 MiB.
const MIB_BLOCKS: u64 = 256;

/// Blocks of a request: the first, their number, and whether the request writes them.
type Asked = (u64, u64, bool);

struct Setup {
    in_flight: usize,
    origin: String,
    flush_every: u64,
}

fn main() -> Result<(), Failure> {
    let mut setup = Setup { in_flight: 16, origin: "wd-re-4tb".to_owned(), flush_every: 16 };
    let mut options = trace::Options::default();
    let mut arguments = std::env::args().skip(1);
    println!("trace\torigin\torder\trequests per s\torigin writes, MB\torigin I/Os\torigin flushes\tdrained after, s");
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--format" => options.format = Some(trace::Format::named(&value()?).ok_or("no such format")?),
            "--in-flight" => setup.in_flight = value()?.parse()?,
            "--origin" => setup.origin = value()?,
            "--flush-every" => setup.flush_every = value()?.parse::<u64>()?.max(1),
            path => {
                let requests = requests(path, &options)?;
                for order in Destage::ALL {
                    play(path, &requests, order, &setup)?;
                }
            }
        }
    }
    Ok(())
}

/// Reads a trace. Stretches of 1 MiB get new numbers in the order in which they first come. So a
/// sparse trace fits before one disk.
fn requests(path: &str, options: &trace::Options) -> Result<Vec<Asked>, Failure> {
    let mut stretches = HashMap::new();
    let mut requests: Vec<Asked> = Vec::new();
    for record in Reader::new(File::open(path)?, options)? {
        let record = record?;
        if !matches!(record.op, Op::Read | Op::Write) {
            continue;
        }
        let (write, mut first) = (record.op == Op::Write, true);
        for access in Grid::ALIGNED.accesses(&record) {
            let next = stretches.len() as u64;
            let stretch = *stretches.entry((record.device, access.block / MIB_BLOCKS)).or_insert(next);
            let block = stretch * MIB_BLOCKS + access.block % MIB_BLOCKS;
            match requests.last_mut() {
                Some((start, blocks, _)) if !first && *start + *blocks == block && *blocks < MIB_BLOCKS => *blocks += 1,
                _ => requests.push((block, 1, write)),
            }
            first = false;
        }
    }
    Ok(requests)
}

fn play(name: &str, requests: &[Asked], destage: Destage, setup: &Setup) -> Result<(), Failure> {
    let touched: HashSet<u64> = requests.iter().flat_map(|&(start, blocks, _)| start..start + blocks).collect();
    let last = requests.iter().map(|(start, blocks, _)| start + blocks).max().ok_or("a trace without requests")?;
    let model = |name: &str| known().into_iter().find(|it| it.name == name).map(|it| it.model);
    let segments = (touched.len() as u64 / 4 / MIB_BLOCKS).max(64);
    let system = Flashfront::new(&FlashfrontSpec {
        origin: model(&setup.origin).ok_or("no such origin")?,
        origin_bytes: last.next_multiple_of(MIB_BLOCKS) * BLOCK_BYTES,
        cache: model("intel-p4500").ok_or("no such SSD")?,
        cache_bytes: (segments + 8) << 20,
        mode: Mode::Writeback,
        options: Options { destage, ..Options::default() },
    });
    let mut client = Asker::new(system, setup.in_flight);
    let mut writes = 0;
    for &(start, blocks, write) in requests {
        client.ask(if write { Ask::Write } else { Ask::Read }, start * BLOCK_BYTES, blocks * BLOCK_BYTES);
        writes += u64::from(write);
        if write && writes % setup.flush_every == 0 {
            client.ask(Ask::Flush, 0, 0);
        }
    }
    let asked_s = client.now.0 as f64 / 1e9;
    let (mut now, mut answered) = (client.now, Vec::new());
    client.system.drain(now);
    while client.system.status().blocks_dirty > 0 {
        now = client.system.next_event().ok_or("a drain that goes on")?;
        client.system.advance(now, &mut answered);
    }
    let traffic = client.system.traffic();
    println!(
        "{name}\t{}\t{}\t{:.0}\t{:.1}\t{}\t{}\t{:.1}",
        setup.origin,
        destage.name(),
        requests.len() as f64 / asked_s,
        traffic.origin_write_bytes as f64 / 1e6,
        traffic.origin_ios,
        traffic.origin_flushes,
        now.0 as f64 / 1e9 - asked_s,
    );
    Ok(())
}

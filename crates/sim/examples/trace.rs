// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says what is in traces, and how fast they are read and cut into blocks, in processor time. There
//! is a line for each file.
//!
//! `cargo run --release -p flashfront-sim --example trace -- [--format F] [--shifted] [--echoes MS]
//! FILE...`

use std::collections::HashSet;
use std::fs::File;

use flashfront_sim::trace::{Echoes, Format, Grid, GridFinder, Op, Options, Reader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut options, mut shifted, mut echoes_ms) = (Options::default(), false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--format" => {
                let name = arguments.next().unwrap_or_default();
                options.format = Some(Format::named(&name).ok_or("no such format")?);
            }
            "--shifted" => shifted = true,
            "--echoes" => echoes_ms = Some(arguments.next().unwrap_or_default().parse::<u64>()?),
            path => match about(path, &options, shifted, echoes_ms) {
                Ok(line) => println!("{line}"),
                Err(error) => println!("{path}: {error}"),
            },
        }
    }
    Ok(())
}

/// How long this thread has been on a processor: others who want it too don't count.
fn on_cpu_ns() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn about(
    path: &str,
    options: &Options,
    shifted: bool,
    echoes_ms: Option<u64>,
) -> Result<String, Box<dyn std::error::Error>> {
    let start_ns = on_cpu_ns()?;
    let mut accesses = 0_u64;
    for record in Reader::new(File::open(path)?, options)? {
        accesses += Grid::ALIGNED.accesses(&record?).map(|it| u64::from(it.block < u64::MAX)).sum::<u64>();
    }
    let speed = accesses as f64 / (on_cpu_ns()? - start_ns) as f64 * 1e3;

    let reader = Reader::new(File::open(path)?, options)?;
    let format = reader.format().name;
    let (phases, mut records) = GridFinder::ahead(reader, GridFinder::REQUESTS);
    let grid = if shifted { phases.grid() } else { Grid::ALIGNED };
    let mut echoes = echoes_ms.map(|ms| Echoes::within(ms * 1_000_000));
    let (mut requests, mut accesses, mut blocks) = (0_u64, 0_u64, HashSet::new());
    let mut mib = [0_u64; 2];
    for record in records.by_ref() {
        let record = record?;
        if echoes.as_mut().is_some_and(|it| it.is_echo(&record, record.time_ns.unwrap_or(0))) {
            continue;
        }
        requests += 1;
        mib[usize::from(record.op != Op::Read)] += u64::from(record.sectors);
        for access in grid.accesses(&record) {
            accesses += 1;
            blocks.insert((record.device, access.block));
        }
    }
    let mut line = format!(
        "{path}: {format}, {requests} requests, {accesses} accesses, {} blocks, read {:.1} MiB, written {:.1} MiB, {speed:.1} M accesses/s, {:.0} % at phase {}",
        blocks.len(),
        mib[0] as f64 / 2048.0,
        mib[1] as f64 / 2048.0,
        phases.shares()[usize::from(phases.grid().phase())] * 100.0,
        phases.grid().phase(),
    );
    let report = records.get_ref().report();
    for (kind, count) in &report.skipped {
        line += &format!("\n    {count} {kind}");
    }
    for bad in &report.first_bad {
        line += &format!("\n    {} bad, {bad}", report.bad);
    }
    Ok(line)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints miss ratios of the policies on traces, and the processor time of their decisions. There
//! is a line for each trace, size and policy, with tabs between the figures.
//!
//! `cargo run --release -p flashfront-sim --example policies -- [--policy P]... [--fraction X]...
//! [--format F] [--shifted] [--echoes MS] FILE...`
//!
//! The size is that fraction of the blocks that the trace asks for, rounded down. The default
//! fractions are 0.01, 0.05, 0.1 and 0.25. A request is an access to each of its blocks. If a
//! policy has larger units, a request is an access to each unit. An access counts as many blocks as
//! it asks for.
//!
//! Traces without times get a request each millisecond. The program holds the trace in RAM, 40
//! bytes an access.

use std::collections::HashMap;
use std::fs::File;

use flashfront_engine::policy::Spec;
use flashfront_sim::policy::{self, Access, Build, Changes};
use flashfront_sim::trace::{Echoes, Format, Grid, GridFinder, Op, Options, Reader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut options, mut shifted, mut echoes_ms) = (Options::default(), false, None);
    let (mut policies, mut fractions) = (Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    println!("trace\tfraction\tpolicy\tunits\taccesses\tmiss_ratio\tM_accesses_per_s");
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--format" => options.format = Some(Format::named(&value()?).ok_or("no such format")?),
            "--policy" => policies.push(policy::by_name(&value()?).ok_or("no such policy")?),
            "--fraction" => fractions.push(value()?.parse::<f64>()?),
            "--shifted" => shifted = true,
            "--echoes" => echoes_ms = Some(value()?.parse::<u64>()?),
            path => {
                let trace = Trace::read(path, &options, shifted, echoes_ms)?;
                let policies = if policies.is_empty() { policy::ALL.iter().collect() } else { policies.clone() };
                let fractions = if fractions.is_empty() { vec![0.01, 0.05, 0.1, 0.25] } else { fractions.clone() };
                for spec in policies {
                    trace.run(path, spec, &fractions)?;
                }
            }
        }
    }
    Ok(())
}

struct Trace {
    /// Each access is to one block.
    accesses: Vec<Access>,
    blocks: usize,
}

impl Trace {
    fn read(
        path: &str,
        options: &Options,
        shifted: bool,
        echoes_ms: Option<u64>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let (phases, records) = GridFinder::ahead(Reader::new(File::open(path)?, options)?, GridFinder::REQUESTS);
        let grid = if shifted { phases.grid() } else { Grid::ALIGNED };
        let mut echoes = echoes_ms.map(|ms| Echoes::within(ms * 1_000_000));
        let (mut accesses, mut devices, mut blocks) = (Vec::new(), HashMap::new(), HashMap::<u64, ()>::new());
        let (mut requests, mut time_ns) = (0_u64, 0);
        for record in records {
            let record = record?;
            let now = record.time_ns.unwrap_or(0);
            let is_echo = echoes.as_mut().is_some_and(|it| it.is_echo(&record, now));
            if is_echo || !matches!(record.op, Op::Read | Op::Write) {
                continue;
            }
            requests += 1;
            time_ns = record.time_ns.unwrap_or(requests * 1_000_000).max(time_ns);
            let device = devices.len() as u64;
            let device = *devices.entry(record.device).or_insert(device);
            let mut first = true;
            for access in grid.accesses(&record) {
                let key = device << 52 | access.block;
                blocks.insert(key, ());
                let write = record.op == Op::Write;
                accesses.push(Access { key, write, time_ns, first: std::mem::take(&mut first), next: u64::MAX });
            }
        }
        Ok(Self { accesses, blocks: blocks.len() })
    }

    /// Accesses to units of `unit_blocks` blocks, each with the number of blocks that it asks for.
    fn in_units(&self, unit_blocks: u64) -> Vec<(Access, u64)> {
        let mut units: Vec<(Access, u64)> = Vec::new();
        for access in &self.accesses {
            let key = access.key / unit_blocks;
            match units.last_mut() {
                Some((last, blocks)) if !access.first && last.key == key => *blocks += 1,
                _ => units.push((Access { key, ..*access }, 1)),
            }
        }
        units
    }

    fn run(&self, path: &str, spec: &Spec<Build>, fractions: &[f64]) -> Result<(), Box<dyn std::error::Error>> {
        let mut units = self.in_units(spec.build.unit_blocks);
        if spec.build.foresees {
            let mut next = HashMap::new();
            for (number, (access, _)) in units.iter_mut().enumerate().rev() {
                access.next = next.insert(access.key, number as u64).unwrap_or(u64::MAX);
            }
        }
        for fraction in fractions {
            let capacity = (self.blocks as f64 * fraction) as u64 / spec.build.unit_blocks;
            let mut policy = (spec.build.new)(capacity.max(1) as usize);
            let (mut missed, mut changes) = (0, Changes::default());
            let start_ns = on_cpu_ns()?;
            for (access, blocks) in &units {
                changes.admitted = false;
                changes.evicted.clear();
                missed += if policy.access(access, &mut changes) { 0 } else { *blocks };
            }
            // A run that ends before the kernel looks at the clock counts as a microsecond.
            let speed = units.len() as f64 / (on_cpu_ns()? - start_ns).max(1000) as f64 * 1e3;
            let ratio = missed as f64 / self.accesses.len() as f64;
            println!("{path}\t{fraction}\t{}\t{capacity}\t{}\t{ratio:.5}\t{speed:.1}", spec.name, self.accesses.len());
        }
        Ok(())
    }
}

/// The processor time of this thread. Time that other threads take doesn't count.
fn on_cpu_ns() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

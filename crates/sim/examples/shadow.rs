// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far the shadow is from a full simulation: what it says at the end of a trace, beside what a replay of each size counts.
//!
//! `cargo run --release -p flashfront-sim --example shadow -- [--fraction X] [--shifted] [--echoes MS] FILE...`
//!
//! A line for each size of each trace, tabs between; X is the present size as a share of the blocks that the trace asks for, 0.1 unless
//! given. Hits in percent of the accesses, the rest in blocks for each access; what is so, then what the shadow says.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flashfront_engine::policy as engine;
use flashfront_engine::shadow::{Access, Shadow};
use flashfront_sim::policy::{self, flashfront};
use flashfront_sim::replay::{GridChoice, Progress, Size, Source, replay};
use flashfront_sim::trace::Options;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut fraction = 0.1;
    let mut source = Source {
        path: "".into(),
        options: Options::default(),
        grid: GridChoice::Aligned,
        echoes_ns: None,
        page_cache_blocks: 0,
    };
    println!("trace\tblocks\tsize\thits\tsaid\tflash_writes\tsaid\torigin_reads\tsaid\torigin_writes\tsaid");
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--fraction" => fraction = value()?.parse::<f64>()?,
            "--shifted" => source.grid = GridChoice::Detected,
            "--echoes" => source.echoes_ns = Some(value()?.parse::<u64>()? * 1_000_000),
            path => {
                source.path = path.into();
                compare(&source, fraction)?;
            }
        }
    }
    Ok(())
}

fn compare(source: &Source, fraction: f64) -> Result<(), Box<dyn std::error::Error>> {
    let spec = policy::by_name("flashfront").ok_or("no such policy")?;
    let sizes = [0.5, 1.0, 2.0, 4.0].map(|size| Size::Fraction((size * fraction).min(1.0)));
    let full = replay(source, &[spec], &sizes, &Progress::default())?;
    let blocks = full.rows[1].cache_blocks;
    let mut shadow = Shadow::new(flashfront::shape(blocks as usize), engine::ALL[0].build);
    let mut trace = source.open(Arc::new(AtomicU64::new(0)))?;
    loop {
        let batch = trace.batch()?;
        if batch.is_empty() {
            break;
        }
        for asked in batch {
            let access = if asked.write { Access::Write } else { Access::Read };
            shadow.note(access, asked.key..asked.key + 1);
        }
    }
    let name = source.path.file_name().unwrap_or_default().display();
    for (row, said) in full.rows.iter().zip(shadow.what_if_from_the_start()) {
        let (so, said, size) = (row.totals, said.totals, f64::from(said.size_percent) / 100.0);
        let each = |count: u64| count as f64 / so.accesses as f64;
        println!(
            "{name}\t{blocks}\t{size}\t{:.2}\t{:.2}\t{:.4}\t{:.4}\t{:.4}\t{:.4}\t{:.4}\t{:.4}",
            100.0 * so.hit_ratio(),
            100.0 * said.hit_ratio(),
            each(so.flash_blocks_written()),
            each(said.flash_blocks_written()),
            each(so.origin_read_blocks),
            each(said.origin_read_blocks),
            each(so.origin_write_blocks),
            each(said.origin_write_blocks),
        );
    }
    Ok(())
}

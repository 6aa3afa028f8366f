// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the shadow with a full simulation. It prints the shadow's figures at the end of a trace
//! beside those that a replay of each size counts.
//!
//! `cargo run --release -p flashfront-sim --example shadow -- [--disk] [--fraction X] [--page-cache
//! BLOCKS] [--shifted] [--echoes MS] FILE...`
//!
//! There is a line for each size of each trace, with tabs between the figures. X is the present
//! size as a share of the blocks that the trace asks for, by default 0.1. Hits are in percent of
//! the accesses. Origin reads are in times of those of the present size. The other figures are in
//! blocks for each access. The replay's figure comes first, then the shadow's.

use std::ops::Range;

use flashfront_engine::policy as engine;
use flashfront_engine::shadow::{Access, Found, Live, Shadow, Totals};
use flashfront_sim::policy;
use flashfront_sim::policy::flashfront::{Flashfront, shape, shape_before_disk};
use flashfront_sim::replay::{GridChoice, Progress, Size, Source, replay};
use flashfront_sim::trace::Options;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut fraction, mut disk) = (0.1, false);
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
            "--disk" => disk = true,
            "--page-cache" => source.page_cache_blocks = value()?.parse()?,
            "--shifted" => source.grid = GridChoice::Detected,
            "--echoes" => source.echoes_ns = Some(value()?.parse::<u64>()? * 1_000_000),
            path => {
                source.path = path.into();
                compare(&source, fraction, disk)?;
            }
        }
    }
    Ok(())
}

fn compare(source: &Source, fraction: f64, disk: bool) -> Result<(), Box<dyn std::error::Error>> {
    // This replay counts the blocks that the trace asks for.
    let fifo = policy::by_name("fifo").ok_or("no such policy")?;
    let rows = replay(source, &[fifo], &[Size::Fraction(fraction)], &|_| None, false, &Progress::default())?.rows;
    let blocks = rows[0].cache_blocks as usize;
    let shape = if disk { shape_before_disk(blocks) } else { shape(blocks) };
    let mut shadow = Shadow::new(shape, engine::ALL[0].build);
    let new = if disk { Flashfront::before_disk } else { Flashfront::new };
    let mut whole = [0.5, 1.0, 2.0, 4.0].map(|size| new((size * blocks as f64) as usize));
    let mut trace = source.open(&Progress::default())?;
    let mut asked_last: Option<(Range<u64>, bool)> = None;
    loop {
        let batch = trace.batch()?;
        if batch.is_empty() {
            break;
        }
        for asked in batch {
            match &mut asked_last {
                Some((keys, _)) if !asked.first && keys.end == asked.key => keys.end += 1,
                last => {
                    let before = last.replace((asked.key..asked.key + 1, asked.write));
                    before.into_iter().for_each(|request| ask(&mut whole, &mut shadow, request, disk));
                }
            }
        }
    }
    asked_last.into_iter().for_each(|request| ask(&mut whole, &mut shadow, request, disk));
    print(source, blocks, &whole, &shadow);
    Ok(())
}

fn ask(whole: &mut [Flashfront; 4], shadow: &mut Shadow, (keys, write): (Range<u64>, bool), disk: bool) {
    let live = Live { found: found(&whole[1]), reads_around: disk };
    shadow.note(if write { Access::Write } else { Access::Read }, keys.clone(), || live);
    for cache in whole {
        keys.clone().for_each(|key| _ = cache.ask(key, write));
        cache.request_over();
    }
}

fn found(whole: &Flashfront) -> Found {
    let Totals { read_hits, write_hits, .. } = whole.totals();
    Found { read: read_hits, written: write_hits }
}

fn print(source: &Source, blocks: usize, whole: &[Flashfront; 4], shadow: &Shadow) {
    let name = source.path.file_name().unwrap_or_default().display();
    let said = shadow.what_if_from_the_start(found(&whole[1]));
    let present = said.get(1).map(|it| (whole[1].totals(), it.totals));
    for (cache, said) in whole.iter().zip(&said) {
        let (so, said, size) = (cache.totals(), said.totals, f64::from(said.size_percent) / 100.0);
        let each = |count: u64| count as f64 / so.accesses as f64;
        let times = |count: u64, present: u64| count as f64 / present as f64;
        let origin_reads = present.map(|(so_present, said_present)| {
            [
                times(so.origin_read_blocks, so_present.origin_read_blocks),
                times(said.origin_read_blocks, said_present.origin_read_blocks),
            ]
        });
        let [reads_so, reads_said] = origin_reads.unwrap_or_default();
        println!(
            "{name}\t{blocks}\t{size}\t{:.2}\t{:.2}\t{:.4}\t{:.4}\t{reads_so:.4}\t{reads_said:.4}\t{:.4}\t{:.4}",
            100.0 * so.hit_ratio(),
            100.0 * said.hit_ratio(),
            each(so.flash_blocks_written()),
            each(said.flash_blocks_written()),
            each(so.origin_write_blocks),
            each(said.origin_write_blocks),
        );
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays the collection of loads (`crates/sim/loads.txt`). It lists the loads that are at hand,
//! compares policies on them, and shows whether a larger cache is ever worse.
//!
//! `cargo run --release -p flashfront-sim --example loads -- list|replay|sizes [--side tuned|seen]
//! [--load NAME]... [--policy P]... [--fraction X]... [--eighth] [--page-cache-blocks N] FOLDER...`
//!
//! Files are looked for by name in the folders and below; made loads need no file. Lines have tabs
//! between their fields. A load whose file isn't there is left out, and named at the end.
//!
//! - `list`: accesses, footprint and share of writes of each load.
//! - `replay`: hits, read hits, blocks written to flash and read from the origin per access. There
//!   is a line for each load, policy and fraction; then come their means for each side. With
//!   `--eighth` our own policies have a device of an eighth more blocks, as the logs of the others
//!   would.
//! - `sizes`: the worst falls over 64 sizes. The exit code is 1 if a fall is more than 0.5 points
//!   and more than `crates/sim/falls.txt` knows of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use flashfront_engine::policy::Spec;
use flashfront_sim::policy::{self, Build};
use flashfront_sim::replay::{self, GridChoice, Progress, Replayed, Row, Size, Source, falls};
use flashfront_sim::trace::Options;

const LOADS: &str = include_str!("../loads.txt");
const KNOWN: &str = include_str!("../falls.txt");

/// The number of sizes, from a 64th of a footprint to all of it. [`AT_ONCE`] of them are replayed
/// at the same time, which bounds the RAM.
const SIZES: u64 = 64;
const AT_ONCE: usize = 8;
/// The largest fall that is tolerated, in points.
const TOLERANCE: f64 = 0.5;

type Error = Box<dyn std::error::Error>;

struct Load {
    name: &'static str,
    side: &'static str,
    source: Source,
}

#[derive(Default)]
struct Asked {
    verb: String,
    side: Option<String>,
    loads: Vec<String>,
    policies: Vec<&'static Spec<Build>>,
    fractions: Vec<f64>,
    eighth: bool,
    page_cache_blocks: u64,
    folders: Vec<PathBuf>,
}

fn main() -> Result<ExitCode, Error> {
    let asked = Asked::new()?;
    let (loads, missing) = at_hand(&asked)?;
    let mut code = ExitCode::SUCCESS;
    match &*asked.verb {
        "list" => list(&loads)?,
        "replay" => replay_all(&asked, &loads)?,
        "sizes" if !sizes(&asked, &loads)? => code = ExitCode::FAILURE,
        "sizes" => {}
        other => return Err(format!("{other}: expected list, replay or sizes").into()),
    }
    if !missing.is_empty() {
        eprintln!("not at hand: {}", missing.join(", "));
    }
    Ok(code)
}

impl Asked {
    fn new() -> Result<Self, Error> {
        let mut asked = Self::default();
        let mut arguments = env::args().skip(1);
        asked.verb = arguments.next().ok_or("expected list, replay or sizes")?;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match &*argument {
                "--side" => asked.side = Some(value()?),
                "--load" => asked.loads.push(value()?),
                "--policy" => asked.policies.push(policy::by_name(&value()?).ok_or("no such policy")?),
                "--fraction" => asked.fractions.push(value()?.parse()?),
                "--eighth" => asked.eighth = true,
                "--page-cache-blocks" => asked.page_cache_blocks = value()?.parse()?,
                option if option.starts_with('-') => return Err(format!("{option}: no such option").into()),
                folder => asked.folders.push(folder.into()),
            }
        }
        Ok(asked)
    }

    fn wants(&self, name: &str, side: &str) -> bool {
        self.side.as_ref().is_none_or(|it| it == side)
            && (self.loads.is_empty() || self.loads.iter().any(|it| it == name))
    }
}

/// The loads that are asked for and at hand, and the names of loads whose files aren't.
fn at_hand(asked: &Asked) -> Result<(Vec<Load>, Vec<&'static str>), Error> {
    let mut files = BTreeMap::new();
    for folder in &asked.folders {
        files_below(folder, &mut files)?;
    }
    let (mut loads, mut missing) = (Vec::new(), Vec::new());
    for line in LOADS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let mut word = || words.next().ok_or(format!("loads.txt: a word is missing in {line}"));
        let (name, side, file) = (word()?, word()?, word()?);
        if !asked.wants(name, side) {
            continue;
        }
        let path = if file.starts_with("made:") { Some(PathBuf::from(file)) } else { files.get(file).cloned() };
        let Some(path) = path else {
            missing.push(name);
            continue;
        };
        let page_cache_blocks = asked.page_cache_blocks;
        let mut source =
            Source { path, options: Options::default(), grid: GridChoice::Aligned, echoes_ns: None, page_cache_blocks };
        while let Some(option) = words.next() {
            match option {
                "--shift-grid" => source.grid = GridChoice::Detected,
                "--drop-echoes" => {
                    let ms: u64 = words.next().ok_or("loads.txt: --drop-echoes needs a value")?.parse()?;
                    source.echoes_ns = Some(ms * 1_000_000);
                }
                other => return Err(format!("loads.txt: {other}: no such option").into()),
            }
        }
        loads.push(Load { name, side, source });
    }
    Ok((loads, missing))
}

/// Names of all files below a folder.
fn files_below(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, files)?;
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            files.insert(name.to_owned(), path.clone());
        }
    }
    Ok(())
}

fn replayed(load: &Load, policies: &[&'static Spec<Build>], sizes: &[Size]) -> Result<Replayed, Error> {
    let replayed = replay::replay(&load.source, policies, sizes, &|_| None, false, &Progress::default());
    replayed.map_err(|error| format!("{}: {error}", load.name).into())
}

fn named(name: &str) -> Result<&'static Spec<Build>, Error> {
    policy::by_name(name).ok_or_else(|| format!("{name}: no such policy").into())
}

fn list(loads: &[Load]) -> Result<(), Error> {
    println!("load\tside\taccesses\tfootprint_mib\twritten_percent");
    for load in loads {
        let replayed = replayed(load, &[named("fifo")?], &[Size::Blocks(1)])?;
        let (totals, blocks) = (replayed.rows[0].totals, replayed.reading.unique_blocks);
        let written = 100.0 - totals.reads as f64 * 100.0 / totals.accesses as f64;
        let mib = blocks as f64 / 256.0;
        println!("{}\t{}\t{}\t{mib:.1}\t{written:.1}", load.name, load.side, totals.accesses);
    }
    Ok(())
}

/// Hits and read hits in percent; blocks written to flash and read from the origin per access.
fn figures(row: &Row) -> [f64; 4] {
    let totals = &row.totals;
    let per_access = |blocks: u64| blocks as f64 / totals.accesses as f64;
    let flash = per_access(totals.flash_blocks_written());
    [totals.hit_ratio() * 100.0, totals.read_hit_ratio() * 100.0, flash, per_access(totals.origin_read_blocks)]
}

fn told(figures: &[f64; 4]) -> String {
    let [hits, read_hits, flash, origin] = figures;
    format!("{hits:.2}\t{read_hits:.2}\t{flash:.3}\t{origin:.3}")
}

fn replay_all(asked: &Asked, loads: &[Load]) -> Result<(), Error> {
    let fractions =
        if asked.fractions.is_empty() { &[0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0][..] } else { &asked.fractions };
    let policies = if asked.policies.is_empty() {
        ["flashfront", "lru", "arc", "s3fifo", "wtinylfu", "lirs"].into_iter().map(named).collect::<Result<_, _>>()?
    } else {
        asked.policies.clone()
    };
    let mut means: BTreeMap<(&str, usize, usize), (f64, [f64; 4])> = BTreeMap::new();
    println!("load\tside\tpolicy\tfraction\thits\tread_hits\tflash_per_access\torigin_per_access");
    for load in loads {
        let unique = replayed(load, &[named("fifo")?], &[Size::Blocks(1)])?.reading.unique_blocks;
        for (nth, policy) in policies.iter().enumerate() {
            // For policies that keep a budget, which are ours, the size is the size of the device.
            let room = |blocks: u64| if asked.eighth && policy.build.keeps_budget() { blocks * 9 / 8 } else { blocks };
            let sizes = fractions.iter().map(|&it| Size::Blocks(room(Size::Fraction(it).blocks(unique))));
            let replayed = replayed(load, &[policy], &sizes.collect::<Vec<_>>())?;
            for (at, (fraction, row)) in fractions.iter().zip(&replayed.rows).enumerate() {
                let figures = figures(row);
                println!("{}\t{}\t{}\t{fraction}\t{}", load.name, load.side, policy.name, told(&figures));
                let (count, sums) = means.entry((load.side, nth, at)).or_default();
                *count += 1.0;
                sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
            }
        }
    }
    for ((side, nth, at), (count, sums)) in means {
        let mean = sums.map(|sum| sum / count);
        println!("mean\t{side}\t{}\t{}\t{}", policies[nth].name, fractions[at], told(&mean));
    }
    Ok(())
}

/// The known fall of a load and policy, in points.
fn known(load: &str, policy: &str, what: &str) -> Result<Option<f64>, Error> {
    let line = KNOWN.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = line.filter(|words| words.len() == 4).find(|words| words[..3] == [load, policy, what]);
    Ok(found.map(|words| words[3].parse()).transpose()?)
}

/// Prints the worst falls. Returns whether each is tolerated or known.
fn sizes(asked: &Asked, loads: &[Load]) -> Result<bool, Error> {
    let policies = if asked.policies.is_empty() {
        ["flashfront", "flashfront_disk"].into_iter().map(named).collect::<Result<_, _>>()?
    } else {
        asked.policies.clone()
    };
    println!("load\tside\tpolicy\twhat\tpoints\tfrom\tto\tfootprint");
    let mut good = true;
    for load in loads {
        let unique = replayed(load, &[named("fifo")?], &[Size::Blocks(1)])?.reading.unique_blocks;
        for policy in &policies {
            let mut rows = Vec::new();
            for turn in (1..=SIZES).collect::<Vec<_>>().chunks(AT_ONCE) {
                let size = |&nth: &u64| Size::Blocks(Size::Fraction(nth as f64 / SIZES as f64).blocks(unique));
                rows.extend(replayed(load, &[policy], &turn.iter().map(size).collect::<Vec<_>>())?.rows);
            }
            for (what, fall) in [("hits", falls::of_hits(&rows)), ("origin_reads", falls::of_origin_reads(&rows))] {
                let falls::Fall { from, to, points } = fall;
                let most = known(load.name, policy.name, what)?.unwrap_or(TOLERANCE);
                println!("{}\t{}\t{}\t{what}\t{points:.2}\t{from}\t{to}\t{unique}", load.name, load.side, policy.name);
                if points > most {
                    eprintln!("{}, {}, {what}: {points:.2} points, at most {most}", load.name, policy.name);
                    good = false;
                }
            }
        }
    }
    Ok(good)
}

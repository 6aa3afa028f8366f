// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays a trace against policies, and counts which blocks each would have kept and what that
//! costs. There are no data and no devices.
//!
//! A trace is read once, or twice if sizes are shares of its footprint or a policy foresees. It is
//! handed in batches to threads. Each thread runs some of the policies at some of the sizes.
//!
//! Memory is in proportion to the caches, as far as the trace fills them, and not to the trace.
//! Each block of each cache takes some 30 to 100 bytes. `wtinylfu` takes 8 to 16 bytes more for
//! each block that fits, filled or not. Two things do grow with the trace:
//!
//! - Counting the footprint takes 2 bits a block where blocks are neighbours, and some 20 bytes
//!   where none are.
//! - A policy that foresees takes 8 bytes for each access. Until the first reading is over it also
//!   takes 20 to 60 bytes for each block.

pub(crate) mod blocks;
pub(crate) mod clock;
mod error;
pub mod falls;
pub(crate) mod key;
pub(crate) mod ledger;
mod log;
pub(crate) mod page_cache;
mod progress;
pub(crate) mod survey;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::policy::Spec;
pub use flashfront_engine::shadow::{Occupancy, Totals};

pub use blocks::{Blocks, GridChoice, Source};
pub use error::SourceError;
pub use progress::Progress;

use crate::policy::{Access, Build};
use crate::trace::{DiskGrid, Format, Report};
use ledger::Ledger;
use survey::{Survey, Unique};

/// The largest cache: 8 TiB. Slots are numbered with 32 bits, and there is some room beyond.
pub const BLOCKS_MAX: u64 = 1 << 31;

/// The size of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// A number of blocks of 4 KiB, up to [`BLOCKS_MAX`].
    Blocks(u64),
    /// A share of the blocks that the trace touches.
    Fraction(f64),
}

impl Size {
    /// Returns the size in blocks for a trace that asks for `unique` blocks. A share is rounded
    /// down, to at least one block.
    #[must_use]
    pub fn blocks(self, unique: u64) -> u64 {
        match self {
            Self::Blocks(blocks) => blocks.clamp(1, BLOCKS_MAX),
            Self::Fraction(fraction) => {
                // 0.29 of 100 is 29, though the product in floating point is 28.999999999999996.
                let blocks = unique as f64 * fraction * (1.0 + 2.0 * f64::EPSILON);
                (blocks as u64).clamp(1, BLOCKS_MAX)
            }
        }
    }
}

/// The result of one policy at one size.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy's name.
    pub policy: &'static str,
    /// The cache's size, as asked for.
    pub size: Size,
    /// The cache's size in blocks: whole units of the policy, at least one.
    pub cache_blocks: u64,
    /// Bytes that might be written to flash in a day. `None` if they weren't bounded, or the policy
    /// knows no such bound.
    pub flash_writes_per_day_bytes: Option<u64>,
    /// The figures.
    pub totals: Totals,
    /// The number of reads that the origin was asked for: one for each 64 KiB of which a request
    /// missed something.
    pub origin_reads: u64,
    /// The blocks that the log holds at the end, and how many of them nobody has read since they
    /// came. `None` unless that was asked for.
    pub occupancy: Option<(Occupancy, u64)>,
}

/// How a trace was read, and what it contained.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The format as which the trace was read.
    pub format: &'static Format,
    /// The grid that was asked for.
    pub grid: GridChoice,
    /// The disks of the first 100,000 requests, and where the blocks of each would begin.
    pub disks: Vec<DiskGrid>,
    /// Reads and writes of the trace.
    pub requests: u64,
    /// Discards, which were left out.
    pub discards: u64,
    /// Flushes, which ask for no block.
    pub flushes: u64,
    /// Requests that repeated another one, and were dropped.
    pub echoes_dropped: u64,
    /// How often the trace's times stepped back by more than jitter, or on by more than a year. The
    /// clock then goes on from where it was.
    pub times_back: u64,
    /// Whether the trace's requests have times.
    pub timed: bool,
    /// Reads of blocks that the page cache in front answered.
    pub page_cache_hits: u64,
    /// Distinct blocks that were asked for.
    pub unique_blocks: u64,
    /// The account of the trace's lines.
    pub report: Report,
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The way in which the trace was read.
    pub reading: Reading,
    /// The rows: each policy at each size, in the order asked for.
    pub rows: Vec<Row>,
}

impl Reading {
    /// Describes a trace that was read to its end and asks for `unique_blocks`.
    pub(crate) fn of(source: &Source, blocks: &Blocks, unique_blocks: u64) -> Result<Self, SourceError> {
        let report = blocks.report();
        if unique_blocks == 0 {
            return Err(SourceError::Empty {
                path: source.path.clone(),
                bad: report.bad,
                first_bad: report.first_bad.first().cloned(),
                skipped: report.skipped.clone(),
            });
        }
        Ok(Self {
            format: blocks.format(),
            grid: source.grid,
            disks: blocks.disks().to_vec(),
            requests: blocks.requests,
            discards: blocks.discards,
            flushes: blocks.flushes,
            echoes_dropped: blocks.echoes_dropped,
            times_back: blocks.times_back(),
            timed: blocks.is_timed(),
            page_cache_hits: blocks.page_cache_hits,
            unique_blocks,
            report: report.clone(),
        })
    }

    /// The sectors modulo 8 at which blocks begin, each once.
    #[must_use]
    pub fn phases(&self) -> Vec<u8> {
        let mut phases = vec![0];
        if self.grid == GridChoice::Detected {
            phases = self.disks.iter().map(|disk| disk.grid.phase()).collect();
        }
        phases.sort_unstable();
        phases.dedup();
        phases
    }
}

/// Replays a trace against each policy at each size, and tells `progress` how far it is.
///
/// `budget` bounds the flash writes: for a cache's size in bytes it returns the bytes that may be
/// written in a day of the trace. `None` is no bound. With `occupancy` the rows also tell what the
/// caches hold at the end.
///
/// # Errors
/// If the trace can't be read to its end, has no reads and writes, or is to be stopped.
pub fn replay(
    source: &Source,
    policies: &[&'static Spec<Build>],
    sizes: &[Size],
    budget: &dyn Fn(u64) -> Option<u64>,
    occupancy: bool,
    progress: &Progress,
) -> Result<Replayed, SourceError> {
    let foresee = policies.iter().any(|spec| spec.build.foresees);
    let twice = foresee || sizes.iter().any(|size| matches!(size, Size::Fraction(_)));
    progress.readings.store(1 + u64::from(twice), Ordering::Relaxed);
    let survey = if twice {
        source.must_be_a_file()?;
        Survey::of(source.open(progress)?, foresee, progress)?
    } else {
        Survey::default()
    };
    let mut runs = Vec::new();
    for &size in sizes {
        for &spec in policies {
            let mut ledger = Ledger::new(&spec.build, size.blocks(survey.unique_blocks));
            if occupancy {
                ledger.watch_unread();
            }
            let cache_blocks = ledger.cache_blocks();
            let budget = budget(cache_blocks * BLOCK_BYTES);
            let flash_writes_per_day_bytes = budget.filter(|bytes| ledger.limit_flash_writes(*bytes));
            let totals = Totals::default();
            let row = Row {
                policy: spec.name,
                size,
                cache_blocks,
                flash_writes_per_day_bytes,
                totals,
                origin_reads: 0,
                occupancy: None,
            };
            runs.push((row, spec.build.foresees, ledger));
        }
    }
    let blocks = source.open(progress)?;
    let (rows, blocks, unique_blocks) = run(runs, blocks, &survey)?;
    Ok(Replayed { reading: Reading::of(source, &blocks, unique_blocks)?, rows })
}

type Run = (Row, bool, Ledger);

/// Accesses, and the number of the first of them.
type Batch = Arc<(u64, Vec<Access>)>;

/// Batches that wait for a thread. They are so many that neither side waits for a slow turn of the
/// other.
const WAITING: usize = 4;

fn run(runs: Vec<Run>, mut blocks: Blocks, survey: &Survey) -> Result<(Vec<Row>, Blocks, u64), SourceError> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(runs.len()).max(1);
    let mut shares: Vec<Vec<(usize, Run)>> = (0..threads).map(|_| Vec::new()).collect();
    // Runs of a slow policy come once for each size. They are dealt in turns that shift with the
    // size, so that no thread gets all of them.
    let policies = runs.iter().filter(|run| run.0.size == runs[0].0.size).count().max(1);
    for (nth, run) in runs.into_iter().enumerate() {
        shares[(nth + nth / policies) % threads].push((nth, run));
    }
    thread::scope(|scope| {
        // What a first reading has counted need not be counted again.
        let mut unique = (survey.unique_blocks == 0).then(Unique::default);
        let (senders, workers): (Vec<SyncSender<Batch>>, Vec<_>) = shares
            .into_iter()
            .map(|mut share| {
                let (sender, batches) = sync_channel::<Batch>(WAITING);
                let next = Arc::clone(&survey.next);
                let worker = scope.spawn(move || {
                    for batch in batches {
                        for (_, (_, foresees, ledger)) in &mut share {
                            work(ledger, &batch, if *foresees { &next } else { &[] });
                        }
                    }
                    share
                        .into_iter()
                        .map(|(nth, (row, _, ledger))| {
                            let (totals, origin_reads) = (ledger.totals(), ledger.origin_reads());
                            (nth, Row { totals, origin_reads, occupancy: ledger.occupancy(), ..row })
                        })
                        .collect::<Vec<_>>()
                });
                (sender, worker)
            })
            .unzip();
        let mut first = 0;
        let ended = loop {
            let accesses = match blocks.batch() {
                Ok(accesses) if accesses.is_empty() => break Ok(()),
                Ok(accesses) => accesses,
                Err(error) => break Err(error),
            };
            if let Some(unique) = &mut unique {
                accesses.iter().for_each(|it| unique.add(it.key));
            }
            let batch = Arc::new((first, accesses));
            first += batch.1.len() as u64;
            // A thread that is gone has panicked. The join below passes the panic on.
            if senders.iter().any(|sender| sender.send(Arc::clone(&batch)).is_err()) {
                break Ok(());
            }
        };
        drop(senders);
        let mut rows = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(some) => rows.extend(some),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        ended?;
        rows.sort_by_key(|row| row.0);
        let unique_blocks = unique.map_or(survey.unique_blocks, Unique::blocks);
        Ok((rows.into_iter().map(|row| row.1).collect(), blocks, unique_blocks))
    })
}

/// Lets a policy see a batch: one access for each unit of each request.
fn work(ledger: &mut Ledger, batch: &Batch, next: &[u64]) {
    let (first, asked) = &**batch;
    let mut at = 0;
    while at < asked.len() {
        let unit = ledger.unit(asked[at].key);
        let same = |it: &&Access| !it.first && ledger.unit(it.key) == unit;
        let blocks = 1 + asked[at + 1..].iter().take_while(same).count();
        let next = next.get((first + at as u64) as usize).copied().unwrap_or(u64::MAX);
        ledger.access(&Access { key: unit, next, ..asked[at] }, blocks as u64);
        at += blocks;
    }
}

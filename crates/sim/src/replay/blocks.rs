// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a trace as the accesses to blocks of 4 KiB that a cache would see, in batches.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::clock::Clock;
use super::error::SourceError;
use super::key::{BLOCK_OF_KEY, STRETCH_BITS, STRETCHES_MAX};
use super::page_cache::PageCache;
use super::progress::Progress;
use crate::policy::Access;
use crate::trace::{
    Ahead, DiskGrid, Echoes, Format, Grid, GridFinder, MadeLoad, Op, Options, ReadError, Reader, Record, Report,
};

/// Accesses in a batch: 2.5 MiB of them, so that handing a batch to a thread costs nothing against
/// what is done with it.
const BATCH: usize = 64 << 10;

/// Blocks of almost any request: the last one of a batch has room too, so that what is there need
/// not be copied.
const REQUEST: usize = 256;

/// The grid that blocks lie on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridChoice {
    /// Blocks begin at sectors 0, 8, 16.
    #[default]
    Aligned,
    /// Blocks begin where most requests to their disk begin and end.
    Detected,
}

/// A trace, and how it is to be read.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file, or `made:NAME`, a trace that is made ([`MadeLoad`]).
    pub path: PathBuf,
    /// The way in which the file is read.
    pub options: Options,
    /// The grid that blocks lie on.
    pub grid: GridChoice,
    /// Requests that repeat one within this time are dropped.
    pub echoes_ns: Option<u64>,
    /// Blocks of the page cache in front, 0 for none.
    pub page_cache_blocks: u64,
}

/// A trace that is being read.
pub struct Blocks {
    path: PathBuf,
    records: Ahead<ReadError, Reader>,
    disks: Vec<DiskGrid>,
    /// Of disks whose blocks don't begin at sector 0.
    shifted: HashMap<u32, Grid>,
    echoes: Option<Echoes>,
    page_cache: Option<PageCache>,
    stretches: HashMap<(u32, u64), u64>,
    clock: Clock,
    stop: Arc<AtomicBool>,
    /// Reads and writes so far.
    pub requests: u64,
    /// Discards so far, which the policies are not told of.
    pub discards: u64,
    /// Flushes so far, which ask for no block.
    pub flushes: u64,
    /// Requests so far that repeated one, and were dropped.
    pub echoes_dropped: u64,
    /// Reads of blocks that the page cache answered.
    pub page_cache_hits: u64,
    /// FLUSHes of the last batch: behind how many of its accesses each came, and when.
    pub(crate) flushed: Vec<(usize, u64)>,
    /// Requests of the last batch that leave out a part of their outer blocks: the number of the
    /// first access, the sectors left out before, and those left out behind.
    pub(crate) ragged: Vec<(usize, u64, u64)>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("path", &self.path).field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl Source {
    /// The blocks, for readers that read them more than once.
    ///
    /// # Errors
    /// If it is none, as a pipe.
    pub(crate) fn must_be_a_file(&self) -> Result<(), SourceError> {
        if self.made()?.is_some() {
            return Ok(());
        }
        let found = fs::metadata(&self.path);
        let found = found.map_err(|error| SourceError::Open { path: self.path.clone(), error })?;
        // What is wrong with a folder is not how often it can be read.
        if found.is_file() || found.is_dir() { Ok(()) } else { Err(SourceError::Once { path: self.path.clone() }) }
    }

    /// What is made instead of being read.
    fn made(&self) -> Result<Option<MadeLoad>, SourceError> {
        MadeLoad::of(&self.path).map_err(|why| SourceError::Made { why })
    }

    /// Opens it, from its beginning; adds the bytes that are read of it to what `progress` has, and
    /// reads no more of it once that says stop.
    ///
    /// # Errors
    /// If the file can't be read, its format isn't known, or it is to be stopped.
    pub fn open(&self, progress: &Progress) -> Result<Blocks, SourceError> {
        let path = self.path.clone();
        let made = self.made()?;
        let file: Box<dyn Read + Send> = match made {
            Some(load) => Box::new(load.text()),
            None => Box::new(File::open(&path).map_err(|error| SourceError::Open { path: path.clone(), error })?),
        };
        let stop = Arc::clone(&progress.stop);
        let watched = Watched { file, read: Arc::clone(&progress.bytes), stop: Arc::clone(&stop) };
        let mut options = self.options;
        if made.is_some() {
            options.format = options.format.or(Format::named(MadeLoad::FORMAT));
        }
        let reader = Reader::new(watched, &options).map_err(|error| {
            let path = path.clone();
            if stop.load(Ordering::Relaxed) {
                SourceError::Stopped { path }
            } else {
                SourceError::Format { path, error }
            }
        })?;
        let (phases, records) = GridFinder::ahead(reader, GridFinder::REQUESTS);
        let disks: Vec<_> = phases.disks().collect();
        let detected = disks.iter().filter(|it| self.grid == GridChoice::Detected && it.grid != Grid::ALIGNED);
        Ok(Blocks {
            path,
            records,
            shifted: detected.map(|it| (it.device, it.grid)).collect(),
            disks,
            echoes: self.echoes_ns.map(Echoes::within),
            page_cache: (self.page_cache_blocks > 0).then(|| PageCache::new(self.page_cache_blocks as usize)),
            stretches: HashMap::new(),
            clock: Clock::default(),
            stop,
            requests: 0,
            discards: 0,
            flushes: 0,
            echoes_dropped: 0,
            page_cache_hits: 0,
            flushed: Vec::new(),
            ragged: Vec::new(),
        })
    }
}

impl Blocks {
    /// The format that it is read as.
    #[must_use]
    pub fn format(&self) -> &'static Format {
        self.records.get_ref().format()
    }

    /// What became of its lines so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.records.get_ref().report()
    }

    /// The disks of the first 100,000 requests, and where the blocks of each begin.
    #[must_use]
    pub fn disks(&self) -> &[DiskGrid] {
        &self.disks
    }

    /// How often its times went back by more than jitter, and were taken to go on from where they
    /// were.
    #[must_use]
    pub const fn times_back(&self) -> u64 {
        self.clock.anew
    }

    /// Whether any record so far had a time.
    #[must_use]
    pub const fn is_timed(&self) -> bool {
        self.clock.timed
    }

    /// The next accesses, none at the end.
    ///
    /// # Errors The file can't be read on, has a bad line where that ends a trace, has too many
    /// disks, or is to be stopped.
    pub fn batch(&mut self) -> Result<Vec<Access>, SourceError> {
        let mut batch = Vec::with_capacity(BATCH + REQUEST);
        let read = self.fill(&mut batch);
        // Also where what was read ended for this reason.
        if self.stop.load(Ordering::Relaxed) {
            return Err(SourceError::Stopped { path: self.path.clone() });
        }
        read.map(|()| batch)
    }

    fn fill(&mut self, batch: &mut Vec<Access>) -> Result<(), SourceError> {
        self.flushed.clear();
        self.ragged.clear();
        // A batch without accesses is the end, however many FLUSHes come first.
        while batch.is_empty() || batch.len() + self.flushed.len() < BATCH {
            let Some(record) = self.records.next() else { break };
            let record = record.map_err(|error| SourceError::Read { path: self.path.clone(), error })?;
            self.add(&record, batch)?;
        }
        Ok(())
    }

    fn add(&mut self, record: &Record, batch: &mut Vec<Access>) -> Result<(), SourceError> {
        let time_ns = self.clock.at(record.time_ns);
        if self.echoes.as_mut().is_some_and(|echoes| echoes.is_echo(record, time_ns)) {
            self.echoes_dropped += 1;
            return Ok(());
        }
        let write = match record.op {
            Op::Read => false,
            Op::Write => true,
            Op::Flush => {
                self.flushes += 1;
                self.flushed.push((batch.len(), time_ns));
                return Ok(());
            }
            Op::Discard => {
                self.discards += 1;
                return Ok(());
            }
        };
        self.requests += 1;
        let (mut stretch, mut first) = (None, true);
        let grid = if self.shifted.is_empty() { None } else { self.shifted.get(&record.device) };
        let grid = grid.copied().unwrap_or(Grid::ALIGNED);
        let (before, behind) = grid.left_out(record);
        if before + behind > 0 {
            self.ragged.push((batch.len(), before, behind));
        }
        for access in grid.accesses(record) {
            let part = access.block >> STRETCH_BITS;
            let base = match stretch {
                Some((of, base)) if of == part => base,
                _ => {
                    let next = self.stretches.len() as u64;
                    let number = *self.stretches.entry((record.device, part)).or_insert(next);
                    if number >= STRETCHES_MAX {
                        return Err(SourceError::Disks { path: self.path.clone() });
                    }
                    number << STRETCH_BITS
                }
            };
            stretch = Some((part, base));
            let key = base | access.block & BLOCK_OF_KEY;
            if self.page_cache.as_mut().is_some_and(|cache| cache.touch(key) && !write) {
                self.page_cache_hits += 1;
                continue;
            }
            let first = std::mem::take(&mut first);
            batch.push(Access { key, write, time_ns, first, next: u64::MAX });
        }
        Ok(())
    }
}

/// A file whose reader is watched, and may be told to stop: however much of it is no request, that
/// is soon.
struct Watched {
    file: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Read for Watched {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("it is to be stopped"));
        }
        let read = self.file.read(bytes)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

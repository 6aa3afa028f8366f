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

/// Accesses in a batch. They take 2.5 MiB, so that handing a batch to a thread costs nothing
/// compared with the work on it.
const BATCH: usize = 64 << 10;

/// Almost no request has more blocks. A batch has room for this many beyond [`BATCH`], so that its
/// last request need not move the others.
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

/// A trace, and how to read it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file, or `made:NAME` for a trace that is made ([`MadeLoad`]).
    pub path: PathBuf,
    /// The way in which the file is read.
    pub options: Options,
    /// The grid that blocks lie on.
    pub grid: GridChoice,
    /// Requests that repeat another one within this time are dropped.
    pub echoes_ns: Option<u64>,
    /// Blocks of the page cache in front; 0 for none.
    pub page_cache_blocks: u64,
}

/// A trace that is being read.
pub struct Blocks {
    path: PathBuf,
    records: Ahead<ReadError, Reader>,
    disks: Vec<DiskGrid>,
    /// The grids of disks whose blocks don't begin at sector 0.
    shifted: HashMap<u32, Grid>,
    echoes: Option<Echoes>,
    page_cache: Option<PageCache>,
    stretches: HashMap<(u32, u64), u64>,
    clock: Clock,
    stop: Arc<AtomicBool>,
    /// Reads and writes so far.
    pub requests: u64,
    /// Discards so far. Policies aren't told of them.
    pub discards: u64,
    /// Flushes so far. They ask for no block.
    pub flushes: u64,
    /// Requests so far that repeated another one, and were dropped.
    pub echoes_dropped: u64,
    /// Reads of blocks that the page cache answered.
    pub page_cache_hits: u64,
    /// The FLUSHes of the last batch: the number of its accesses before each, and the time.
    pub(crate) flushed: Vec<(usize, u64)>,
    /// Requests of the last batch that leave out a part of their outer blocks. The fields are the
    /// number of the first access, the sectors left out before, and those left out behind.
    pub(crate) ragged: Vec<(usize, u64, u64)>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("path", &self.path).field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl Source {
    /// Checks that the trace can be read more than once.
    ///
    /// # Errors
    /// If the trace is no file but, for example, a pipe.
    pub(crate) fn must_be_a_file(&self) -> Result<(), SourceError> {
        if self.made()?.is_some() {
            return Ok(());
        }
        let found = fs::metadata(&self.path);
        let found = found.map_err(|error| SourceError::Open { path: self.path.clone(), error })?;
        // A folder can't be read even once. Opening it says so.
        if found.is_file() || found.is_dir() { Ok(()) } else { Err(SourceError::Once { path: self.path.clone() }) }
    }

    /// The load that is made if the path is `made:NAME`.
    fn made(&self) -> Result<Option<MadeLoad>, SourceError> {
        MadeLoad::of(&self.path).map_err(|why| SourceError::Made { why })
    }

    /// Opens the trace at its beginning. `progress` counts the bytes read, and can stop the
    /// reading.
    ///
    /// # Errors
    /// If the file can't be read, its format isn't known, or `progress` says stop.
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
    /// The format as which the trace is read.
    #[must_use]
    pub fn format(&self) -> &'static Format {
        self.records.get_ref().format()
    }

    /// The account of the trace's lines so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.records.get_ref().report()
    }

    /// The disks of the first 100,000 requests, and where the blocks of each begin.
    #[must_use]
    pub fn disks(&self) -> &[DiskGrid] {
        &self.disks
    }

    /// How often the trace's times stepped back by more than jitter, or on by more than a year. The
    /// clock then goes on from where it was.
    #[must_use]
    pub const fn times_back(&self) -> u64 {
        self.clock.anew
    }

    /// Whether any record so far had a time.
    #[must_use]
    pub const fn is_timed(&self) -> bool {
        self.clock.timed
    }

    /// The next accesses; none at the end.
    ///
    /// # Errors
    /// If the file can't be read on, a bad line ends the trace, there are too many disks, or
    /// `progress` says stop.
    pub fn batch(&mut self) -> Result<Vec<Access>, SourceError> {
        let mut batch = Vec::with_capacity(BATCH + REQUEST);
        let read = self.fill(&mut batch);
        // The stop may also be the reason why reading ended.
        if self.stop.load(Ordering::Relaxed) {
            return Err(SourceError::Stopped { path: self.path.clone() });
        }
        read.map(|()| batch)
    }

    fn fill(&mut self, batch: &mut Vec<Access>) -> Result<(), SourceError> {
        self.flushed.clear();
        self.ragged.clear();
        // A batch without accesses is the end of the trace. So reading goes on while there are only
        // FLUSHes.
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

/// A file that counts the bytes read and can be told to stop. It stops soon even where the file has
/// no requests for long.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the lanes share, and how they speak to the coordinator.
//!
//! A lane never touches another lane: it leaves messages ([`Up`]) that the coordinator handles
//! after the lane's step.

use alloc::vec::Vec;

use crate::fact::canary::Canary;
use crate::fact::io::{DeviceError, RequestError};
use crate::fact::memory::{Memory, Span};
use crate::fact::open_error::OpenError;
use crate::fact::options::Options;
use crate::fact::status::Counters;
use crate::fact::types::{Block, Key, Time};
use crate::format::{Superblock, seal_checksum};
use crate::organ::budget::Budget;
use crate::organ::cache_reads::CacheReads;
use crate::organ::congestion::{CacheGauge, Taken};
use crate::organ::flush::FlushWaiter;
use crate::organ::index::Flat;
use crate::organ::measured::Measured;
use crate::organ::members::Members;
use crate::organ::origin::Origin;

/// The lane number of the coordinator's own I/O.
pub(crate) const COORDINATOR: usize = 0xffff;

/// What a lane tells the coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Up {
    /// A part of a request is done.
    PieceDone { request: usize, error: Option<RequestError>, from_origin: bool },
    /// A part of a discard or of long zeroes is done.
    RangePieceDone { request: usize, error: Option<RequestError> },
    /// A part of a request is on its origin, which had failed so many flushes by then. No flush has
    /// covered that part.
    OnOrigin { request: usize, failed_flushes: u32 },
    /// A direct write was to go past a congested log, and can't: its range is in the log, or the
    /// origin refused it.
    PastCongestion { lane: usize, piece: usize },
    /// A destage run could not be written.
    DestageFailed { origin: usize, error: DeviceError },
    /// A destage run is on its origin, and waits for the flush.
    RunWritten { lane: usize, run: usize, origin: usize, blocks: u32 },
    /// A destage run ended without being written.
    RunDropped { origin: usize },
    /// The cache device failed under someone who waits for durability.
    UntilDrained { waiter: FlushWaiter },
    /// The lane has replayed its log, and waits for the word to go on.
    Replayed,
    /// The lane has replayed its log.
    Recovered { commits: u64 },
    /// The lane can't be replayed.
    OpenFailed(OpenError),
}

/// Whether it is known, wherever the next start will look, that this cache must not be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureRecord {
    /// Not yet, or nothing has failed.
    Unknown,
    Durable,
    /// It can't be recorded anywhere.
    Impossible,
}

/// What the lanes share.
pub(crate) struct Shared {
    pub(crate) superblock: Superblock,
    pub(crate) cache_tag: u64,
    pub(crate) options: Options,
    pub(crate) origins: Vec<Origin>,
    pub(crate) counters: Counters,
    pub(crate) up: Vec<Up>,
    /// Dirty blocks of all lanes.
    pub(crate) dirty: u64,
    pub(crate) dirty_limit: u64,
    /// A write or a flush of the cache device failed: nothing new is trusted to it (see `failure`).
    pub(crate) cache_failed: bool,
    pub(crate) failure: FailureRecord,
    pub(crate) members: Members,
    /// How fast the cache device is now; of a mirrored one both members together.
    pub(crate) gauge: CacheGauge,
    /// Who reads from it.
    pub(crate) cache_reads: CacheReads,
    /// An origin that has dirty blocks takes none at the moment.
    pub(crate) away: bool,
    pub(crate) draining: bool,
    pub(crate) stopping: bool,
    pub(crate) buffer_bytes: u64,
    pub(crate) ram_front_bytes: u64,
    /// What may still be written to the cache device.
    pub(crate) budget: Option<Budget>,
    /// Bytes of the windows of all lanes.
    pub(crate) window_bytes: u64,
    /// Of a view: what happened at the devices.
    pub(crate) measured: Option<Vec<Measured>>,
}

impl Shared {
    pub(crate) fn key(&self, flat: Flat) -> Key {
        let at = self.origin_of(flat);
        let record = &self.superblock.origins[at];
        Key { origin: record.id, block: Block(flat.0 - self.origins[at].base.0) }
    }

    pub(crate) fn flat(&self, key: Key) -> Option<Flat> {
        let at = self.superblock.origins.iter().position(|record| record.id == key.origin)?;
        let origin = &self.origins[at];
        (key.block.0 < origin.blocks).then(|| Flat(origin.base.0 + key.block.0))
    }

    /// Whether this bug is planted: never, but in tests of the tests.
    pub(crate) fn planted(&self, canary: Canary) -> bool {
        self.options.planted(canary)
    }

    /// Flushes origins that promoted blocks wait for.
    pub(crate) fn want_proof(&mut self) {
        self.origins.iter_mut().for_each(|origin| origin.flush.want_if_awaited());
    }

    /// From when on promoted blocks don't wait for this origin's flush any more, since others would
    /// be kept back by it. An origin that is alone keeps back nobody else.
    pub(crate) fn proof_overdue_from(&self, at: usize) -> Option<Time> {
        if self.origins.len() > 1 { self.origins[at].flush.overdue_from() } else { None }
    }

    /// Which origin a flat key belongs to.
    pub(crate) fn origin_of(&self, flat: Flat) -> usize {
        // Mostly there is one, and each request asks some times.
        if self.origins.len() == 1 { 0 } else { self.origins.partition_point(|origin| origin.base <= flat) - 1 }
    }

    /// Lost blocks of all origins.
    pub(crate) fn lost(&self) -> u64 {
        self.origins.iter().map(|origin| origin.lost).sum()
    }

    /// A dirty block is lost.
    pub(crate) fn count_lost(&mut self, flat: Flat) {
        let at = self.origin_of(flat);
        self.origins[at].lost += 1;
    }

    /// A block is lost no more.
    pub(crate) fn count_found(&mut self, flat: Flat) {
        let at = self.origin_of(flat);
        self.origins[at].lost -= 1;
    }

    /// What an origin has of the dirty limit. Lost blocks never become clean, and must not keep
    /// everybody out.
    pub(crate) fn held(&self, origin: &Origin) -> u64 {
        origin.undrained() + origin.reserved
    }

    /// Blocks of accepted writes that are not in the log yet.
    pub(crate) fn reserved(&self) -> u64 {
        self.origins.iter().map(|origin| origin.reserved).sum()
    }

    /// So many blocks of an accepted write are in the log, or won't come there.
    pub(crate) fn give_back_reserved(&mut self, flat: Flat, blocks: u32) {
        let at = self.origin_of(flat);
        self.origins[at].reserved -= u64::from(blocks);
    }

    pub(crate) fn checksum(&self, mem: &dyn Memory, flat: Flat, span: Span) -> u32 {
        self.seal(flat, mem.checksum(span))
    }

    /// The checksum of a block whose content has this CRC-32C.
    pub(crate) fn seal(&self, flat: Flat, crc: u32) -> u32 {
        seal_checksum(crc, self.key(flat), self.cache_tag)
    }
}

impl Shared {
    /// Notes what happened at a device.
    // Inlined: each caller knows which case it is, and only that case is left.
    #[inline(always)]
    pub(crate) fn measure(&mut self, what: Measured, now: Time) {
        self.note_measured(what);
        match what {
            Measured::CacheReadBegan { blocks } => {
                self.gauge.reads.began(now);
                self.cache_reads.read(blocks, now);
            }
            Measured::CacheReadEnded { sound } => {
                self.gauge.reads.ended(now, u64::from(sound));
                self.cache_reads.ended(now);
            }
            Measured::CommitBegan => self.gauge.commit_began(now),
            Measured::CacheWritten { bytes } => {
                if let Some(budget) = &mut self.budget {
                    budget.spend(bytes, now);
                }
            }
            Measured::OriginReadBegan { origin, first, end } => {
                self.origins[origin].client_read_began(first, end, now);
            }
            Measured::OriginReadEnded { origin, blocks } => self.origins[origin].client_read_ended(blocks, now),
            Measured::OriginMergeBegan { origin } => self.origins[origin].gauge.merges.began(now),
            Measured::DetourBegan { origin, instead_of_ns } => {
                self.origins[origin].gauge.detour.began(instead_of_ns, now);
            }
        }
    }

    /// A detour begins.
    pub(crate) fn detour_began(&mut self, origin: usize, instead_of_ns: u64, now: Time) -> Taken {
        self.note_measured(Measured::DetourBegan { origin, instead_of_ns });
        self.origins[origin].gauge.detour.began(instead_of_ns, now)
    }

    fn note_measured(&mut self, what: Measured) {
        if let Some(list) = &mut self.measured {
            list.push(what);
        }
    }
}

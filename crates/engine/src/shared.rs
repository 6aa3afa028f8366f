// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the lanes share, and how they speak to the coordinator.
//!
//! A lane never touches another lane: it leaves messages ([`Up`]) that the coordinator handles
//! after the lane's step.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use crate::budget::Budget;
use crate::bypass::Streams;
use crate::canary::Canary;
use crate::congestion::{CacheGauge, OriginGauge};
use crate::destage::CacheReads;
use crate::event::Event;
use crate::format::{Superblock, seal_checksum};
use crate::index::Flat;
use crate::io::{DeviceError, DeviceId, Effect, Effects, Io, Op, RequestError, Token};
use crate::measured::Measured;
use crate::memory::{Memory, Span};
use crate::mirror::Members;
use crate::options::Options;
use crate::status::Counters;
use crate::types::{BLOCK_BYTES, Block, Key, Lba, Mode, SECTOR_BYTES, Time};

/// The lane number of the coordinator's own I/O.
pub(crate) const COORDINATOR: usize = 0xffff;

/// Who waits for an origin's flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushWaiter {
    /// A FLUSH request.
    Request(usize),
    /// A piece of a lane.
    Piece(usize, usize),
    /// A piece of a lane that has written over lost blocks, which may be dropped then.
    Replacing(usize, usize),
    /// A destage run of a lane.
    Run(usize, usize),
    /// A commit of promoted blocks of a lane, by its number: until then replay doesn't take them.
    Promoted(usize, u64),
}

impl FlushWaiter {
    pub(crate) const fn is_promoted(&self) -> bool {
        matches!(self, Self::Promoted(..))
    }
}

/// After so long a flush is overdue. A disk's takes as long as all that waits in its cache: seconds, where writes are at random.
const OVERDUE_NS: u64 = 10_000_000_000;

/// An origin at run time.
pub(crate) struct Origin {
    /// Its place in the flat key space.
    pub(crate) base: Flat,
    pub(crate) blocks: u64,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) mode: Mode,
    pub(crate) streams: Streams,
    /// How fast it is now.
    pub(crate) gauge: OriginGauge,
    pub(crate) flush: FlushGate,
    /// Direct writes completed since the last flush was issued, or may have before this engine began.
    pub(crate) unflushed: bool,
    /// A flush failed that covered some of them, and no client's FLUSH was told.
    pub(crate) doubtful: bool,
    /// Flushes that failed.
    pub(crate) failed_flushes: u32,
    /// Or may have changed something, though the log has what they wrote: no client waits for that, but what is promoted does.
    pub(crate) changed: bool,
    /// The flush in flight covers direct writes; else it is destage's alone, and no client needs to wait for it.
    pub(crate) flushing_direct: bool,
    /// It covers what may have changed.
    pub(crate) flushing_changed: bool,
    /// It takes so long that nothing waits to be proven by it: nothing of this origin is promoted until it ends.
    pub(crate) flush_overdue: bool,
    /// I/Os for clients in flight: reads that miss, direct writes.
    pub(crate) foreground_ios: u32,
    /// When the last of them began or ended.
    pub(crate) last_foreground: Option<Time>,
    /// For how long none was in flight, until the last one began.
    pub(crate) free_ns: u64,
    pub(crate) dirty: u64,
    /// Blocks of its accepted writes that are not in the log yet.
    pub(crate) reserved: u64,
    /// It refuses destage.
    pub(crate) retry: Option<Retry>,
    /// A block of it was lost that no FLUSH has covered: the next FLUSH must say so.
    pub(crate) volatile_lost: bool,
}

/// An origin that refuses destage, and of which nothing has become clean since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    /// When it is tried again.
    pub(crate) at: Time,
    /// After this pause.
    pub(crate) pause_ns: u64,
    /// So many attempts have failed.
    pub(crate) attempts: u32,
}

/// At most one flush of a device in flight; those who ask meanwhile share the next.
#[derive(Default)]
pub(crate) struct FlushGate {
    pub(crate) issued: u64,
    pub(crate) wanted: u64,
    pub(crate) in_flight: bool,
    /// When the last one was issued.
    pub(crate) began: Time,
    pub(crate) waiters: Vec<(u64, FlushWaiter)>,
}

impl FlushGate {
    /// Asks for a flush of everything completed by now.
    pub(crate) const fn want(&mut self) {
        self.wanted = self.issued + 1;
    }

    /// Whether one should be issued now.
    pub(crate) const fn due(&self) -> bool {
        self.wanted > self.issued && !self.in_flight
    }

    /// Whether none is in flight or wanted.
    pub(crate) const fn idle(&self) -> bool {
        self.wanted <= self.issued && !self.in_flight
    }

    /// Joins the next flush to be issued.
    pub(crate) fn join(&mut self, waiter: FlushWaiter) {
        self.want();
        self.waiters.push((self.wanted, waiter));
    }

    /// Joins the next flush that anybody wants.
    fn join_any(&mut self, waiter: FlushWaiter) {
        self.waiters.push((self.issued + 1, waiter));
    }

    /// Asks for a flush if anybody waits for one.
    pub(crate) fn want_waited_for(&mut self) {
        if self.waiters.iter().any(|it| it.0 > self.issued) {
            self.want();
        }
    }

    /// Joins the flush in flight.
    fn join_current(&mut self, waiter: FlushWaiter) {
        self.waiters.push((self.issued, waiter));
    }
}

impl Origin {
    /// An I/O for a client begins.
    pub(crate) fn foreground_began(&mut self, now: Time) {
        self.free_ns = self.free_ns(now);
        self.foreground_ios += 1;
        self.last_foreground = Some(now);
    }

    /// One ended.
    pub(crate) const fn foreground_ended(&mut self, now: Time) {
        self.foreground_ios -= 1;
        self.last_foreground = Some(now);
    }

    /// For how long, so far, it had no I/O for a client.
    pub(crate) fn free_ns(&self, now: Time) -> u64 {
        let free = self.foreground_ios == 0;
        self.free_ns + if free { now.since_ns(self.last_foreground.unwrap_or(Time(0))) } else { 0 }
    }

    /// A client's read begins, of the places from `first` to `end`.
    pub(crate) fn client_read_began(&mut self, first: u64, end: u64, now: Time) {
        self.foreground_began(now);
        self.gauge.read_began(first, end, now);
    }

    /// One of so many blocks ended; `None`: it failed.
    pub(crate) fn client_read_ended(&mut self, blocks: Option<u32>, now: Time) {
        self.foreground_ended(now);
        self.gauge.read_ended(blocks, now);
    }

    /// It has refused destage, and it is too soon to try again.
    pub(crate) fn rests(&self, now: Time) -> bool {
        self.retry.is_some_and(|it| now < it.at)
    }

    /// Its places among all.
    pub(crate) const fn places(&self) -> Range<u64> {
        self.base.0..self.base.0 + self.blocks
    }

    /// Waits until all direct writes completed so far are durable; `false` if they are already. Promoted blocks are in no hurry: they wait for a flush that
    /// somebody else wants.
    pub(crate) fn await_durable(&mut self, waiter: FlushWaiter) -> bool {
        let promoted = waiter.is_promoted();
        let asked = self.doubtful && matches!(waiter, FlushWaiter::Request(_));
        if promoted && (self.unflushed || self.changed) {
            self.flush.join_any(waiter);
            true
        } else if self.unflushed || asked {
            self.flush.join(waiter);
            true
        } else if self.flush.in_flight && (self.flushing_direct || (promoted && self.flushing_changed)) {
            self.flush.join_current(waiter);
            true
        } else {
            false
        }
    }
}

/// What a lane tells the coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Up {
    /// A part of a request is done.
    PieceDone { request: usize, error: Option<RequestError>, from_origin: bool },
    /// The same, of a discard or of long zeroes.
    RangePieceDone { request: usize, error: Option<RequestError> },
    /// A part of a request is on its origin, which had failed so many flushes by then; no flush has covered it.
    OnOrigin { request: usize, failed_flushes: u32 },
    /// A direct write was to go past a congested log, and can't: its range is in the log, or the origin refused it.
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
    OpenFailed(crate::recover::OpenError),
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
    /// Dirty blocks whose only copy is corrupt.
    pub(crate) lost: BTreeSet<Flat>,
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
        self.origins.iter_mut().for_each(|origin| origin.flush.want_waited_for());
    }

    /// From when on what is promoted doesn't wait for this origin's flush any more: while others could be kept back by it.
    pub(crate) fn proof_overdue_from(&self, at: usize) -> Option<Time> {
        let Origin { flush, flush_overdue, .. } = &self.origins[at];
        let waits = self.origins.len() > 1 && flush.in_flight && !flush_overdue;
        (waits && flush.waiters.iter().any(|it| it.1.is_promoted())).then(|| flush.began.plus_ns(OVERDUE_NS))
    }

    /// Which origin a flat key belongs to.
    pub(crate) fn origin_of(&self, flat: Flat) -> usize {
        // Mostly there is one, and each request asks some times.
        if self.origins.len() == 1 { 0 } else { self.origins.partition_point(|origin| origin.base <= flat) - 1 }
    }

    /// Dirty blocks of an origin that are not lost.
    pub(crate) fn undrained(&self, origin: &Origin) -> u64 {
        if self.lost.is_empty() {
            return origin.dirty;
        }
        let places = origin.places();
        origin.dirty - self.lost.range(Flat(places.start)..Flat(places.end)).count() as u64
    }

    /// What an origin has of the dirty limit. Lost blocks never become clean, and must not keep everybody out.
    pub(crate) fn held(&self, origin: &Origin) -> u64 {
        self.undrained(origin) + origin.reserved
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

/// One step of the engine: the time, the memory, where effects go, what is shared.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) mem: &'a mut dyn Memory,
    pub(crate) out: &'a mut Effects,
    pub(crate) shared: &'a mut Shared,
}

impl Cx<'_> {
    pub(crate) fn io(&mut self, lane: usize, op: usize, device: DeviceId, what: Op, offset: u64, span: Option<Span>) {
        let len = span.map_or(0, |span| u64::from(span.len));
        self.ranged_io(lane, op, device, what, offset, len, span);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one Io; a struct would only name them twice")]
    pub(crate) fn ranged_io(
        &mut self,
        lane: usize,
        op: usize,
        device: DeviceId,
        what: Op,
        offset: u64,
        len: u64,
        span: Option<Span>,
    ) {
        if what == Op::Write && device == self.lead() {
            self.shared.measure(Measured::CacheWritten { bytes: len }, self.now);
        }
        let it = &mut self.shared.counters;
        let mut nothing = 0;
        let (ios, bytes) = match (device, what) {
            (DeviceId::Cache | DeviceId::Mirror, Op::Read) => (&mut it.cache_reads, &mut it.cache_reads_bytes),
            (DeviceId::Cache | DeviceId::Mirror, Op::Write) => (&mut it.cache_writes, &mut it.cache_writes_bytes),
            (DeviceId::Cache | DeviceId::Mirror, Op::Flush) => (&mut it.cache_flushes, &mut nothing),
            (DeviceId::Origin(_), Op::Read) => (&mut it.origin_reads, &mut it.origin_reads_bytes),
            (DeviceId::Origin(_), Op::Write | Op::Zero | Op::Punch) => {
                (&mut it.origin_writes, &mut it.origin_writes_bytes)
            }
            (DeviceId::Origin(_), Op::Flush) => (&mut it.origin_flushes, &mut nothing),
            (_, Op::Discard | Op::Zero | Op::Punch | Op::Map) => (&mut nothing, &mut 0),
        };
        (*ios, *bytes) = (*ios + 1, *bytes + len);
        let token = Token((lane as u64) << 40 | op as u64);
        self.out.0.push(Effect::Io(Io { token, device, op: what, offset, len, span }));
    }

    /// The cache device can't be trusted with anything new.
    pub(crate) fn fail_cache(&mut self) {
        if !core::mem::replace(&mut self.shared.cache_failed, true) {
            self.event(Event::CacheFailed);
        }
    }

    /// An origin failed to do this with some blocks.
    pub(crate) fn origin_failed(&mut self, op: Op, first: Flat, blocks: u64, error: DeviceError) {
        let (_, offset, len) = self.origin_range(first, blocks);
        let origin = self.shared.key(first).origin;
        let (lba, sectors) = (Lba(offset / SECTOR_BYTES), len / SECTOR_BYTES);
        self.event(Event::OriginFailed { origin, op, lba, sectors, error });
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.out.0.push(Effect::Event(event));
    }

    /// The I/O for `blocks` blocks at `flat` of its origin: device, first byte, and length, which
    /// the origin's end may cut.
    pub(crate) fn origin_range(&self, flat: Flat, blocks: u64) -> (DeviceId, u64, u64) {
        let at = self.shared.origin_of(flat);
        let origin = &self.shared.origins[at];
        let offset = (flat.0 - origin.base.0) * BLOCK_BYTES;
        let len = (blocks * BLOCK_BYTES).min(origin.size_bytes - offset);
        (DeviceId::Origin(self.shared.superblock.origins[at].id), offset, len)
    }

    pub(crate) fn alloc(&mut self, blocks: u32) -> crate::memory::Buf {
        self.shared.buffer_bytes += u64::from(blocks) * BLOCK_BYTES;
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    /// A buffer of the RAM front, which is bounded by its own option and never given back.
    pub(crate) fn alloc_ram_front(&mut self, blocks: u32) -> crate::memory::Buf {
        self.shared.ram_front_bytes += u64::from(blocks) * BLOCK_BYTES;
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    /// A buffer of the window, which is bounded and never given back.
    pub(crate) fn alloc_window(&mut self, blocks: u32) -> crate::memory::Buf {
        self.shared.window_bytes += u64::from(blocks) * BLOCK_BYTES;
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    pub(crate) fn free(&mut self, buf: crate::memory::Buf, blocks: u32) {
        self.shared.buffer_bytes -= u64::from(blocks) * BLOCK_BYTES;
        self.mem.free(buf);
    }
}

/// The range of `blocks` blocks from block `at` of a buffer.
pub(crate) const fn blocks_span(buf: crate::memory::Buf, at: u32, blocks: u32) -> Span {
    Span::new(buf, at * BLOCK_BYTES as u32, blocks * BLOCK_BYTES as u32)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! gflash v14 (geomflash, FreeBSD, 2015) has a write buffer mirrored in RAM and on the SSD, and a
//! read cache by second read.
//!
//! Facts are from its user guide ("UG") and from its logs of the 2015 comparison ("logs"):
//!
//! - Writes go to RAM and, in the background, to the SSD. They are acknowledged from RAM, and up to
//!   four may be lost (UG).
//! - Metadata is 1 KiB for each request, of 4 KiB as of 128 KiB. The logs have 8,454,144 KB written
//!   for 65,536 admitted reads of 128 KiB. They have 1.25 bytes a byte for writes of 4 KiB, and
//!   1.125 for 8 KiB. Here a record of 4 KiB is written for every four requests, which is also why
//!   four are at risk.
//! - Destage takes the copy in RAM, in an "optimised" order. Here that is upwards over all dirty
//!   blocks, and then from the beginning again. Destaged blocks count after a FLUSH of the disk.
//! - Destage goes on in the background while nobody reads the disk, and at any time when RAM is
//!   full (UG). The logs show a third condition: 39 MiB were destaged while 4 GiB were written at
//!   the SSD's speed. Beside slower writes 100 MiB were destaged in half the time. Here the
//!   background yields while four writes are at risk.
//! - A first read leaves bookkeeping in RAM. The second puts the block on the SSD. The third comes
//!   from there (UG, logs).
//! - Blocks have 4 KiB. Each takes 37.6 bytes of RAM beside the buffer (logs: 2.2 GiB for 256 GB).
//!
//! No source says how blocks are replaced. Here all of the SSD is one space for read and for
//! written blocks, with second chances (`slots`). In the comparison 512 GiB of writes evicted the
//! blocks that had been read, and so they do here. No source says how many first reads are
//! remembered either. Here they are as many as the SSD has blocks, or half of that.
//!
//! These are not modelled: the built-in mirror of several disks, CACHE_OFF, changing components,
//! the check at the start, RAM given back to the system. Nor is TRIM of freed blocks: the models of
//! SSDs know none, and a "clean" SSD stays clean.
//!
//! The host is not FreeBSD but that of the device models, calibrated on Linux. Its SSD reads at 90
//! % of the speed under FreeBSD. So no constant here makes reads as fast as they were.

mod blocks;
mod buffer;
mod seen;
mod slots;

use std::collections::VecDeque;

use hashbrown::HashMap;

use self::buffer::Buffer;
use self::seen::Seen;
use self::slots::Slots;
use super::rig::{Io, Rig, Rival, Stats};
use super::spec::{Geometry, Spec};
use crate::system::{Ask, SystemRequest};

/// gflash as in the comparison: `gflash create -r 4g`.
pub(super) const SPEC: Spec = Spec {
    name: "gflash",
    summary: "gflash v14, RAM of 4 GiB mirrored on the SSD as write buffer, reads cached by second read",
    source: "user guide of May 2015, geomflash test_cache logs",
    cache_bytes_min: CACHE_BYTES_MIN,
    build: |geometry| Box::new(Rig::new(geometry, Gflash::new(geometry, RAM_BYTES), |_, _| {})),
};

const BLOCK_BYTES: u64 = 4096;
/// `-r 4g`. With a small SSD it is half of the SSD, because the buffer lies on that, too.
const RAM_BYTES: u64 = 4 << 30;
/// RAM comes in steps of this size (UG).
const RAM_STEP_BYTES: u64 = 128 << 20;
/// The least SSD. One step of RAM has to fit beside cached blocks.
pub(super) const CACHE_BYTES_MIN: u64 = 2 * RAM_STEP_BYTES;
/// Writes that may be lost (UG): they are acknowledged, and not on the SSD. While there are this
/// many, others wait.
const AT_RISK: u64 = 4;
/// Requests that share a record of metadata (logs).
const REQUESTS_PER_RECORD: u32 = 4;
/// The part of the SSD that records have. Their place is unknown. This part is 1 KiB for each 128
/// KiB.
const RECORDS_PART: u64 = 128;
/// Destage goes on this long after the last read of the disk. A sequential reader leaves no such
/// gap. No source has the figure.
const CALM_NS: u64 = 10_000_000;
/// The work of a request that RAM answers. Writes are done one after the other. Fitted to task 20:
/// 49,228 writes a second.
const REQUEST_NS: u64 = 20_300;
/// The time of a write while another one waits. No more than 37,151 a second went to the bare SSD
/// from 32 threads of that FreeBSD (Linux: 90,754).
const CONTENDED_NS: u64 = 26_900;
/// The work of a block that is read from the SSD. Fitted to task 3: 390,458 KB/s, where the model
/// of the SSD alone does 450,000.
const SSD_READ_BLOCK_NS: u64 = 1_370;

enum Tag {
    /// A write is in RAM.
    Copied(SystemRequest),
    /// A part of a write is on the SSD.
    Mirrored(u64),
    /// A write ended that nobody waits for: metadata, or an admitted block.
    Done,
    FromSsd(u64),
    FromData {
        number: u64,
        block: u64,
        blocks: u64,
    },
    Answer(u64),
    Destaged,
    DataFlushed,
    /// Perhaps nobody has read the disk for a while.
    Calm,
}

struct Read {
    /// The number of I/Os that the read waits for.
    parts: u32,
    ssd_blocks: u64,
}

struct Mirroring {
    /// The number of I/Os that the write to the SSD takes.
    parts: u32,
    answered: bool,
}

struct Gflash {
    buffer: Buffer,
    slots: Slots,
    first_slot: u64,
    seen: Seen,
    /// Writes and FLUSHes that wait, by age.
    queue: VecDeque<SystemRequest>,
    /// Whether the one writer is at work.
    copying: bool,
    /// Writes on their way to the SSD.
    mirroring: HashMap<u64, Mirroring>,
    /// Writes on their way to the SSD that are acknowledged.
    at_risk: u64,
    /// Writes that are not acknowledged, by age.
    unanswered: VecDeque<u64>,
    /// Requests since the last record of metadata.
    unrecorded: u32,
    record: u64,
    records: u64,
    reads: HashMap<u64, Read>,
    reads_of_data: u32,
    calm_at_ns: u64,
    awaiting_calm: bool,
    stats: Stats,
}

impl Gflash {
    fn new(geometry: &Geometry, ram_bytes: u64) -> Self {
        let half = geometry.cache_bytes / 2 / RAM_STEP_BYTES * RAM_STEP_BYTES;
        let ram_blocks = ram_bytes.min(half).max(RAM_STEP_BYTES) / BLOCK_BYTES;
        let cache_blocks = geometry.cache_bytes / BLOCK_BYTES;
        let records = (cache_blocks / RECORDS_PART).max(1);
        let slots = cache_blocks - records;
        assert!(slots > ram_blocks, "an SSD that holds more than RAM");
        let origin_blocks = geometry.origin_bytes / BLOCK_BYTES;
        Self {
            buffer: Buffer::new(origin_blocks, ram_blocks),
            slots: Slots::new(origin_blocks, slots),
            first_slot: records,
            seen: Seen::new(origin_blocks, slots / 2),
            queue: VecDeque::new(),
            copying: false,
            mirroring: HashMap::new(),
            at_risk: 0,
            unanswered: VecDeque::new(),
            unrecorded: 0,
            record: 0,
            records,
            reads: HashMap::new(),
            reads_of_data: 0,
            calm_at_ns: 0,
            awaiting_calm: false,
            stats: Stats { dirty_limit_bytes: ram_blocks * BLOCK_BYTES, ..Stats::default() },
        }
    }

    fn read(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        let SystemRequest { number, offset, len, .. } = request;
        let (first, end) = (offset / BLOCK_BYTES, (offset + len) / BLOCK_BYTES);
        let mut read = Read { parts: 0, ssd_blocks: 0 };
        let mut data_blocks = 0;
        let mut at = first;
        while at < end {
            if self.buffer.contains(at) {
                at += 1;
                continue;
            }
            let from = at;
            if let Some(slot) = self.slots.find(at) {
                while at < end && !self.buffer.contains(at) && self.slots.find(at) == Some(slot + at - from) {
                    self.slots.note_read(slot + at - from);
                    at += 1;
                }
                io.read_cache((self.first_slot + slot) * BLOCK_BYTES, (at - from) * BLOCK_BYTES, Tag::FromSsd(number));
                read.ssd_blocks += at - from;
            } else {
                while at < end && !self.buffer.contains(at) && self.slots.find(at).is_none() {
                    at += 1;
                }
                let blocks = at - from;
                io.read_origin(from * BLOCK_BYTES, blocks * BLOCK_BYTES, Tag::FromData { number, block: from, blocks });
                self.reads_of_data += 1;
                data_blocks += blocks;
            }
            read.parts += 1;
        }
        self.stats.read_blocks += end - first;
        self.stats.read_hit_blocks += end - first - data_blocks;
        if read.parts == 0 {
            io.after(REQUEST_NS, Tag::Answer(number));
        } else {
            self.reads.insert(number, read);
        }
        if data_blocks > 0 {
            self.destage(io);
        }
    }

    /// A part of a read is there.
    fn read_part(&mut self, number: u64, io: &mut Io<Tag>) {
        let read = self.reads.get_mut(&number).expect("it waits for this part");
        read.parts -= 1;
        if read.parts == 0 {
            let ns = read.ssd_blocks * SSD_READ_BLOCK_NS;
            self.reads.remove(&number);
            if ns == 0 {
                io.answer(number);
            } else {
                io.after(ns, Tag::Answer(number));
            }
        }
    }

    /// Puts blocks on the SSD that were read from the disk for the second time.
    fn admit(&mut self, first: u64, blocks: u64, io: &mut Io<Tag>) {
        let mut any = false;
        let mut at = first;
        while at < first + blocks {
            let from = at;
            while at < first + blocks && self.second_read(at) {
                at += 1;
            }
            if at > from {
                any = true;
                self.put_on_ssd(from, at - from, io, |_| Tag::Done);
            } else {
                at += 1;
            }
        }
        if any {
            self.note_metadata(io);
        }
    }

    /// Notes a read of a block. Returns whether it is the second of a block that is not on the SSD.
    fn second_read(&mut self, block: u64) -> bool {
        if self.slots.find(block).is_some() {
            return false;
        }
        self.seen.note(block)
    }

    /// Writes blocks to their slots. Returns the number of I/Os.
    fn put_on_ssd(&mut self, first: u64, blocks: u64, io: &mut Io<Tag>, tag: impl Fn(u64) -> Tag) -> u32 {
        let (mut ios, mut run) = (0, None::<(u64, u64)>);
        let mut write = |(slot, len): (u64, u64)| {
            ios += 1;
            io.write_cache((self.first_slot + slot) * BLOCK_BYTES, len * BLOCK_BYTES, tag(slot));
        };
        for block in first..first + blocks {
            self.seen.forget(block);
            let slot = self.slots.place(block, |it| self.buffer.contains(it));
            run = match run {
                Some((start, len)) if start + len == slot => Some((start, len + 1)),
                other => {
                    other.into_iter().for_each(&mut write);
                    Some((slot, 1))
                }
            };
        }
        run.into_iter().for_each(&mut write);
        ios
    }

    fn note_metadata(&mut self, io: &mut Io<Tag>) {
        self.unrecorded += 1;
        if self.unrecorded == REQUESTS_PER_RECORD {
            self.write_record(io);
        }
    }

    fn write_record(&mut self, io: &mut Io<Tag>) {
        self.unrecorded = 0;
        io.write_cache(self.record * BLOCK_BYTES, BLOCK_BYTES, Tag::Done);
        self.record = (self.record + 1) % self.records;
    }

    /// Lets the writer begin with requests that wait, if it can.
    fn work(&mut self, io: &mut Io<Tag>) {
        while let Some(&request) = self.queue.front() {
            if request.ask == Ask::Flush {
                if self.copying || !self.mirroring.is_empty() {
                    return;
                }
                if self.unrecorded > 0 {
                    self.write_record(io);
                }
                io.flush_cache(Tag::Answer(request.number));
            } else {
                if self.copying || !self.buffer.has_room(request.len / BLOCK_BYTES) {
                    return;
                }
                self.copying = true;
                io.after(if self.queue.len() > 1 { CONTENDED_NS } else { REQUEST_NS }, Tag::Copied(request));
            }
            self.queue.pop_front();
        }
    }

    fn copied(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        let SystemRequest { number, offset, len, .. } = request;
        let (first, blocks) = (offset / BLOCK_BYTES, len / BLOCK_BYTES);
        self.copying = false;
        self.buffer.write(first, blocks);
        let parts = self.put_on_ssd(first, blocks, io, |_| Tag::Mirrored(number));
        self.mirroring.insert(number, Mirroring { parts, answered: false });
        self.unanswered.push_back(number);
        self.note_metadata(io);
        self.acknowledge(io);
    }

    /// Answers as many writes as may be at risk.
    fn acknowledge(&mut self, io: &mut Io<Tag>) {
        while self.at_risk < AT_RISK
            && let Some(number) = self.unanswered.pop_front()
        {
            // The write may be on the SSD already.
            if let Some(mirroring) = self.mirroring.get_mut(&number) {
                mirroring.answered = true;
                self.at_risk += 1;
                io.answer(number);
            }
        }
    }

    fn mirrored(&mut self, number: u64, io: &mut Io<Tag>) {
        let mirroring = self.mirroring.get_mut(&number).expect("it is on its way to the SSD");
        mirroring.parts -= 1;
        if mirroring.parts == 0 {
            if mirroring.answered {
                self.at_risk -= 1;
            } else {
                io.answer(number);
            }
            self.mirroring.remove(&number);
            self.acknowledge(io);
        }
    }

    fn may_destage(&self, io: &Io<Tag>) -> bool {
        let is_calm = self.reads_of_data == 0 && io.now().0 >= self.calm_at_ns;
        self.buffer.is_nearly_full() || (self.at_risk < AT_RISK && is_calm)
    }

    /// Writes to the disk what may be written now, and flushes it when it is time.
    fn destage(&mut self, io: &mut Io<Tag>) {
        loop {
            let mut exhausted = false;
            while self.buffer.takes_write() && self.may_destage(io) {
                let Some((first, blocks)) = self.buffer.take_run() else {
                    exhausted = true;
                    break;
                };
                io.write_origin(first * BLOCK_BYTES, blocks * BLOCK_BYTES, Tag::Destaged);
            }
            let is_over = exhausted || !self.buffer.has_dirty() || self.reads_of_data > 0;
            if !self.buffer.end_batch(is_over) {
                return;
            }
            io.flush_origin(Tag::DataFlushed);
        }
    }

    fn await_calm(&mut self, io: &mut Io<Tag>) {
        let now = io.now().0;
        if !self.awaiting_calm && self.buffer.has_dirty() && now < self.calm_at_ns {
            self.awaiting_calm = true;
            io.after(self.calm_at_ns - now, Tag::Calm);
        }
    }
}

impl Rival for Gflash {
    type Tag = Tag;

    fn submit(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        if request.ask == Ask::Read {
            self.read(request, io);
        } else {
            self.queue.push_back(request);
            self.work(io);
        }
    }

    fn done(&mut self, tag: Tag, io: &mut Io<Tag>) {
        match tag {
            Tag::Done => return,
            Tag::Answer(number) => return io.answer(number),
            Tag::FromSsd(number) => return self.read_part(number, io),
            Tag::FromData { number, block, blocks } => {
                self.read_part(number, io);
                self.admit(block, blocks, io);
                self.reads_of_data -= 1;
                self.calm_at_ns = io.now().0 + CALM_NS;
            }
            Tag::Copied(request) => self.copied(request, io),
            Tag::Mirrored(number) => self.mirrored(number, io),
            Tag::Destaged => self.buffer.written(),
            Tag::DataFlushed => self.buffer.flushed(),
            Tag::Calm => self.awaiting_calm = false,
        }
        // A write that waits goes before destage.
        self.work(io);
        self.destage(io);
        self.await_calm(io);
    }

    fn stats(&self) -> Stats {
        Stats { dirty_bytes: self.buffer.used() * BLOCK_BYTES, ..self.stats }
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A step of the engine has a context: the time, the memory, and where effects go. The context
//! shows what lanes share, and takes what a step puts down for all.

use alloc::sync::Arc;

use crate::delta::{Delta, Purpose};
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, DeviceId, Effect, Effects, Io, Op, Token};
use crate::fact::memory::{Buf, Memory, Span};
use crate::fact::types::{BLOCK_BYTES, Lba, SECTOR_BYTES, Time};
use crate::facts::Facts;
use crate::organ::index::Flat;
use crate::organ::measured::Measured;
use crate::organ::members::device;
use crate::organ::origin::OriginDelta;

/// The lane number of the coordinator's own I/O.
pub(crate) const COORDINATOR: usize = 0xffff;

/// All that a turn of the engine works on. The facts change between two steps, and only here.
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    pub(crate) mem: &'a mut dyn Memory,
    pub(crate) out: &'a mut Effects,
    pub(crate) facts: &'a mut Arc<Facts>,
    pub(crate) delta: &'a mut Delta,
}

impl Turn<'_> {
    /// The context of the next step.
    pub(crate) fn cx(&mut self) -> Cx<'_> {
        Cx { now: self.now, mem: self.mem, out: self.out, facts: self.facts, delta: self.delta }
    }

    /// The facts, to change them. Lanes that work at the same time have given theirs back by then.
    pub(crate) fn change(&mut self) -> &mut Facts {
        Arc::make_mut(self.facts)
    }
}

/// What a lane works on beside the other lanes.
pub(crate) struct Apart {
    /// The facts of all, while the lane works.
    facts: Option<Arc<Facts>>,
    delta: Delta,
    out: Effects,
}

impl Apart {
    /// Room for what a lane puts down.
    pub(crate) fn new(delta: &Delta) -> Self {
        Self { facts: None, delta: delta.of_a_lane(), out: Effects::default() }
    }

    /// Shows what is so now.
    pub(crate) fn look_at(&mut self, facts: &Arc<Facts>, delta: &Delta) {
        self.facts = Some(Arc::clone(facts));
        self.delta.look_at(delta);
    }

    /// The context of the lane's step, after [`Self::look_at`].
    pub(crate) fn cx<'a>(&'a mut self, now: Time, mem: &'a mut dyn Memory) -> Option<Cx<'a>> {
        let facts = self.facts.as_deref()?;
        Some(Cx { now, mem, out: &mut self.out, facts, delta: &mut self.delta })
    }

    /// The lane's step is over: what it has put down is for all.
    pub(crate) fn give_back(&mut self, turn: &mut Turn<'_>) {
        self.facts = None;
        turn.delta.take_over(&mut self.delta, turn.now);
        turn.out.0.append(&mut self.out.0);
    }
}

/// The context of a step.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) mem: &'a mut dyn Memory,
    pub(crate) out: &'a mut Effects,
    /// What may be read.
    pub(crate) facts: &'a Facts,
    /// What is put down for all.
    pub(crate) delta: &'a mut Delta,
}

impl Cx<'_> {
    /// The device that holds everything.
    pub(crate) const fn lead(&self) -> DeviceId {
        device(self.delta.members.lead)
    }

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
            self.delta.measure(Measured::CacheWritten { bytes: len }, self.now);
        }
        let it = &mut self.delta.counters;
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

    /// Whether a write or a flush of the cache device failed: nothing new is trusted to it.
    pub(crate) const fn cache_failed(&self) -> bool {
        self.delta.members.cache_failed
    }

    /// What is put down about the origin of a block.
    pub(crate) fn of_origin(&mut self, flat: Flat) -> &mut OriginDelta {
        &mut self.delta.origins[self.facts.origin_of(flat)]
    }

    /// Reclaim drops a block.
    pub(crate) fn count_evicted(&mut self, flat: Flat) {
        self.delta.counters.evicted_blocks += 1;
        self.of_origin(flat).evicted.add(1);
    }

    /// A dirty block is lost.
    pub(crate) fn count_lost(&mut self, flat: Flat) {
        self.of_origin(flat).lost.add(1);
    }

    /// A block is lost no more.
    pub(crate) fn count_found(&mut self, flat: Flat) {
        self.of_origin(flat).lost.sub(1);
    }

    /// Blocks of an accepted write are in the log, or won't come there.
    pub(crate) fn give_back_reserved(&mut self, flat: Flat, blocks: u32) {
        self.of_origin(flat).reserved.sub(u64::from(blocks));
    }

    /// The cache device can't be trusted with anything new.
    pub(crate) fn fail_cache(&mut self) {
        if !core::mem::replace(&mut self.delta.members.cache_failed, true) {
            self.event(Event::CacheFailed);
        }
    }

    /// An origin failed to do this with some blocks.
    pub(crate) fn origin_failed(&mut self, op: Op, first: Flat, blocks: u64, error: DeviceError) {
        let (_, offset, len) = self.origin_range(first, blocks);
        let origin = self.facts.key(first).origin;
        let (lba, sectors) = (Lba(offset / SECTOR_BYTES), len / SECTOR_BYTES);
        self.event(Event::OriginFailed { origin, op, lba, sectors, error });
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.out.0.push(Effect::Event(event));
    }

    /// The I/O for `blocks` blocks at `flat` of its origin: device, first byte, and length. The
    /// origin's end may cut the length.
    pub(crate) fn origin_range(&self, flat: Flat, blocks: u64) -> (DeviceId, u64, u64) {
        let origin = self.facts.origin_of(flat);
        let it = &self.facts.origins[origin];
        let offset = (flat.0 - it.base.0) * BLOCK_BYTES;
        let len = (blocks * BLOCK_BYTES).min(it.size_bytes - offset);
        (DeviceId::Origin(it.id), offset, len)
    }

    pub(crate) fn alloc(&mut self, blocks: u32) -> Buf {
        self.delta.buffer_taken(Purpose::Work, blocks);
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    /// A buffer of the RAM front, which is bounded by its own option and never given back.
    pub(crate) fn alloc_ram_front(&mut self, blocks: u32) -> Buf {
        self.delta.buffer_taken(Purpose::RamFront, blocks);
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    /// A buffer of the window, which is bounded and never given back.
    pub(crate) fn alloc_window(&mut self, blocks: u32) -> Buf {
        self.delta.buffer_taken(Purpose::Window, blocks);
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    pub(crate) fn free(&mut self, buf: Buf, blocks: u32) {
        self.delta.buffer_freed(blocks);
        self.mem.free(buf);
    }
}

/// The range of `blocks` blocks from block `block` of a buffer.
pub(crate) const fn blocks_span(buf: Buf, block: u32, blocks: u32) -> Span {
    Span::new(buf, block * BLOCK_BYTES as u32, blocks * BLOCK_BYTES as u32)
}

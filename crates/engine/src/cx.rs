// SPDX-License-Identifier: MIT OR Apache-2.0
//! A step of the engine has a context: the time, the memory, where effects go, what is shared.

use crate::fact::event::Event;
use crate::fact::io::{DeviceError, DeviceId, Effect, Effects, Io, Op, Token};
use crate::fact::memory::{Buf, Memory, Span};
use crate::fact::types::{BLOCK_BYTES, Lba, SECTOR_BYTES, Time};
use crate::organ::index::Flat;
use crate::organ::measured::Measured;
use crate::organ::members::device;
use crate::shared::Shared;

/// The context of a step: the time, the memory, where effects go, what is shared.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) mem: &'a mut dyn Memory,
    pub(crate) out: &'a mut Effects,
    pub(crate) shared: &'a mut Shared,
}

impl Cx<'_> {
    /// The device that holds everything.
    pub(crate) const fn lead(&self) -> DeviceId {
        device(self.shared.members.lead)
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

    /// The I/O for `blocks` blocks at `flat` of its origin: device, first byte, and length. The
    /// origin's end may cut the length.
    pub(crate) fn origin_range(&self, flat: Flat, blocks: u64) -> (DeviceId, u64, u64) {
        let at = self.shared.origin_of(flat);
        let origin = &self.shared.origins[at];
        let offset = (flat.0 - origin.base.0) * BLOCK_BYTES;
        let len = (blocks * BLOCK_BYTES).min(origin.size_bytes - offset);
        (DeviceId::Origin(self.shared.superblock.origins[at].id), offset, len)
    }

    pub(crate) fn alloc(&mut self, blocks: u32) -> Buf {
        self.shared.buffer_bytes += u64::from(blocks) * BLOCK_BYTES;
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    /// A buffer of the RAM front, which is bounded by its own option and never given back.
    pub(crate) fn alloc_ram_front(&mut self, blocks: u32) -> Buf {
        self.shared.ram_front_bytes += u64::from(blocks) * BLOCK_BYTES;
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    /// A buffer of the window, which is bounded and never given back.
    pub(crate) fn alloc_window(&mut self, blocks: u32) -> Buf {
        self.shared.window_bytes += u64::from(blocks) * BLOCK_BYTES;
        self.mem.alloc(blocks * BLOCK_BYTES as u32)
    }

    pub(crate) fn free(&mut self, buf: Buf, blocks: u32) {
        self.shared.buffer_bytes -= u64::from(blocks) * BLOCK_BYTES;
        self.mem.free(buf);
    }
}

/// The range of `blocks` blocks from block `at` of a buffer.
pub(crate) const fn blocks_span(buf: Buf, at: u32, blocks: u32) -> Span {
    Span::new(buf, at * BLOCK_BYTES as u32, blocks * BLOCK_BYTES as u32)
}

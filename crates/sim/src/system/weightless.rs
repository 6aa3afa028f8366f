// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and a cache device can do without payload. Only the log's headers have bytes, because the
//! engine reads them again.
//!
//! All payload has the same checksum, so that the engine's verification holds. A buffer keeps the
//! bytes that the engine itself puts into it (headers, checkpoints), from the buffer's start on. Of
//! those the device keeps the bytes that lie in the log.

use flashfront_engine::format::Superblock;
use flashfront_engine::{BLOCK_BYTES, Buf, Memory, Span};
use hashbrown::HashMap;

const BLOCK: usize = BLOCK_BYTES as usize;
static ZEROES: [u8; 256 * BLOCK] = [0; 256 * BLOCK];

/// Buffers that hold bytes only where the engine wrote some.
#[derive(Default)]
pub(super) struct Weightless {
    /// For each buffer, by number, the bytes that were written, from the start.
    buffers: Vec<Option<Vec<u8>>>,
    free: Vec<u32>,
}

impl Weightless {
    /// Returns what the engine wrote into a block of a buffer, if it did.
    pub(super) fn written(&self, buf: Buf, offset: u32) -> Option<&[u8]> {
        let bytes = self.buffers[buf.0 as usize].as_ref()?;
        bytes.get(offset as usize..offset as usize + BLOCK)
    }

    /// Puts a block into a buffer.
    pub(super) fn put(&mut self, buf: Buf, offset: u32, bytes: &[u8]) {
        let block = self.bytes_mut(Span::new(buf, offset, BLOCK as u32));
        block[..bytes.len()].copy_from_slice(bytes);
        block[bytes.len()..].fill(0);
    }
}

impl Memory for Weightless {
    fn alloc(&mut self, _bytes: u32) -> Buf {
        let number = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(None);
            (self.buffers.len() - 1) as u32
        });
        Buf(number)
    }

    fn free(&mut self, buf: Buf) {
        self.buffers[buf.0 as usize] = None;
        self.free.push(buf.0);
    }

    fn bytes(&self, span: Span) -> &[u8] {
        let (from, len) = (span.offset() as usize, span.len as usize);
        let written = self.buffers[span.buf().0 as usize].as_ref().and_then(|bytes| bytes.get(from..from + len));
        written.unwrap_or(&ZEROES[..len])
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        let (from, to) = (span.offset() as usize, (span.offset() + span.len) as usize);
        let bytes = self.buffers[span.buf().0 as usize].get_or_insert_with(Vec::new);
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        &mut bytes[from..to]
    }

    fn copy(&mut self, _from: Span, _to: Buf, _offset: u32) {}

    fn zero(&mut self, _span: Span) {}

    fn checksum(&self, _span: Span) -> u32 {
        0
    }
}

/// The headers on a cache device, without the zeroes at their ends.
pub(super) struct Headers {
    blocks: HashMap<u64, Box<[u8]>>,
    /// The begin and the end of each lane's log.
    logs: Vec<(u64, u64)>,
}

impl Headers {
    pub(super) fn new(superblock: &Superblock) -> Self {
        let slots = superblock.segments_per_lane * superblock.segment_blocks;
        let log = |lane| (superblock.slot_offset(lane, 0), superblock.slot_offset(lane, slots));
        let formatted = superblock.empty_checkpoints().into_iter();
        let blocks = formatted.map(|(offset, block)| (offset, trimmed(&block))).collect();
        Self { blocks, logs: (0..superblock.lanes).map(log).collect() }
    }

    fn in_log(&self, offset: u64) -> bool {
        self.logs.iter().any(|(from, to)| (*from..*to).contains(&offset))
    }

    /// Writes the device from a buffer.
    pub(super) fn write(&mut self, offset: u64, span: Span, memory: &Weightless) {
        for at in (0..u64::from(span.len)).step_by(BLOCK) {
            let place = offset + at;
            match memory.written(span.buf(), span.offset() + at as u32) {
                Some(bytes) if self.in_log(place) => {
                    self.blocks.insert(place, trimmed(bytes));
                }
                _ => {
                    self.blocks.remove(&place);
                }
            }
        }
    }

    /// Reads the device into a buffer.
    pub(super) fn read(&self, offset: u64, span: Span, memory: &mut Weightless) {
        for at in (0..u64::from(span.len)).step_by(BLOCK) {
            if let Some(bytes) = self.blocks.get(&(offset + at)) {
                memory.put(span.buf(), span.offset() + at as u32, bytes);
            }
        }
    }
}

fn trimmed(block: &[u8]) -> Box<[u8]> {
    let len = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    block[..len].into()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pump for tests: a disk in RAM, executed at once or later, in order or not; counts buffers.

use std::collections::HashMap;

use flashfront_device::Share;
use flashfront_engine::{
    Buf, Extent, MAP_BYTES, Memory, OriginId, Request, RequestError, RequestId, RequestOp, SECTOR_BYTES, Span,
    put_extents,
};

use super::super::super::{Core, Export};

/// Buffers in ordinary memory, reused by size.
#[derive(Default)]
pub(super) struct Buffers {
    all: Vec<Vec<u8>>,
    used: Vec<bool>,
    free: HashMap<usize, Vec<u32>>,
    pub(super) held_bytes: u64,
    pub(super) held_bytes_peak: u64,
    /// The budget of [`Share::Waiting`] and of payload.
    pub(super) budget_bytes: u64,
    /// The budget of [`Share::Passing`].
    pub(super) passing_budget_bytes: u64,
    pub(super) passing_bytes: u64,
    passing: Vec<bool>,
}

impl Buffers {
    fn try_alloc(&mut self, bytes: u32, share: Share) -> Option<Buf> {
        assert!(bytes > 0 && bytes.is_multiple_of(4096) && bytes <= 1 << 20, "{bytes}");
        let passing = share == Share::Passing;
        let (held, budget) = match passing {
            true => (&mut self.passing_bytes, self.passing_budget_bytes),
            false => (&mut self.held_bytes, self.budget_bytes),
        };
        if *held + u64::from(bytes) > budget {
            return None;
        }
        *held += u64::from(bytes);
        self.held_bytes_peak = self.held_bytes_peak.max(self.held_bytes);
        let reused = self.free.get_mut(&(bytes as usize)).and_then(Vec::pop);
        let index = reused.unwrap_or_else(|| {
            self.all.push(vec![0xee; bytes as usize]);
            self.used.push(false);
            self.passing.push(false);
            (self.all.len() - 1) as u32
        });
        self.passing[index as usize] = passing;
        assert!(!std::mem::replace(&mut self.used[index as usize], true));
        Some(Buf(index))
    }
}

impl Memory for Buffers {
    fn alloc(&mut self, bytes: u32) -> Buf {
        self.try_alloc(bytes, Share::Waiting).expect("within the budget")
    }

    fn free(&mut self, buf: Buf) {
        let used = std::mem::replace(&mut self.used[buf.0 as usize], false);
        assert!(used, "{buf:?} freed twice");
        let bytes = self.all[buf.0 as usize].len();
        if self.passing[buf.0 as usize] {
            self.passing_bytes -= bytes as u64;
        } else {
            self.held_bytes -= bytes as u64;
        }
        self.free.entry(bytes).or_default().push(buf.0);
    }

    fn bytes(&self, span: Span) -> &[u8] {
        assert!(self.used[span.buf().0 as usize], "{span:?} read after it was freed");
        &self.all[span.buf().0 as usize][span.offset() as usize..][..span.len as usize]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        assert!(self.used[span.buf().0 as usize], "{span:?} written after it was freed");
        &mut self.all[span.buf().0 as usize][span.offset() as usize..][..span.len as usize]
    }

    fn copy(&mut self, from: Span, to: Buf, offset: u32) {
        let bytes = self.bytes(from).to_vec();
        self.bytes_mut(Span::new(to, offset, from.len)).copy_from_slice(&bytes);
    }

    fn zero(&mut self, span: Span) {
        self.bytes_mut(span).fill(0);
    }

    fn checksum(&self, _span: Span) -> u32 {
        unreachable!("a front-end has no use for it")
    }
}

/// The disk and what is queued for it.
pub(super) struct Ram {
    pub(super) exports: Vec<Export>,
    pub(super) disk: Vec<u8>,
    pub(super) buffers: Buffers,
    pub(super) queue: Vec<Request>,
    pub(super) requests: u64,
    /// Sectors whose reads and writes fail.
    pub(super) bad: Option<std::ops::Range<u64>>,
    /// Sectors that wait for an origin.
    pub(super) slow: Option<std::ops::Range<u64>>,
    /// Buffers were freed that a client may wait for.
    pub(super) freed: bool,
    /// A client was refused buffers, and none were freed since.
    refused: bool,
}

impl Ram {
    pub(super) fn new(bytes: u64, block_bytes: u32) -> Self {
        let export = Export { block_bytes, ..Export::new("disk", OriginId(0), bytes) };
        Self {
            exports: vec![export],
            disk: vec![0; bytes as usize],
            buffers: Buffers { budget_bytes: 128 << 20, ..Buffers::default() },
            queue: Vec::new(),
            requests: 0,
            bad: None,
            slow: None,
            freed: false,
            refused: false,
        }
    }

    /// Whether a request would wait, and may not.
    pub(super) fn refuses(&self, request: &Request) -> bool {
        let waits =
            |slow: &std::ops::Range<u64>| slow.start < request.lba.0 + request.sectors && request.lba.0 < slow.end;
        self.slow.as_ref().is_some_and(waits) && request.buf.is_some_and(|buf| !self.may_wait(buf))
    }

    /// Carries out one request.
    pub(super) fn execute(&mut self, request: &Request) -> (RequestId, Result<(), RequestError>) {
        let start = (request.lba.0 * SECTOR_BYTES) as usize;
        let len = (request.sectors * SECTOR_BYTES) as usize;
        let sectors = request.lba.0..request.lba.0 + request.sectors;
        if let Some(bad) = &self.bad
            && bad.start < sectors.end
            && sectors.start < bad.end
        {
            return (request.id, Err(RequestError::Io));
        }
        let of_blocks = request.buf.filter(|_| request.op != RequestOp::Map);
        let span = of_blocks.map(|buf| Span::new(buf, (start % 4096) as u32, len as u32));
        match (request.op, span) {
            (RequestOp::Map, None) => {
                let blocks = self.disk[start..start + len].chunks(4096);
                let extents =
                    blocks.map(|block| Extent { bytes: block.len() as u64, hole: block.iter().all(|byte| *byte == 0) });
                let list = Span::new(request.buf.expect("a map has a buffer"), 0, MAP_BYTES);
                let told = put_extents(self.buffers.bytes_mut(list), extents);
                assert!(told > 0);
            }
            (RequestOp::WriteBytes { head, tail }, Some(span)) => {
                let (head, len) = (usize::from(head), len - usize::from(tail));
                assert!(head < 512 && tail < 512 && (head, tail) != (0, 0));
                self.disk[start + head..start + len].copy_from_slice(&self.buffers.bytes(span)[head..len]);
            }
            (RequestOp::Read | RequestOp::Prefetch, Some(span)) => {
                self.buffers.bytes_mut(span).copy_from_slice(&self.disk[start..start + len]);
            }
            (RequestOp::Write, Some(span)) => {
                self.disk[start..start + len].copy_from_slice(self.buffers.bytes(span));
            }
            (RequestOp::Flush, None) => {}
            (RequestOp::Discard | RequestOp::WriteZeroes { .. }, None) => {
                self.disk[start..start + len].fill(0);
            }
            _ => panic!("malformed {request:?}"),
        }
        (request.id, Ok(()))
    }
}

impl Core for Ram {
    fn exports(&self) -> &[Export] {
        &self.exports
    }

    fn memory(&mut self) -> &mut dyn Memory {
        &mut self.buffers
    }

    fn alloc(&mut self, bytes: u32, _origin: OriginId) -> Option<Buf> {
        let waiting = self.buffers.try_alloc(bytes, Share::Waiting);
        let buf = waiting.or_else(|| self.buffers.try_alloc(bytes, Share::Passing));
        self.refused |= buf.is_none();
        buf
    }

    fn alloc_of(&mut self, share: Share, bytes: u32, _origin: OriginId) -> Option<Buf> {
        let buf = self.buffers.try_alloc(bytes, share);
        self.refused |= buf.is_none() && share == Share::Waiting;
        buf
    }

    fn may_wait(&self, buf: Buf) -> bool {
        !self.buffers.passing[buf.0 as usize]
    }

    fn passing_bytes(&self) -> u64 {
        match self.buffers.passing_budget_bytes {
            0 => u64::MAX,
            bytes => bytes,
        }
    }

    fn is_short(&self) -> bool {
        self.refused
    }

    fn free(&mut self, buf: Buf) {
        // A client that still needs buffers says so again.
        (self.freed, self.refused) = (true, false);
        self.buffers.free(buf);
    }

    fn put_back(&mut self, buf: Buf) {
        self.buffers.free(buf);
    }

    fn submit(&mut self, request: Request) {
        assert!(request.id.0 < 1 << 32);
        let export = &self.exports[request.origin.0 as usize];
        if request.op != RequestOp::Flush {
            let end = (request.lba.0 + request.sectors) * SECTOR_BYTES;
            assert!(request.sectors > 0 && end <= export.size_bytes, "{request:?}");
        }
        let same = self.queue.iter().any(|other| other.id == request.id);
        assert!(!same, "{:?} is in flight already", request.id);
        self.requests += 1;
        self.queue.push(request);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Divides read data into data and holes, where there is nothing but zeroes.
//!
//! Holes are found by looking at the bytes. Data that is no hole differs within its first bytes,
//! which are sent anyway.

use flashfront_engine::{BLOCK_BYTES, Memory, Span};

use super::pending::Part;

/// The shortest run of zeroes that is worth a chunk of its own.
const HOLE_BYTES_MIN: u64 = 16 << 10;

/// A part of the bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) hole: bool,
}

/// The place of the bytes from `at` to `end` of a part.
pub(super) fn span(part: &Part, at: u64, end: u64) -> Span {
    let from = (part.at % BLOCK_BYTES) + (at - part.at);
    Span::new(part.buf, from as u32, (end - at) as u32)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|line| line.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Divides what was read into data and holes; neighbours are of different kinds.
pub(super) fn divide(parts: &[Option<Part>], memory: &dyn Memory, segments: &mut Vec<Segment>) {
    segments.clear();
    let mut add = |start: u64, end: u64, hole: bool| match segments.last_mut() {
        Some(last) if last.hole == hole => last.end = end,
        _ => segments.push(Segment { start, end, hole }),
    };
    for part in parts.iter().flatten() {
        let mut at = part.at;
        while at < part.end() {
            let end = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(part.end());
            add(at, end, is_zero(memory.bytes(span(part, at, end))));
            at = end;
        }
    }
    // Short holes are sent as data, unless there is nothing else.
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return };
    let all = last.end - first.start;
    let mut kept = 0;
    for nth in 0..segments.len() {
        let mut segment = segments[nth];
        let bytes = segment.end - segment.start;
        segment.hole &= bytes >= HOLE_BYTES_MIN || (bytes == all && bytes >= BLOCK_BYTES);
        if kept > 0 && segments[kept - 1].hole == segment.hole {
            segments[kept - 1].end = segment.end;
        } else {
            segments[kept] = segment;
            kept += 1;
        }
    }
    segments.truncate(kept);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was read, as it is sent: data, and holes where there is nothing but zeroes.
//!
//! A client that takes chunks is spared long runs of zeroes. They are found by looking: data that
//! is none differs within its first bytes, which are sent anyway.

use flashfront_engine::{BLOCK_BYTES, Memory, Span};
use flashfront_nbd_proto::server::Part as Told;
use flashfront_nbd_proto::wire::Replies;

use super::super::Core;
use super::connection::Connection;
use super::outbox::Data;
use super::pending::Part;

/// The shortest run of zeroes that is worth a chunk of its own.
const HOLE_BYTES_MIN: u64 = 16 << 10;

/// A part of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) hole: bool,
}

/// Where the bytes of a part that begin at `at` are.
fn span(part: &Part, at: u64, end: u64) -> Span {
    let from = (part.at % BLOCK_BYTES) + (at - part.at);
    Span::new(part.buf, from as u32, (end - at) as u32)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|line| line.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Divides what was read into data and holes; neighbours are of different kinds.
fn divide(parts: &[Option<Part>], memory: &dyn Memory, segments: &mut Vec<Segment>) {
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

impl Connection {
    /// Queues what the engine has read for a request; `whole`: in one chunk.
    pub(super) fn answer_read(&mut self, place: u16, whole: bool, core: &mut dyn Core) {
        let reply = self.reply_to(place);
        let mut segments = std::mem::take(&mut self.segments);
        let pending = self.table.get_mut(place);
        let offset = pending.offset;
        let start = offset + pending.done;
        let end = start + u64::from(pending.window);
        let (first, last) = (pending.done == 0, end == offset + pending.len);
        pending.done += u64::from(pending.window);
        if reply.replies == Replies::Simple || whole {
            segments.clear();
            segments.push(Segment { start, end, hole: false });
        } else {
            divide(pending.first_parts(), core.memory(), &mut segments);
        }
        for (nth, segment) in segments.iter().enumerate() {
            let done = last && nth + 1 == segments.len();
            let bytes = (segment.end - segment.start) as u32;
            let told = Told { start: segment.start, bytes, first: first && nth == 0, last: done };
            let answers = done.then_some(place);
            if segment.hole {
                self.outbox.push(|out| reply.hole(told, out), None, None, answers);
                continue;
            }
            // A buffer is of no more use when its last data is sent.
            let next_data = segments.get(nth + 2).map_or(u64::MAX, |next| next.start);
            let pending = self.table.get_mut(place);
            let mut told = Some(told);
            for slot in pending.first_parts() {
                let Some(part) = *slot else { continue };
                let (from, to) = (segment.start.max(part.at), segment.end.min(part.end()));
                if from >= to {
                    continue;
                }
                let over = next_data >= part.end();
                let frees = over.then_some((part.buf, part.bytes));
                if over {
                    *slot = None;
                }
                let told = told.take();
                let head = |out: &mut Vec<u8>| told.into_iter().for_each(|told| reply.data(told, out));
                let answers = answers.filter(|_| to == segment.end);
                let data = Data::here(place, from, span(&part, from, to));
                self.outbox.push(head, Some(data), frees, answers);
            }
        }
        self.segments = segments;
        // Those with nothing but zeroes.
        self.free_bufs(place, core);
        if last {
            self.leave_long(place);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's request is cut at the borders of blocks, and each part is looked up by itself.

use hashbrown::HashMap;

use crate::rival::rig::Io;
use crate::system::{Ask, SystemRequest};

/// Bytes of a page, the unit of metadata and of what is counted.
pub(super) const PAGE: u64 = 4096;
/// What a request costs beside its I/O. Fitted to random reads of 4 KiB from the cache, one at a
/// time (8,265 a second, the SSD alone 8,969).
const REQUEST_NS: u64 = 9_500;
/// What each 4 KiB of a request cost. Fitted to sequential reads of 128 KiB (310 MB/s, the SSD
/// alone 448; the log has the SSD itself busy for longer).
const REQUEST_4K_NS: u64 = 3_700;

/// A request, or the part of it that is in one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) number: u64,
    pub(super) block: u64,
    /// Where the part begins in its block.
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) write: bool,
    /// The request has no other part.
    pub(super) alone: bool,
}

/// A request of a client, cut at the borders of blocks.
fn parts(request: &SystemRequest, block_bytes: u64) -> Vec<Part> {
    let SystemRequest { number, ask, offset, len } = *request;
    let blocks = offset / block_bytes..(offset + len).div_ceil(block_bytes);
    let alone = blocks.end - blocks.start == 1;
    let part = |block: u64| {
        let at = offset.saturating_sub(block * block_bytes);
        let end = (offset + len - block * block_bytes).min(block_bytes);
        Part { number, block, at, len: end - at, write: ask == Ask::Write, alone }
    };
    blocks.map(part).collect()
}

/// Begins to look up the blocks of a request, each after the time that this takes. A request of
/// several parts has their number noted in `several`.
pub(super) fn look_up<T>(
    request: &SystemRequest,
    block_bytes: u64,
    several: &mut HashMap<u64, u32>,
    io: &mut Io<T>,
    start: impl Fn(Part) -> T,
) {
    let parts = parts(request, block_bytes);
    if parts.len() > 1 {
        several.insert(request.number, parts.len() as u32);
    }
    for part in parts {
        io.after(REQUEST_NS + part.len / PAGE * REQUEST_4K_NS, start(part));
    }
}

/// Counts a request's part as over. Returns whether it was the last one.
pub(super) fn last_of(left: &mut HashMap<u64, u32>, number: u64) -> bool {
    let count = left.get_mut(&number).expect("what is counted down was counted");
    *count -= 1;
    let last = *count == 0;
    if last {
        left.remove(&number);
    }
    last
}

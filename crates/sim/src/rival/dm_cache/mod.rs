// SPDX-License-Identifier: MIT OR Apache-2.0
//! dm-cache: blocks of a fixed size, in place, each copied as a whole between origin and cache
//! device.
//!
//! From the kernel's documentation (`device-mapper/cache.rst`), the behaviour of
//! `dm-cache-target.c`, the counters in the logs of 2015, and those of Linux 6.1 in a virtual
//! machine. Who is cached is decided by a policy ([`mq`], [`smq_411`], [`smq`]). Linux 4.12 changed
//! the target so much that there are two ([`until_411`], [`since_412`]). What both do:
//!
//! - A hit goes to the block's place on the cache device, a miss to the origin; nothing is
//!   buffered. A request is cut at the borders of blocks.
//! - A commit writes the changed blocks of the metadata, flushes, writes the superblock and flushes
//!   again. A FLUSH commits, then flushes both devices.
//!
//! Not modelled: writethrough and passthrough, discards, dirty flags and hints written at the end,
//! recovery, splitting of copies into parts of 64 KiB, errors.

mod mq;
mod since_412;
mod smq;
mod smq_411;
mod until_411;

use hashbrown::HashMap;

use super::{Geometry, Io, Rig, Rival, Spec, Stats};
use crate::system::{Ask, SystemRequest};

/// The default policy of Linux 3.16, with the settings of the comparison of 2015.
pub(super) const MQ: Spec = Spec {
    name: "dm-cache-mq",
    summary: "dm-cache of Linux 3.16, policy mq, blocks of 256 KiB, copying without a limit (as in the comparison of 2015)",
    source: "Linux 3.16, dm-cache-target.c and dm-cache-policy-mq.c; geomflash, test_dm-cache.log",
    build: |geometry| until_411::build(geometry, &SETUP_2015, |places, _| mq::Mq::new(places)),
};

/// lvmcache before Linux 4.12.
pub(super) const SMQ_4_11: Spec = Spec {
    name: "dm-cache-smq-4.11",
    summary: "dm-cache (lvmcache) before Linux 4.12, policy smq, blocks of 64 KiB",
    source: "Linux 4.11, dm-cache-target.c and dm-cache-policy-smq.c",
    build: |geometry| until_411::build(geometry, &SETUP_SMQ, smq_411::Smq::new),
};

/// lvmcache since Linux 4.12.
pub(super) const SMQ: Spec = Spec {
    name: "dm-cache-smq",
    summary: "dm-cache (lvmcache) since Linux 4.12, policy smq, blocks of 64 KiB",
    source: "Linux 6.1, dm-cache-target.c and dm-cache-policy-smq.c",
    build: |geometry| since_412::build(geometry, &SETUP_SMQ),
};

/// How it is set up.
#[derive(Clone, Copy)]
struct Setup {
    block_bytes: u64,
    /// Of the cache device, at its beginning.
    metadata_bytes: u64,
    /// While so much is being copied some copies aren't begun: which, the target knows.
    migration_threshold_bytes: u64,
}

impl Setup {
    const fn places(&self, geometry: &Geometry) -> u64 {
        geometry.cache_bytes.saturating_sub(self.metadata_bytes) / self.block_bytes
    }

    fn place_at(&self, place: u32) -> u64 {
        self.metadata_bytes + u64::from(place) * self.block_bytes
    }
}

const SETUP_2015: Setup =
    Setup { block_bytes: 256 << 10, metadata_bytes: 38_720 * 512, migration_threshold_bytes: 33_554_432 * 512 };
const SETUP_SMQ: Setup =
    Setup { block_bytes: 64 << 10, metadata_bytes: 8 << 20, migration_threshold_bytes: 2048 * 512 };

const SECTOR: u64 = 4096;
const SECOND_NS: u64 = 1_000_000_000;
/// What a request costs beside its I/O: fitted to random reads of 4 KiB from the cache, one at a
/// time (8,265 a second, the SSD alone 8,969).
const REQUEST_NS: u64 = 9_500;
/// And for each 4 KiB of it: fitted to sequential reads of 128 KiB (310 MB/s, the SSD alone 448;
/// the log has the SSD itself busy for longer).
const REQUEST_4K_NS: u64 = 3_700;
/// What a commit takes longer than its I/O on the model of the SSD: fitted to the 5.68 ms for which
/// the log has the metadata's device busy for each promotion of task 2, two flushes of an 850 PRO
/// for the most part.
const COMMIT_NS: u64 = 2_100_000;

/// A request, or the part of it that is in one block.
#[derive(Clone, Copy, Debug)]
struct Part {
    number: u64,
    block: u64,
    /// In the block.
    at: u64,
    len: u64,
    write: bool,
    /// The request's only one.
    alone: bool,
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

/// Begins to look the blocks of a request up, each after the time that this takes; how many there
/// are is kept in `several`, unless it is one.
fn look_up<T>(
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
        io.after(REQUEST_NS + part.len / SECTOR * REQUEST_4K_NS, start(part));
    }
}

/// Counts down; whether it was the last.
fn last_of(left: &mut HashMap<u64, u32>, number: u64) -> bool {
    let count = left.get_mut(&number).expect("what is counted down was counted");
    *count -= 1;
    let last = *count == 0;
    if last {
        left.remove(&number);
    }
    last
}

#[cfg(test)]
mod tests;

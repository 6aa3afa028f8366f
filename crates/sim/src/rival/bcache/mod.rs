// SPDX-License-Identifier: MIT OR Apache-2.0
//! bcache (Kent Overstreet) fills buckets like a log, and has extents in a tree and a journal of
//! keys. The model is that of Linux 3.13 to 4.14, and with the destage of 6.1.
//!
//! - Modes: writeback. A write goes straight (writethrough) when a collection has seen too many
//!   dirty buckets.
//! - Admission: every write, and every read that misses, at its first time. Streams go past the
//!   cache, and so do requests that a slow cache device can't take (`bypass`).
//! - Placement: everything goes into the open bucket. Buckets are reused by age and live data
//!   (`buckets`).
//! - Metadata I/O: the journal, leaves of the tree, generations of buckets (`journal`).
//! - Destage: in order of the origin, 500 keys at a time, 64 in flight, read from the cache device.
//!   A controller sets the pace (`pace`, `destage`).
//! - FLUSH: a journal write, and always a flush of the origin.
//! - Memory: the tree's nodes that are in use. For 256 GB they took 17 MB after creation, and 345
//!   MB after the runs of 2015 (measured there).
//!
//! These are not modelled:
//!
//! - The time that a collection takes and holds others up; copying collection.
//! - RAID stripes, the bypass of read-ahead, and failures.
//! - Since Linux 4.15 each allocation counts as in use before a collection has seen it.
//! - Since Linux 4.16 the origin is written strictly in the keys' order.

mod buckets;
mod bypass;
mod cache;
mod destage;
mod extent;
mod index;
mod journal;
mod pace;
mod tag;
#[cfg(test)]
mod tests;

use self::cache::{Bcache, Setup};
use self::pace::Controller;
use self::tag::Tag;
use super::rig::Rig;
use super::spec::{Geometry, Spec};
use crate::system::System;

/// bcache as the comparisons set it up: no stream is bypassed, and writes are direct (synchronous).
pub(super) const SPEC: Spec = Spec {
    name: "bcache",
    summary: "bcache of Linux 3.13 to 4.14, writeback, sequential_cutoff 0, direct writes",
    source: "kernel sources and documentation; geomflash test_cache (2015)",
    cache_bytes_min: 0,
    build: |geometry| build(geometry, &Setup { cutoff_bytes: 0, synchronous: true, controller: Controller::pd() }),
};

/// bcache with its defaults. A file system's write-back, which isn't synchronous, writes to it.
pub(super) const SPEC_4M: Spec = Spec {
    name: "bcache-4m",
    summary: "the same with its defaults: streams from 4 MiB on are bypassed, writes are a file system's write-back",
    source: "kernel sources and documentation",
    cache_bytes_min: 0,
    build: |geometry| {
        build(geometry, &Setup { cutoff_bytes: 4 << 20, synchronous: false, controller: Controller::pd() })
    },
};

/// bcache with the destage of Linux 6.1.
pub(super) const SPEC_6_1: Spec = Spec {
    name: "bcache-6.1",
    summary: "bcache of Linux 6.1, writeback, sequential_cutoff 0, direct writes",
    source: "kernel sources; Linux 6.1 in a virtual machine",
    cache_bytes_min: 0,
    build: |geometry| build(geometry, &Setup { cutoff_bytes: 0, synchronous: true, controller: Controller::pi() }),
};

fn build(geometry: &Geometry, setup: &Setup) -> Box<dyn System> {
    let bcache = Bcache::new(geometry.cache_bytes, setup);
    Box::new(Rig::new(geometry, bcache, |_, io| io.after(destage::UPDATE_NS, Tag::Pace)))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! bcache (Kent Overstreet) fills buckets like a log, and has extents in a tree and a journal of
//! keys. The model is that of Linux 3.13 to 4.14, and with the destage of 6.1.
//!
//! - Modes: writeback; a write goes straight (writethrough) when a collection has seen too many
//!   dirty buckets.
//! - Admission: every write, and every read that misses, on its first read; past the cache go
//!   streams and what a slow cache device can't take (`bypass`).
//! - Placement: into the open bucket, whatever comes; reused by age and live data (`buckets`).
//! - Metadata I/O: the journal, leaves of the tree, generations of buckets (`journal`).
//! - Destage: in order of the origin, 500 keys at a time, 64 in flight, from the cache device;
//!   paced by a controller (`pace`, `destage`).
//! - FLUSH: a journal write, and always a flush of the origin.
//! - Memory: the tree's nodes that are in use; 17 MB after creation for 256 GB, 345 MB after the
//!   runs of 2015 (measured there).
//!
//! Not modelled: the time that a collection takes and holds others up; copying collection; RAID
//! stripes; read-ahead's bypass; that each allocation counts as in use before a collection has seen
//! it (since Linux 4.15); that the origin is written strictly in the keys' order (since 4.16);
//! failures.

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

/// bcache as the comparisons set it up: nothing is too sequential; writes are direct (synchronous).
pub(super) const SPEC: Spec = Spec {
    name: "bcache",
    summary: "bcache of Linux 3.13 to 4.14, writeback, sequential_cutoff 0, direct writes",
    source: "kernel sources and documentation; geomflash test_cache (2015)",
    cache_bytes_min: 0,
    build: |geometry| build(geometry, &Setup { cutoff_bytes: 0, synchronous: true, controller: Controller::pd() }),
};

/// bcache with its defaults, written to by a file system's write-back, which isn't synchronous.
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

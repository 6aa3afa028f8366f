// SPDX-License-Identifier: MIT OR Apache-2.0
//! bcache's writeback thread decides what it takes next, and when.
//!
//! The thread looks for 500 dirty keys in order, from where it left off. It reads each from the
//! cache device and writes it to the origin, 64 at a time. It waits for all of them before it looks
//! again. After a look through the whole index it rests for 30 s.
//!
//! Keys that follow each other don't wait for the limiter, within bounds. With the PD controller
//! they wait when the limiter asks for more than 50 ms. With the PI controller (really since Linux
//! 4.16) at most five keys go together, and only until they have 2.4 MiB.

use std::collections::VecDeque;

use super::cache::{Bcache, way_ns};
use super::extent::Extent;
use super::pace::{Controller, Dirty, Pace, UPDATE_S};
use super::tag::Tag;
use crate::rival::rig::Io;

/// The time between two turns of the controller.
pub(super) const UPDATE_NS: u64 = UPDATE_S as u64 * 1_000_000_000;
/// `KEYBUF_NR`.
const KEYS: usize = 500;
const IN_FLIGHT: u32 = 64;
/// `writeback_delay`.
const REST_NS: u64 = 30_000_000_000;
/// Pauses up to this length are left out between neighbours.
const LEFT_OUT_NS: u64 = 50_000_000;
/// `MAX_WRITEBACKS_IN_PASS` and `MAX_WRITESIZE_IN_PASS`.
const PASS_KEYS: u32 = 5;
const PASS_BYTES: u64 = 5000 * 512;

/// The thing that the thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Something dirty.
    Dirty,
    /// A moment.
    Moment,
    /// A place among those in flight.
    Place,
    /// The end of all writes in flight.
    All,
}

#[derive(Debug)]
pub(super) struct Destage {
    pace: Pace,
    waits: Waits,
    /// Whether there may be dirty data. It is set until a look through all keys finds none.
    has_dirty: bool,
    keys: VecDeque<u32>,
    found: Vec<u32>,
    /// The key from which the next look goes on; `None` is the beginning.
    scanned: Option<u32>,
    searched_all: bool,
    /// Whether destage has just rested.
    rested: bool,
    pause_ns: u64,
    last_end: u32,
    /// Keys and bytes since the last pause.
    pass: (u32, u64),
    flying: Vec<(u32, u32)>,
}

impl Destage {
    pub(super) fn new(target_bytes: u64, controller: Controller) -> Self {
        Self {
            pace: Pace::new(target_bytes, controller),
            waits: Waits::Dirty,
            has_dirty: false,
            keys: VecDeque::new(),
            found: Vec::new(),
            scanned: None,
            searched_all: false,
            rested: false,
            pause_ns: 0,
            last_end: 0,
            pass: (0, 0),
            flying: Vec::new(),
        }
    }

    /// Whether a key goes without a pause, as the neighbour of the last one.
    fn follows(&self, start: u32) -> bool {
        let (keys, bytes) = self.pass;
        let joins =
            if self.pace.is_pi() { keys < PASS_KEYS && bytes < PASS_BYTES } else { self.pause_ns <= LEFT_OUT_NS };
        start == self.last_end && joins
    }

    /// A client asks for something.
    pub(super) fn asked(&mut self) {
        self.pace.asked();
    }

    /// Whether some of these blocks are on their way to the origin. A write to them then
    /// stays in the cache as dirty data, because it is newer.
    pub(super) fn is_under_way(&self, start: u32, len: u32) -> bool {
        self.flying.iter().any(|(first, blocks)| *first < start + len && start < first + blocks)
    }
}

impl Bcache {
    /// Tells the thread that something is dirty.
    pub(super) fn wake(&mut self, io: &mut Io<Tag>) {
        self.destage.has_dirty = true;
        if self.destage.waits == Waits::Dirty {
            self.thread(io);
        }
    }

    pub(super) fn pace(&mut self, io: &mut Io<Tag>) {
        if self.destage.has_dirty {
            let in_use_percent = self.buckets.in_use_percent();
            let dirty =
                Dirty { bytes: self.index.dirty_blocks() * 4096, in_use_percent, buckets: self.buckets.in_use() };
            self.destage.pace.update(io.now(), dirty);
        }
        io.after(UPDATE_NS, Tag::Pace);
    }

    /// The thread goes on until it has to wait.
    pub(super) fn thread(&mut self, io: &mut Io<Tag>) {
        let waits = loop {
            let Self { destage, index, buckets, .. } = self;
            let Some(&start) = destage.keys.front() else {
                if !destage.flying.is_empty() {
                    break Waits::All;
                }
                if std::mem::take(&mut destage.searched_all) {
                    destage.rested = true;
                    io.after(REST_NS, Tag::Thread);
                    break Waits::Moment;
                }
                if !destage.has_dirty {
                    break Waits::Dirty;
                }
                // After a rest the thread forgets how far it was behind. With the PD controller it
                // does so at each look.
                if std::mem::take(&mut destage.rested) || !destage.pace.is_pi() {
                    destage.pace.reset(io.now());
                }
                let from_start = destage.scanned.is_none();
                destage.found.clear();
                destage.scanned = index.dirty_from(buckets, destage.scanned.unwrap_or(0), KEYS, &mut destage.found);
                destage.keys.extend(&destage.found);
                destage.searched_all = from_start && destage.scanned.is_none();
                destage.has_dirty = !(destage.searched_all && destage.keys.is_empty());
                continue;
            };
            if !destage.follows(start) {
                destage.pass = (0, 0);
                if destage.pause_ns > 0 {
                    io.after(std::mem::take(&mut destage.pause_ns), Tag::Thread);
                    break Waits::Moment;
                }
            }
            if destage.flying.len() as u32 == IN_FLIGHT {
                break Waits::Place;
            }
            destage.keys.pop_front();
            let Some(extent) = index.dirty_at(buckets, start) else { continue };
            destage.last_end = start + extent.len;
            destage.flying.push((start, extent.len));
            let bytes = u64::from(extent.len) * 4096;
            destage.pass = (destage.pass.0 + 1, destage.pass.1 + bytes);
            destage.pause_ns = destage.pace.pause_ns(io.now(), bytes);
            self.turn(way_ns(u64::from(extent.len)), Tag::DirtyFound(start, extent), io);
        };
        self.destage.waits = waits;
    }

    pub(super) fn write_dirty(start: u32, extent: Extent, io: &mut Io<Tag>) {
        let (offset, bytes) = (u64::from(start) * 4096, u64::from(extent.len) * 4096);
        io.write_origin(offset, bytes, Tag::DirtyWritten(start, extent));
    }

    /// The tree knows that an extent is clean.
    pub(super) fn cleaned(&mut self, start: u32, extent: Extent, io: &mut Io<Tag>) {
        self.index.clean(&mut self.buckets, start, extent);
        let at = self.destage.flying.iter().position(|(first, _)| *first == start);
        self.destage.flying.swap_remove(at.expect("what is cleaned was under way"));
        if self.destage.waits == Waits::Place || (self.destage.waits == Waits::All && self.destage.flying.is_empty()) {
            self.thread(io);
        }
    }
}

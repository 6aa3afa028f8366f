// SPDX-License-Identifier: MIT OR Apache-2.0
//! bcache's journal is modelled as I/O.
//!
//! Keys of clients' writes gather for 100 ms, until 32 KiB are full, or until something waits for
//! them. Then come a flush, a write and a flush: the write is PREFLUSH and FUA, and FUA is a second
//! flush on SATA. A flush of a SATA device is no queued command, so nothing else is sent to the
//! device meanwhile.
//!
//! The model simplifies one thing. Keys of destaged data, and the second keys of cuts, are in
//! leaves only, because `write_dirty_finish` has no journal. But leaves are written with FUA
//! (`do_btree_node_write`), which holds the device as well. Here these keys count for the journal,
//! whose holds were fitted that way.

use flashfront_engine::Time;

use super::tag::{Stage, Tag};
use crate::rival::rig::Io;

/// `journal_delay_ms`.
const DELAY_NS: u64 = 100_000_000;
/// A journal write keeps the cache device from all else for this long. The device's queue drains,
/// two flushes follow, and the queue fills again. Fitted to sequential writes of 128 KiB, one at a
/// time, with nothing destaged (320,714 KB/s, task 6 of 2015).
const HOLD_NS: u64 = 9_000_000;
/// Each page that was read for destage since the last journal write makes the next one longer by
/// this. What an SSD loses when reads and writes are mixed is part of it. Fitted to the rate at
/// which clients write while the origin is destaged to at full speed (133,232 KB/s, task 8 of
/// 2015).
const HOLD_PAGE_NS: u64 = 3_100;
/// Bytes of a key with one pointer.
const KEY_BYTES: u64 = 24;
/// Bytes of keys that a journal set holds.
const SET_BYTES: u64 = 32 << 10;
/// Bytes of the head of a set.
const HEAD_BYTES: u64 = 160;
/// A set's length is rounded up to this: make-bcache's `--block`, by default a sector.
const SECTOR_BYTES: u64 = 512;
/// The tree's leaf writes its new keys when they fill a page.
const LEAF_KEYS: u64 = 168;

/// Something that waits for the journal.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A FLUSH of a client.
    Client(u64),
    /// Buckets whose new generations are written.
    Buckets(Vec<u32>),
}

#[derive(Debug)]
pub(super) struct Journal {
    /// The journal's first block, its blocks, and how many bytes in it are written. The leaves are
    /// behind it.
    first: u32,
    blocks: u32,
    at: u64,
    leaf_at: u32,
    keys: u64,
    leaf_keys: u64,
    writing: bool,
    held_until: Time,
    /// Blocks read for destage since the last journal write.
    destaged_blocks: u64,
    timer: bool,
    due: bool,
    next: Vec<Waiter>,
    written: Vec<Waiter>,
}

impl Journal {
    pub(super) const fn new((first, blocks): (u32, u32)) -> Self {
        Self {
            first,
            blocks,
            at: 0,
            leaf_at: 0,
            keys: 0,
            leaf_keys: 0,
            writing: false,
            held_until: Time(0),
            destaged_blocks: 0,
            timer: false,
            due: false,
            next: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Nothing else is sent to the cache device until then.
    pub(super) const fn held_until(&self) -> Time {
        self.held_until
    }

    /// The cache device was read for destage.
    pub(super) const fn destaged(&mut self, blocks: u32) {
        self.destaged_blocks += blocks as u64;
    }

    /// Keys went into the tree's leaf.
    pub(super) fn add_to_leaf(&mut self, keys: u64, io: &mut Io<Tag>) {
        self.leaf_keys += keys;
        while self.leaf_keys >= LEAF_KEYS {
            self.leaf_keys -= LEAF_KEYS;
            self.leaf_at = (self.leaf_at + 1) % self.blocks;
            io.write_cache(u64::from(self.first + self.blocks + self.leaf_at) * 4096, 4096, Tag::Nothing);
        }
    }

    /// Keys are to be durable before long.
    pub(super) fn add(&mut self, keys: u64, io: &mut Io<Tag>) {
        self.keys += keys;
        if !self.timer {
            self.timer = true;
            io.after(DELAY_NS, Tag::JournalDue);
        }
        self.go(io);
    }

    /// Tells when all keys so far are durable.
    pub(super) fn wait(&mut self, waiter: Waiter, io: &mut Io<Tag>) {
        self.next.push(waiter);
        self.go(io);
    }

    pub(super) fn due(&mut self, io: &mut Io<Tag>) {
        (self.timer, self.due) = (false, self.keys > 0);
        self.go(io);
    }

    fn go(&mut self, io: &mut Io<Tag>) {
        let full = self.keys * KEY_BYTES >= SET_BYTES;
        if !self.writing && (full || self.due || !self.next.is_empty()) {
            self.writing = true;
            self.held_until = io.now().plus_ns(HOLD_NS + std::mem::take(&mut self.destaged_blocks) * HOLD_PAGE_NS);
            io.flush_cache(Tag::Journal(Stage::Flushed));
        }
    }

    /// A stage of the write has ended. Returns those that waited for it, if it was the last stage.
    pub(super) fn step(&mut self, stage: Stage, io: &mut Io<Tag>) -> Vec<Waiter> {
        match stage {
            Stage::Flushed => {
                let keys = self.keys.min(SET_BYTES / KEY_BYTES);
                self.keys -= keys;
                self.due = false;
                self.written = std::mem::take(&mut self.next);
                let bytes = (HEAD_BYTES + keys * KEY_BYTES).next_multiple_of(SECTOR_BYTES);
                if self.at + bytes > u64::from(self.blocks) * 4096 {
                    self.at = 0;
                }
                let offset = u64::from(self.first) * 4096 + self.at;
                self.at += bytes;
                io.write_cache(offset, bytes, Tag::Journal(Stage::Written));
                Vec::new()
            }
            Stage::Written => {
                io.flush_cache(Tag::Journal(Stage::Done));
                Vec::new()
            }
            Stage::Done => {
                self.writing = false;
                self.go(io);
                std::mem::take(&mut self.written)
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin at run time: what is so ([`Origin`]), and what lanes put down about it
//! ([`OriginDelta`]).

use core::ops::Range;

use crate::fact::options::{Options, READ_AROUND_BLOCKS_MAX};
use crate::fact::types::{BLOCK_BYTES, Mode, OriginId, SECTOR_BYTES, Time};
use crate::format::{OriginRecord, Shares};
use crate::organ::congestion::OriginGauge;
use crate::organ::cuts::Cuts;
use crate::organ::flush::OriginFlush;
use crate::organ::index::Flat;
use crate::organ::piece::PIECE_BLOCKS_MAX;
use crate::organ::sum::Sum;

/// The life of a volume in this engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The table that has it is being written.
    Coming,
    Serving,
    /// The volume is to be removed, and takes no requests any more. `destaged`: its dirty blocks
    /// are destaged first.
    Leaving {
        destaged: bool,
    },
    /// Nothing of it is under way, and the table without it is being written.
    Unlisted,
    /// The volume is removed. Its places are not used again before the next opening.
    Gone,
}

/// An origin: its place among all blocks, and its mode.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) id: OriginId,
    /// Its first block among the blocks of all origins.
    pub(crate) base: Flat,
    pub(crate) blocks: u64,
    pub(crate) size_bytes: u64,
    /// The sectors that clients may ask for: none before and after it is served.
    pub(crate) sectors: u64,
    pub(crate) block_bytes: u32,
    /// What was written between two of its flushes is there as a whole or not at all.
    pub(crate) whole_flushes: bool,
    pub(crate) mode: Mode,
    /// Clients may not write.
    pub(crate) read_only: bool,
    pub(crate) stage: Stage,
    /// The most blocks of it that may be dirty: the limit of the cache, or a lower one of its own.
    pub(crate) dirty_limit: u64,
    /// How long its data may stay dirty.
    pub(crate) dirty_age_max_ns: u64,
    /// The blocks that other origins leave to it; 0: none.
    pub(crate) min_blocks: u64,
    /// The most blocks that it may have.
    pub(crate) max_blocks: u64,
    /// What it gets of the room that is shared by weight; 0: nothing.
    pub(crate) weight: u64,
    /// Streams longer than this bypass the cache; 0 = none does.
    pub(crate) bypass_bytes: u64,
    /// How much is read at once, if a part of it is missed; at most 1: what is asked for.
    pub(crate) read_around_blocks: u64,
}

impl Origin {
    /// A volume of the table, with its first block among all.
    pub(crate) fn new(
        record: &OriginRecord,
        base: Flat,
        (block_bytes, whole_flushes): (u32, bool),
        stage: Stage,
    ) -> Self {
        let mut it = Self {
            id: record.id,
            base,
            blocks: record.size_bytes.div_ceil(BLOCK_BYTES),
            size_bytes: record.size_bytes,
            sectors: 0,
            block_bytes,
            whole_flushes,
            mode: record.mode,
            read_only: record.read_only,
            stage,
            dirty_limit: u64::MAX,
            dirty_age_max_ns: u64::MAX,
            min_blocks: 0,
            max_blocks: u64::MAX,
            weight: 0,
            bypass_bytes: 0,
            read_around_blocks: 0,
        };
        it.go_on_to(stage);
        it
    }

    /// The next stage of its life begins.
    pub(crate) fn go_on_to(&mut self, stage: Stage) {
        self.stage = stage;
        self.sectors = if stage == Stage::Serving { self.size_bytes / SECTOR_BYTES } else { 0 };
    }

    /// The volume is larger from now on.
    pub(crate) fn grow_to(&mut self, size_bytes: u64) {
        (self.size_bytes, self.blocks) = (size_bytes, size_bytes.div_ceil(BLOCK_BYTES));
        self.go_on_to(self.stage);
    }

    /// Takes the limits of the cache, or those of its own: `dirty_limit` is at most that of the
    /// cache, and at least the longest piece. Of its largest part all may be dirty.
    pub(crate) fn set_limits(&mut self, own: Shares, dirty_limit: u64, options: &Options) {
        let blocks = |bytes: u64| if bytes == 0 { u64::MAX } else { (bytes / BLOCK_BYTES).max(PIECE_BLOCKS_MAX) };
        self.max_blocks = blocks(own.max_bytes);
        self.dirty_limit = blocks(own.dirty_limit_bytes).min(self.max_blocks).min(dirty_limit);
        self.min_blocks = own.min_bytes / BLOCK_BYTES;
        self.weight = own.weight.into();
        let own_ns = u64::from(own.dirty_age_ms) * 1_000_000;
        self.dirty_age_max_ns = if own_ns == 0 { options.dirty_age_max_ns } else { own_ns };
        self.bypass_bytes = own.bypass_bytes.unwrap_or(options.sequential_bypass_bytes);
        let around = own.read_around_bytes.map(|bytes| u64::from(bytes) / BLOCK_BYTES);
        self.read_around_blocks = around.map_or(options.read_around_blocks(), |it| it.min(READ_AROUND_BLOCKS_MAX));
    }

    /// Whether reclaim leaves it a part of the cache.
    pub(crate) const fn has_part(&self) -> bool {
        self.min_blocks > 0 || self.weight > 0
    }

    /// Whether it is one of the volumes of this cache.
    pub(crate) fn is_listed(&self) -> bool {
        !matches!(self.stage, Stage::Unlisted | Stage::Gone)
    }

    /// Its places among all.
    pub(crate) const fn places(&self) -> Range<u64> {
        self.base.0..self.base.0 + self.blocks
    }
}

/// What lanes put down about an origin: its speed, its flushes, its part of what is dirty.
#[derive(Default)]
pub(crate) struct OriginDelta {
    /// How fast it is now.
    pub(crate) gauge: OriginGauge,
    pub(crate) flush: OriginFlush,
    /// Its eras, where destage is ordered; the oldest FLUSH that it lacks.
    pub(crate) cuts: Cuts,
    /// I/Os for clients in flight: reads that miss, direct writes.
    pub(crate) foreground_ios: u32,
    /// When the last of them began or ended.
    pub(crate) last_foreground: Option<Time>,
    /// For how long none was in flight, until the last one began.
    free_ns: u64,
    /// Blocks that the cache has of it.
    pub(crate) cached: Sum,
    /// Blocks that the cache had of it when a lane went to work beside others; else 0.
    cached_before: u64,
    /// Blocks of it that reclaim has chosen to drop, and that are not dropped yet.
    pub(crate) leaving: Sum,
    /// Blocks that were dropped although it had less than its smallest part, and those that were
    /// dropped as it had its largest.
    pub(crate) below_min: Sum,
    pub(crate) at_max: Sum,
    /// Blocks of it that were appended to the log, and those that reclaim dropped, so far.
    pub(crate) logged: Sum,
    pub(crate) evicted: Sum,
    pub(crate) dirty: Sum,
    /// Dirty blocks whose only copy is corrupt.
    pub(crate) lost: Sum,
    /// Blocks of its accepted writes that are not in the log yet.
    pub(crate) reserved: Sum,
}

impl OriginDelta {
    pub(crate) fn new(flush: OriginFlush) -> Self {
        Self { flush, ..Self::default() }
    }

    /// An I/O for a client begins.
    pub(crate) fn foreground_began(&mut self, now: Time) {
        self.free_ns = self.free_ns(now);
        self.foreground_ios += 1;
        self.last_foreground = Some(now);
    }

    /// An I/O for a client has ended.
    pub(crate) const fn foreground_ended(&mut self, now: Time) {
        self.foreground_ios -= 1;
        self.last_foreground = Some(now);
    }

    /// For how long, so far, it had no I/O for a client.
    pub(crate) fn free_ns(&self, now: Time) -> u64 {
        let free = self.foreground_ios == 0;
        self.free_ns + if free { now.since_ns(self.last_foreground.unwrap_or(Time(0))) } else { 0 }
    }

    /// A client's read begins, of the places from `first` to `end`.
    pub(crate) fn client_read_began(&mut self, first: u64, end: u64, now: Time) {
        self.foreground_began(now);
        self.gauge.read_began(first, end, now);
    }

    /// A client's read of this many blocks has ended; `None`: the read failed.
    pub(crate) fn client_read_ended(&mut self, blocks: Option<u32>, now: Time) {
        self.foreground_ended(now);
        self.gauge.read_ended(blocks, now);
    }

    /// Dirty blocks that are not lost: lost ones never become clean.
    pub(crate) const fn undrained(&self) -> u64 {
        self.dirty.get() - self.lost.get()
    }

    /// Blocks that the cache has of it, as far as this lane knows.
    pub(crate) const fn in_cache(&self) -> u64 {
        self.cached_before.wrapping_add(self.cached.get())
    }

    /// What the origin has of the dirty limit. Lost blocks never become clean, and must not keep
    /// everybody out.
    pub(crate) const fn held(&self) -> u64 {
        self.undrained() + self.reserved.get()
    }
}

impl OriginDelta {
    /// Room for what a lane puts down beside the other lanes.
    pub(crate) fn of_a_lane(&self) -> Self {
        Self::default()
    }

    /// Shows the gauge and the flushes as they are now. The sums are empty since they were taken
    /// over.
    pub(crate) fn look_at(&mut self, all: &Self) {
        self.cached_before = all.cached.get();
        self.flush.show(&all.flush);
        self.cuts.show(&all.cuts);
        self.gauge = all.gauge;
        (self.foreground_ios, self.last_foreground) = (all.foreground_ios, all.last_foreground);
        self.free_ns = all.free_ns;
    }

    /// Takes over what a lane has put down.
    pub(crate) fn take_over(&mut self, of: &mut Self) {
        self.cached.take_over(&mut of.cached);
        self.logged.take_over(&mut of.logged);
        self.evicted.take_over(&mut of.evicted);
        self.leaving.take_over(&mut of.leaving);
        self.below_min.take_over(&mut of.below_min);
        self.at_max.take_over(&mut of.at_max);
        self.dirty.take_over(&mut of.dirty);
        self.reserved.take_over(&mut of.reserved);
        self.lost.take_over(&mut of.lost);
        self.flush.take_over(&mut of.flush);
        self.cuts.take_over(&mut of.cuts);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin at run time: its place among all blocks, its mode, its speed, its part of what is
//! dirty.

use core::ops::Range;

use crate::fact::types::{Mode, Time};
use crate::organ::bypass::Streams;
use crate::organ::congestion::OriginGauge;
use crate::organ::flush::OriginFlush;
use crate::organ::index::Flat;

/// An origin at run time.
pub(crate) struct Origin {
    /// Its place in the flat key space.
    pub(crate) base: Flat,
    pub(crate) blocks: u64,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) mode: Mode,
    pub(crate) streams: Streams,
    /// How fast it is now.
    pub(crate) gauge: OriginGauge,
    pub(crate) flush: OriginFlush,
    /// I/Os for clients in flight: reads that miss, direct writes.
    pub(crate) foreground_ios: u32,
    /// When the last of them began or ended.
    pub(crate) last_foreground: Option<Time>,
    /// For how long none was in flight, until the last one began.
    pub(crate) free_ns: u64,
    pub(crate) dirty: u64,
    /// Dirty blocks whose only copy is corrupt.
    pub(crate) lost: u64,
    /// Blocks of its accepted writes that are not in the log yet.
    pub(crate) reserved: u64,
    /// Set while the origin refuses destage.
    pub(crate) retry: Option<Retry>,
}

/// An origin that refuses destage, and of which nothing has become clean since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    /// When it is tried again.
    pub(crate) at: Time,
    /// After this pause.
    pub(crate) pause_ns: u64,
    /// So many attempts have failed.
    pub(crate) attempts: u32,
}

impl Origin {
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

    /// Whether the origin has refused destage, and it is too soon to try again.
    pub(crate) fn rests(&self, now: Time) -> bool {
        self.retry.is_some_and(|it| now < it.at)
    }

    /// Its places among all.
    pub(crate) const fn places(&self) -> Range<u64> {
        self.base.0..self.base.0 + self.blocks
    }

    /// Dirty blocks that are not lost: lost ones never become clean.
    pub(crate) const fn undrained(&self) -> u64 {
        self.dirty - self.lost
    }
}

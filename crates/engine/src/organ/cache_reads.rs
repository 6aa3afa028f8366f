// SPDX-License-Identifier: MIT OR Apache-2.0
//! A gauge of reads of the cache device: clients' and destage's, and whether anybody waits for
//! room.
//!
//! [`crate::act::destage`] asks this gauge whether destage must leave the cache device to clients.

use crate::fact::types::Time;

/// No write came for this long: no client is taken to wait for room.
const WRITERS_GONE_NS: u64 = 1_000_000_000;
/// No read came for this long: no client is taken to read.
const READERS_GONE_NS: u64 = 100_000_000;
/// A gap between reads that is long enough for data that has got old.
const GAP_NS: u64 = 5_000_000;

/// What clients and destage read from the cache device.
#[derive(Clone, Copy, Default)]
pub(crate) struct CacheReads {
    pub(crate) clients_blocks: u64,
    pub(crate) destage_blocks: u64,
    /// Reads of clients.
    in_flight: u64,
    /// When one of them last began or ended.
    pub(crate) last: Option<Time>,
    /// When a client wrote last.
    last_write: Option<Time>,
    /// Writers may come no faster than destage goes, as so much is dirty.
    no_room: bool,
    /// Blocks that became dirty.
    pub(crate) dirtied_blocks: u64,
}

impl CacheReads {
    /// A client reads so many blocks.
    pub(crate) const fn read(&mut self, blocks: u64, now: Time) {
        self.clients_blocks += blocks;
        self.in_flight += 1;
        self.last = Some(now);
    }

    /// A client writes, or has waited and still does.
    pub(crate) const fn written(&mut self, now: Time) {
        self.last_write = Some(now);
    }

    /// A block became dirty.
    pub(crate) const fn dirtied(&mut self) {
        self.dirtied_blocks += 1;
    }

    /// Destage reads so many blocks.
    pub(crate) const fn destage_reads(&mut self, blocks: u64) {
        self.destage_blocks += blocks;
    }

    /// Whether writers may come no faster than destage goes.
    pub(crate) const fn set_room(&mut self, no_room: bool) {
        self.no_room = no_room;
    }

    /// What a lane begins with that works beside others.
    pub(crate) const fn of_a_lane(self) -> Self {
        Self { dirtied_blocks: 0, ..self }
    }

    /// Takes over what a lane has put down.
    pub(crate) const fn take_over(&mut self, of: &Self) {
        self.dirtied_blocks += of.dirtied_blocks;
    }

    /// A read of a client has ended.
    pub(crate) const fn ended(&mut self, now: Time) {
        self.in_flight -= 1;
        self.last = Some(now);
    }

    /// Until when readers come first; `None` if they don't.
    pub(crate) fn until(&self, aged: bool, now: Time) -> Option<Time> {
        let written = self.last_write.is_some_and(|since| now.since_ns(since) < WRITERS_GONE_NS);
        let last = if self.in_flight > 0 { now } else { self.last? };
        let until = last.plus_ns(if aged { GAP_NS } else { READERS_GONE_NS });
        (!(written && self.no_room) && until > now).then_some(until)
    }
}

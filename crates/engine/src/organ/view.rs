// SPDX-License-Identifier: MIT OR Apache-2.0
//! A view of what lanes share, for a lane that works beside others.
//!
//! A view shows what is so when the work begins. What the lane puts down there (sums, lists, what
//! happened at the devices) is taken over afterwards, in the order of the lanes.

use alloc::vec::Vec;

use crate::fact::io::Effects;
use crate::fact::status::Counters;
use crate::fact::types::Time;
use crate::organ::bypass::Streams;
use crate::organ::flush::OriginFlush;
use crate::organ::members::{Members, State};
use crate::organ::origin::Origin;
use crate::shared::Shared;

/// What a sum of a view begins with, so that it may fall below.
const BASE: u64 = 1 << 62;

/// What a lane works on beside the other lanes.
pub(crate) struct Apart {
    pub(crate) view: Shared,
    pub(crate) out: Effects,
}

impl Apart {
    /// Room for the work of a lane.
    pub(crate) fn new(shared: &Shared) -> Self {
        Self { view: shared.new_view(), out: Effects::default() }
    }

    /// Shows what is so now.
    pub(crate) fn look_at(&mut self, shared: &Shared) {
        self.view.look_at(shared);
    }
}

impl Shared {
    /// Whether lanes may work apart: where members of a mirror or failures are concerned, what one
    /// does matters to the others at once.
    pub(crate) fn can_be_viewed(&self) -> bool {
        self.members.state == State::Single && !self.cache_failed && self.lost() == 0
    }

    /// A view: what never changes, and room for the rest.
    fn new_view(&self) -> Self {
        Self {
            superblock: self.superblock.clone(),
            cache_tag: self.cache_tag,
            options: self.options.clone(),
            origins: self.origins.iter().map(Origin::new_view).collect(),
            counters: Counters::default(),
            up: Vec::new(),
            dirty: 0,
            dirty_limit: 0,
            cache_failed: false,
            failure: self.failure,
            members: Members::new(&self.superblock),
            gauge: self.gauge,
            cache_reads: self.cache_reads,
            away: false,
            draining: false,
            stopping: false,
            buffer_bytes: 0,
            ram_front_bytes: 0,
            budget: None,
            window_bytes: 0,
            measured: Some(Vec::new()),
        }
    }

    /// Makes a view show what is so now, with nothing put down in it.
    fn look_at(&mut self, all: &Self) {
        self.counters = Counters::default();
        self.dirty = BASE;
        (self.buffer_bytes, self.ram_front_bytes, self.window_bytes) = (BASE, BASE, BASE);
        (self.dirty_limit, self.away) = (all.dirty_limit, all.away);
        (self.draining, self.stopping) = (all.draining, all.stopping);
        (self.gauge, self.cache_reads, self.budget) = (all.gauge, all.cache_reads, all.budget);
        self.cache_reads.dirtied_blocks = 0;
        (self.members.lead, self.members.state) = (all.members.lead, all.members.state);
        for (view, origin) in self.origins.iter_mut().zip(&all.origins) {
            view.look_at(origin);
        }
    }

    /// Takes over what was put down in a view.
    pub(crate) fn take_over(&mut self, view: &mut Self, now: Time) {
        debug_assert!(!view.cache_failed && view.members.state == State::Single, "a failure is nobody's own affair");
        self.counters.add(&view.counters);
        self.up.append(&mut view.up);
        self.cache_reads.dirtied_blocks += view.cache_reads.dirtied_blocks;
        for (sum, seen) in [
            (&mut self.dirty, view.dirty),
            (&mut self.buffer_bytes, view.buffer_bytes),
            (&mut self.ram_front_bytes, view.ram_front_bytes),
            (&mut self.window_bytes, view.window_bytes),
        ] {
            *sum = *sum + seen - BASE;
        }
        for (origin, view) in self.origins.iter_mut().zip(&mut view.origins) {
            origin.take_over(view);
        }
        for what in view.measured.iter_mut().flat_map(|list| list.drain(..)) {
            self.measure(what, now);
        }
    }
}

impl Origin {
    fn new_view(&self) -> Self {
        Self { streams: Streams::new(), flush: OriginFlush::default(), ..*self }
    }

    fn look_at(&mut self, all: &Self) {
        self.flush.show(&all.flush);
        (self.mode, self.gauge) = (all.mode, all.gauge);
        // Lanes work apart only while nothing is lost.
        (self.dirty, self.reserved, self.lost) = (BASE, BASE, 0);
        (self.foreground_ios, self.last_foreground) = (all.foreground_ios, all.last_foreground);
        self.free_ns = all.free_ns;
    }

    fn take_over(&mut self, view: &mut Self) {
        self.dirty = self.dirty + view.dirty - BASE;
        self.reserved = self.reserved + view.reserved - BASE;
        self.lost += view.lost;
        self.flush.take_over(&mut view.flush);
    }
}

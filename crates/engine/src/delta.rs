// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delta: what a lane puts down for all.
//!
//! There are four kinds, and each has its own way to the other lanes:
//!
//! - sums (counters, dirty blocks, bytes of buffers): a lane adds to them. Only reclaim reads one:
//!   whether any block is lost;
//! - messages to the coordinator ([`Up`]), which handles them after the step;
//! - gauges of the devices, and flushes of the origins: a lane notes what happened, and asks;
//! - members of the cache and their failures: these count at once, so no lane works apart then.
//!
//! A lane that works beside others has a delta of its own for that time. What it puts down there is
//! taken over afterwards, in the order of the lanes.

use alloc::vec::Vec;

use crate::fact::status::Counters;
use crate::fact::types::{BLOCK_BYTES, Destage, Time};
use crate::organ::budget::Budget;
use crate::organ::cache_reads::CacheReads;
use crate::organ::congestion::{CacheGauge, Taken};
use crate::organ::flush::OriginFlush;
use crate::organ::measured::Measured;
use crate::organ::members::{Members, MembersState};
use crate::organ::origin::OriginDelta;
use crate::organ::sum::Sum;
use crate::organ::up::Up;

/// What a lane puts down for all.
pub(crate) struct Delta {
    pub(crate) counters: Counters,
    /// Messages to the coordinator.
    up: Vec<Up>,
    pub(crate) origins: Vec<OriginDelta>,
    pub(crate) members: Members,
    /// How fast the cache device is now; of a mirrored one both members together.
    pub(crate) gauge: CacheGauge,
    /// A gauge of the reads of the cache device: clients' and destage's.
    pub(crate) cache_reads: CacheReads,
    /// What may still be written to the cache device.
    pub(crate) budget: Option<Budget>,
    /// Dirty blocks of all lanes.
    dirty: Sum,
    buffer_bytes: Sum,
    ram_front_bytes: Sum,
    window_bytes: Sum,
    /// What happened at the devices, in the delta of a lane that works beside others.
    measured: Option<Vec<Measured>>,
}

/// What buffers are for: each purpose has its own bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// I/O and open commits.
    Work,
    /// The RAM front, which is bounded by its own option and never given back.
    RamFront,
    /// The window, which is bounded and never given back.
    Window,
}

impl Delta {
    pub(crate) fn new(origins: Vec<OriginDelta>, members: Members, budget: Option<Budget>) -> Self {
        Self {
            counters: Counters::default(),
            up: Vec::new(),
            origins,
            members,
            gauge: CacheGauge::default(),
            cache_reads: CacheReads::default(),
            budget,
            dirty: Sum::default(),
            buffer_bytes: Sum::default(),
            ram_front_bytes: Sum::default(),
            window_bytes: Sum::default(),
            measured: None,
        }
    }

    /// There is one origin more.
    pub(crate) fn add_origin(&mut self, destage: Destage, now: Time) {
        let mut origin = OriginDelta::new(OriginFlush::new(false));
        if destage == Destage::Ordered {
            origin.cuts.open(now);
        }
        self.origins.push(origin);
    }

    /// Tells the coordinator something.
    #[inline]
    pub(crate) fn tell(&mut self, up: Up) {
        self.up.push(up);
    }

    /// Whether nothing is told.
    pub(crate) const fn is_silent(&self) -> bool {
        self.up.is_empty()
    }

    /// Takes what was told. [`Self::give_back_room`] follows.
    pub(crate) fn take_told(&mut self) -> Vec<Up> {
        core::mem::take(&mut self.up)
    }

    /// Takes what was told last: the answer of a lane.
    pub(crate) fn take_last_told(&mut self) -> Option<Up> {
        self.up.pop()
    }

    /// The memory of a list that was taken serves again.
    pub(crate) fn give_back_room(&mut self, told: Vec<Up>) {
        if self.up.is_empty() {
            self.up = told;
        }
    }

    /// Flushes origins that promoted blocks wait for.
    pub(crate) fn want_proof(&mut self) {
        self.origins.iter_mut().for_each(|origin| origin.flush.want_if_awaited());
    }

    /// From when on promoted blocks don't wait for this origin's flush any more, since others would
    /// be kept back by it. An origin that is alone keeps back nobody else.
    pub(crate) fn proof_overdue_from(&self, origin: usize) -> Option<Time> {
        if self.origins.len() > 1 { self.origins[origin].flush.overdue_from() } else { None }
    }

    /// Dirty blocks of an origin change in number.
    pub(crate) fn count_dirty(&mut self, origin: usize, change: i64) {
        self.origins[origin].dirty.change(change);
        self.dirty.change(change);
    }

    /// Dirty blocks of all lanes.
    pub(crate) const fn dirty(&self) -> u64 {
        self.dirty.get()
    }

    /// Lost blocks of all origins.
    pub(crate) fn lost(&self) -> u64 {
        self.origins.iter().map(|origin| origin.lost.get()).sum()
    }

    /// Blocks of accepted writes that are not in the log yet.
    pub(crate) fn reserved(&self) -> u64 {
        self.origins.iter().map(|origin| origin.reserved.get()).sum()
    }

    /// Bytes of buffers for a purpose.
    pub(crate) const fn bytes(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Work => self.buffer_bytes.get(),
            Purpose::RamFront => self.ram_front_bytes.get(),
            Purpose::Window => self.window_bytes.get(),
        }
    }

    /// A buffer of this many blocks is taken for a purpose.
    #[inline]
    pub(crate) fn buffer_taken(&mut self, purpose: Purpose, blocks: u32) {
        let sum = match purpose {
            Purpose::Work => &mut self.buffer_bytes,
            Purpose::RamFront => &mut self.ram_front_bytes,
            Purpose::Window => &mut self.window_bytes,
        };
        sum.add(u64::from(blocks) * BLOCK_BYTES);
    }

    /// A buffer of this many blocks for work is given back.
    pub(crate) fn buffer_freed(&mut self, blocks: u32) {
        self.buffer_bytes.sub(u64::from(blocks) * BLOCK_BYTES);
    }
}

impl Delta {
    /// Notes what happened at a device.
    // Inlined: each caller knows which case it is, and only that case is left.
    #[inline(always)]
    pub(crate) fn measure(&mut self, what: Measured, now: Time) {
        self.note_measured(what);
        match what {
            Measured::CacheReadBegan { blocks } => {
                self.gauge.reads.began(now);
                self.cache_reads.read(blocks, now);
            }
            Measured::CacheReadEnded { sound } => {
                self.gauge.reads.ended(now, u64::from(sound));
                self.cache_reads.ended(now);
            }
            Measured::CommitBegan => self.gauge.commit_began(now),
            Measured::CacheWritten { bytes } => {
                if let Some(budget) = &mut self.budget {
                    budget.spend(bytes, now);
                }
            }
            Measured::OriginReadBegan { origin, first, end } => {
                self.origins[origin].client_read_began(first, end, now);
            }
            Measured::OriginReadEnded { origin, blocks } => self.origins[origin].client_read_ended(blocks, now),
            Measured::OriginMergeBegan { origin } => self.origins[origin].gauge.merges.began(now),
            Measured::DetourBegan { origin, instead_of_ns } => {
                self.origins[origin].gauge.detour.began(instead_of_ns, now);
            }
        }
    }

    /// A detour begins.
    pub(crate) fn detour_began(&mut self, origin: usize, instead_of_ns: u64, now: Time) -> Taken {
        self.note_measured(Measured::DetourBegan { origin, instead_of_ns });
        self.origins[origin].gauge.detour.began(instead_of_ns, now)
    }

    fn note_measured(&mut self, what: Measured) {
        if let Some(list) = &mut self.measured {
            list.push(what);
        }
    }
}

impl Delta {
    /// Whether lanes may work apart: where members of a mirror or failures are concerned, what one
    /// does matters to the others at once.
    pub(crate) fn can_be_apart(&self) -> bool {
        self.members.state == MembersState::Single && !self.members.cache_failed && self.lost() == 0
    }

    /// Room for what a lane puts down beside the other lanes.
    pub(crate) fn of_a_lane(&self) -> Self {
        let mut delta = Self::new(Vec::new(), Members::new(self.members.pairing()), None);
        delta.origins = self.origins.iter().map(OriginDelta::of_a_lane).collect();
        delta.measured = Some(Vec::new());
        delta
    }

    /// Makes the delta of a lane empty, and its gauges show what is so now.
    pub(crate) fn look_at(&mut self, all: &Self) {
        self.counters = Counters::default();
        (self.gauge, self.cache_reads, self.budget) = (all.gauge, all.cache_reads.of_a_lane(), all.budget);
        self.members.show(&all.members);
        for (own, origin) in self.origins.iter_mut().zip(&all.origins) {
            own.look_at(origin);
        }
    }

    /// Takes over what a lane has put down.
    pub(crate) fn take_over(&mut self, of: &mut Self, now: Time) {
        let apart = !of.members.cache_failed && of.members.state == MembersState::Single;
        debug_assert!(apart, "a failure is nobody's own affair");
        self.counters.add(&of.counters);
        self.up.append(&mut of.up);
        self.cache_reads.take_over(&of.cache_reads);
        self.dirty.take_over(&mut of.dirty);
        self.buffer_bytes.take_over(&mut of.buffer_bytes);
        self.ram_front_bytes.take_over(&mut of.ram_front_bytes);
        self.window_bytes.take_over(&mut of.window_bytes);
        for (origin, own) in self.origins.iter_mut().zip(&mut of.origins) {
            origin.take_over(own);
        }
        for what in of.measured.iter_mut().flat_map(|list| list.drain(..)) {
            self.measure(what, now);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! When and where runs start, and when their origin is flushed: the coordinator's part of destage.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::order::{self, DirtyView, Order};
use super::rate::{View, runs_allowed};
use crate::index::Flat;
use crate::lane::Lane;
use crate::router::Router;
use crate::shared::{Cx, FlushWaiter};
use crate::types::{Mode, Time};

/// Blocks written to an origin before it is flushed, while more are coming: 4 MiB, so that a disk's
/// flush (10 to 20 ms) is paid once for a thousand blocks.
const BLOCKS_PER_FLUSH: u64 = 1024;
/// No request for this long is idle.
const IDLE_AFTER_NS: u64 = 100_000_000;
/// The first pause after a failed destage; doubled up to the last.
const RETRY_FIRST_NS: u64 = 1_000_000_000;
const RETRY_LAST_NS: u64 = 60_000_000_000;
/// Candidates that one step looks at: a bound on its time when many can't be taken.
const TRIES_PER_STEP: u32 = 64;
/// Assumed before anything was measured: a disk's sorted random writes, about 400 a second.
const NS_PER_BLOCK_FIRST: u64 = 2_500_000;

/// State of the coordinator's destage.
pub(crate) struct Destager {
    order: Box<dyn Order>,
    /// Runs gathered or written right now.
    runs: u32,
    /// Runs written, waiting for a flush: (origin, lane, run).
    written: Vec<(usize, usize, usize)>,
    written_blocks: u64,
    retry: Option<(Time, u64)>,
    last_request: Time,
    sweep_began: Time,
    /// When the last blocks became clean, and the average time for each since.
    last_cleaned: Option<Time>,
    pub(crate) ns_per_block: u64,
}

struct Lanes<'a>(&'a [Lane]);

impl DirtyView for Lanes<'_> {
    fn next(&self, from: u64) -> Option<u64> {
        self.0.iter().filter_map(|lane| lane.dirty.next(Flat(from))).min().map(|flat| flat.0)
    }
}

impl Destager {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            order: (order::ALL[0].build)(),
            runs: 0,
            written: Vec::new(),
            written_blocks: 0,
            retry: None,
            last_request: now,
            sweep_began: now,
            last_cleaned: None,
            ns_per_block: NS_PER_BLOCK_FIRST,
        }
    }

    pub(crate) fn request_seen(&mut self, now: Time) {
        self.last_request = now;
    }

    pub(crate) fn run_written(&mut self, origin: usize, lane: usize, run: usize, blocks: u32) {
        self.runs -= 1;
        self.written.push((origin, lane, run));
        self.written_blocks += u64::from(blocks);
    }

    pub(crate) fn run_dropped(&mut self) {
        self.runs -= 1;
    }

    pub(crate) fn failed(&mut self, now: Time) {
        // Runs that were in flight together fail together.
        if self.retry.is_some_and(|(at, _)| now < at) {
            return;
        }
        let pause = self.retry.map_or(RETRY_FIRST_NS, |(_, pause)| (pause * 2).min(RETRY_LAST_NS));
        self.retry = Some((now.plus_ns(pause), pause));
    }

    pub(crate) fn cleaned(&mut self, blocks: u64, now: Time) {
        if blocks == 0 {
            return;
        }
        self.retry = None;
        if let Some(last) = self.last_cleaned {
            let sample = now.since_ns(last) / blocks;
            self.ns_per_block = (self.ns_per_block * 7 + sample.clamp(1, 100_000_000)) / 8;
        }
        self.last_cleaned = Some(now);
    }

    /// When this step should run again although nothing happens.
    pub(crate) fn next_timer(&self, cx_dirty: u64) -> Option<Time> {
        if cx_dirty == 0 || self.runs > 0 {
            return None;
        }
        Some(self.retry.map_or(self.last_request.plus_ns(IDLE_AFTER_NS), |(at, _)| at))
    }

    /// Whether the last destage failed.
    pub(crate) const fn retrying(&self) -> bool {
        self.retry.is_some()
    }

    fn allowed(&self, lanes: &[Lane], requests: usize, starved: bool, cx: &Cx<'_>) -> u32 {
        let shared = &*cx.shared;
        let nothing = shared.dirty == shared.lost.len() as u64;
        if nothing || shared.stopping || self.retry.is_some_and(|(at, _)| cx.now < at) {
            return 0;
        }
        let leaving = shared.origins.iter().any(|origin| origin.mode != Mode::Writeback && origin.dirty > 0);
        let leaving = leaving || shared.cache_failed;
        runs_allowed(View {
            dirty: shared.dirty,
            limit: shared.dirty_limit,
            idle: requests == 0 && cx.now.since_ns(self.last_request) >= IDLE_AFTER_NS,
            urgent: shared.draining || leaving || starved || lanes.iter().any(|lane| !lane.urgent.is_empty()),
            aged: cx.now.since_ns(self.sweep_began) >= shared.options.dirty_age_max_ns / 2,
            foreground_reads: shared.origins.iter().map(|origin| origin.foreground_reads).sum(),
        })
    }

    /// Starts runs and flushes. `requests`: clients' requests in flight; `starved`: a write waits for it.
    pub(crate) fn step(
        &mut self,
        lanes: &mut [Lane],
        router: &Router,
        requests: usize,
        starved: bool,
        cx: &mut Cx<'_>,
    ) {
        let allowed = self.allowed(lanes, requests, starved, cx);
        let (mut tries, mut sweeps_ended) = (0, 0);
        // With nothing in flight nobody would come back here: then all is looked at, from the place of the
        // sweep to its end and once more from the start.
        while self.runs < allowed && (tries < TRIES_PER_STEP || self.runs == 0) {
            tries += 1;
            if !self.start_urgent(lanes, router, cx) && !self.start_next(lanes, router, cx) {
                sweeps_ended += 1;
                if self.runs > 0 || sweeps_ended == 2 {
                    break;
                }
            }
        }
        if self.runs == 0 {
            // The pause until the next run must not count as slowness.
            self.last_cleaned = if self.written.is_empty() { None } else { self.last_cleaned };
        }
        self.last_cleaned = self.last_cleaned.or((self.runs > 0).then_some(cx.now));
        if !self.written.is_empty() && (self.runs == 0 || self.written_blocks >= BLOCKS_PER_FLUSH) {
            for (origin, lane, run) in self.written.drain(..) {
                cx.shared.origins[origin].flush.join(FlushWaiter::Run(lane, run));
            }
            self.written_blocks = 0;
        }
    }

    fn start_urgent(&mut self, lanes: &mut [Lane], router: &Router, cx: &mut Cx<'_>) -> bool {
        for lane in lanes {
            let mut from = Flat(0);
            while let Some(&flat) = lane.urgent.range(from..).next() {
                from = Flat(flat.0 + 1);
                if let Some(end) = lane.run_end(flat) {
                    from = end;
                } else if lane.start_run(flat, router.run_end(flat, cx.shared), cx) > 0 {
                    self.runs += 1;
                    return true;
                } else {
                    lane.seal_for_destage(flat, cx);
                }
            }
        }
        false
    }

    /// Starts the run that the order wants, or passes over one that can't be taken now; false if
    /// there is nothing more in this sweep.
    fn start_next(&mut self, lanes: &mut [Lane], router: &Router, cx: &mut Cx<'_>) -> bool {
        let Some(at) = self.order.next(&Lanes(lanes)) else {
            self.sweep_began = cx.now;
            return false;
        };
        let flat = Flat(at);
        let lane = &mut lanes[router.lane_of(flat)];
        let end = if let Some(end) = lane.run_end(flat) {
            end
        } else {
            let blocks = lane.start_run(flat, router.run_end(flat, cx.shared), cx);
            if blocks > 0 {
                self.runs += 1;
            } else {
                lane.seal_for_destage(flat, cx);
            }
            Flat(at + u64::from(blocks.max(1)))
        };
        self.order.taken(end.0);
        true
    }
}

impl Lane {
    /// A block that should be destaged is still in an open commit: seal that.
    fn seal_for_destage(&mut self, flat: Flat, cx: &mut Cx<'_>) {
        if self.index.get(flat).is_some_and(|found| self.log.unsealed(found.slot)) {
            self.seal(crate::format::Stream::Writes, cx);
        }
    }
}

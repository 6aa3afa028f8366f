// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends an opening of a life by a stop, a kill or a power cut, and begins the next one.

use flashfront_device::sim::Fate;
use flashfront_engine::{DeviceError, Op, OpenError};

use super::{Life, one_in};
use crate::torture::extra::{self, Extra};
use crate::torture::plan::Trouble;
use crate::torture::trouble;

/// The most requests that are in flight at a busy stop.
const BUSY_REQUESTS: usize = 6;

impl Life {
    /// Ends an opening by a power cut (perhaps with another one during replay) or a clean stop.
    /// Returns false if the cache does not open any more. Only a device that lied excuses that.
    pub(super) fn fall(&mut self) -> bool {
        if one_in(&mut self.rng, 4) {
            self.client.world.heal();
            self.client.finish();
            if self.may_fail() {
                // After a failure a stop can't promise that all data is durable.
                self.client.world.stop();
            } else if self.plan.has(Extra::BusyStop) {
                self.busy_stop();
            } else {
                self.client.stop();
            }
        }
        self.crash();
        while one_in(&mut self.rng, 3) && self.client.world.can_open() && !self.client.world.must_not_open() {
            self.before_opening();
            if one_in(&mut self.fate_rng, 4) {
                // Only one of the two members gets its superblocks written.
                let only = self.fate_rng.below(2) as u8;
                self.client.world.write_superblocks(&[only]);
                self.crash();
                continue;
            }
            self.client.world.begin_open();
            for _ in 0..self.rng.below(60) {
                self.client.world.step();
            }
            self.crash();
        }
        self.reopen()
    }

    /// Stops cleanly with requests in flight. Each request is answered, and the data that it wrote
    /// is durable.
    fn busy_stop(&mut self) {
        for _ in 0..BUSY_REQUESTS {
            let who = self.extra_rng.below(self.plan.clients.len() as u64) as usize;
            self.submit(who);
        }
        for _ in 0..self.extra_rng.below(8) {
            self.client.world.step();
        }
        self.client.stop_at_once();
    }

    /// Makes the changes that happen while no daemon runs. Orders the faults that hit as soon as
    /// the next daemon runs.
    fn before_opening(&mut self) {
        if self.plan.has(Extra::NewOptions) {
            extra::other_options(&mut self.extra_rng, &mut self.plan.spec.options);
        }
        self.plan.spec.options.drop_clean = self.plan.has(Extra::DropClean) && one_in(&mut self.extra_rng, 2);
        self.client.world.spec.options = self.plan.spec.options.clone();
        let whole = self.plan.one_dies() && self.client.world.is_whole();
        if whole && self.plan.has(Extra::ReplayFaults) && one_in(&mut self.extra_rng, 2) {
            self.fail_in_replay();
        }
    }

    /// Orders a fault on the member whose turn it is. Half of the faults are any that
    /// [`trouble::order_on`] orders. The others hit the nth I/O of one kind, with a small n, since
    /// replay does few.
    fn fail_in_replay(&mut self) {
        let rng = &mut self.extra_rng;
        let any = rng.below(2) as u8;
        let victim = *self.victim.get_or_insert(any);
        if rng.below(2) == 0 {
            trouble::order_on(victim, true, rng, &mut self.client);
            return;
        }
        let op = [Op::Read, Op::Write, Op::Flush][rng.below(3) as usize];
        let nth = rng.below(30);
        let disk = self.client.world.member_mut(victim).expect("a mirrored world");
        disk.faults.fail_nth(nth, Some(op), DeviceError::Io);
    }

    /// Opens the cache after a crash. Returns false if it refuses.
    pub(super) fn reopen(&mut self) -> bool {
        self.lose_member();
        if !self.client.world.can_open() {
            return self.refused(OpenError::NoCheckpoint { lane: 0 });
        }
        if self.client.world.must_not_open() {
            // A new cache takes its place. Data that only the failed cache held is for a salvage to
            // find.
            if !self.whole {
                return false;
            }
            self.client.world.replace_cache();
        }
        self.before_opening();
        match self.client.world.open() {
            Ok(opened) => {
                let limit = self.client.world.engine().status().dirty_limit_blocks;
                self.limit = (opened.blocks_dirty <= limit).then_some(limit);
                true
            }
            Err(error) => self.refused(error),
        }
    }

    /// Takes one of two members away after a crash, now and then. The operator says so.
    fn lose_member(&mut self) {
        if !self.plan.spec.mirrored || self.plan.trouble == Trouble::CacheLies || self.mirror_rng.below(4) > 0 {
            return;
        }
        let member = self.victim.unwrap_or(self.mirror_rng.below(2) as u8);
        if self.client.world.is_whole() {
            self.client.world.take_away(member);
            (self.victim, self.client.world.alone) = (Some(member), true);
        }
    }

    fn refused(&self, error: OpenError) -> bool {
        assert!(self.plan.trouble == Trouble::CacheLies, "the cache does not open: {error}");
        false
    }

    pub(super) fn crash(&mut self) {
        const FATES: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Mixed];
        self.client.world.heal();
        self.judge_failures();
        let (mut cache, mut origins) = (FATES[self.rng.below(4) as usize], FATES[self.rng.below(4) as usize]);
        if self.plan.kills && one_in(&mut self.kill_rng, 2) {
            (cache, origins) = (Fate::Killed, Fate::Killed);
        }
        let seed = self.rng.next_u64();
        let nothing_dirty = self.client.world.engine.as_ref().is_some_and(|engine| {
            let status = engine.status();
            status.blocks_dirty == 0 && status.requests_in_flight == 0 && self.client.world.serving()
        });
        self.turns_apart += self.client.world.arena.turns_apart();
        if one_in(&mut self.fate_rng, 2) {
            self.client.world.mirror_fate = Some(FATES[self.fate_rng.below(4) as usize]);
        }
        self.client.crash(seed, cache, origins);
        self.crashes += 1;
        self.owners.clear();
        self.whole = nothing_dirty;
        if nothing_dirty {
            // Invariant 7: the cache device is not needed.
            self.client.judge_origins();
        }
    }
}

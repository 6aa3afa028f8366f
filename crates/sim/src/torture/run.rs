// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lives a plan: clients, power cuts, and at the end a drain, a stop and a look at the bare origins.

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{Control, DeviceError, Mode, Op, OriginId, RequestOp};

use super::Plan;
use crate::client::Client;

/// How a life went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Over all effects.
    pub hash: u64,
    /// Inputs of the engine.
    pub steps: u64,
    /// Requests answered.
    pub answers: u64,
    /// Blocks evicted after the last opening.
    pub evicted: u64,
}

struct Life {
    plan: Plan,
    rng: Rng,
    client: Client,
    /// Where a sequential client is.
    stream: u64,
}

/// Lives the life of this seed.
///
/// # Panics
/// When the engine breaks a promise; the message says what and where.
#[must_use]
pub fn run(plan: Plan, seed: u64) -> Outcome {
    let client = Client::fresh(plan.spec.clone());
    let mut life = Life { rng: Rng::new(seed ^ 0x11fe), client, stream: 0, plan };
    for generation in 1..=life.plan.generations {
        life.serve();
        if generation < life.plan.generations {
            life.fall();
        }
    }
    life.end()
}

impl Life {
    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.rng.below(n) == 0
    }

    /// One opening's requests.
    fn serve(&mut self) {
        for _ in 0..self.plan.requests {
            self.submit();
            self.client.finish_to(self.plan.depth as usize - 1);
            if self.one_in(self.plan.control_every) {
                self.control();
            }
            if self.one_in(self.plan.faults_every) {
                self.order_fault();
            }
            if self.one_in(40) {
                let ns = self.rng.below(300_000_000);
                self.client.world.pass(ns);
            }
            let failed = self.client.take_failed();
            assert!(failed.is_empty() || self.plan.faults_every > 0, "no device failed, but {failed:?} did");
        }
    }

    /// One I/O from now on will fail.
    fn order_fault(&mut self) {
        let world = &mut self.client.world;
        let (nth, at) = (self.rng.below(8), self.rng.below(world.origins.len() as u64 + 1) as usize);
        let op = [Op::Read, Op::Write, Op::Flush][self.rng.below(3) as usize];
        let rarely = self.rng.below(4) == 0;
        match world.origins.get_mut(at) {
            Some(origin) => origin.faults.fail_nth(nth, Some(op), DeviceError::Io),
            None if op == Op::Read || (self.plan.cache_faults && rarely) => {
                world.cache.faults.fail_nth(nth, Some(op), DeviceError::Io);
                if op != Op::Read {
                    // Data that found no place in the log may reach the origin and be older again after the
                    // next opening: no flush of it is ever acknowledged.
                    self.client.oracle.forgive_time_travel();
                }
            }
            None => {}
        }
    }

    fn heal(&mut self) {
        self.client.world.cache.faults.heal();
        self.client.world.origins.iter_mut().for_each(|origin| origin.faults.heal());
    }

    fn place(&mut self, origin: usize) -> (u64, u64) {
        let all = self.client.sectors(origin);
        let longest = if self.one_in(2) { 8 } else { self.plan.sectors_max };
        let sectors = 1 + self.rng.below(longest);
        let sectors = if self.one_in(3) { sectors.next_multiple_of(8) } else { sectors }.min(all);
        let at = match self.rng.below(10) {
            0 => all - sectors,
            1 | 2 => self.stream,
            3 => self.rng.below(all),
            _ => self.rng.below(self.plan.hot_sectors),
        };
        let at = if self.one_in(2) { at / 8 * 8 } else { at };
        let at = if at + sectors > all { all - sectors } else { at };
        self.stream = at + sectors;
        (at, sectors)
    }

    fn submit(&mut self) {
        let origin = self.rng.below(self.plan.spec.origins.len() as u64) as usize;
        if self.one_in(self.plan.flush_every) {
            self.client.flush(origin);
            return;
        }
        let (at, sectors) = self.place(origin);
        if self.rng.below(100) < self.plan.reads {
            self.client.read(origin, at, sectors);
            return;
        }
        let fua = self.one_in(self.plan.fua_every);
        if !self.one_in(self.plan.special_every) {
            self.client.write(origin, at, sectors, fua);
            return;
        }
        // Long ones go another way than short ones.
        let longer = (sectors * 8).min(self.client.sectors(origin) - at);
        let sectors = if self.one_in(2) { sectors } else { longer };
        let op = match self.rng.below(3) {
            0 => RequestOp::Discard,
            n => RequestOp::WriteZeroes { may_discard: n == 1 },
        };
        self.client.change(op, origin, at, sectors, fua);
    }

    fn control(&mut self) {
        let origin = self.rng.below(self.plan.spec.origins.len() as u64) as u16;
        let blocks = self.rng.below(self.client.world.engine().status().capacity_blocks);
        self.client.world.control(match self.rng.below(8) {
            0..=3 => Control::SetMode { origin: OriginId(origin), mode: Mode::ALL[self.rng.below(4) as usize] },
            4 => Control::SetDirtyLimit { blocks },
            5 => Control::SetSequentialBypass { bytes: self.rng.below(1 << 20) },
            n => Control::Drain(n == 6),
        });
    }

    /// The end of an opening: a power cut (perhaps another one during replay) or a clean stop.
    fn fall(&mut self) {
        if self.one_in(4) {
            self.client.finish();
            self.heal();
            if self.plan.faults_every == 0 {
                self.client.stop();
            } else {
                // After a failure a stop can't promise that all is durable.
                self.client.world.stop();
            }
        }
        self.crash();
        while self.one_in(3) {
            self.client.world.begin_open();
            for _ in 0..self.rng.below(60) {
                self.client.world.step();
            }
            self.crash();
        }
        self.client.open();
    }

    fn crash(&mut self) {
        const FATES: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Mixed];
        self.heal();
        let (cache, origins) = (FATES[self.rng.below(4) as usize], FATES[self.rng.below(4) as usize]);
        self.client.crash(self.rng.next_u64(), cache, origins);
    }

    /// Reads everything, drains, stops; then the origins alone must hold all.
    fn end(mut self) -> Outcome {
        self.heal();
        self.client.finish();
        self.client.read_all();
        let evicted = self.client.world.engine().status().counters.evicted_blocks;
        self.client.leave();
        let world = &self.client.world;
        Outcome { hash: world.effects_hash(), steps: world.steps, answers: self.client.answers, evicted }
    }
}

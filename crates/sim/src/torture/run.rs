// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lives a plan: clients, power cuts, and at the end a drain, a stop and a look at the bare origins.

use std::collections::BTreeMap;

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{Control, DeviceError, Durability, Mode, Op, OriginId, RequestId, RequestOp, SECTOR_BYTES};

use super::Plan;
use crate::oracle::Oracle;
use crate::stamp::Content;
use crate::world::World;

/// How a life went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Over all effects.
    pub hash: u64,
    /// Inputs of the engine.
    pub steps: u64,
    /// Requests answered.
    pub answers: u64,
}

/// What is to be done with an answer.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Read { origin: usize, sector: u64, start: u64 },
    Write { op: u32, durable: bool },
    Flush { origin: usize, start: u64 },
}

struct Life {
    plan: Plan,
    rng: Rng,
    world: World,
    oracle: Oracle,
    asked: BTreeMap<RequestId, Asked>,
    modes: Vec<Mode>,
    /// Where a sequential client is.
    stream: u64,
    answers: u64,
}

/// Lives the life of this seed.
///
/// # Panics
/// When the engine breaks a promise; the message says what and where.
#[must_use]
pub fn run(plan: Plan, seed: u64) -> Outcome {
    let mut world = World::format(plan.spec.clone());
    world.open().expect("a fresh cache opens");
    let sectors: Vec<u64> = plan.spec.origins.iter().map(|origin| origin.size_bytes / SECTOR_BYTES).collect();
    let modes = plan.spec.origins.iter().map(|origin| origin.mode).collect();
    let mut life = Life {
        rng: Rng::new(seed ^ 0x11fe),
        oracle: Oracle::new(&sectors),
        world,
        asked: BTreeMap::new(),
        modes,
        stream: 0,
        answers: 0,
        plan,
    };
    for generation in 1..=life.plan.generations {
        life.serve();
        if generation < life.plan.generations {
            life.fall();
        }
    }
    life.end();
    Outcome { hash: life.world.effects_hash(), steps: life.world.steps, answers: life.answers }
}

fn dbgp(origin: usize, at: u64, sectors: u64, f: impl FnOnce() -> String) {
    let Ok(t) = std::env::var("TRACE") else { return };
    let (o, s) = t.split_once(':').expect("o:s");
    let (o, s): (usize, u64) = (o.parse().expect("n"), s.parse().expect("n"));
    if origin == 99 || origin == o && at <= s && s < at + sectors { eprintln!("{} [{at}+{sectors}]", f()); }
}

impl Life {
    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.rng.below(n) == 0
    }

    /// One opening's requests.
    fn serve(&mut self) {
        for _ in 0..self.plan.requests {
            self.submit();
            while self.world.in_flight() as u64 >= self.plan.depth {
                assert!(self.world.step(), "requests are never answered: {:?}", self.world.engine().status());
                self.take_answers();
            }
            if self.one_in(self.plan.control_every) {
                self.control();
            }
            if self.one_in(self.plan.faults_every) {
                self.order_fault();
            }
            if self.one_in(40) {
                let ns = self.rng.below(300_000_000);
                self.world.pass(ns);
            }
            self.take_answers();
        }
    }

    /// One I/O from now on will fail.
    fn order_fault(&mut self) {
        let (nth, at) = (self.rng.below(8), self.rng.below(self.modes.len() as u64 + 1) as usize);
        let op = [Op::Read, Op::Write, Op::Flush][self.rng.below(3) as usize];
        let rarely = self.one_in(4);
        match self.world.origins.get_mut(at) {
            Some(origin) => origin.faults.fail_nth(nth, Some(op), DeviceError::Io),
            None if op == Op::Read || (self.plan.cache_faults && rarely) => {
                self.world.cache.faults.fail_nth(nth, Some(op), DeviceError::Io);
                if op != Op::Read {
                    // Data that found no place in the log may reach the origin and be older again after the
                    // next opening: no flush of it is ever acknowledged.
                    self.oracle.forgive_time_travel();
                }
            }
            None => {}
        }
    }

    fn heal(&mut self) {
        self.world.cache.faults.heal();
        self.world.origins.iter_mut().for_each(|origin| origin.faults.heal());
    }

    fn place(&mut self, origin: usize) -> (u64, u64) {
        let all = self.plan.spec.origins[origin].size_bytes / SECTOR_BYTES;
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
        // DEBUG
        let origin = self.rng.below(self.plan.spec.origins.len() as u64) as usize;
        if self.one_in(self.plan.flush_every) {
            let start = self.oracle.begin_read();
            dbgp(origin, 0, 1 << 60, || format!("{:?} FLUSH BEGIN {start}", self.world.now));
            let id = self.world.submit(RequestOp::Flush, origin, 0, 0, false, None);
            self.asked.insert(id, Asked::Flush { origin, start });
            return;
        }
        let (at, sectors) = self.place(origin);
        if self.rng.below(100) < self.plan.reads {
            let start = self.oracle.begin_read();
            dbgp(origin, at, sectors, || format!("{:?} BEGIN READ {start}", self.world.now));
            let id = self.world.submit(RequestOp::Read, origin, at, sectors, false, None);
            self.asked.insert(id, Asked::Read { origin, sector: at, start });
            return;
        }
        let fua = self.one_in(self.plan.fua_every);
        let writeback = self.modes[origin] == Mode::Writeback;
        let mut durable = fua || (writeback && self.plan.spec.options.durability == Durability::Always);
        let (op, content, at, sectors) = if self.one_in(self.plan.special_every) {
            let all = self.plan.spec.origins[origin].size_bytes / SECTOR_BYTES;
            let sectors = if self.one_in(2) { sectors } else { (sectors * 8).min(all - at) };
            match self.rng.below(3) {
                0 => {
                    durable = false;
                    (RequestOp::Discard, Some(Content::Any), at, sectors)
                }
                n => (RequestOp::WriteZeroes { may_discard: n == 1 }, Some(Content::Zero), at, sectors),
            }
        } else {
            (RequestOp::Write, None, at, sectors)
        };
        let write = self.oracle.begin_write(origin, at, sectors, content);
        dbgp(origin, at, sectors, || format!("{write} durable {durable} {:?} {:?}", self.modes, self.world.engine().status().origins));
        dbgp(origin, at, sectors, || format!("{:?} BEGIN {op:?} {write} fua {fua}", self.world.now));
        let id = self.world.submit(op, origin, at, sectors, fua, Some(write));
        self.asked.insert(id, Asked::Write { op: write, durable });
    }

    fn control(&mut self) {
        let origin = self.rng.below(self.modes.len() as u64) as usize;
        let blocks = self.rng.below(self.world.engine().status().capacity_blocks);
        let order = match self.rng.below(8) {
            0..=3 => {
                let mode = Mode::ALL[self.rng.below(4) as usize];
                self.modes[origin] = mode;
                Control::SetMode { origin: OriginId(origin as u16), mode }
            }
            4 => Control::SetDirtyLimit { blocks },
            5 => Control::SetSequentialBypass { bytes: self.rng.below(1 << 20) },
            n => Control::Drain(n == 6),
        };
        dbgp(origin, 0, 1<<60, || format!("{:?} {order:?}", self.world.now));
        self.world.control(order);
    }

    fn take_answers(&mut self) {
        for e in &self.world.events { dbgp(99, 0, 0, || format!("{:?} EVENT {e:?}", self.world.now)); }
        self.world.events.clear();
        for answer in std::mem::take(&mut self.world.answers) {
            self.answers += 1;
            let ok = answer.result.is_ok();
            assert!(ok || self.plan.faults_every > 0, "no device failed, but {:?} did", self.asked[&answer.id]);
            match self.asked.remove(&answer.id).expect("asked for") {
                Asked::Read { start, .. } if !ok => self.oracle.abandon_read(start),
                Asked::Read { origin, sector, start } => {
                    dbgp(origin, sector, answer.data.len() as u64 / 512, || { let t = std::env::var("TRACE").expect("t"); let s: u64 = t.split_once(':').expect("x").1.parse().expect("n"); let i = (s - sector) as usize * 512; format!("{:?} END READ {start} {:?} allowed {:?}", self.world.now, crate::stamp::identify(origin, s, &answer.data[i..i + 512]), self.oracle.allowed(origin, s))});
                    let verdict = self.oracle.end_read(origin, sector, start, &answer.data);
                    verdict.unwrap_or_else(|violation| panic!("read at {:?}: {violation}", self.world.now));
                }
                Asked::Write { op, durable } => { dbgp(99, 0, 0, || format!("{:?} END write {op} ok {ok}", self.world.now)); self.oracle.end_write(op, ok, durable)},
                Asked::Flush { origin, start } => { dbgp(origin, 0, 1 << 60, || format!("{:?} FLUSH END {start} ok {ok}", self.world.now)); self.oracle.end_flush(origin, start, ok)},
            }
        }
    }

    /// The end of an opening: a power cut (perhaps another one during replay) or a clean stop.
    fn fall(&mut self) {
        if self.one_in(4) {
            self.world.finish_requests();
            self.take_answers();
            self.heal();
            self.world.stop();
            if self.plan.faults_every == 0 {
                self.oracle.stop();
            }
        }
        self.crash();
        while self.one_in(3) {
            self.world.begin_open();
            for _ in 0..self.rng.below(60) {
                self.world.step();
            }
            self.crash();
        }
        let opened = self.world.open();
        opened.unwrap_or_else(|error| panic!("the cache does not open: {error}"));
        let status = self.world.engine().status();
        // A mode change that was not durable yet may be lost.
        self.modes = status.origins.iter().map(|origin| origin.mode).collect();
    }

    fn crash(&mut self) {
        self.heal();
        dbgp(99, 0, 0, || format!("CRASH"));
        if let Ok(t) = std::env::var("TRACE") {
            let (o, s) = t.split_once(':').expect("o:s");
            let (o, s): (u16, u64) = (o.parse().expect("n"), s.parse().expect("n"));
            let size = self.plan.spec.superblock().cache_bytes;
            use flashfront_engine::format::*;
            use flashfront_engine::*;
            let key = Key { origin: OriginId(o), block: Block(s / 8) };
            for b in 1..size / 4096 {
                let mut block = vec![0; 4096];
                self.world.cache.peek(b * 4096, &mut block);
                if let Some(h) = CommitHeader::decode(&block) {
                    let mut n = 0;
                    let e: Vec<String> = h.entries.iter().filter_map(|e| {
                        n += u64::from(e.has_data());
                        match *e {
                            Entry::Dirty { key: k, .. } | Entry::Clean { key: k, .. } | Entry::Cleaned { key: k, .. } if k == key => {
                                let mut d = vec![0; 4096];
                                self.world.cache.peek((b + n) * 4096, &mut d);
                                let i = (s % 8) as usize * 512;
                                Some(format!("{e:?} {:?}", crate::stamp::identify(o as usize, s, &d[i..i + 512])))
                            }
                            Entry::Invalidate { key: k, blocks } if k.origin == key.origin && k.block <= key.block && key.block.0 < k.block.0 + u64::from(blocks) => Some(format!("{e:?}")),
                            Entry::Freed { .. } => Some(format!("{e:?}")),
                            _ => None,
                        }
                    }).collect();
                    eprintln!("C lane {} epoch {} seq {} durable {} stream {} block {b} heads {:?} {e:?}", h.lane, h.epoch, h.seq, h.durable_seq, h.stream, h.heads);
                }
                if let Some(h) = CheckpointHeader::decode(&block) { eprintln!("K {h:?}"); }
            }
        }
        const FATES: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Mixed];
        let (cache, origins) = (FATES[self.rng.below(4) as usize], FATES[self.rng.below(4) as usize]);
        self.world = self.world.crash(self.rng.next_u64(), cache, origins);
        self.oracle.crash();
        self.asked.clear();
    }

    /// Reads everything, drains, stops; then the origins alone must hold all.
    fn end(&mut self) {
        self.heal();
        self.world.finish_requests();
        self.take_answers();
        for origin in 0..self.modes.len() {
            let all = self.plan.spec.origins[origin].size_bytes / SECTOR_BYTES;
            for at in (0..all).step_by(1024) {
                let start = self.oracle.begin_read();
                let id = self.world.submit(RequestOp::Read, origin, at, 1024.min(all - at), false, None);
                self.asked.insert(id, Asked::Read { origin, sector: at, start });
            }
            self.world.finish_requests();
            self.take_answers();
        }
        eprintln!("Z {:?}", self.world.engine().status());
        self.world.drain();
        self.world.stop();
        self.take_answers();
        for (origin, disk) in self.world.origins.iter().enumerate() {
            let mut bytes = vec![0; self.plan.spec.origins[origin].size_bytes as usize];
            disk.peek(0, &mut bytes);
            let start = self.oracle.begin_read();
            let verdict = self.oracle.end_read(origin, 0, start, &bytes);
            verdict.unwrap_or_else(|violation| panic!("the bare origin after drain and stop: {violation}"));
        }
    }
}

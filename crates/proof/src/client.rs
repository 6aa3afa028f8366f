// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client asks a world, and the oracle judges each answer.

use std::collections::BTreeMap;

use flashfront_device::sim::{Fate, RamDisk};
use flashfront_device::wrap::{Fault, Rule};
use flashfront_device::{Device, Rng};
use flashfront_engine::{
    Destage, DeviceId, DirtyOnRemove, Durability, Event, Extent, Mode, Op, RequestError, RequestId, RequestOp,
    SECTOR_BYTES, Time, extents,
};

use crate::oracle::Oracle;
use crate::order::History;
use crate::spec::WorldSpec;
use crate::stamp::{Content, identify};
use crate::world::{Opened, World};

/// A request in flight, and what the oracle must be told at its end.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Read { origin: usize, sector: u64, start: u64 },
    Map { origin: usize, sector: u64, start: u64 },
    Warm,
    Write { op: u32, durable: bool },
    Flush { origin: usize, start: u64 },
}

/// The clients of one cache, and their oracle.
pub struct Client {
    /// The world of the clients.
    pub world: World,
    /// The judge of what reads return.
    pub oracle: Oracle,
    asked: BTreeMap<RequestId, Asked>,
    /// Requests answered, ever.
    pub answers: u64,
    /// Sectors that were told to be holes, ever.
    pub holes: u64,
    /// Requests that failed, with what was asked, since [`Client::take_failed`].
    failed: Vec<(RequestId, RequestError)>,
    /// Events that were seen, since [`Client::take_events`].
    pub(crate) events: Vec<Event>,
    /// Volumes that are to be removed, what becomes of their dirty blocks, the epoch in which this
    /// was asked for, and its number.
    pub(crate) leaving: BTreeMap<usize, (DirtyOnRemove, u64, u64)>,
    /// Changes of the volumes that were asked for.
    pub(crate) tickets: u64,
    /// Whether an origin lost its connection with something unflushed since the opening.
    pub(crate) lost: bool,
}

impl Client {
    /// Makes a fresh cache and opens it.
    #[must_use]
    pub fn fresh(spec: WorldSpec) -> Self {
        let sectors: Vec<u64> = spec.origins.iter().map(|origin| origin.size_bytes / SECTOR_BYTES).collect();
        let mut world = World::format(spec);
        world.open().expect("a fresh cache opens");
        let mut oracle = Oracle::new(&sectors);
        oracle.history = (world.spec.options.destage == Destage::Ordered).then(|| History::new(sectors.len()));
        let (asked, leaving, failed, events) = (BTreeMap::new(), BTreeMap::new(), Vec::new(), Vec::new());
        Self { world, oracle, asked, answers: 0, holes: 0, failed, events, leaving, tickets: 0, lost: false }
    }

    /// Sectors of an origin.
    #[must_use]
    pub fn sectors(&self, origin: usize) -> u64 {
        self.world.spec.origins[origin].size_bytes / SECTOR_BYTES
    }

    /// Begins a read.
    pub fn read(&mut self, origin: usize, sector: u64, sectors: u64) -> RequestId {
        let start = self.oracle.begin_read();
        let id = self.world.submit(RequestOp::Read, origin, sector, sectors, false, None);
        self.asked.insert(id, Asked::Read { origin, sector, start });
        id
    }

    /// Has a range brought into the cache, for nobody.
    pub fn warm(&mut self, origin: usize, sector: u64, sectors: u64, replace: bool) -> RequestId {
        let id = self.world.submit(RequestOp::Warm { replace }, origin, sector, sectors, false, None);
        self.asked.insert(id, Asked::Warm);
        id
    }

    /// Asks where holes are; the range begins and ends with a block.
    pub fn map(&mut self, origin: usize, sector: u64, sectors: u64) -> RequestId {
        let start = self.oracle.begin_read();
        let id = self.world.submit(RequestOp::Map, origin, sector, sectors, false, None);
        self.asked.insert(id, Asked::Map { origin, sector, start });
        id
    }

    /// Begins a write.
    pub fn write(&mut self, origin: usize, sector: u64, sectors: u64, fua: bool) -> RequestId {
        self.change(RequestOp::Write, origin, sector, sectors, fua)
    }

    /// Begins a write, a discard or write-zeroes.
    pub fn change(&mut self, op: RequestOp, origin: usize, sector: u64, sectors: u64, fua: bool) -> RequestId {
        let content = match op {
            RequestOp::Discard => Some(Content::Any),
            RequestOp::WriteZeroes { .. } => Some(Content::Zero),
            _ => None,
        };
        let status = self.world.engine().status();
        let always = self.world.spec.options.durability == Durability::Always;
        let durable =
            fua || (always && status.origins.iter().any(|it| it.id.0 as usize == origin && it.mode == Mode::Writeback));
        // A discard promises nothing about content.
        let durable = durable && op != RequestOp::Discard;
        let write = self.oracle.begin_write(origin, sector, sectors, content);
        let id = self.world.submit(op, origin, sector, sectors, fua, Some(write));
        self.asked.insert(id, Asked::Write { op: write, durable });
        id
    }

    /// Begins a FLUSH.
    pub fn flush(&mut self, origin: usize) -> RequestId {
        let start = self.oracle.begin_read();
        let id = self.world.submit(RequestOp::Flush, origin, 0, 0, false, None);
        self.asked.insert(id, Asked::Flush { origin, start });
        id
    }

    /// Lets the next read of an origin end late: it is done, but says so only after that time.
    pub fn hold_read(&mut self, origin: usize, hold_ns: u64) {
        let rule = Rule { op: Some(Op::Read), times: 1, ..Rule::always(Fault::Stall { hold_ns }) };
        self.world.origins[origin].faults.order(rule);
    }

    /// From now on the origins drop what they fail to flush, and say nothing of that the next time.
    pub fn make_origins_fickle(&mut self) {
        self.world.fickle = true;
        self.oracle.expect_fickle_origins();
    }

    /// Lets the oracle judge all answers that have come.
    ///
    /// # Panics
    /// When a read returned what it may not.
    pub fn judge(&mut self) {
        if self.world.events.iter().any(breaks_order) {
            self.oracle.history = None;
        }
        for origin in self.world.take_losses() {
            self.oracle.lose(origin);
            self.lost = true;
        }
        self.events.append(&mut self.world.events);
        for answer in std::mem::take(&mut self.world.answers) {
            self.answers += 1;
            let ok = answer.result.is_ok();
            if let Err(error) = answer.result {
                self.failed.push((answer.id, error));
            }
            match self.asked.remove(&answer.id).expect("asked for") {
                Asked::Read { start, .. } | Asked::Map { start, .. } if !ok => self.oracle.abandon_read(start),
                Asked::Read { origin, sector, start } => {
                    let verdict = self.oracle.end_read(origin, sector, start, &answer.data);
                    verdict.unwrap_or_else(|violation| panic!("read at {:?}: {violation}", self.world.now));
                }
                Asked::Map { origin, sector, start } => {
                    let sectors =
                        |extent: Extent| std::iter::repeat_n(extent.hole, (extent.bytes / SECTOR_BYTES) as usize);
                    let holes: Vec<bool> = extents(&answer.data).flat_map(sectors).collect();
                    assert!(!holes.is_empty(), "a map tells of something");
                    self.holes += holes.iter().filter(|hole| **hole).count() as u64;
                    let verdict = self.oracle.end_map(origin, sector, start, &holes);
                    verdict.unwrap_or_else(|violation| panic!("map at {:?}: {violation}", self.world.now));
                }
                Asked::Warm => {}
                Asked::Write { op, durable } => self.oracle.end_write(op, ok, durable),
                Asked::Flush { origin, start } => self.oracle.end_flush(origin, start, ok),
            }
        }
        self.judge_leaving();
    }

    /// Waits until at most so many requests are in flight.
    ///
    /// # Panics
    /// If one is never answered.
    pub fn finish_to(&mut self, in_flight: usize) {
        let reached = self.world.drive_until(|world| world.in_flight() <= in_flight);
        assert!(reached, "requests are never answered: {:?}", self.world.engine().status());
        self.judge();
    }

    /// Waits for all answers.
    pub fn finish(&mut self) {
        self.finish_to(0);
    }

    /// Takes the requests that failed since the last call.
    pub fn take_failed(&mut self) -> Vec<(RequestId, RequestError)> {
        self.judge();
        std::mem::take(&mut self.failed)
    }

    /// Takes the events that the operator was told since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.judge();
        std::mem::take(&mut self.events)
    }

    /// Reads everything.
    pub fn read_all(&mut self) {
        let served = |origin: &usize| !self.leaving.contains_key(origin);
        for origin in self.volumes().into_iter().filter(served).collect::<Vec<_>>() {
            let all = self.sectors(origin);
            for sector in (0..all).step_by(256) {
                self.read(origin, sector, 256.min(all - sector));
                self.finish_to(3);
            }
        }
        self.finish();
    }

    /// Drains and stops; then the bare origins must hold everything.
    ///
    /// # Panics
    /// If they don't.
    pub fn leave(&mut self) {
        self.finish();
        self.world.drain();
        self.world.stop();
        self.judge();
        self.judge_origins();
    }

    /// Leaves a cache whose devices have failed. Where blocks are reported as lost, the origin may
    /// hold anything.
    ///
    /// # Panics
    /// If the origins lack anything else.
    pub fn leave_but_lost(&mut self) {
        self.finish();
        self.world.drain();
        for key in self.world.engine().status().lost {
            self.oracle.excuse(key.origin.0 as usize, key.block.0);
        }
        self.world.stop();
        self.judge();
        self.judge_origins();
    }

    /// Judges the origins as they are, without the cache.
    ///
    /// # Panics
    /// If they lack something.
    pub fn judge_origins(&mut self) {
        (0..self.world.origins.len()).for_each(|origin| self.judge_origin(origin));
    }

    /// Judges an origin as it is, without the cache.
    ///
    /// # Panics
    /// If it lacks something.
    pub fn judge_origin(&mut self, origin: usize) {
        let mut bytes = vec![0; self.world.origins[origin].geometry().size_bytes as usize];
        self.world.origins[origin].inner().peek(0, &mut bytes);
        let start = self.oracle.begin_read();
        let verdict = self.oracle.end_read(origin, 0, start, &bytes);
        verdict.unwrap_or_else(|violation| panic!("the bare origin: {violation}"));
    }

    /// Stops cleanly. The world is not open any more.
    pub fn stop(&mut self) {
        self.finish();
        self.stop_at_once();
    }

    /// Stops with requests in flight, which the engine answers before it has stopped.
    pub fn stop_at_once(&mut self) {
        self.world.stop();
        self.judge();
        self.oracle.stop();
    }

    /// Cuts the power. The world is not open any more. [`Fate::Killed`], which is for all devices
    /// or none, kills the daemon instead.
    pub fn crash(&mut self, seed: u64, cache: Fate, origins: Fate) {
        self.judge();
        *self = self.crashed(seed, cache, origins);
    }

    /// The clients as a power cut now would leave them. Answers that were not judged are forgotten.
    ///
    /// # Panics
    /// If the daemon is killed for some devices only.
    #[must_use]
    pub fn crashed(&self, seed: u64, cache: Fate, origins: Fate) -> Self {
        let mut oracle = self.oracle.clone();
        assert_eq!(cache == Fate::Killed, origins == Fate::Killed, "either the power fails or it doesn't");
        if cache == Fate::Killed {
            oracle.kill();
        } else {
            oracle.crash();
        }
        let world = self.world.crash(seed, cache, origins);
        if let Some(history) = &self.oracle.history {
            judge_order(world.origins.iter().map(|disk| &**disk.inner()), history, world.now);
        }
        let (answers, asked) = (self.answers, BTreeMap::new());
        let (leaving, failed, events) = (self.leaving.clone(), Vec::new(), Vec::new());
        Self { world, oracle, asked, answers, holes: 0, failed, events, leaving, tickets: self.tickets, lost: false }
    }

    /// Judges the origins as a power cut now would leave them, were the cache lost, too.
    ///
    /// # Panics
    /// If they are not what a disk could hold.
    pub fn judge_order(&self, seed: u64, origins: Fate) {
        if let Some(history) = &self.oracle.history {
            let mut rng = Rng::new(seed);
            let left: Vec<_> =
                self.world.origins.iter().map(|disk| disk.inner().crash(rng.next_u64(), origins)).collect();
            judge_order(left.iter(), history, self.world.now);
        }
    }

    /// Opens the cache again.
    ///
    /// # Panics
    /// If it can't be opened.
    pub fn open(&mut self) -> Opened {
        let opened = self.world.open();
        opened.unwrap_or_else(|error| panic!("the cache does not open: {error}"))
    }
}

/// Whether an older version that an era needs may have been lost: then no order can be promised.
fn breaks_order(event: &Event) -> bool {
    match event {
        Event::Corrupt { .. } | Event::CacheFailed => true,
        Event::DeviceFailed { device: DeviceId::Cache | DeviceId::Mirror, op, .. } => *op == Op::Read,
        _ => false,
    }
}

fn judge_order<'a>(origins: impl Iterator<Item = &'a RamDisk>, history: &History, now: Time) {
    for (origin, disk) in origins.enumerate() {
        let mut bytes = vec![0; disk.geometry().size_bytes as usize];
        disk.peek(0, &mut bytes);
        let sectors = (0..).zip(bytes.chunks_exact(SECTOR_BYTES as usize));
        let contents: Vec<Content> = sectors.map(|(sector, bytes)| identify(origin, sector, bytes)).collect();
        history.judge(origin, &contents).unwrap_or_else(|disorder| panic!("at {now:?}: {disorder}"));
    }
}

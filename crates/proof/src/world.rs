// SPDX-License-Identifier: MIT OR Apache-2.0
//! A world is an engine, its disks, and a clock that jumps from event to event.
//!
//! The world carries out what the engine wants, as a daemon does. It walks the engine's `check()`
//! after each input, and watches that the engine keeps its side of the contract (`contract`).

use std::collections::BTreeMap;

use flashfront_device::sim::Fate;
use flashfront_device::{Arena, Device, DeviceIo, Done, Rng};
use flashfront_engine::format::{Mirror, Pairing, Superblock};
use flashfront_engine::{
    BLOCK_BYTES, Control, Counters, DeviceId, Effect, Effects, Engine, Event, Input, Io, Lba, Memory, Op, OpenError,
    Options, OriginId, Request, RequestError, RequestId, RequestOp, Span, Time, Token,
};

use crate::spec::WorldSpec;

mod contract;
mod disk;
mod disks;
mod hashed;
mod next;
mod payload;
mod superblocks;

use contract::Contract;
pub use disk::Disk;
use hashed::Hashed;
use next::{is_mail_late, next_io};
use payload::BLOCK;
use superblocks::write_superblock;

/// Buffers of the clients and of the engine.
const ARENA_BYTES: u64 = 512 << 20;

/// The end of a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The request.
    pub id: RequestId,
    /// The result of the request.
    pub result: Result<(), RequestError>,
    /// The data that a read found.
    pub data: Vec<u8>,
}

/// The figures of [`Event::Ready`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Blocks in the cache.
    pub blocks_cached: u64,
    /// Dirty blocks in the cache.
    pub blocks_dirty: u64,
    /// Commits replayed.
    pub commits_replayed: u64,
}

/// A request in flight.
struct Flying {
    request: Request,
    blocks: u32,
}

/// A world: the engine, its disks and the time.
pub struct World {
    /// The parts and sizes of the world.
    pub spec: WorldSpec,
    /// The engine; there is none before the first opening.
    pub engine: Option<Engine>,
    /// The buffers of all payload.
    pub arena: Arena,
    /// The cache device; of a mirrored cache, member 0.
    pub cache: Disk,
    /// Member 1, if there is one.
    pub mirror: Option<Disk>,
    /// The operator's word that a member that is not there will not come back.
    pub alone: bool,
    /// The origins.
    pub origins: Vec<Disk>,
    /// The time.
    pub now: Time,
    /// Answers not yet taken.
    pub answers: Vec<Answer>,
    /// Events not yet taken.
    pub events: Vec<Event>,
    /// Inputs since the beginning.
    pub steps: u64,
    /// Whether somebody outside the cache device remembers that this cache must not be replayed.
    pub recorded_failure: bool,
    /// An origin whose flush fails drops what it should have flushed, and says nothing of that the
    /// next time.
    pub fickle: bool,
    /// Nothing can be remembered outside the cache: the failure of a cache that can't be marked is
    /// recorded nowhere.
    pub forgetful: bool,
    /// The fate of the mirror at the next power cut, if it has one of its own.
    pub mirror_fate: Option<Fate>,
    /// The cache device may have lied, so that what it has of clean blocks proves nothing.
    pub deceived: bool,
    /// The opening waits after replay, and clean blocks are compared.
    pub holds: bool,
    failure_answered: bool,
    hashed: Hashed,
    effects: Effects,
    flying: BTreeMap<u64, Flying>,
    next_id: u64,
    contract: Contract,
    /// Flushes of origins in flight.
    flushing: BTreeMap<Token, usize>,
    /// The engine has taken something and not settled, or messages are on their way in it.
    unsettled: bool,
    /// Replay is over.
    ready: bool,
}

impl World {
    /// Makes a world of disks that exist.
    #[must_use]
    pub fn on(spec: WorldSpec, cache: Disk, origins: Vec<Disk>, now: Time) -> Self {
        let mut arena = Arena::new(ARENA_BYTES);
        if let Some(helpers) = spec.apart {
            arena.set_apart_always(spec.lanes as usize, helpers, ARENA_BYTES).expect("there are threads");
        }
        Self {
            spec,
            engine: None,
            arena,
            cache,
            mirror: None,
            alone: false,
            origins,
            now,
            answers: Vec::new(),
            events: Vec::new(),
            steps: 0,
            recorded_failure: false,
            fickle: false,
            forgetful: false,
            mirror_fate: None,
            deceived: false,
            holds: true,
            failure_answered: false,
            hashed: Hashed::default(),
            effects: Effects::default(),
            flying: BTreeMap::new(),
            next_id: 1,
            contract: Contract::default(),
            flushing: BTreeMap::new(),
            unsettled: false,
            ready: false,
        }
    }

    /// Begins to open the cache: the next steps replay it.
    pub fn begin_open(&mut self) {
        assert!(!self.must_not_open(), "the cache failed, but is opened again");
        self.contract.begin_opening();
        self.ready = false;
        let superblock = self.write_superblocks(&[0, 1]);
        self.learn(&superblock);
        let options = Options { hold_replayed: self.holds, ..self.spec.engine_options() };
        let engine = Engine::new(superblock, options, self.now);
        let engine = self.engine.insert(engine.expect("the origins of a test can be indexed"));
        if self.spec.by_mail {
            engine.choose_order(self.spec.seed ^ self.steps << 20 ^ self.spec.order << 48);
        }
        self.input(Input::Timer);
    }

    /// Writes the superblock of the next opening to these members, as far as they count.
    ///
    /// # Panics
    /// If the cache can't be opened.
    pub fn write_superblocks(&mut self, members: &[u8]) -> Superblock {
        let chosen = self.chosen().expect("one copy of the superblock is whole");
        let mut superblock = chosen.unwrap_or_else(|error| panic!("the cache does not open: {error}"));
        superblock.epoch += 1;
        superblock.update += 1;
        superblock.clean = false;
        let Pairing { mirror, lead, .. } = superblock.pairing;
        for &member in members.iter().filter(|member| mirror == Mirror::Whole || **member == lead) {
            let disk = self.member_mut(member).expect("the device that the superblock was read from");
            write_superblock(disk.inner_mut(), &superblock, member);
            // A daemon makes the new epoch durable, and with it what one before it had written.
            disk.inner_mut().flush();
        }
        superblock
    }

    /// Opens the cache.
    ///
    /// # Errors
    /// Why the engine can't.
    pub fn open(&mut self) -> Result<Opened, OpenError> {
        self.begin_open();
        loop {
            for event in std::mem::take(&mut self.events) {
                match event {
                    Event::Ready { blocks_cached, blocks_dirty, commits_replayed } => {
                        return Ok(Opened { blocks_cached, blocks_dirty, commits_replayed });
                    }
                    Event::OpenFailed(error) => return Err(error),
                    _ => {}
                }
            }
            assert!(self.step(), "nothing happens, but the engine is not open");
        }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("an opened world")
    }

    /// The engine's counters after the last input (with [`WorldSpec::check`]).
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        self.contract.counters()
    }

    /// Submits a request. A write is stamped with `write`, or zeroes for `None`; one in bytes has
    /// that number in each byte.
    pub fn submit(
        &mut self,
        op: RequestOp,
        origin: usize,
        lba: u64,
        sectors: u64,
        fua: bool,
        write: Option<u32>,
    ) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let blocks = payload::blocks(op, lba, sectors);
        let buf = (blocks > 0).then(|| self.arena.try_alloc(blocks * BLOCK).expect("the arena is large enough"));
        if let Some(buf) = buf {
            let bytes = self.arena.bytes_mut(Span::new(buf, 0, blocks * BLOCK));
            payload::fill(bytes, op, origin, lba, sectors, write);
        }
        let request = Request {
            id,
            origin: OriginId(origin as u32),
            op,
            lba: Lba(lba),
            sectors,
            buf,
            fua,
            since: self.now,
            continues: false,
        };
        self.flying.insert(id.0, Flying { request, blocks });
        self.input(Input::Request(request));
        id
    }

    /// Gives the engine an order.
    pub fn control(&mut self, control: Control) {
        self.input(Input::Control(control));
    }

    /// Requests not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// Whether this request is not answered.
    #[must_use]
    pub fn waits(&self, id: RequestId) -> bool {
        self.flying.contains_key(&id.0)
    }

    /// Whether replay is over, and the engine there.
    #[must_use]
    pub const fn serving(&self) -> bool {
        self.ready && self.engine.is_some()
    }

    /// The moment of the next event; `None`: nothing will ever happen.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        if self.unsettled {
            return Some(self.now);
        }
        let timer = self.engine.as_ref().and_then(Engine::next_timer);
        self.next_io().into_iter().chain(timer).min()
    }

    fn next_io(&self) -> Option<Time> {
        next_io(self.origins.iter().chain([&self.cache]).chain(&self.mirror))
    }

    /// Jumps to the next event and handles it; false if nothing will ever happen.
    pub fn step(&mut self) -> bool {
        assert!(
            !self.contract.is_stuck(),
            "livelock at {:?}: {} requests in flight, {:?}",
            self.now,
            self.flying.len(),
            self.engine().status()
        );
        let late = self.spec.by_mail && is_mail_late(self.spec.seed, self.steps) && self.next_io().is_some();
        if self.unsettled && !late {
            self.settle();
            return true;
        }
        let next = if self.unsettled { self.next_io() } else { self.next_event() };
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        let mut done = Vec::new();
        let (hung, back) = (self.hung(), self.is_back());
        for disk in [&mut self.cache].into_iter().chain(&mut self.mirror).chain(&mut self.origins) {
            disk.poll(self.now, &mut self.arena, &mut done);
        }
        let hangs = self.hung();
        for device in hung.iter().copied().filter(|it| !hangs.contains(it)) {
            if self.engine.is_some() {
                self.input(Input::Control(Control::Answers { device }));
            }
        }
        if done.is_empty() && hung == hangs && !back {
            self.contract.serve_timer(self.now);
            self.input(Input::Timer);
        }
        for Done { token, result } in done {
            if let Some(origin) = self.flushing.remove(&token)
                && self.fickle
                && result.is_err()
            {
                self.origins[origin].inner_mut().drop_unflushed();
            }
            self.contract.end_io(token, &self.arena);
            self.input(Input::IoDone { token, result });
        }
        true
    }

    /// Steps until `done` says so, or nothing happens any more.
    pub fn drive_until(&mut self, mut done: impl FnMut(&Self) -> bool) -> bool {
        while !done(self) {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// Steps until all requests are answered.
    ///
    /// # Panics
    /// If one never is.
    pub fn finish_requests(&mut self) {
        let all = self.drive_until(|world| world.flying.is_empty());
        assert!(all, "{} requests are never answered: {:?}", self.flying.len(), self.engine().status());
    }

    /// Lets time pass: handles all that happens within `ns`.
    pub fn pass(&mut self, ns: u64) {
        let end = self.now.plus_ns(ns);
        while self.next_event().is_some_and(|next| next <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Drains and waits for the end.
    pub fn drain(&mut self) {
        self.control(Control::Drain(true));
        let drained = self.drive_until(|world| world.events.contains(&Event::Drained));
        assert!(drained, "the drain never ends: {:?}", self.engine().status());
    }

    /// Stops cleanly. The engine is gone; the disks are as they are.
    pub fn stop(&mut self) {
        self.control(Control::Stop);
        let stopped = self.drive_until(|world| world.events.contains(&Event::Stopped));
        assert!(stopped, "the stop never ends: {:?}", self.engine().status());
        self.engine = None;
        self.unsettled = false;
        self.await_answers();
        let disks = self.origins.iter().chain([&self.cache]).chain(&self.mirror);
        let in_flight: usize = disks.map(|disk| disk.inner().in_flight()).sum();
        assert_eq!(in_flight, 0, "stopped with I/O in flight");
        assert_eq!(self.in_flight(), 0, "stopped with requests in flight");
    }

    /// A number over all effects so far.
    #[must_use]
    pub fn effects_hash(&self) -> u64 {
        self.hashed.number()
    }

    /// Gives the engine an input and carries out what it wants; with [`WorldSpec::batches`]
    /// sometimes together with the next one.
    pub fn input(&mut self, input: Input) {
        self.steps += 1;
        let engine = self.engine.as_mut().expect("an opened world");
        engine.take(self.now, input, &mut self.arena, &mut self.effects);
        let batches = self.spec.batches || self.spec.by_mail;
        self.unsettled = batches && Rng::new(self.spec.seed ^ self.steps).below(2) == 0;
        if !self.unsettled {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.unsettled = false;
        let engine = self.engine.as_mut().expect("an opened world");
        let mut effects = std::mem::take(&mut self.effects);
        engine.settle(self.now, &mut self.arena, &mut effects);
        self.unsettled = engine.has_mail();
        if self.spec.check {
            engine.check();
            self.contract.look(engine, self.ready);
        }
        for effect in effects.0.drain(..) {
            self.hashed.note(self.now, &effect, &self.arena);
            match effect {
                Effect::Io(io) => self.carry_out(io),
                Effect::Reply { id, result, .. } => self.answer(id, result),
                Effect::Event(event) => {
                    self.contract.moved();
                    if matches!(event, Event::Ready { .. }) {
                        self.ready = true;
                        if self.spec.apart_while_opening {
                            self.arena.end_apart();
                        }
                    }
                    self.events.push(event);
                }
            }
        }
        self.effects = effects;
        if self.events.contains(&Event::Replayed) {
            self.events.retain(|event| *event != Event::Replayed);
            self.compare_clean();
            self.control(Control::GoOn { drop_clean: false });
        }
        if !self.failure_answered && self.events.contains(&Event::FailureUnmarked) {
            (self.failure_answered, self.recorded_failure) = (true, !self.forgetful);
            self.control(Control::FailureRecorded { durable: !self.forgetful });
        }
    }

    /// Compares each clean block with what its origin holds. This is done after each replay.
    fn compare_clean(&self) {
        let engine = self.engine.as_ref().expect("it has replayed");
        if self.deceived || self.spec.options.drop_clean || engine.superblock().pairing.clean_lost {
            return;
        }
        for key in engine.clean_blocks(usize::MAX) {
            let origin = &self.origins[key.origin.0 as usize];
            let (offset, mut block) = (key.block.0 * BLOCK_BYTES, vec![0; BLOCK_BYTES as usize]);
            if offset + BLOCK_BYTES <= self.spec.origins[key.origin.0 as usize].size_bytes {
                origin.inner().peek(offset, &mut block);
                let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &block) as u32;
                let same = engine.is_clean_content(key, crc);
                assert_eq!(same, Some(true), "{key:?}: a clean block is not what the origin holds");
            }
        }
    }

    fn carry_out(&mut self, io: Io) {
        let Io { token, device, op, offset, len, span } = io;
        match (op, span) {
            (Op::Write, Some(span)) => {
                self.contract.begin_write(token, span, &self.arena);
            }
            // Nobody may look at it before it is read.
            (Op::Read, Some(span)) => self.arena.bytes_mut(span).fill(0x5a),
            _ => {}
        }
        if let (Op::Flush, DeviceId::Origin(id)) = (op, device) {
            self.flushing.insert(token, id.0 as usize);
        }
        let disk = match device {
            DeviceId::Cache => &mut self.cache,
            DeviceId::Mirror => self.mirror.as_mut().expect("the engine was told of a mirror"),
            DeviceId::Origin(id) => &mut self.origins[id.0 as usize],
        };
        disk.submit(self.now, DeviceIo { token, op, offset, len, span }, &mut self.arena);
    }

    fn answer(&mut self, id: RequestId, result: Result<(), RequestError>) {
        self.contract.moved();
        let Flying { request, blocks } = self.flying.remove(&id.0).expect("one answer for each request");
        let mut data = Vec::new();
        if let Some(buf) = request.buf {
            if let Some((from, len)) = payload::answer(&request).filter(|_| result.is_ok()) {
                data.extend_from_slice(self.arena.bytes(Span::new(buf, from, len)));
            }
            // The engine has let go of it.
            self.arena.bytes_mut(Span::new(buf, 0, blocks * BLOCK)).fill(0x99);
            self.arena.free(buf);
        }
        self.answers.push(Answer { id, result, data });
    }
}

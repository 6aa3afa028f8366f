// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flashfront runs on device models here: the production engine, without payload.
//!
//! The processor costs nothing here; what it costs is measured on real machines
//! (docs/laboratory/performance.md).

use flashfront_device::sim::{Model, ModelIo, ModelSpec};
use flashfront_engine::format::{OriginRecord, Pairing, Superblock, checkpoint_blocks};
use flashfront_engine::{
    BLOCK_BYTES, Buf, Control, DeviceId, Effect, Effects, Engine, Event, Input, Io, Lba, Memory, Mode, Op, Options,
    OriginId, Request, RequestId, RequestOp, SECTOR_BYTES, Status, Time, Token,
};
use hashbrown::HashMap;

use super::asked::{Ask, System, SystemRequest, Traffic};
use super::weightless::{Headers, Weightless};

/// Blocks of a segment, as `format` makes them: 1 MiB.
const SEGMENT_BLOCKS: u32 = 256;

/// A cache in front of an origin.
#[derive(Clone, Debug)]
pub struct FlashfrontSpec {
    /// The origin's kind.
    pub origin: ModelSpec,
    /// The origin's size.
    pub origin_bytes: u64,
    /// The cache device's kind.
    pub cache: ModelSpec,
    /// The cache device's size.
    pub cache_bytes: u64,
    /// The write mode.
    pub mode: Mode,
    /// The engine's options.
    pub options: Options,
}

/// A cache device.
struct Member {
    model: Box<dyn Model>,
    headers: Headers,
}

/// The engine on models.
pub struct Flashfront {
    engine: Engine,
    memory: Weightless,
    /// The cache devices by their numbers of member, as far as there are any.
    members: [Option<Member>; 2],
    spec: FlashfrontSpec,
    origin: Box<dyn Model>,
    effects: Effects,
    /// Numbers of the devices' I/Os.
    next_io: u64,
    ios: HashMap<u64, Token>,
    /// Buffers of requests in flight.
    buffers: HashMap<u64, Buf>,
    done: Vec<(Time, u64)>,
    answered: Vec<u64>,
    origin_ios: u64,
    ready: bool,
    now: Time,
}

impl Flashfront {
    /// Formats and opens a cache.
    ///
    /// # Panics
    /// If the sizes make no cache.
    #[must_use]
    pub fn new(spec: &FlashfrontSpec) -> Self {
        let superblock = superblock(spec);
        let first = Member { model: spec.cache.build(spec.cache_bytes), headers: Headers::new(&superblock) };
        let engine = Engine::new(superblock, spec.options.clone(), Time(0)).expect("an origin that can be indexed");
        let mut this = Self {
            engine,
            memory: Weightless::default(),
            members: [Some(first), None],
            spec: spec.clone(),
            origin: spec.origin.build(spec.origin_bytes),
            effects: Effects::default(),
            next_io: 0,
            ios: HashMap::new(),
            buffers: HashMap::new(),
            done: Vec::new(),
            answered: Vec::new(),
            origin_ios: 0,
            ready: false,
            now: Time(0),
        };
        this.input(Time(0), Input::Timer);
        while !this.ready {
            let next = this.next_event().expect("the opening goes on until the cache is open");
            this.step(next);
        }
        this
    }

    /// The engine's status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    fn input(&mut self, now: Time, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        self.engine.apply(now, input, &mut self.memory, &mut effects);
        for effect in effects.0.drain(..) {
            match effect {
                Effect::Io(io) => self.carry_out(now, io),
                Effect::Reply { id, result, .. } => {
                    assert_eq!(result, Ok(()), "devices without faults");
                    if let Some(buf) = self.buffers.remove(&id.0) {
                        self.memory.free(buf);
                    }
                    self.answered.push(id.0);
                }
                Effect::Event(event) => self.ready |= matches!(event, Event::Ready { .. }),
            }
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, now: Time, io: Io) {
        let Io { token, device, op, offset, len, span } = io;
        self.next_io += 1;
        self.ios.insert(self.next_io, token);
        let member = match device {
            DeviceId::Cache => self.members[0].as_mut(),
            DeviceId::Mirror => self.members[1].as_mut(),
            DeviceId::Origin(_) => None,
        };
        let model = if let Some(Member { model, headers }) = member {
            match (op, span) {
                (Op::Write, Some(span)) => headers.write(offset, span, &self.memory),
                (Op::Read, Some(span)) => headers.read(offset, span, &mut self.memory),
                _ => {}
            }
            model
        } else {
            self.origin_ios += u64::from(op != Op::Flush);
            &mut self.origin
        };
        model.submit(now, ModelIo { number: self.next_io, op, offset, len });
    }

    fn step(&mut self, now: Time) {
        self.now = now;
        for member in self.members.iter_mut().flatten() {
            member.model.advance(now, &mut self.done);
        }
        self.origin.advance(now, &mut self.done);
        let mut done = std::mem::take(&mut self.done);
        done.sort_unstable();
        if done.is_empty() && self.engine.next_timer().is_some_and(|at| at <= now) {
            self.input(now, Input::Timer);
        }
        for (_, number) in done.drain(..) {
            let token = self.ios.remove(&number).expect("a model ends each I/O once");
            self.input(now, Input::IoDone { token, result: Ok(()) });
        }
        self.done = done;
    }
}

impl System for Flashfront {
    fn submit(&mut self, now: Time, request: SystemRequest) {
        let SystemRequest { number, ask, offset, len } = request;
        let buf = (ask != Ask::Flush).then(|| self.memory.alloc(len as u32));
        assert!((offset | len).is_multiple_of(SECTOR_BYTES), "clients ask for whole sectors");
        if let Some(buf) = buf {
            self.buffers.insert(number, buf);
        }
        let op = match ask {
            Ask::Read => RequestOp::Read,
            Ask::Write => RequestOp::Write,
            Ask::Flush => RequestOp::Flush,
        };
        let lba = Lba(offset / SECTOR_BYTES);
        let sectors = len / SECTOR_BYTES;
        let request = Request {
            id: RequestId(number),
            origin: OriginId(0),
            op,
            lba,
            sectors,
            buf,
            fua: false,
            since: Time(0),
            continues: false,
        };
        self.input(now, Input::Request(request));
    }

    fn next_event(&self) -> Option<Time> {
        if !self.answered.is_empty() {
            return Some(self.now);
        }
        let members = self.members.iter().flatten().map(|member| member.model.next_event());
        members.chain([self.engine.next_timer(), self.origin.next_event()]).flatten().min()
    }

    fn advance(&mut self, now: Time, answered: &mut Vec<u64>) {
        self.step(now);
        answered.append(&mut self.answered);
    }

    fn takes_sectors(&self) -> bool {
        true
    }

    fn traffic(&self) -> Traffic {
        let status = self.engine.status();
        let counters = &status.counters;
        Traffic {
            cache_read_bytes: counters.cache_reads_bytes,
            cache_write_bytes: counters.cache_writes_bytes,
            cache_flushes: counters.cache_flushes,
            origin_read_bytes: counters.origin_reads_bytes,
            origin_write_bytes: counters.origin_writes_bytes,
            origin_ios: self.origin_ios,
            origin_flushes: counters.origin_flushes,
            read_blocks: counters.read_hits + counters.read_misses,
            read_hit_blocks: counters.read_hits,
            dirty_bytes: status.blocks_dirty * BLOCK_BYTES,
            dirty_limit_bytes: status.dirty_limit_blocks * BLOCK_BYTES,
        }
    }

    fn keep(&mut self, now: Time, percent: u32) {
        let segments = u64::from(self.engine.superblock().segments_per_lane) * u64::from(percent) / 100;
        let keep_segments = (percent < 100).then_some(segments as u32);
        self.input(now, Input::Control(Control::Vacate { keep_segments, dirty_limit_blocks: None }));
    }

    fn replace(&mut self, now: Time) {
        let superblock = self.engine.superblock();
        let (lead, headers) = (superblock.pairing.lead, Headers::new(superblock));
        // The one that a replacement before this one has left is not used any more.
        self.members[usize::from(1 - lead)] =
            Some(Member { model: self.spec.cache.build(self.spec.cache_bytes), headers });
        self.input(now, Input::Control(Control::Replace));
    }

    fn drain(&mut self, now: Time) -> bool {
        self.input(now, Input::Control(Control::Drain(true)));
        true
    }
}

impl FlashfrontSpec {
    /// What the cache is opened with: how large its log is, among others.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        superblock(self)
    }
}

fn superblock(spec: &FlashfrontSpec) -> Superblock {
    let blocks = spec.cache_bytes / BLOCK_BYTES;
    // Two superblocks and two checkpoint areas; the rest is segments.
    let mut segments = (blocks / u64::from(SEGMENT_BLOCKS)) as u32;
    let used = |segments: u32| {
        2 + 2 * checkpoint_blocks(segments, SEGMENT_BLOCKS) + u64::from(segments) * u64::from(SEGMENT_BLOCKS)
    };
    while used(segments) > blocks {
        segments -= 1;
    }
    let origin = OriginRecord {
        id: OriginId(0),
        mode: spec.mode,
        size_bytes: spec.origin_bytes,
        name: "origin".to_owned(),
        ..OriginRecord::default()
    };
    Superblock {
        uuid: *b"a cache in a sim",
        update: 1,
        epoch: 1,
        clean: true,
        failed: false,
        dirty_blocks: 0,
        pairing: Pairing::default(),
        cache_bytes: blocks * BLOCK_BYTES,
        lanes: 1,
        segment_blocks: SEGMENT_BLOCKS,
        segments_per_lane: segments,
        checkpoint_blocks: checkpoint_blocks(segments, SEGMENT_BLOCKS) as u32,
        // One lane: the width of a stripe doesn't matter.
        stripe_blocks: 1 << 14,
        first_block: 1,
        grown: None,
        table: None,
        origins: vec![origin],
    }
}

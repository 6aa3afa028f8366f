// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what the engine itself costs. The devices are done at once, and there is no pump and no
//! socket. `cargo x bench engine` runs this program.
//!
//! The null devices keep only what the engine reads again: headers of commits and checkpoints. All
//! payload has the same pattern. So the payload that a null device "reads" fits its checksum.
//!
//! null_devices CASE (payload|bare) JOBS REQUESTS [THREADS]: prints one JSON object with the ns of
//! each request of 4 KiB. With THREADS the cache has four lanes.
//!
//! The ns are the thread's time on a processor. Nothing has to be waited for, and time that other
//! programs take of a shared machine is not a cost of the engine.
//!
//! - CASE is write_null, read_hit_null, read_miss_null or copy_null. copy_null is the payload's
//!   part of a write alone: a copy and its checksum.
//! - A job has 32 requests in flight.
//! - The cache has 16 GiB. Its index of 40 MiB is larger than the processor's caches.
//! - Requests go to random blocks of 2 GiB, which is an eighth of the cache. Destage begins at 30 %
//!   of the dirty limit, so it does not run.
//!
//! null_devices memory GIB: prints the RAM that a cache of that size takes for each cached block.
//! `clean` is a cache that was filled with reads in no order. `dirty` is the same cache when a
//! tenth of it is dirty, scattered over the origin.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Barrier;
use std::time::Instant;

use flashfront_device::{Arena, Rng, prefetch};
use flashfront_engine::format::Superblock;
use flashfront_engine::{
    BLOCK_BYTES, Buf, DeviceId, Effect, Effects, Engine, Event, Input, Io, Lba, Memory, Mode, Op, Options, OriginId,
    Request, RequestId, RequestOp, Span, Status, Time, Token,
};
use flashfront_proof::{OriginSpec, WorldSpec};
use tempfile::tempfile;

#[global_allocator]
static TABLES: flashfront_device::Tables = flashfront_device::Tables;

const SEGMENT_BLOCKS: u32 = 256;
const CACHE_GIB: u32 = 16;
/// The lanes of the cache where threads are measured.
const LANES: u32 = 4;
/// Blocks that requests go to: a power of two.
const HOT_BLOCKS: u64 = 1 << 19;
const ORIGIN_BYTES: u64 = 16 << 40;
const DEPTH: usize = 32;
/// The number of buffers that payload is taken from in turn. They are 64 MiB, so that payload is
/// not in the processor's caches, as after DMA.
const PAYLOADS: usize = 16 << 10;
const PATTERN: u8 = 0x5a;

/// Buffers without payload: they have bytes only where the engine itself writes.
#[derive(Default)]
struct Bare {
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
}

impl Memory for Bare {
    fn alloc(&mut self, _bytes: u32) -> Buf {
        Buf(self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            (self.buffers.len() - 1) as u32
        }))
    }
    fn free(&mut self, buf: Buf) {
        self.free.push(buf.0);
    }
    fn bytes(&self, span: Span) -> &[u8] {
        &self.buffers[span.buf().0 as usize][span.offset() as usize..(span.offset() + span.len) as usize]
    }
    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        let (from, to) = (span.offset() as usize, (span.offset() + span.len) as usize);
        let bytes = &mut self.buffers[span.buf().0 as usize];
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        &mut bytes[from..to]
    }
    fn copy(&mut self, _from: Span, _to: Buf, _offset: u32) {}
    fn zero(&mut self, _span: Span) {}
    fn checksum(&self, _span: Span) -> u32 {
        0
    }
    fn expect_line(&self, at: *const u8) {
        prefetch(at);
    }
}

/// The blocks of the cache device that the engine reads again: the first block of each write, and
/// all that formatting wrote. They are in a file without a name, so that they don't count as
/// memory.
struct Headers {
    file: File,
    /// A bit for each block. Most reads find no header, and should not pay for a search.
    present: Vec<u64>,
}

impl Headers {
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let block = offset / BLOCK_BYTES;
        self.present[(block / 64) as usize] |= 1 << (block % 64);
        self.file.write_all_at(bytes, offset).expect("room for headers in the temporary folder");
    }

    fn holds(&self, offset: u64) -> bool {
        let block = offset / BLOCK_BYTES;
        self.present[(block / 64) as usize] >> (block % 64) & 1 == 1
    }
}

struct Bench {
    engine: Engine,
    memory: Box<dyn Memory>,
    headers: Headers,
    payload: bool,
    effects: Effects,
    done: Vec<Token>,
    /// Buffers of requests that are not in flight.
    idle: VecDeque<Buf>,
    answered: u64,
    events: Vec<Event>,
    began: Instant,
    now: Time,
}

impl Bench {
    fn new(payload: bool, cache_gib: u32, threads: Option<usize>) -> Self {
        let lanes = if threads.is_some() { LANES } else { 1 };
        let superblock = superblock(cache_gib, lanes);
        let mut headers = Headers {
            file: tempfile().expect("a temporary folder"),
            present: vec![0; (superblock.cache_bytes / BLOCK_BYTES / 64 + 1) as usize],
        };
        superblock.empty_checkpoints().iter().for_each(|(offset, block)| headers.put(*offset, block));
        let options = Options { sequential_bypass_bytes: 0, ..Options::default() };
        let engine = Engine::new(superblock, options, Time(0)).expect("an origin that can be indexed");
        // Threads need an arena, also for buffers without payload. So does the one thread that they
        // are compared with.
        let mut memory: Box<dyn Memory> = if payload || threads.is_some() {
            let arena = Arena::new(1 << 30);
            let mut arena = if payload { arena } else { arena.without_payload() };
            if let Some(helpers) = threads.and_then(|threads| threads.checked_sub(1)).filter(|helpers| *helpers > 0) {
                arena.set_apart(lanes as usize, helpers, 256 << 20).expect("there are threads");
            }
            Box::new(arena)
        } else {
            Box::<Bare>::default()
        };
        let idle = (0..if payload { PAYLOADS } else { 128 }).map(|_| memory.alloc(BLOCK_BYTES as u32));
        let idle: VecDeque<Buf> = idle.collect();
        idle.iter().for_each(|buf| memory.bytes_mut(Span::new(*buf, 0, BLOCK_BYTES as u32)).fill(PATTERN));
        let mut this = Self {
            engine,
            memory,
            headers,
            payload,
            effects: Effects::default(),
            done: Vec::new(),
            idle,
            answered: 0,
            events: Vec::new(),
            began: Instant::now(),
            now: Time(0),
        };
        this.apply(Input::Timer);
        this.follow();
        this.settle();
        assert!(this.events.iter().any(|event| matches!(event, Event::Ready { .. })), "the cache did not open");
        this
    }

    fn apply(&mut self, input: Input) {
        self.engine.take(self.now, input, &mut *self.memory, &mut self.effects);
    }

    /// Carries out the effects of all inputs so far.
    fn follow(&mut self) {
        self.engine.settle(self.now, &mut *self.memory, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.0.drain(..) {
            match effect {
                Effect::Io(io) => self.carry_out(io),
                Effect::Reply { id, result, .. } => {
                    assert_eq!(result, Ok(()), "devices without faults");
                    self.idle.push_back(Buf(id.0 as u32));
                    self.answered += 1;
                }
                Effect::Event(event) => self.events.push(event),
            }
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, io: Io) {
        if let (DeviceId::Cache, Some(span)) = (io.device, io.span) {
            let first = Span::new(span.buf(), span.offset(), BLOCK_BYTES as u32);
            match io.op {
                Op::Write => self.headers.put(io.offset, self.memory.bytes(first)),
                Op::Read => {
                    for at in (0..span.len).step_by(BLOCK_BYTES as usize) {
                        let block = Span::new(span.buf(), span.offset() + at, BLOCK_BYTES as u32);
                        let offset = io.offset + u64::from(at);
                        if self.headers.holds(offset) {
                            let read = self.headers.file.read_exact_at(self.memory.bytes_mut(block), offset);
                            read.expect("what was written");
                        } else if self.payload
                            && self.memory.bytes(Span::new(span.buf(), block.offset(), 8)) != [PATTERN; 8]
                        {
                            // A block in RAM is all pattern or a header: this one was a header.
                            self.memory.bytes_mut(block).fill(PATTERN);
                        }
                    }
                }
                _ => {}
            }
        }
        self.done.push(io.token);
    }

    /// Ends all I/O, and carries out its effects.
    fn settle(&mut self) {
        while !self.done.is_empty() {
            for token in std::mem::take(&mut self.done) {
                self.apply(Input::IoDone { token, result: Ok(()) });
            }
            self.follow();
        }
    }

    /// Sends `requests` requests to the blocks that `place` names, and waits for the answers.
    fn drive(&mut self, op: RequestOp, requests: u64, depth: usize, mut place: impl FnMut() -> u64) {
        let mut left = requests;
        self.answered = 0;
        while self.answered < requests {
            self.now = Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX));
            // The buffer that was freed last is taken last, so that payload is not in the
            // processor's caches.
            let batch: Vec<Buf> = self.idle.drain(..depth.min(left as usize).min(self.idle.len())).collect();
            for buf in batch {
                left -= 1;
                let (id, lba) = (RequestId(u64::from(buf.0)), Lba(place() * 8));
                let origin = OriginId(0);
                self.apply(Input::Request(Request {
                    id,
                    origin,
                    op,
                    lba,
                    sectors: 8,
                    buf: Some(buf),
                    fua: false,
                    since: self.now,
                    continues: false,
                }));
            }
            if self.engine.next_timer().is_some_and(|due| due <= self.now) {
                self.apply(Input::Timer);
            }
            self.follow();
            self.settle();
        }
    }
}

fn superblock(cache_gib: u32, lanes: u32) -> Superblock {
    let origin = OriginSpec { size_bytes: ORIGIN_BYTES, logical_block_bytes: 512, mode: Mode::Writeback };
    let spec = WorldSpec {
        lanes,
        segment_blocks: SEGMENT_BLOCKS,
        segments_per_lane: (cache_gib << 10) / lanes,
        stripe_blocks: 1 << 12,
        origins: vec![origin],
        ..WorldSpec::default()
    };
    Superblock { epoch: 1, ..spec.superblock() }
}

/// Yields each block below `blocks` once, in no order. `blocks` is a power of two.
fn each(blocks: u64) -> impl FnMut() -> u64 {
    let mut nth = 0u64;
    move || {
        nth += 1;
        nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks
    }
}

const USAGE: &str = "null_devices (write_null|read_hit_null|read_miss_null|copy_null) (payload|bare) JOBS REQUESTS [THREADS], or memory GIB";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["memory", gib] => memory(gib.parse().expect(USAGE)),
        ["copy_null", "payload", _, requests] => copy(requests.parse().expect(USAGE)),
        ["copy_null", "payload", _, requests, threads] => {
            copy_by(threads.parse().expect(USAGE), requests.parse().expect(USAGE));
        }
        [case, payload, jobs, requests, ref threads @ ..] => {
            let threads = threads.first().map(|threads| threads.parse().expect(USAGE));
            time(case, payload == "payload", jobs.parse().expect(USAGE), requests.parse().expect(USAGE), threads);
        }
        _ => panic!("{USAGE}"),
    }
}

fn time(case: &str, payload: bool, jobs: usize, requests: u64, threads: Option<usize>) {
    let mut bench = Bench::new(payload, CACHE_GIB, threads);
    let mut rng = Rng::new(7);
    let mut any = || rng.below(HOT_BLOCKS);
    let requests = if case == "read_miss_null" { requests.min(HOT_BLOCKS) } else { requests };
    if case != "read_miss_null" {
        bench.drive(RequestOp::Write, HOT_BLOCKS, DEPTH, each(HOT_BLOCKS));
    }
    let depth = DEPTH * jobs;
    let before = bench.engine.status().counters;
    let (began, began_at) = (cpu_ns(), Instant::now());
    match case {
        "write_null" => bench.drive(RequestOp::Write, requests, depth, &mut any),
        "read_hit_null" => bench.drive(RequestOp::Read, requests, depth, &mut any),
        "read_miss_null" => bench.drive(RequestOp::Read, requests, depth, each(HOT_BLOCKS)),
        _ => panic!("{USAGE}"),
    }
    let ns = (cpu_ns() - began) as f64;
    let of_the_clock = began_at.elapsed().as_nanos() as f64;
    let after = bench.engine.status().counters;
    let (hits, misses) = (after.read_hits - before.read_hits, after.read_misses - before.read_misses);
    let filled = after.promoted_blocks - before.promoted_blocks;
    match case {
        "read_hit_null" => assert_eq!(misses, 0, "not a measure of hits"),
        "read_miss_null" => assert_eq!((hits, filled), (0, requests), "not a measure of misses with fill"),
        _ => assert_eq!(after.destaged_blocks, 0, "not a measure of writes alone"),
    }
    let (ns, of_the_clock) = (ns / requests as f64, of_the_clock / requests as f64);
    println!("{{\"requests\":{requests},\"ns_per_op\":{ns:.1},\"clock_ns_per_op\":{of_the_clock:.1}}}");
}

fn copy(requests: u64) {
    let mut copies = Copies::new(1, 1);
    let began = cpu_ns();
    copies.make(requests);
    println!("{{\"requests\":{requests},\"ns_per_op\":{:.1}}}", (cpu_ns() - began) as f64 / requests as f64);
}

/// The copies of four lanes by so many threads, each of which has its part of the lanes.
fn copy_by(threads: u32, requests: u64) {
    let all_are_ready = Barrier::new(threads as usize);
    let took = std::thread::scope(|scope| {
        let copy = || {
            let mut copies = Copies::new(LANES / threads, threads);
            all_are_ready.wait();
            let began = Instant::now();
            copies.make(requests / u64::from(threads));
            began.elapsed()
        };
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(copy)).collect();
        all.into_iter().map(|thread| thread.join().expect("a copy")).max()
    });
    let ns = took.unwrap_or_default().as_nanos() as f64 / requests as f64;
    println!("{{\"requests\":{requests},\"clock_ns_per_op\":{ns:.1}}}");
}

/// Payload's part of writes: it is copied to commits, and summed.
struct Copies {
    arena: Arena,
    payloads: Vec<Buf>,
    commits: Vec<Buf>,
}

impl Copies {
    /// The copies of so many lanes, by one of so many threads.
    fn new(lanes: u32, threads: u32) -> Self {
        let mut arena = Arena::new(1 << 30);
        let bytes = BLOCK_BYTES as u32;
        let payloads: Vec<Buf> = (0..PAYLOADS / threads as usize).map(|_| arena.alloc(bytes)).collect();
        payloads.iter().for_each(|buf| arena.bytes_mut(Span::new(*buf, 0, bytes)).fill(PATTERN));
        // A lane has 8 commits of this size in flight.
        let commits = (0..8 * lanes).map(|_| arena.alloc(SEGMENT_BLOCKS * bytes)).collect();
        Self { arena, payloads, commits }
    }

    fn make(&mut self, requests: u64) {
        let bytes = BLOCK_BYTES as u32;
        let mut sum = 0;
        for nth in 0..requests as usize {
            let commit = self.commits[nth / SEGMENT_BLOCKS as usize % self.commits.len()];
            let payload = Span::new(self.payloads[nth % self.payloads.len()], 0, bytes);
            sum ^= self.arena.copy_summed(payload, commit, nth as u32 % SEGMENT_BLOCKS * bytes);
        }
        std::hint::black_box(sum);
    }
}

fn memory(gib: u32) {
    let mut bench = Bench::new(false, gib, None);
    let capacity = u64::from(gib) << 18;
    let all = (8 * capacity).next_power_of_two();
    let mut places = each(all);
    // The first round fills the cache. The second fills what the policy remembers of blocks that
    // are not cached.
    bench.drive(RequestOp::Read, 2 * capacity, DEPTH, &mut places);
    let clean = (bench.engine.status(), rss_bytes());
    bench.drive(RequestOp::Write, capacity / 10, DEPTH, &mut places);
    let dirty = (bench.engine.status(), rss_bytes());
    let row = |(status, rss): (Status, u64)| {
        format!(
            "{{\"blocks_cached\":{},\"blocks_dirty\":{},\"rss_bytes\":{rss},\"index_bytes\":{},\"rss_bytes_per_block\":{:.2}}}",
            status.blocks_cached,
            status.blocks_dirty,
            status.index_bytes,
            rss as f64 / status.blocks_cached as f64
        )
    };
    println!("{{\"cache_gib\":{gib},\"clean\":{},\"dirty\":{}}}", row(clean), row(dirty));
}

/// The processor time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Resident memory of this process, as the kernel counts it.
fn rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel counts it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

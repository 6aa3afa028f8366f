// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the cache in process, beside its own cache file, with the same driver in one run.
//!
//! `cargo x bench` runs it. There are no sockets: a front-end that makes up requests takes the
//! place of clients. Each round measures the raw file, the cache, the cache again and the raw file
//! again. So a machine that changes its speed changes both. Figures are medians of the rounds'
//! ratios, times those of both samples together.
//!
//! The raw sequential writes are 8 MiB in flight, from pages of 2 MiB. They are faster than from
//! small pages (2.7 instead of 2.0 GB/s on the Xeon), so they are the stricter yardstick. Written
//! data is flushed, here and there. They write the same 8 MiB again and again. The copied ones
//! first copy, as a cache has to. That shows what a disk can do that shares the memory with the
//! processor.
//!
//! in_process DIR ROUNDS: makes its files in DIR (8.3 GiB), prints one JSON object, removes them.
//! Each round measures one, two and four jobs; a job keeps 32 requests in flight.

mod cache;

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flashfront_device::real::{Access, Prefer, Reactor};
use flashfront_device::{Arena, Device, DeviceIo, Done};
use flashfront_engine::{BLOCK_BYTES, Buf, Control, Event, Input, Memory, Op, RequestOp, Span, Time, Token};
use flashfront_serve::config::Size;
use flashfront_serve::report;

use cache::{Outcome, PATTERN, Places, QUEUE_DEPTH, Shared, drive, fill_buffers, make_cache, open_cache, wait_for};

#[global_allocator]
static TABLES: flashfront_device::Tables = flashfront_device::Tables;

/// Destage begins at 30 % of the dirty limit, which is seven eighths of this: beyond one sample of
/// writes.
const CACHE_BYTES: u64 = 8 << 30;
const ORIGIN_BYTES: u64 = 32 << 30;
/// The bytes of a sample with 0.4 to 1 us a block: a second or more.
const WRITE_BYTES: u64 = 2 << 30;
/// The bytes of a sample with 10 to 20 us a block.
const RANDOM_BYTES: u64 = 256 << 20;
/// The range of reads, raw ones too.
const HOT_BYTES: u64 = 256 << 20;
const JOBS: [usize; 3] = [1, 2, 4];
/// Commits are of about this size, and as many are in flight or more, up to 32: more raw writes in
/// flight are no faster.
const RAW_WRITE_BYTES: u64 = 1 << 20;
const RAW_WRITE_DEPTH: usize = 8;
/// Buffers that copied raw writes take in turn, as many as a cache of one lane has commits in
/// flight at most.
const COPIED_BUFFERS: usize = 32;
/// Buffers of 64 MiB in turn: their payload is in no processor's caches, as if a device had brought
/// it. Payload of as few buffers as are in flight is, as if a socket had.
const COLD_BUFFERS: usize = 16 << 10;

/// The measures of one thing's samples.
#[derive(Clone, Copy, Default)]
struct Took {
    time: Duration,
    bytes: u64,
    /// Nanoseconds of this thread on a processor, and ready for one while others had it.
    on_cpu_ns: u64,
    waited_ns: u64,
}

impl Took {
    fn of(bytes: u64, sample: impl FnOnce() -> Outcome<Duration>) -> Outcome<Self> {
        let before = schedstat()?;
        let time = sample()?;
        let after = schedstat()?;
        Ok(Self { time, bytes, on_cpu_ns: after.0 - before.0, waited_ns: after.1 - before.1 })
    }

    /// Nanoseconds for each block.
    fn per_block(self, ns: f64) -> f64 {
        ns / (self.bytes / BLOCK_BYTES) as f64
    }

    fn ns(self) -> f64 {
        self.per_block(self.time.as_nanos() as f64)
    }
}

impl AddAssign for Took {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.bytes += other.bytes;
        self.on_cpu_ns += other.on_cpu_ns;
        self.waited_ns += other.waited_ns;
    }
}

/// This thread's nanoseconds on a processor, and ready for one.
fn schedstat() -> Outcome<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let mut numbers = text.split_whitespace().map(str::parse);
    Ok((numbers.next().ok_or("no schedstat")??, numbers.next().ok_or("no schedstat")??))
}

/// I/O on the bare file.
struct Raw {
    op: Op,
    io_bytes: u64,
    depth: usize,
    /// The range from the beginning, in bytes.
    range_bytes: u64,
    random: bool,
    /// Each block is copied and summed before it is written, as the engine does.
    copied: bool,
    total_bytes: u64,
}

impl Raw {
    fn took(&self, path: &Path) -> Outcome<Took> {
        Took::of(self.total_bytes, || self.run(path))
    }

    /// Keeps `depth` I/Os in flight until all bytes are done, and flushes what was written.
    fn run(&self, path: &Path) -> Outcome<Duration> {
        let (op, bytes) = (self.op, self.io_bytes);
        let reactor = Reactor::new(Prefer::Auto)?;
        let mut device = reactor.open(path, Access::Exclusive)?;
        let mut arena = Arena::new(256 << 20).in_huge_pages(bytes == RAW_WRITE_BYTES);
        let count = if self.copied { COPIED_BUFFERS } else { self.depth };
        let mut bufs: VecDeque<Buf> = (0..count).map(|_| arena.alloc(bytes as u32)).collect();
        let payload: Vec<Buf> = (0..QUEUE_DEPTH).map(|_| arena.alloc(BLOCK_BYTES as u32)).collect();
        bufs.iter().for_each(|buf| arena.bytes_mut(Span::new(*buf, 0, bytes as u32)).fill(PATTERN));
        payload.iter().for_each(|buf| arena.bytes_mut(Span::new(*buf, 0, BLOCK_BYTES as u32)).fill(PATTERN));
        let places = self.range_bytes / bytes;
        let (mut next, mut done_bytes, mut state) = (0, 0, 1u64);
        let mut done: Vec<Done> = Vec::new();
        let began = Instant::now();
        while done_bytes < self.total_bytes {
            while next * bytes < self.total_bytes
                && count - bufs.len() < self.depth
                && let Some(buf) = bufs.pop_front()
            {
                if self.copied {
                    for (offset, from) in (0..bytes as u32).step_by(BLOCK_BYTES as usize).zip(payload.iter().cycle()) {
                        arena.copy_summed(Span::new(*from, 0, BLOCK_BYTES as u32), buf, offset);
                    }
                }
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = if self.random { (state >> 20) % places } else { next % places };
                let (token, span) = (Token(u64::from(buf.0)), Some(Span::new(buf, 0, bytes as u32)));
                device.submit(Time(0), DeviceIo { token, op, offset: place * bytes, len: bytes, span }, &mut arena);
                next += 1;
                if self.copied {
                    device.kick(); // The disk goes on beside the next copy.
                }
            }
            device.kick();
            reactor.wait(None, None)?;
            device.poll(Time(0), &mut arena, &mut done);
            for Done { token, result } in done.drain(..) {
                result.map_err(|error| format!("raw {op:?}: {error:?}"))?;
                bufs.push_back(Buf(token.0 as u32));
                done_bytes += bytes;
            }
        }
        if op == Op::Write {
            let flush = DeviceIo { token: Token(0), op: Op::Flush, offset: 0, len: 0, span: None };
            device.submit(Time(0), flush, &mut arena);
            device.kick();
            while done.is_empty() {
                reactor.wait(None, None)?;
                device.poll(Time(0), &mut arena, &mut done);
            }
            done[0].result.map_err(|error| format!("raw flush: {error:?}"))?;
        }
        Ok(began.elapsed())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The samples of one job count in one round.
#[derive(Default)]
struct Pass {
    raw_seq_write: Took,
    raw_seq_copied_write: Took,
    raw_rand_write: Took,
    write: Took,
    write_cold: Took,
    read_hit: Took,
    raw_rand_read: Took,
    flash_bytes: u64,
    memory: serde_json::Value,
}

/// A row's name, and where a pass has it.
type Row = (&'static str, fn(&Pass) -> Took);

const ROWS: [Row; 7] = [
    ("write_file", |it| it.write),
    ("write_cold_file", |it| it.write_cold),
    ("read_hit_file", |it| it.read_hit),
    ("raw_seq_write_file", |it| it.raw_seq_write),
    ("raw_seq_copied_write_file", |it| it.raw_seq_copied_write),
    ("raw_rand_write_file", |it| it.raw_rand_write),
    ("raw_rand_read_file", |it| it.raw_rand_read),
];

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let (dir, rounds) = (PathBuf::from(args.get(1).ok_or("in_process DIR ROUNDS")?), args.get(2).map_or("5", |it| it));
    let rounds: usize = rounds.parse()?;
    let (cache, origin) = (dir.join("cache"), dir.join("origin"));
    let outcome = measure(&cache, &origin, rounds);
    let _ = (std::fs::remove_file(&cache), std::fs::remove_file(&origin));
    println!("{}", outcome?);
    Ok(())
}

fn measure(cache: &Path, origin: &Path, rounds: usize) -> Outcome<serde_json::Value> {
    // Written in full: the first write of a sparse file's block costs the file system more.
    let mut file = File::create(cache)?;
    let zeroes = vec![0; 4 << 20];
    (0..CACHE_BYTES / zeroes.len() as u64).try_for_each(|_| file.write_all(&zeroes))?;
    file.sync_all()?;
    File::create(origin)?.set_len(ORIGIN_BYTES)?;
    let mut passes: Vec<Vec<Pass>> = JOBS.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (nth, jobs) in JOBS.into_iter().enumerate() {
            let pass = pass(cache, origin, jobs, round as u64)?;
            let figures = ROWS
                .map(|(name, of)| format!("{name} {:.0} ({} waited)", of(&pass).ns(), of(&pass).waited_ns / 1_000_000));
            eprintln!("round {}, {jobs} jobs, ns per block (ms for a processor): {}", round + 1, figures.join(", "));
            passes[nth].push(pass);
        }
    }
    let memory = passes.last().and_then(|of| of.last()).map(|pass| pass.memory.clone());
    let of_jobs = JOBS.into_iter().zip(&passes).map(|(jobs, passes)| {
        let ratio = |of: fn(&Pass) -> f64| median(passes.iter().map(of).collect());
        let per_block = |ns: fn(Took) -> f64| -> serde_json::Map<String, serde_json::Value> {
            let row =
                |of: fn(&Pass) -> Took| median(passes.iter().map(|pass| of(pass).per_block(ns(of(pass)))).collect());
            ROWS.iter().map(|(name, of)| ((*name).to_owned(), row(*of).into())).collect()
        };
        serde_json::json!({
            "jobs": jobs,
            "write_ratio_median": ratio(|it| it.raw_seq_write.ns() / it.write.ns()),
            "write_cold_ratio_median": ratio(|it| it.raw_seq_write.ns() / it.write_cold.ns()),
            "write_to_copied_ratio_median": ratio(|it| it.raw_seq_copied_write.ns() / it.write.ns()),
            "write_to_random_ratio_median": ratio(|it| it.raw_rand_write.ns() / it.write.ns()),
            "read_ratio_median": ratio(|it| it.raw_rand_read.ns() / it.read_hit.ns()),
            "flash_bytes_per_user_byte": ratio(|it| it.flash_bytes as f64 / it.write.bytes as f64),
            "ns_per_op": per_block(|it| it.time.as_nanos() as f64),
            "cpu_ns_per_op": per_block(|it| it.on_cpu_ns as f64),
            "waited_ns_per_op": per_block(|it| it.waited_ns as f64),
        })
    });
    let of_jobs: Vec<_> = of_jobs.collect();
    Ok(serde_json::json!({
        "cache": Size(CACHE_BYTES).to_string(), "queue_depth": QUEUE_DEPTH, "rounds": rounds, "jobs": of_jobs, "memory": memory,
    }))
}

fn pass(cache: &Path, origin: &Path, jobs: usize, seed: u64) -> Outcome<Pass> {
    let depth = QUEUE_DEPTH * jobs;
    let (op, io_bytes, range_bytes) = (Op::Write, RAW_WRITE_BYTES, CACHE_BYTES);
    let total_bytes = WRITE_BYTES;
    let in_order = Raw { op, io_bytes, depth: RAW_WRITE_DEPTH, range_bytes, random: false, copied: false, total_bytes };
    let copied = Raw { copied: true, ..in_order };
    let at_random = Raw { io_bytes: BLOCK_BYTES, depth, random: true, total_bytes: RANDOM_BYTES, ..in_order };
    let reads = Raw { op: Op::Read, range_bytes: HOT_BYTES, ..at_random };
    let mut pass = Pass::default();
    pass.raw_rand_write += at_random.took(cache)?;
    pass.raw_seq_write += in_order.took(cache)?;
    pass.raw_seq_copied_write += copied.took(cache)?;
    for bufs in [depth, COLD_BUFFERS, COLD_BUFFERS, depth] {
        write(cache, origin, depth, bufs, seed, &mut pass)?;
    }
    pass.raw_seq_copied_write += copied.took(cache)?;
    pass.raw_seq_write += in_order.took(cache)?;
    pass.raw_rand_write += at_random.took(cache)?;
    pass.raw_rand_read += reads.took(cache)?;
    read(cache, origin, depth, &mut pass)?;
    pass.raw_rand_read += reads.took(cache)?;
    Ok(pass)
}

/// Takes a sample of writes, to a new cache.
fn write(cache: &Path, origin: &Path, depth: usize, bufs: usize, seed: u64, pass: &mut Pass) -> Outcome<()> {
    make_cache(cache, origin, false)?;
    let load = Shared::new(depth);
    let mut pump = open_cache(cache, origin, &load, 0)?;
    fill_buffers(&mut pump, &load, bufs)?;
    let before = pump.engine().status().counters;
    let (count, blocks) = (WRITE_BYTES / BLOCK_BYTES, ORIGIN_BYTES / BLOCK_BYTES);
    let took =
        Took::of(WRITE_BYTES, || drive(&mut pump, &load, RequestOp::Write, count, blocks, Places::Random(seed)))?;
    let after = pump.engine().status().counters;
    // Now and then a block is.
    if after.destaged_blocks > count / 1000 {
        return Err(format!("not a measure of writes alone: {} blocks were destaged", after.destaged_blocks).into());
    }
    if bufs == depth {
        pass.write += took;
        pass.flash_bytes += after.cache_writes_bytes - before.cache_writes_bytes;
    } else {
        pass.write_cold += took;
    }
    pump.apply(Input::Control(Control::Stop));
    wait_for(&mut pump, |event| *event == Event::Stopped)
}

/// Two samples of reads, from a new cache with all blocks in it.
fn read(cache: &Path, origin: &Path, depth: usize, pass: &mut Pass) -> Outcome<()> {
    let made = make_cache(cache, origin, false)?;
    let load = Shared::new(depth);
    let mut pump = open_cache(cache, origin, &load, 0)?;
    fill_buffers(&mut pump, &load, depth)?;
    let (hot, count) = (HOT_BYTES / BLOCK_BYTES, RANDOM_BYTES / BLOCK_BYTES);
    // The same places twice as often as they are read: every block that is read afterwards.
    drive(&mut pump, &load, RequestOp::Write, 2 * count, hot, Places::Random(7))?;
    let misses = pump.engine().status().counters.read_misses;
    for _ in 0..2 {
        pass.read_hit +=
            Took::of(RANDOM_BYTES, || drive(&mut pump, &load, RequestOp::Read, count, hot, Places::Random(7)))?;
    }
    let status = pump.engine().status();
    // Now and then a block goes past a busy cache file.
    if status.counters.read_misses - misses > 2 * count / 1000 {
        return Err(format!("reads missed: not a measure of hits: {:?}", status.counters).into());
    }
    pass.memory = serde_json::json!({
        "rss_bytes": report::rss_bytes(), "blocks_cached": status.blocks_cached,
        "capacity_blocks": made.capacity_blocks, "index_bytes": status.index_bytes,
    });
    pump.apply(Input::Control(Control::Stop));
    wait_for(&mut pump, |event| *event == Event::Stopped)
}

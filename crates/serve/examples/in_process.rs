// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the cache in process, beside its own cache file, with the same driver in one run.
//!
//! `cargo x bench` runs it. No sockets: a front-end that makes up requests takes the place of clients.
//! Each round measures the raw file and the cache one after the other, so that a machine that
//! changes its speed changes both; figures are medians of the rounds' ratios.
//!
//! in_process DIR ROUNDS: makes its files in DIR (4.3 GiB), prints one JSON object, removes them.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flashfront_device::real::{Access, DeviceFile, Prefer, Reactor};
use flashfront_device::{Arena, Device, DeviceIo, Done};
use flashfront_engine::{
    BLOCK_BYTES, Buf, Control, DeviceId, Engine, Event, Input, Lba, Memory, Mode, Op, Options, OriginId, Request,
    RequestError, RequestId, RequestOp, Span, Time, Token,
};
use flashfront_serve::config::Size;
use flashfront_serve::control::Caller;
use flashfront_serve::frontend::{Core, Export, Frontend, TokenRange};
use flashfront_serve::offline::{FormatOptions, format};
use flashfront_serve::pump::{Devices, Pump};
use flashfront_serve::{report, superblock};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const CACHE_BYTES: u64 = 4 << 30;
const ORIGIN_BYTES: u64 = 32 << 30;
/// What each round writes: little enough that destage, which starts at 30 % dirty, keeps out.
const ROUND_BYTES: u64 = 512 << 20;
const QUEUE_DEPTH: usize = 32;
const RAW_WRITE_BYTES: u64 = 512 << 10;
/// Two megabytes in flight keep the file busy without queueing more than the cache itself does.
const RAW_WRITE_DEPTH: usize = 4;

/// Makes up requests as fast as they are answered.
struct Load {
    op: RequestOp,
    left: u64,
    in_flight: usize,
    bufs: Vec<Buf>,
    random: u64,
    blocks: u64,
    failed: bool,
}

impl Load {
    fn next_block(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % self.blocks
    }
}

#[derive(Clone)]
struct Shared(std::rc::Rc<std::cell::RefCell<Load>>);

impl Frontend for Shared {
    fn uri(&self) -> String {
        String::new()
    }
    fn tokens_max(&self) -> usize {
        0
    }
    fn register(&mut self, _: &mio::Registry, _: TokenRange) -> io::Result<()> {
        Ok(())
    }
    fn ready(&mut self, _: &mio::event::Event, _: &mio::Registry, _: &mut dyn Core) {}
    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, _: &mut dyn Core) {
        let mut load = self.0.borrow_mut();
        load.in_flight -= 1;
        load.failed |= result.is_err();
        load.bufs.push(Buf(id.0 as u32));
    }
    fn room(&mut self, _: &mut dyn Core) {}
    fn turn_end(&mut self, _: Time, _: &mio::Registry, core: &mut dyn Core) -> bool {
        let mut load = self.0.borrow_mut();
        let mut sent = false;
        while load.left > 0 && load.in_flight < QUEUE_DEPTH {
            let Some(buf) = load.bufs.pop().or_else(|| core.alloc(BLOCK_BYTES as u32)) else { break };
            load.left -= 1;
            load.in_flight += 1;
            sent = true;
            let lba = Lba(load.next_block() * 8);
            let (id, op) = (RequestId(u64::from(buf.0)), load.op);
            core.submit(Request { id, origin: OriginId(0), op, lba, sectors: 8, buf: Some(buf), fua: false });
        }
        // Writes are answered from RAM, within the call: then there is nothing to wait for.
        sent && load.op == RequestOp::Write
    }
    fn next_timer(&self) -> Option<Time> {
        None
    }
    fn stop(&mut self, _: &mio::Registry, _: &mut dyn Core) {}
    fn idle(&self) -> bool {
        self.0.borrow().in_flight == 0
    }
    fn clients(&self) -> usize {
        1
    }
}

/// Keeps `depth` I/Os of `bytes` in flight on a file until `total` bytes are done.
fn raw(path: &Path, op: Op, bytes: u64, depth: usize, total: u64, random: bool) -> Outcome<Duration> {
    let reactor = Reactor::new(Prefer::Auto)?;
    let mut device = reactor.open(path, Access::Exclusive)?;
    let mut arena = Arena::new(256 << 20);
    let mut bufs: Vec<Buf> = (0..depth).map(|_| arena.alloc(bytes as u32)).collect();
    let places = device.geometry().size_bytes / bytes;
    let (mut next, mut done_bytes, mut state) = (0, 0, 1u64);
    let mut done: Vec<Done> = Vec::new();
    let began = Instant::now();
    while done_bytes < total {
        while next * bytes < total
            && let Some(buf) = bufs.pop()
        {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = if random { (state >> 20) % places } else { next % places };
            let (token, span) = (Token(u64::from(buf.0)), Some(Span::new(buf, 0, bytes as u32)));
            device.submit(Time(0), DeviceIo { token, op, offset: place * bytes, len: bytes, span }, &mut arena);
            next += 1;
        }
        device.kick();
        reactor.wait(None, None)?;
        device.poll(Time(0), &mut arena, &mut done);
        for Done { token, result } in done.drain(..) {
            result.map_err(|error| format!("raw {op:?}: {error:?}"))?;
            bufs.push(Buf(token.0 as u32));
            done_bytes += bytes;
        }
    }
    Ok(began.elapsed())
}

fn open_cache(cache: &Path, origin: &Path, load: &Shared) -> Outcome<Pump> {
    let file = DeviceFile::open(cache, Access::Exclusive)?;
    let mut superblock = superblock::read(&file)?.superblock;
    superblock.epoch += 1;
    superblock::write(&file, &mut superblock)?;
    let reactor = Reactor::new(Prefer::Auto)?;
    let origin: Box<dyn Device> = Box::new(reactor.open(origin, Access::Exclusive)?);
    let cache: Box<dyn Device> = Box::new(reactor.attach(file));
    let devices = Devices { all: vec![(DeviceId::Cache, cache), (DeviceId::Origin(OriginId(0)), origin)], reactor };
    let poll = mio::Poll::new()?;
    let (_, calls) = Caller::new(Arc::new(mio::Waker::new(poll.registry(), mio::Token(1))?));
    let options = Options { sequential_bypass_bytes: 0, ..Options::default() };
    let engine = Engine::new(superblock, options, Time(0))?;
    let mut pump = Pump::new(engine, Arena::with_reserve(256 << 20, 128 << 20), devices, poll, calls);
    pump.apply(Input::Timer);
    wait_for(&mut pump, |event| matches!(event, Event::Ready { .. }))?;
    let export = Export {
        name: String::new(),
        origin: OriginId(0),
        size_bytes: ORIGIN_BYTES,
        block_bytes: 512,
        read_only: false,
    };
    pump.serve(vec![export], vec![Box::new(load.clone())])?;
    Ok(pump)
}

fn wait_for(pump: &mut Pump, wanted: impl Fn(&Event) -> bool) -> Outcome<()> {
    loop {
        for event in pump.news().collect::<Vec<_>>() {
            if wanted(&event) {
                return Ok(());
            }
            if let Event::OpenFailed(error) = event {
                return Err(error.into());
            }
        }
        pump.turn(Duration::from_secs(1))?;
    }
}

fn drive(pump: &mut Pump, load: &Shared, op: RequestOp, blocks: u64, seed: u64) -> Outcome<Duration> {
    {
        let mut load = load.0.borrow_mut();
        (load.op, load.left, load.random, load.blocks) = (op, ROUND_BYTES / BLOCK_BYTES, seed, blocks);
    }
    let began = Instant::now();
    let waiting = |load: &Shared| load.0.borrow().left > 0 || load.0.borrow().in_flight > 0;
    while waiting(load) {
        pump.turn(Duration::from_secs(1))?;
    }
    if op == RequestOp::Write {
        // All of it on the device, as the raw writes are.
        let before = pump.engine().status().counters.flushes;
        let request = RequestId(u64::from(load.0.borrow_mut().bufs.pop().ok_or("no buffer")?.0));
        load.0.borrow_mut().in_flight += 1;
        let (origin, op, lba) = (OriginId(0), RequestOp::Flush, Lba(0));
        pump.apply(Input::Request(Request { id: request, origin, op, lba, sectors: 0, buf: None, fua: false }));
        while waiting(load) {
            pump.turn(Duration::from_secs(1))?;
        }
        assert_eq!(pump.engine().status().counters.flushes, before + 1);
    }
    if load.0.borrow().failed {
        return Err("a request failed".into());
    }
    Ok(began.elapsed())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

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
    let (mut write_ratios, mut read_ratios, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = serde_json::Value::Null;
    for round in 0..rounds {
        let write_raw = raw(cache, Op::Write, RAW_WRITE_BYTES, RAW_WRITE_DEPTH, ROUND_BYTES, false)?;
        let made = format(&FormatOptions {
            mirror: None,
            cache: cache.into(),
            origin: origin.into(),
            name: "bench".into(),
            mode: Mode::Writeback,
            force: true,
            segment: None,
            lanes: None,
            discard: true,
        })?;
        let load = Shared(std::rc::Rc::new(std::cell::RefCell::new(Load {
            op: RequestOp::Write,
            left: 0,
            in_flight: 0,
            bufs: Vec::new(),
            random: 0,
            blocks: 1,
            failed: false,
        })));
        let mut pump = open_cache(cache, origin, &load)?;
        let before = pump.engine().status();
        // Random over 256 MiB: every block is in the cache for the reads afterwards.
        let hot = (256 << 20) / BLOCK_BYTES;
        let write = drive(&mut pump, &load, RequestOp::Write, ORIGIN_BYTES / BLOCK_BYTES, round as u64)?;
        let after = pump.engine().status();
        drive(&mut pump, &load, RequestOp::Write, hot, 7)?;
        let misses = pump.engine().status().counters.read_misses;
        let read = drive(&mut pump, &load, RequestOp::Read, hot, 7)?;
        if pump.engine().status().counters.read_misses != misses {
            return Err("reads missed: not a measure of hits".into());
        }
        let status = pump.engine().status();
        memory = serde_json::json!({
            "rss_bytes": report::rss_bytes(), "blocks_cached": status.blocks_cached,
            "capacity_blocks": made.capacity_blocks, "index_bytes": status.index_bytes,
        });
        pump.apply(Input::Control(Control::Stop));
        wait_for(&mut pump, |event| *event == Event::Stopped)?;
        drop(pump);
        let read_raw = raw(cache, Op::Read, BLOCK_BYTES, QUEUE_DEPTH, ROUND_BYTES, true)?;
        let flash = (after.counters.cache_writes_bytes - before.counters.cache_writes_bytes) as f64;
        let mbs = |time: Duration| ROUND_BYTES as f64 / time.as_secs_f64() / 1e6;
        write_ratios.push(write_raw.as_secs_f64() / write.as_secs_f64());
        read_ratios.push(read_raw.as_secs_f64() / read.as_secs_f64());
        eprintln!(
            "round {}: write {:.0} of raw {:.0} MB/s, read hits {:.0} of raw {:.0} MB/s",
            round + 1,
            mbs(write),
            mbs(write_raw),
            mbs(read),
            mbs(read_raw)
        );
        rows.push(serde_json::json!({
            "write_mb_s": mbs(write), "raw_sequential_write_mb_s": mbs(write_raw),
            "read_hit_mb_s": mbs(read), "raw_random_read_mb_s": mbs(read_raw),
            "flash_bytes_per_user_byte": flash / ROUND_BYTES as f64,
        }));
    }
    Ok(serde_json::json!({
        "cache": Size(CACHE_BYTES).to_string(), "queue_depth": QUEUE_DEPTH, "rounds": rows,
        "write_ratio_median": median(write_ratios), "read_ratio_median": median(read_ratios), "memory": memory,
    }))
}

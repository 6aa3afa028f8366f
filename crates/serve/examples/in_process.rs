// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the cache in process, beside its own cache file, with the same driver in one run.
//!
//! `cargo x bench` runs it. No sockets: a front-end that makes up requests takes the place of clients.
//! Each round measures the raw file and the cache one after the other, so that a machine that
//! changes its speed changes both; figures are medians of the rounds' ratios.
//!
//! in_process DIR ROUNDS: makes its files in DIR (4.3 GiB), prints one JSON object, removes them. Each round measures
//! one, two and four jobs; a job keeps 32 requests in flight (of raw sequential writes: 4 of 512 KiB).

mod cache;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flashfront_device::real::{Access, Prefer, Reactor};
use flashfront_device::{Arena, Device, DeviceIo, Done};
use flashfront_engine::{BLOCK_BYTES, Buf, Control, Event, Input, Memory, Op, RequestOp, Span, Time, Token};
use flashfront_serve::config::Size;
use flashfront_serve::report;

use cache::{Outcome, Places, QUEUE_DEPTH, Shared, drive, make_cache, open_cache, wait_for};

const CACHE_BYTES: u64 = 4 << 30;
const ORIGIN_BYTES: u64 = 32 << 30;
/// What each round writes.
const ROUND_BYTES: u64 = 512 << 20;
/// Where reads go, raw ones too.
const HOT_BYTES: u64 = 256 << 20;
const JOBS: [usize; 3] = [1, 2, 4];
const RAW_WRITE_BYTES: u64 = 512 << 10;
/// Two megabytes in flight keep the file busy without queueing more than the cache itself does.
const RAW_WRITE_DEPTH: usize = 4;

/// Keeps `depth` I/Os of `bytes` in flight on the beginning of a file until a round's bytes are done.
fn raw(path: &Path, op: Op, bytes: u64, depth: usize, range_bytes: u64, random: bool) -> Outcome<Duration> {
    let total = ROUND_BYTES;
    let reactor = Reactor::new(Prefer::Auto)?;
    let mut device = reactor.open(path, Access::Exclusive)?;
    let mut arena = Arena::new(256 << 20);
    let mut bufs: Vec<Buf> = (0..depth).map(|_| arena.alloc(bytes as u32)).collect();
    let places = range_bytes / bytes;
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What one job count's passes took in one round.
struct Pass {
    raw_seq_write: Duration,
    raw_rand_write: Duration,
    write: Duration,
    read_hit: Duration,
    raw_rand_read: Duration,
    flash_bytes: u64,
    memory: serde_json::Value,
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
    let mut passes: Vec<Vec<Pass>> = JOBS.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (nth, jobs) in JOBS.into_iter().enumerate() {
            let pass = pass(cache, origin, jobs, round as u64)?;
            let mbs = |time: Duration| ROUND_BYTES as f64 / time.as_secs_f64() / 1e6;
            eprintln!(
                "round {}, {jobs} jobs: write {:.0} of raw sequential {:.0} and raw random {:.0} MB/s, read hits {:.0} of raw {:.0} MB/s",
                round + 1,
                mbs(pass.write),
                mbs(pass.raw_seq_write),
                mbs(pass.raw_rand_write),
                mbs(pass.read_hit),
                mbs(pass.raw_rand_read)
            );
            passes[nth].push(pass);
        }
    }
    let memory = passes.last().and_then(|of| of.last()).map(|pass| pass.memory.clone());
    let of_jobs = JOBS.into_iter().zip(&passes).map(|(jobs, passes)| {
        let ratio = |of: fn(&Pass) -> f64| median(passes.iter().map(of).collect());
        let ns = |of: fn(&Pass) -> Duration| {
            let times = passes.iter().map(|pass| of(pass).as_nanos() as f64).collect();
            median(times) / (ROUND_BYTES / BLOCK_BYTES) as f64
        };
        serde_json::json!({
            "jobs": jobs,
            "write_ratio_median": ratio(|it| it.raw_seq_write.as_secs_f64() / it.write.as_secs_f64()),
            "write_to_random_ratio_median": ratio(|it| it.raw_rand_write.as_secs_f64() / it.write.as_secs_f64()),
            "read_ratio_median": ratio(|it| it.raw_rand_read.as_secs_f64() / it.read_hit.as_secs_f64()),
            "flash_bytes_per_user_byte": ratio(|it| it.flash_bytes as f64 / ROUND_BYTES as f64),
            "ns_per_op": {
                "write_file": ns(|it| it.write),
                "read_hit_file": ns(|it| it.read_hit),
                "raw_seq_write_file": ns(|it| it.raw_seq_write),
                "raw_rand_write_file": ns(|it| it.raw_rand_write),
                "raw_rand_read_file": ns(|it| it.raw_rand_read),
            },
        })
    });
    let of_jobs: Vec<_> = of_jobs.collect();
    Ok(serde_json::json!({
        "cache": Size(CACHE_BYTES).to_string(), "queue_depth": QUEUE_DEPTH, "rounds": rounds, "jobs": of_jobs, "memory": memory,
    }))
}

fn pass(cache: &Path, origin: &Path, jobs: usize, seed: u64) -> Outcome<Pass> {
    let depth = QUEUE_DEPTH * jobs;
    let raw_seq_write = raw(cache, Op::Write, RAW_WRITE_BYTES, RAW_WRITE_DEPTH * jobs, CACHE_BYTES, false)?;
    let raw_rand_write = raw(cache, Op::Write, BLOCK_BYTES, depth, CACHE_BYTES, true)?;
    let made = make_cache(cache, origin, false)?;
    let load = Shared::new(depth);
    let mut pump = open_cache(cache, origin, &load, 0)?;
    let before = pump.engine().status();
    let (hot, count) = (HOT_BYTES / BLOCK_BYTES, ROUND_BYTES / BLOCK_BYTES);
    let write = drive(&mut pump, &load, RequestOp::Write, count, ORIGIN_BYTES / BLOCK_BYTES, Places::Random(seed))?;
    let after = pump.engine().status();
    // Every block that is read afterwards.
    drive(&mut pump, &load, RequestOp::Write, count, hot, Places::Random(7))?;
    let misses = pump.engine().status().counters.read_misses;
    let read_hit = drive(&mut pump, &load, RequestOp::Read, count, hot, Places::Random(7))?;
    let status = pump.engine().status();
    // Now and then a block goes past a busy cache file.
    if status.counters.read_misses - misses > ROUND_BYTES / BLOCK_BYTES / 1000 {
        return Err(format!("reads missed: not a measure of hits: {:?}", status.counters).into());
    }
    let memory = serde_json::json!({
        "rss_bytes": report::rss_bytes(), "blocks_cached": status.blocks_cached,
        "capacity_blocks": made.capacity_blocks, "index_bytes": status.index_bytes,
    });
    pump.apply(Input::Control(Control::Stop));
    wait_for(&mut pump, |event| *event == Event::Stopped)?;
    drop(pump);
    let raw_rand_read = raw(cache, Op::Read, BLOCK_BYTES, depth, HOT_BYTES, true)?;
    let flash_bytes = after.counters.cache_writes_bytes - before.counters.cache_writes_bytes;
    Ok(Pass { raw_seq_write, raw_rand_write, write, read_hit, raw_rand_read, flash_bytes, memory })
}

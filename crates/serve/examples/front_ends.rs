// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures front-ends: the same load in process, over vhost-user-blk and over NBD, in one run.
//!
//! `cargo x bench vhost-user-blk` runs it. There are two caches of the same kind: one driven in
//! process, and one served by a daemon in a thread of its own. Its clients are libblkio's driver in
//! this process and fio's NBD engine. Each round measures all three one after the other, so that a
//! machine that changes its speed changes all.
//!
//! front_ends DIR ROUNDS RAM_FRONT_MIB: makes its files in DIR (10 GiB), prints one JSON object,
//! removes them.

mod cache;

use std::fs::File;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Instant;

use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};
use flashfront_device::Device;
use flashfront_device::sim::{HddSpec, ModelSpec};
use flashfront_device::wrap::Delay;
use flashfront_engine::{BLOCK_BYTES, Control, Event, Input, RequestOp};
use flashfront_serve::config::{Config, DirtyLimit, Listener, Size, Volume};
use flashfront_serve::daemon::{self, Hooks, StopHandle};
use flashfront_serve::frontend::nbd::Listen;

use cache::{Outcome, Places, QUEUE_DEPTH, Shared, drive, fill_buffers, make_cache, open_cache, wait_for};

const CACHE_BYTES: u64 = 4 << 30;
const ORIGIN_BYTES: u64 = 1 << 30;
/// The range that is read and written: a sixteenth of the cache. So destage keeps out, and reclaim
/// finds segments with nothing left in them.
const HOT_BLOCKS: u64 = (256 << 20) / BLOCK_BYTES;
const FIO_SECONDS: u64 = 3;
const DAEMON: &str = "served-daemon";
/// The kernel's name for the first thread.
const PROCESS: &str = "front_ends";
/// The number of requests in a sample that the device answers: seconds.
const REQUESTS: u64 = 200_000;
/// The number of requests in a sample that RAM answers: a quarter of a second says as little as
/// half of what several do.
const RAM_REQUESTS: u64 = 2_000_000;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, rounds, front] = &args[..] else {
        return Err("front_ends DIR ROUNDS RAM_FRONT_MIB".into());
    };
    let dir = PathBuf::from(dir);
    let names = ["process.cache", "process.origin", "served.cache", "served.origin"];
    let paths = names.map(|name| dir.join(name));
    let outcome = measure(&dir, &paths, rounds.parse()?, front.parse::<u64>()? << 20);
    for path in &paths {
        std::fs::remove_file(path)?;
    }
    println!("{}", outcome?);
    Ok(())
}

fn make(cache: &Path, origin: &Path) -> Outcome<()> {
    for (path, bytes) in [(cache, CACHE_BYTES), (origin, ORIGIN_BYTES)] {
        // Written in full: the first write of a sparse file's block costs the file system more.
        let mut file = File::create(path)?;
        let zeroes = vec![0; 4 << 20];
        (0..bytes / zeroes.len() as u64).try_for_each(|_| file.write_all(&zeroes))?;
        file.sync_all()?;
    }
    make_cache(cache, origin, true)?;
    Ok(())
}

fn config(dir: &Path, cache: &Path, origin: &Path, ram_front_bytes: u64) -> Config {
    let mut config = Config::new(cache.into());
    (config.control, config.state) = (dir.join("served.control"), Some(dir.join("served.state")));
    config.buffer_bytes = Some(Size(256 << 20));
    config.ram_front_bytes = Size(ram_front_bytes);
    config.policy.sequential_bypass = Size(0);
    // Above all that is written, as in process.
    config.policy.dirty_limit = DirtyLimit::Percent(80);
    config.volumes.push(Volume::new("bench", origin.into()));
    config.listeners.push(Listener::Nbd(Listen::Unix(dir.join("served.nbd"))));
    config.listeners.push(Listener::VhostUserBlk { path: dir.join("served.guest"), volume: None });
    config
}

/// Requests by libblkio's driver, as a virtual machine would make them.
struct Guest {
    blkio: Blkio,
    /// The queue by which the guest sleeps until it is told of answers, and the queue by which it
    /// looks out for them.
    queues: [Blkioq; 2],
    region: MemoryRegion,
    places: Places,
}

const SLEEPS: usize = 0;
const POLLS: usize = 1;

impl Guest {
    fn connect(socket: &Path) -> Outcome<Self> {
        let mut blkio = Blkio::new("virtio-blk-vhost-user")?;
        blkio.set_str("path", socket.to_str().ok_or("a path that is no text")?)?;
        blkio.connect()?;
        blkio.set_i32("num-queues", 1)?;
        blkio.set_i32("num-poll-queues", 1)?;
        let mut started = blkio.start()?;
        let (sleeps, polls) = (started.queues.pop(), started.poll_queues.pop());
        let queues = [sleeps.ok_or("no queue")?, polls.ok_or("no queue that polls")?];
        let region = blkio.alloc_mem_region(QUEUE_DEPTH * BLOCK_BYTES as usize)?;
        blkio.map_mem_region(&region)?;
        Ok(Self { blkio, queues, region, places: Places::InOrder(0) })
    }

    fn submit(&mut self, queue: usize, op: RequestOp, place: usize) {
        let at = self.places.next(HOT_BLOCKS) * BLOCK_BYTES;
        let buf = (self.region.addr as *mut u8).wrapping_add(place * BLOCK_BYTES as usize);
        let (len, flags) = (BLOCK_BYTES as usize, ReqFlags::empty());
        match op {
            RequestOp::Read => self.queues[queue].read(at, buf, len, place, flags),
            _ => self.queues[queue].write(at, buf, len, place, flags),
        }
    }

    fn drive(&mut self, queue: usize, op: RequestOp, count: u64, places: Places) -> Outcome<f64> {
        self.places = places;
        let began = Instant::now();
        let mut done = [const { MaybeUninit::<Completion>::uninit() }; QUEUE_DEPTH];
        let (mut sent, mut ended) = (0, 0);
        for place in 0..QUEUE_DEPTH {
            self.submit(queue, op, place);
            sent += 1;
        }
        while ended < count {
            let got = self.queues[queue].do_io(&mut done, 1, None, None)?;
            for completion in &done[..got] {
                #[expect(unsafe_code, reason = "libblkio's answers are written in place")]
                // SAFETY: it has written as many as it says.
                let Completion { user_data, ret, .. } = unsafe { completion.assume_init_ref() };
                if *ret != 0 {
                    return Err(format!("a request failed: {ret}").into());
                }
                ended += 1;
                if sent < count {
                    self.submit(queue, op, *user_data);
                    sent += 1;
                }
            }
        }
        if op == RequestOp::Write {
            self.queues[queue].flush(0, ReqFlags::empty());
            self.queues[queue].do_io(&mut done[..1], 1, None, None)?;
        }
        Ok(count as f64 / began.elapsed().as_secs_f64())
    }
}

/// Measures the load by fio's NBD engine.
fn fio(socket: &Path, op: RequestOp) -> Outcome<f64> {
    let (rw, field) = if op == RequestOp::Read { ("randread", 7) } else { ("randwrite", 48) };
    let output = Command::new("fio")
        .args(["--name=bench", "--ioengine=nbd", "--minimal", "--randrepeat=0", "--norandommap", "--bs=4k"])
        .args([
            "--time_based",
            &format!("--runtime={FIO_SECONDS}"),
            &format!("--iodepth={QUEUE_DEPTH}"),
            &format!("--rw={rw}"),
        ])
        .arg(format!("--size={}", HOT_BLOCKS * BLOCK_BYTES))
        .arg(format!("--uri=nbd+unix:///?socket={}", socket.display()))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("3;")).ok_or("fio has no ioengine=nbd, or isn't there")?;
    Ok(line.split(';').nth(field).ok_or("fio's output is not what was expected")?.parse()?)
}

/// Processor time of this process' thread of that name, in nanoseconds: it says what a front-end
/// costs also where others use the machine.
fn cpu_ns(thread: &str) -> Outcome<u64> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == thread {
            let stat = std::fs::read_to_string(task.join("schedstat"))?;
            return Ok(stat.split(' ').next().ok_or("an empty schedstat")?.parse()?);
        }
    }
    Err(format!("no thread {thread}").into())
}

/// Runs `load`; what it returns, and the microseconds of the thread's processor time for each of
/// `count` requests.
fn with_cpu<T>(thread: &str, count: u64, load: impl FnOnce() -> Outcome<T>) -> Outcome<(T, f64)> {
    let before = cpu_ns(thread)?;
    let value = load()?;
    Ok((value, (cpu_ns(thread)? - before) as f64 / count as f64 / 1e3))
}

fn measure(dir: &Path, paths: &[PathBuf; 4], rounds: usize, front: u64) -> Outcome<serde_json::Value> {
    let [cache, origin, served_cache, served_origin] = paths;
    make(cache, origin)?;
    make(served_cache, served_origin)?;
    let load = Shared::new(QUEUE_DEPTH);
    let mut pump = open_cache(cache, origin, &load, front)?;
    fill_buffers(&mut pump, &load, QUEUE_DEPTH)?;
    let config = config(dir, served_cache, served_origin, front);
    let stop = StopHandle::default();
    let (ready, is_ready) = mpsc::channel();
    let hooks = Hooks {
        ready: Some(Box::new(move |_| {
            let _ = ready.send(());
        })),
        stop: stop.clone(),
        // As in process: at a disk's pace.
        wrap_origin: Some(Box::new(|device| -> Box<dyn Device> {
            Box::new(Delay::new(device, ModelSpec::Hdd(HddSpec::default())))
        })),
        ..Hooks::default()
    };
    let run = move || daemon::run(&config, hooks).map_err(|error| error.to_string());
    let served = std::thread::Builder::new().name(DAEMON.into()).spawn(run)?;
    if is_ready.recv().is_err() {
        return Err("the daemon did not start".into());
    }
    let mut guest = Guest::connect(&dir.join("served.guest"))?;
    // Everything is in the caches, each block: a hundredth of misses would be all that is measured.
    // Then at random places of the log; and what there is of RAM fronts is warm.
    for (op, places) in [
        (RequestOp::Write, Places::InOrder(0)),
        (RequestOp::Write, Places::Random(1)),
        (RequestOp::Read, Places::Random(1)),
    ] {
        drive(&mut pump, &load, op, HOT_BLOCKS * 3, HOT_BLOCKS, places)?;
        guest.drive(SLEEPS, op, HOT_BLOCKS * 3, places)?;
    }
    let mut rows = Vec::new();
    for round in 0..rounds {
        for (op, name) in [(RequestOp::Read, "read hits"), (RequestOp::Write, "writes")] {
            if op == RequestOp::Read && front > 0 {
                // The writes of the last round are in the log alone.
                drive(&mut pump, &load, op, HOT_BLOCKS * 3, HOT_BLOCKS, Places::Random(1))?;
                guest.drive(SLEEPS, op, HOT_BLOCKS * 3, Places::Random(1))?;
            }
            let places = Places::Random(round as u64);
            let requests = if op == RequestOp::Read && front == 0 { REQUESTS } else { RAM_REQUESTS };
            let misses = pump.engine().status().counters.read_misses;
            let (time, process_cpu) =
                with_cpu(PROCESS, requests, || drive(&mut pump, &load, op, requests, HOT_BLOCKS, places))?;
            let process = requests as f64 / time.as_secs_f64();
            let misses = pump.engine().status().counters.read_misses - misses;
            // Now and then a block goes past a busy cache file.
            if misses > requests / 100 {
                return Err(format!("{misses} reads missed: not a measure of hits").into());
            }
            let (told, told_cpu) = with_cpu(DAEMON, requests, || guest.drive(SLEEPS, op, requests, places))?;
            let (polled, polled_cpu) = with_cpu(DAEMON, requests, || guest.drive(POLLS, op, requests, places))?;
            let began = cpu_ns(DAEMON)?;
            let (nbd, seconds) = (fio(&dir.join("served.nbd"), op)?, FIO_SECONDS as f64);
            let nbd_cpu = (cpu_ns(DAEMON)? - began) as f64 / (nbd * seconds) / 1e3;
            eprintln!(
                "{name}: in process {process:.0} ({process_cpu:.1} us), vhost-user-blk {told:.0} ({told_cpu:.1} us), polled {polled:.0} ({polled_cpu:.1} us), nbd {nbd:.0} ({nbd_cpu:.1} us)"
            );
            rows.push(serde_json::json!({
                "what": name, "in_process": process, "vhost_user_blk": told, "polled": polled, "nbd": nbd,
                "in_process_cpu_us": process_cpu, "vhost_user_blk_cpu_us": told_cpu, "polled_cpu_us": polled_cpu, "nbd_cpu_us": nbd_cpu,
                "of_in_process": told / process, "of_nbd": told / nbd,
                "polled_of_in_process": polled / process, "polled_of_nbd": polled / nbd,
            }));
        }
    }
    guest.blkio.unmap_mem_region(&guest.region);
    drop(guest);
    stop.stop();
    let _ = served.join();
    pump.apply(Input::Control(Control::Stop));
    wait_for(&mut pump, |event| *event == Event::Stopped)?;
    Ok(serde_json::json!({ "queue_depth": QUEUE_DEPTH, "ram_front_bytes": front, "rows": rows }))
}

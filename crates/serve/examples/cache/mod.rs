// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache in process: engine, pump and devices, with a front-end that makes up requests in the
//! place of clients.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flashfront_device::real::{Access, DeviceFile, Prefer, Reactor};
use flashfront_device::sim::{HddSpec, ModelSpec};
use flashfront_device::wrap::Delay;
use flashfront_device::{Arena, Device};
use flashfront_engine::{
    BLOCK_BYTES, Buf, DeviceId, Engine, Event, Input, Lba, Mode, Options, OriginId, Request, RequestError, RequestId,
    RequestOp, Span, Time,
};
use flashfront_serve::control::Caller;
use flashfront_serve::frontend::{Core, Export, Frontend, TokenRange};
use flashfront_serve::offline::{FormatOptions, FormatReport, format};
use flashfront_serve::pump::{Devices, Pump};
use flashfront_serve::superblock;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

pub(crate) const QUEUE_DEPTH: usize = 32;
/// The byte of payload. Pages that were never written are all one page of zeroes, which is always
/// in the processor's caches.
pub(crate) const PATTERN: u8 = 0x5a;

/// Makes up requests as fast as they are answered.
pub(crate) struct Load {
    op: RequestOp,
    left: u64,
    depth: usize,
    in_flight: usize,
    /// Buffers of no request in flight, with payload in them; the one longest idle is taken first.
    bufs: VecDeque<Buf>,
    /// The number of buffers that there shall be.
    bufs_wanted: usize,
    places: Places,
    blocks: u64,
    failed: bool,
    has_front: bool,
}

/// The order of the blocks.
#[derive(Clone, Copy)]
pub(crate) enum Places {
    /// Each once, from here.
    InOrder(u64),
    /// The blocks come at random, with this seed.
    Random(u64),
}

impl Places {
    pub(crate) fn next(&mut self, blocks: u64) -> u64 {
        match self {
            Self::InOrder(next) => {
                *next += 1;
                (*next - 1) % blocks
            }
            Self::Random(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (x ^ (x >> 31)) % blocks
            }
        }
    }
}

#[derive(Clone)]
pub(crate) struct Shared(std::rc::Rc<std::cell::RefCell<Load>>);

impl Shared {
    /// Makes a load with this many requests in flight.
    pub(crate) fn new(depth: usize) -> Self {
        let load = Load {
            op: RequestOp::Write,
            left: 0,
            depth,
            in_flight: 0,
            bufs: VecDeque::new(),
            bufs_wanted: 0,
            places: Places::InOrder(0),
            blocks: 1,
            failed: false,
            has_front: false,
        };
        Self(std::rc::Rc::new(std::cell::RefCell::new(load)))
    }
}

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
        load.bufs.push_back(Buf(id.0 as u32));
    }
    fn refused(&mut self, id: RequestId, _core: &mut dyn Core) {
        unreachable!("all its buffers may wait: {id:?}");
    }

    fn room(&mut self, _: &mut dyn Core) {}
    fn turn_end(&mut self, _: Time, _: &mio::Registry, core: &mut dyn Core) -> bool {
        let mut load = self.0.borrow_mut();
        while load.bufs.len() + load.in_flight < load.bufs_wanted {
            let Some(buf) = core.alloc(BLOCK_BYTES as u32, OriginId(0)) else { break };
            core.memory().bytes_mut(Span::new(buf, 0, BLOCK_BYTES as u32)).fill(PATTERN);
            load.bufs.push_back(buf);
        }
        let mut sent = false;
        while load.left > 0 && load.in_flight < load.depth {
            let Some(buf) = load.bufs.pop_front() else { break };
            load.left -= 1;
            load.in_flight += 1;
            sent = true;
            let blocks = load.blocks;
            let lba = Lba(load.places.next(blocks) * 8);
            let (id, op) = (RequestId(u64::from(buf.0)), load.op);
            let since = core.now();
            core.submit(Request {
                id,
                origin: OriginId(0),
                op,
                lba,
                sectors: 8,
                buf: Some(buf),
                fua: false,
                since,
                continues: false,
            });
        }
        // Writes are answered from RAM, within the call, and so are reads if there is a front: then
        // there is nothing to wait for.
        sent && (load.op == RequestOp::Write || load.has_front)
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

/// Formats a cache, whatever the files hold; `discard`: the cache file's old content is given up
/// first.
pub(crate) fn make_cache(cache: &Path, origin: &Path, discard: bool) -> Outcome<FormatReport> {
    Ok(format(&FormatOptions {
        mirror: None,
        cache: cache.into(),
        origin: origin.into(),
        name: "bench".into(),
        mode: Mode::Writeback,
        force: true,
        segment: None,
        lanes: None,
        discard,
    })?)
}

/// Opens a cache; `ram_front_bytes`: RAM for copies of read blocks.
///
/// Its origin has the pace of a disk. An origin as fast as the cache file would be sent the writes
/// that the file is too busy for. The dirty limit is the highest, so that destage, which begins at
/// 30 % of it, keeps out.
pub(crate) fn open_cache(cache: &Path, origin: &Path, load: &Shared, ram_front_bytes: u64) -> Outcome<Pump> {
    let file = DeviceFile::open(cache, Access::Exclusive)?;
    let mut superblock = superblock::read(&file)?.superblock;
    superblock.epoch += 1;
    superblock::write(&file, &mut superblock)?;
    let reactor = Reactor::new(Prefer::Auto)?;
    let origin = reactor.open(origin, Access::Exclusive)?;
    let origin: Box<dyn Device> = Box::new(Delay::new(origin, ModelSpec::Hdd(HddSpec::default())));
    let cache: Box<dyn Device> = Box::new(reactor.attach(file));
    let devices = Devices { all: vec![(DeviceId::Cache, cache), (DeviceId::Origin(OriginId(0)), origin)], reactor };
    let poll = mio::Poll::new()?;
    let (_, calls) = Caller::new(Arc::new(mio::Waker::new(poll.registry(), mio::Token(1))?));
    load.0.borrow_mut().has_front = ram_front_bytes > 0;
    let dirty_limit_blocks = Some(u64::MAX);
    let options = Options { sequential_bypass_bytes: 0, ram_front_bytes, dirty_limit_blocks, ..Options::default() };
    let size_bytes = superblock.origins[0].size_bytes;
    let engine = Engine::new(superblock, options, Time(0))?;
    let mut pump = Pump::new(
        engine,
        Arena::with_reserve(ram_front_bytes + (256 << 20), ram_front_bytes + (128 << 20)),
        devices,
        poll,
        calls,
    );
    pump.apply(Input::Timer);
    wait_for(&mut pump, |event| matches!(event, Event::Ready { .. }))?;
    let export = Export::new("", OriginId(0), size_bytes);
    pump.serve(vec![export], vec![Box::new(load.clone())])?;
    Ok(pump)
}

/// Turns until the engine has told this.
pub(crate) fn wait_for(pump: &mut Pump, wanted: impl Fn(&Event) -> bool) -> Outcome<()> {
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

/// Has this many buffers filled with payload, from which requests are made in turn.
///
/// As many as are in flight are in the processor's caches; with more buffers than the caches hold
/// they are not.
pub(crate) fn fill_buffers(pump: &mut Pump, load: &Shared, count: usize) -> Outcome<()> {
    load.0.borrow_mut().bufs_wanted = count;
    pump.turn(Duration::ZERO)?;
    let there = load.0.borrow().bufs.len();
    if there == count { Ok(()) } else { Err(format!("there is room for {there} of {count} buffers").into()) }
}

/// Drives this many requests at places of the first `blocks`; written data is flushed.
pub(crate) fn drive(
    pump: &mut Pump,
    load: &Shared,
    op: RequestOp,
    count: u64,
    blocks: u64,
    places: Places,
) -> Outcome<Duration> {
    {
        let mut load = load.0.borrow_mut();
        (load.op, load.left, load.places, load.blocks) = (op, count, places, blocks);
    }
    let began = Instant::now();
    let waiting = |load: &Shared| load.0.borrow().left > 0 || load.0.borrow().in_flight > 0;
    while waiting(load) {
        pump.turn(Duration::from_secs(1))?;
    }
    if op == RequestOp::Write {
        // All of it on the device, as the raw writes are.
        let before = pump.engine().status().counters.flushes;
        let request = RequestId(u64::from(load.0.borrow_mut().bufs.pop_front().ok_or("no buffer")?.0));
        load.0.borrow_mut().in_flight += 1;
        let (origin, op, lba) = (OriginId(0), RequestOp::Flush, Lba(0));
        let since = Time(0);
        pump.apply(Input::Request(Request {
            id: request,
            origin,
            op,
            lba,
            sectors: 0,
            buf: None,
            fua: false,
            since,
            continues: false,
        }));
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

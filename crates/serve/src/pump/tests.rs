// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of an idle pump, and of what the pump tells front-ends of each other.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use flashfront_device::real::{Access, DeviceFile, Prefer, Reactor};
use flashfront_device::{Arena, Device, DeviceIo};
use flashfront_engine::{DeviceId, Engine, Memory, Op, Options, OriginId, RequestError, RequestId, Span, Time};
use mio::{Poll, Registry, Waker, event::Event};

use super::{Devices, Pump, WAKER};
use crate::control::Caller;
use crate::frontend::{Core, Frontend, TokenRange};
use crate::rig::Bench;
use crate::superblock;

const PATIENCE: Duration = Duration::from_secs(60);

/// A pump over an engine that has nothing to do.
fn pump(bench: &Bench) -> Pump {
    let file = DeviceFile::open(&bench.cache(), Access::Exclusive).unwrap();
    let superblock = superblock::read(&file).unwrap().superblock;
    let reactor = Reactor::new(Prefer::Auto).unwrap();
    let origin: Box<dyn Device> = Box::new(reactor.open(&bench.origin(), Access::Exclusive).unwrap());
    let cache: Box<dyn Device> = Box::new(reactor.attach(file));
    let devices = Devices { all: vec![(DeviceId::Cache, cache), (DeviceId::Origin(OriginId(0)), origin)], reactor };
    let poll = Poll::new().unwrap();
    let (_, calls) = Caller::new(Waker::new(poll.registry(), WAKER).unwrap().into());
    let engine = Engine::new(superblock, Options::default(), Time(0)).unwrap();
    Pump::new(engine, Arena::new(64 << 20), devices, poll, calls)
}

/// Reads so often that the ring registers the buffer's chunk.
fn use_much(pump: &mut Pump) {
    let buf = pump.arena.alloc(1 << 20);
    for i in 0..20 {
        let span = Some(Span::new(buf, 0, 1 << 20));
        let io = DeviceIo { token: flashfront_engine::Token(i), op: Op::Read, offset: 0, len: 1 << 20, span };
        pump.devices.submit(Time(0), DeviceId::Cache, io, &mut pump.arena);
        pump.devices.kick();
        while pump.devices.take_done().is_none() {
            pump.devices.reactor().wait(None, None).unwrap();
            pump.devices.fetch(Time(0), &mut pump.arena);
        }
    }
    pump.arena.free(buf);
}

/// The clock is put on, so that nothing here waits.
#[test]
fn an_idle_pump_gives_its_memory_back_and_then_sleeps() {
    let bench = Bench::formatted();
    let mut pump = pump(&bench);
    use_much(&mut pump);
    assert!(pump.arena.held_bytes() > 0);
    let mut looks = 0;
    while pump.arena.held_bytes() > 0 {
        assert!(pump.wait(PATIENCE) <= Duration::from_secs(1), "it wakes up for the next look");
        pump.clock = pump.clock.earlier(Duration::from_secs(1));
        pump.turn(Duration::ZERO).unwrap();
        looks += 1;
        assert!(looks < 20, "{} bytes are kept", pump.arena.held_bytes());
    }
    assert!(looks > 5, "memory was given back at once");
    assert_eq!(pump.wait(PATIENCE), PATIENCE, "nothing wakes it any more");
}

/// A front-end that takes all buffers, or a front-end that looks whether buffers are short.
struct Needy {
    wants: bool,
    told: Rc<Cell<bool>>,
}

impl Frontend for Needy {
    fn uri(&self) -> String {
        "needy:".to_owned()
    }

    fn tokens_max(&self) -> usize {
        0
    }

    fn register(&mut self, _registry: &Registry, _tokens: TokenRange) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, _core: &mut dyn Core) {}

    fn reply(&mut self, _id: RequestId, _result: Result<(), RequestError>, _core: &mut dyn Core) {}

    fn refused(&mut self, id: RequestId, _core: &mut dyn Core) {
        panic!("nothing of it waits for an origin: {id:?}");
    }

    fn room(&mut self, _core: &mut dyn Core) {}

    fn turn_end(&mut self, _now: Time, _registry: &Registry, core: &mut dyn Core) -> bool {
        while self.wants && core.alloc(1 << 20, OriginId(0)).is_some() {}
        self.told.set(core.is_short());
        false
    }

    fn next_timer(&self) -> Option<Time> {
        None
    }

    fn stop(&mut self, _registry: &Registry, _core: &mut dyn Core) {}

    fn idle(&self) -> bool {
        true
    }

    fn clients(&self) -> usize {
        0
    }
}

/// Front-ends that were asked before also learn that another one found none.
#[test]
fn front_ends_are_told_when_another_finds_no_buffers() {
    let bench = Bench::formatted();
    let mut pump = pump(&bench);
    let told = Rc::new(Cell::new(false));
    let needy = |wants| Box::new(Needy { wants, told: if wants { Rc::default() } else { Rc::clone(&told) } });
    pump.serve(Vec::new(), vec![needy(false), needy(true)]).unwrap();
    assert!(!told.get() && pump.end_turn(), "it doesn't sleep before all know");
    assert!(!pump.end_turn() && told.get());
    assert!(!pump.end_turn() && told.get(), "it lasts, and sleep is allowed");
}

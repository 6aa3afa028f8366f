// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons that end while a guest's requests are in flight, and what the next one does with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flashfront_device::{Arena, Device, DeviceIo, Done, Geometry};
use flashfront_engine::{Durability, Op, Time};

use super::driver::{DATA, FLUSH, Machine, PENDING, READ, STORE, Wire, usual};
use super::requests::{DONE, FAILED, config, serve};
use crate::daemon::{Ended, Hooks, Wrap};
use crate::rig::Bench;

/// A device that keeps reads to itself, and tells how many.
struct Holding {
    inner: Box<dyn Device>,
    held: Arc<AtomicBool>,
}

fn holding(held: &Arc<AtomicBool>) -> Wrap {
    let held = Arc::clone(held);
    Box::new(move |inner| Box::new(Holding { inner, held: Arc::clone(&held) }))
}

impl Device for Holding {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        if matches!(io.op, Op::Read) {
            self.held.store(true, Ordering::SeqCst);
        } else {
            self.inner.submit(now, io, arena);
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        self.inner.poll(now, arena, done);
    }

    fn next_event(&self) -> Option<Time> {
        self.inner.next_event()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
}

#[test]
fn unfinished_requests_are_taken_up_by_the_next_daemon() {
    let bench = Bench::formatted();
    let held = Arc::new(AtomicBool::new(false));
    let hooks = Hooks { wrap_origin: Some(holding(&held)), ..Hooks::default() };
    let served = bench.serve_with(config(&bench), hooks);
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    // These are answered; one in between never is.
    machine.fill(DATA, 4096, 0x31);
    machine.ask(0, 9, STORE, 0, DATA, 4096);
    assert_eq!(machine.run(&wire, 0, 9), DONE);
    for (head, sector) in [(7, 1024), (3, 2048), (5, 4096)] {
        machine.ask(0, head, READ, sector, DATA + u64::from(head) * 4096, 4096);
    }
    wire.kick(0);
    machine.ask(1, 1, READ, 0, DATA + 4096, 4096);
    assert_eq!(machine.run(&wire, 1, 1), DONE, "a hit overtakes them");
    machine.ask(0, 11, STORE, 8, DATA, 4096);
    wire.kick(0);
    assert_eq!(wire.wait(&mut machine, 0, 1), [(11, 1)]);
    assert!(held.load(Ordering::SeqCst));
    served.stop_at_once();
    assert!(wire.is_hung_up_on());
    assert!([7, 3, 5].iter().all(|head| machine.status(0, *head) == PENDING));
    // No daemon was there when this request was put into the ring.
    machine.ask(0, 12, READ, 8192, DATA + 12 * 4096, 4096);

    let served = serve(&bench);
    let wire = machine.connect(&bench.path("guest"), usual());
    // No kick: the guest doesn't know.
    let mut heads: Vec<u16> = wire.wait(&mut machine, 0, 4).into_iter().map(|(head, _)| head).collect();
    heads.sort_unstable();
    assert_eq!(heads, [3, 5, 7, 12]);
    assert!([7, 3, 5, 12].iter().all(|head| machine.status(0, *head) == DONE));
    assert!(machine.collect(0).is_empty(), "each once");
    drop(wire);
    served.stop();
}

#[test]
fn a_client_that_comes_back_to_the_same_daemon_goes_on() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut machine = Machine::new();
    for turn in 0..50u16 {
        let wire = machine.connect(&bench.path("guest"), usual());
        let head = turn % 8;
        machine.fill(DATA, 65536, turn as u8);
        machine.ask(0, head, STORE, 256, DATA, 65536);
        wire.kick(0);
        // Gone before or after it was answered, as it comes; the next connection has it answered.
        drop(wire);
        let wire = machine.connect(&bench.path("guest"), usual());
        wire.wait(&mut machine, 0, 1);
        assert_eq!(machine.status(0, head), DONE);
        machine.ask(0, head, READ, 256, DATA + 65536, 65536);
        assert_eq!(machine.run(&wire, 0, head), DONE);
        assert!(machine.content(DATA + 65536, 65536).iter().all(|byte| *byte == turn as u8), "turn {turn}");
    }
    served.stop();
}

#[test]
fn a_guest_that_was_reset_learns_that_unflushed_writes_died_with_the_daemon() {
    // Its write comes before the reset or after it; the one before may have been lost to a daemon
    // before.
    for (case, lost) in [("before", true), ("after", true), ("both", true), ("flushed", false), ("lost before", true)] {
        let bench = Bench::formatted();
        let mut served = serve(&bench);
        let mut machine = Machine::new();
        let mut wire = machine.connect(&bench.path("guest"), usual());
        let store = |machine: &mut Machine, wire: &Wire| {
            machine.ask(0, 1, STORE, 800, DATA, 4096);
            assert_eq!(machine.run(wire, 0, 1), DONE);
        };
        let flush = |machine: &mut Machine, wire: &Wire| {
            machine.ask(1, 1, FLUSH, 0, 0, 0);
            machine.run(wire, 1, 1)
        };
        if case != "after" {
            store(&mut machine, &wire);
        }
        if case == "lost before" {
            served.stop_at_once();
            served = serve(&bench);
            wire = machine.connect(&bench.path("guest"), usual());
            store(&mut machine, &wire);
            assert_eq!(flush(&mut machine, &wire), FAILED);
        }
        // As QEMU resets a guest: on the same connection, with new memory.
        machine.reset(&mut wire);
        if matches!(case, "after" | "both" | "flushed") {
            store(&mut machine, &wire);
        }
        if case == "flushed" {
            assert_eq!(flush(&mut machine, &wire), DONE);
        }
        served.stop_at_once();
        let served = serve(&bench);
        let wire = machine.connect(&bench.path("guest"), usual());
        assert_eq!(flush(&mut machine, &wire), if lost { FAILED } else { DONE }, "{case}");
        drop(wire);
        served.stop();
    }
}

#[test]
fn a_guest_learns_that_unflushed_writes_died_with_the_daemon() {
    // After the write comes nothing, a FLUSH, or a clean stop; durability from the start, or no RAM
    // on the way to the origin.
    let cases =
        [("nothing", true), ("flush", false), ("clean stop", false), ("always", false), ("without cache", false)];
    for (case, lost) in cases {
        let bench = Bench::formatted();
        let start = || {
            let mut config = config(&bench);
            if case == "always" {
                config.policy.durability = Durability::Always;
            }
            (config.without_cache, config.accept_missing_dirty_data) =
                (case == "without cache", case == "without cache");
            bench.serve_with(config, Hooks::default())
        };
        let served = start();
        let mut machine = Machine::new();
        let wire = machine.connect(&bench.path("guest"), usual());
        machine.ask(1, 1, FLUSH, 0, 0, 0);
        assert_eq!(machine.run(&wire, 1, 1), DONE);
        machine.fill(DATA, 4096, 0x66);
        machine.ask(0, 1, STORE, 800, DATA, 4096);
        assert_eq!(machine.run(&wire, 0, 1), DONE);
        // The client is gone for a moment: the same daemon has it all.
        drop(wire);
        let wire = machine.connect(&bench.path("guest"), usual());
        if case == "flush" {
            machine.ask(1, 1, FLUSH, 0, 0, 0);
            assert_eq!(machine.run(&wire, 1, 1), DONE);
        }
        if case == "clean stop" {
            assert!(matches!(served.end(), Ended::Clean { .. }));
        } else {
            served.stop_at_once();
        }
        let mut served = start();
        for turn in 0..2 {
            let wire = machine.connect(&bench.path("guest"), usual());
            machine.ask(1, 2, FLUSH, 0, 0, 0);
            assert_eq!(machine.run(&wire, 1, 2), if lost { FAILED } else { DONE }, "{case}, turn {turn}");
            machine.ask(0, 2, READ, 800, DATA + 4096, 4096);
            assert_eq!(machine.run(&wire, 0, 2), DONE);
            if !lost {
                assert!(machine.content(DATA + 4096, 4096).iter().all(|byte| *byte == 0x66), "{case}");
            }
        }
        // A disk that is reset has new memory, and nothing to remember.
        machine.inflight = None;
        let wire = machine.connect(&bench.path("guest"), usual());
        machine.ask(1, 3, FLUSH, 0, 0, 0);
        assert_eq!(machine.run(&wire, 1, 3), DONE);
        drop(wire);
        served.nbd.flush().unwrap();
        assert!(matches!(served.end(), Ended::Clean { .. } | Ended::WithoutCache { .. }));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of giving up: what the caller is told and when, what lands late, and when the device lives
//! again.

use flashfront_engine::{Buf, DeviceError, Memory, Op, Span, Time, Token};

use super::Patience;
use crate::sim::{RamDisk, RamSpec};
use crate::wrap::{Faults, Inject};
use crate::{Arena, Device, DeviceIo, Done};

const LEN: u64 = 4096;
const SECOND: u64 = 1_000_000_000;
const LIMIT: u64 = 30 * SECOND;

struct World {
    disk: Patience<Inject<RamDisk>>,
    arena: Arena,
    now: Time,
    tokens: u64,
}

fn world(faults: &str, places: usize) -> World {
    let disk = RamDisk::new(RamSpec { size_bytes: 64 << 20, ..RamSpec::default() });
    let faults = if faults.is_empty() { Faults::default() } else { faults.parse().unwrap() };
    let disk = Patience::new(Inject::new(disk, faults), Some(LIMIT), places);
    World { disk, arena: Arena::new(64 << 20), now: Time(0), tokens: 0 }
}

impl World {
    fn submit(&mut self, op: Op, offset: u64, fill: u8) -> (Token, Option<Buf>) {
        self.tokens += 1;
        let token = Token(self.tokens);
        let buf = matches!(op, Op::Read | Op::Write).then(|| self.arena.alloc(LEN as u32));
        let span = buf.map(|buf| Span::new(buf, 0, LEN as u32));
        if let Some(span) = span {
            self.arena.bytes_mut(span).fill(fill);
        }
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, LEN) };
        self.disk.submit(self.now, DeviceIo { token, op, offset, len, span }, &mut self.arena);
        (token, buf)
    }

    /// Lets this much time pass, as a pump does that sleeps until something is due; what ended, and
    /// when.
    fn pass(&mut self, ns: u64) -> Vec<(Time, Done)> {
        let (end, mut all) = (self.now.plus_ns(ns), Vec::new());
        while let Some(event) = self.disk.next_event().filter(|event| *event <= end) {
            self.now = self.now.max(event);
            let mut done = Vec::new();
            self.disk.poll(self.now, &mut self.arena, &mut done);
            all.extend(done.into_iter().map(|done| (self.now, done)));
        }
        self.now = end;
        all
    }

    fn results(&mut self, ns: u64) -> Vec<Result<(), DeviceError>> {
        self.pass(ns).into_iter().map(|(_, done)| done.result).collect()
    }

    fn medium(&self, offset: u64) -> u8 {
        let mut byte = [0];
        self.disk.device().inner().peek(offset, &mut byte);
        byte[0]
    }
}

const GIVEN_UP: Result<(), DeviceError> = Err(DeviceError::TimedOut);

#[test]
fn what_takes_too_long_is_given_up_in_time_and_once() {
    for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Zero] {
        let mut world = world("hang,times=1,hold=75s", 8);
        let (token, _) = world.submit(op, 0, 1);
        assert_eq!(world.pass(LIMIT - 1), []);
        let ended = world.pass(SECOND);
        assert_eq!(ended, [(Time(LIMIT), Done { token, result: GIVEN_UP })], "{op:?}");
        let hang = world.disk.hang().unwrap();
        let bytes = if matches!(op, Op::Read | Op::Write) { LEN } else { 0 };
        assert_eq!((hang.since, hang.ios, hang.bytes), (Time(0), 1, bytes));
        assert_eq!(world.pass(100 * SECOND), [], "its late end is nobody's news");
        assert_eq!(world.disk.hang(), None);
        assert_eq!(world.disk.next_event(), None);
    }
}

#[test]
fn a_device_that_hangs_gets_nothing_and_lives_again_when_all_has_ended() {
    let mut world = world("hang,op=read,times=2,hold=60s; hang,op=flush,times=1,hold=90s", 8);
    (0..2).for_each(|_| _ = world.submit(Op::Read, 0, 0));
    world.submit(Op::Flush, 0, 0);
    assert_eq!(world.results(LIMIT), [GIVEN_UP; 3]);
    for _ in 0..5 {
        for op in [Op::Read, Op::Write, Op::Flush] {
            world.submit(op, 0, 7);
        }
        // At once, and not after another time as long.
        assert_eq!(world.results(SECOND), [GIVEN_UP; 3]);
        world.pass(10 * SECOND);
    }
    assert_eq!(world.disk.hang().map(|hang| hang.ios), Some(1), "the reads have ended, the flush has not");
    world.pass(10 * SECOND);
    assert_eq!((world.disk.hang(), world.medium(0)), (None, 0), "what was refused was not done");
    world.submit(Op::Write, 0, 7);
    assert_eq!(world.results(SECOND), [Ok(())]);
    assert_eq!(world.medium(0), 7);
}

#[test]
fn a_late_write_never_lands_on_a_newer_one() {
    let mut world = world("hang,op=write,times=1,hold=100500ms", 8);
    let (_, buf) = world.submit(Op::Write, 0, 1);
    assert_eq!(world.results(LIMIT), [GIVEN_UP]);
    world.arena.free(buf.unwrap());
    let mut tries = 0;
    loop {
        let hung = world.disk.hang().is_some();
        let (_, buf) = world.submit(Op::Write, 0, 2);
        let result = world.results(SECOND);
        world.arena.free(buf.unwrap());
        if result == [Ok(())] {
            break;
        }
        assert_eq!((result, hung), (vec![GIVEN_UP], true));
        tries += 1;
    }
    assert!(tries >= 60, "the newer one waited for the older one");
    world.pass(1000 * SECOND);
    assert_eq!(world.medium(0), 2);
}

#[test]
fn what_lands_late_is_what_was_given_and_meets_no_other_buffer() {
    for op in [Op::Read, Op::Write] {
        let mut world =
            world(&format!("hang,op={},times=1,hold=60s", if op == Op::Read { "read" } else { "write" }), 8);
        world.disk.device_mut().inner_mut().poke(0, &[5; LEN as usize]);
        let (_, buf) = world.submit(op, 0, 1);
        assert_eq!(world.results(LIMIT), [GIVEN_UP]);
        // Its buffer goes to another I/O, as far as its owner is concerned.
        world.arena.free(buf.unwrap());
        let others: Vec<_> = (0..2048).map(|_| Span::new(world.arena.alloc(LEN as u32), 0, LEN as u32)).collect();
        others.iter().for_each(|span| world.arena.bytes_mut(*span).fill(9));
        world.pass(60 * SECOND);
        assert_eq!(world.medium(0), if op == Op::Read { 5 } else { 1 });
        assert!(others.iter().all(|span| world.arena.bytes(*span) == [9; LEN as usize]));
        others.iter().for_each(|span| world.arena.free(span.buf()));
        assert_eq!(world.arena.allocated_bytes(), 0, "and is free in the end");
    }
}

#[test]
fn what_others_read_into_the_buffer_gets_there() {
    // The other read ends before, and after, the one that was given up.
    for hold in ["40s", "100s"] {
        let mut world = world("hang,op=read,times=1,hold=75s", 8);
        let patient =
            Inject::new(RamDisk::new(RamSpec::default()), format!("hang,op=read,hold={hold}").parse().unwrap());
        let mut other = Patience::new(patient, None, 8);
        let buf = world.arena.alloc(2 * LEN as u32);
        let [first, second] = [0, LEN as u32].map(|at| Span::new(buf, at, LEN as u32));
        world.arena.bytes_mut(Span::new(buf, 0, 2 * LEN as u32)).fill(7);
        let read = |span| DeviceIo { token: Token(1), op: Op::Read, offset: 0, len: LEN, span: Some(span) };
        world.disk.submit(Time(0), read(first), &mut world.arena);
        other.submit(Time(0), read(second), &mut world.arena);
        assert_eq!(world.results(LIMIT), [GIVEN_UP]);
        world.arena.bytes_mut(first).fill(8);
        world.pass(9 * SECOND);
        let mut ended = Vec::new();
        while let Some(event) = other.next_event() {
            world.pass(event.since_ns(world.now));
            other.poll(event, &mut world.arena, &mut ended);
        }
        assert_eq!(ended, [Done { token: Token(1), result: Ok(()) }]);
        assert_eq!(world.arena.bytes(second), [0; LEN as usize], "{hold}: what the disk has");
        world.pass(100 * SECOND);
        assert_eq!(world.arena.bytes(first), [8; LEN as usize], "{hold}: its owner's");
        world.arena.free(buf);
        assert_eq!(world.arena.allocated_bytes(), 0);
    }
}

#[test]
fn what_waits_for_a_place_has_all_its_time() {
    // One at a time: the tenth gets its turn after 180 seconds.
    let mut world = world("hang,times=10,hold=20s", 1);
    (0..10).for_each(|_| _ = world.submit(Op::Read, 0, 0));
    assert_eq!(world.results(250 * SECOND), [Ok(()); 10]);
}

#[test]
fn what_waits_for_a_place_of_a_device_that_hangs_is_refused() {
    let mut world = world("hang,times=2,hold=60s", 2);
    (0..10).for_each(|_| _ = world.submit(Op::Write, 0, 3));
    assert_eq!(world.results(LIMIT + SECOND), [GIVEN_UP; 10]);
    assert_eq!(world.disk.hang().map(|hang| hang.ios), Some(2), "the device has two of them");
    assert_eq!(world.results(60 * SECOND), []);
    assert_eq!(world.disk.hang(), None);
}

#[test]
fn time_in_which_nobody_looked_does_not_count() {
    let mut world = world("hang,times=1,hold=3610s", 8);
    world.submit(Op::Read, 0, 0);
    world.pass(10 * SECOND);
    // The daemon is stopped for an hour and does not poll.
    world.now = Time(3605 * SECOND);
    assert_eq!(world.results(20 * SECOND), [Ok(())], "and the device had answered soon after");
}

#[test]
fn a_long_discard_has_more_time() {
    let mut world = world("hang,op=discard,times=1,hold=31s", 8);
    let io = DeviceIo { token: Token(1), op: Op::Discard, offset: 0, len: 64 << 20, span: None };
    world.disk.submit(world.now, io, &mut world.arena);
    assert_eq!(world.results(60 * SECOND), [Ok(())]);
}

#[test]
fn without_a_limit_nothing_is_given_up() {
    let mut world = world("hang,times=1,hold=86000s", 8);
    world.disk =
        Patience::new(Inject::new(RamDisk::new(RamSpec::default()), "hang,hold=24h".parse().unwrap()), None, 8);
    world.submit(Op::Read, 0, 0);
    assert_eq!(world.results(23 * 3600 * SECOND), []);
    assert_eq!(world.results(2 * 3600 * SECOND), [Ok(())]);
}

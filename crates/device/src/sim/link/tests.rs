// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what a connection that breaks leaves, and of who is told.

use super::*;
use crate::sim::RamSpec;

const LEN: u64 = 4096;

struct World {
    link: Link,
    arena: Arena,
    now: Time,
    tokens: u64,
}

fn world() -> World {
    let link = Link::new(RamDisk::new(RamSpec::default()));
    let mut world = World { link, arena: Arena::new(64 << 20), now: Time(0), tokens: 0 };
    assert_eq!(world.flush(), Ok(()));
    world
}

impl World {
    fn submit(&mut self, op: Op, offset: u64, fill: u8) -> Span {
        self.tokens += 1;
        let len = if op == Op::Flush { 0 } else { LEN };
        let span = Span::new(self.arena.alloc(LEN as u32), 0, LEN as u32);
        self.arena.bytes_mut(span).fill(fill);
        let io = DeviceIo { token: Token(self.tokens), op, offset, len, span: (len > 0).then_some(span) };
        self.link.submit(self.now, io, &mut self.arena);
        span
    }

    fn settle(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        while let Some(event) = self.link.next_event() {
            self.now = self.now.max(event);
            self.link.poll(self.now, &mut self.arena, &mut done);
        }
        done
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.submit(Op::Flush, 0, 0);
        self.settle()[0].result
    }

    fn write(&mut self, offset: u64, fill: u8) {
        self.submit(Op::Write, offset, fill);
        assert_eq!(self.settle()[0].result, Ok(()));
    }

    fn read(&mut self, offset: u64) -> u8 {
        let span = self.submit(Op::Read, offset, 0x5a);
        assert_eq!(self.settle()[0].result, Ok(()));
        self.arena.bytes(span)[0]
    }

    fn order(&mut self, dies: Option<Fate>) {
        self.link.order(Break { after: 1, dies, away_ns: 1_000_000_000, seed: self.tokens });
    }
}

#[test]
fn a_request_without_an_answer_is_sent_again() {
    for dies in [None, Some(Fate::Lost), Some(Fate::Torn)] {
        let mut world = world();
        world.order(dies);
        world.write(0, 7);
        assert_eq!(world.read(0), 7);
        assert!(world.now.0 >= 1_000_000_000, "it waited");
    }
}

#[test]
fn a_server_that_dies_loses_what_was_unflushed_and_one_flush_fails() {
    let mut world = world();
    world.write(0, 1);
    assert_eq!(world.flush(), Ok(()));
    world.order(Some(Fate::Lost));
    assert_eq!(world.read(0), 1);
    assert_eq!(world.flush(), Ok(()), "nothing was lost");
    world.write(0, 2);
    world.order(Some(Fate::Lost));
    assert_eq!(world.read(0), 1, "the server forgot it");
    assert_eq!(world.flush(), Err(DeviceError::Io));
    assert_eq!(world.flush(), Ok(()), "it was told");
    assert_eq!(world.link.lost(), 1);
}

#[test]
fn a_flush_in_flight_tells_of_what_it_covers() {
    let mut world = world();
    world.write(0, 2);
    world.order(None);
    assert_eq!(world.flush(), Err(DeviceError::Io));
    assert_eq!(world.flush(), Ok(()));
    assert_eq!(world.read(0), 2, "the server lived");
}

#[test]
fn the_planted_bug_tells_nobody() {
    let mut world = world();
    world.link.plant_untold();
    world.write(0, 2);
    world.order(Some(Fate::Lost));
    assert_eq!((world.read(0), world.flush()), (0, Ok(())));
}

#[test]
fn what_is_read_again_comes_to_the_memory_of_the_first_time() {
    let mut world = world();
    world.write(0, 3);
    assert_eq!(world.flush(), Ok(()));
    world.order(None);
    let span = world.submit(Op::Read, 0, 0x5a);
    assert_eq!(world.settle().len(), 1);
    assert_eq!(world.arena.bytes(span), [3; LEN as usize]);
}

/// Requests that waited for a connection are sent from the memory that they came with. Who gave up
/// has other memory by then.
#[test]
fn what_waits_is_sent_from_the_memory_that_it_came_with() {
    let mut world = world();
    world.order(None);
    world.submit(Op::Read, 8192, 0);
    let span = world.submit(Op::Write, 0, 9);
    world.arena.quarantine(span.buf());
    world.arena.bytes_mut(span).fill(1);
    assert_eq!(world.settle().len(), 2);
    assert_eq!(world.read(0), 9);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of one client's share of a turn, however much it says, and of clients that come after
//! another is gone.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use flashfront_engine::Time;

use super::alone::Alone;
use super::driver::{DATA, Machine, STORE, usual};
use super::requests::DONE;
use crate::frontend::Frontend;

/// A message without a body.
fn message(request: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    (bytes[0], bytes[4]) = (request as u8, 1);
    bytes
}

const GET_FEATURES: u32 = 1;
const SET_OWNER: u32 = 3;
const GET_VRING_BASE: u32 = 11;

#[test]
fn hostile_messages_without_end_keep_nobody_waiting() {
    let mut alone = Alone::new();
    let mut talker = UnixStream::connect(&alone.path).unwrap();
    let mut other = UnixStream::connect(&alone.path).unwrap();
    // Nothing is answered but the last.
    let many: Vec<u8> = (0..1000).flat_map(|_| message(SET_OWNER)).chain(message(GET_FEATURES)).collect();
    talker.write_all(&many).unwrap();
    other.write_all(&message(GET_FEATURES)).unwrap();
    let has_answer = |stream: &mut UnixStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0; 64]), Ok(20))
    };
    assert!(alone.turn(0), "the rest is for the next turns, which nothing else may bring about");
    assert!(!has_answer(&mut talker), "as long as it goes on talking nobody else would be served");
    assert!(has_answer(&mut other));
    let mut more = true;
    while !has_answer(&mut talker) {
        assert!(more);
        more = alone.turn(0);
    }
    assert!(!more, "all was said");
}

#[test]
fn hostile_connections_without_end_keep_nobody_waiting() {
    let mut alone = Alone::new();
    let mut all: Vec<_> = (0..60).map(|_| UnixStream::connect(&alone.path).unwrap()).collect();
    alone.turn(0);
    assert!(alone.front.next_timer().is_some_and(|at| at < Time(1_000_000_000)), "they are accepted soon");
    let last = all.last_mut().unwrap();
    last.set_nonblocking(true).unwrap();
    assert!(last.read(&mut [0; 8]).is_err(), "not accepted yet, nor hung up on");
}

#[test]
fn a_client_that_died_while_it_waited_for_its_requests_is_gone_for_the_next_one() {
    let mut alone = Alone::new();
    let (path, mut machine) = (alone.path.clone(), Machine::new());
    let wire = alone.serve(|| {
        let wire = machine.connect(&path, usual());
        machine.ask(0, 1, STORE, 8, DATA, 4096);
        wire.kick(0);
        wire
    });
    while alone.core.queue.is_empty() {
        alone.turn(0);
    }
    // It wants to stop its queue, which is answered when no request is in flight; but it doesn't
    // live to see that.
    let stop = [&message(GET_VRING_BASE)[..8], &8u32.to_le_bytes(), &0u64.to_le_bytes()].concat();
    #[expect(unsafe_code, reason = "the crate's type has no AsFd")]
    // SAFETY: it is open as long as `wire` is there.
    let socket = unsafe { BorrowedFd::borrow_raw(wire.frontend.as_raw_fd()) };
    assert_eq!(rustix::io::write(socket, &stop).unwrap(), stop.len());
    alone.turn(0);
    drop(wire);
    // The next one takes up what was not answered.
    let wire = alone.serve(|| machine.connect(&path, usual()));
    (0..3).for_each(|_| _ = alone.turn(0));
    assert_eq!(alone.core.queue.len(), 1, "the write of before may still land on what is written since");
    alone.answer();
    assert!(machine.collect(0).is_empty(), "nobody is there to be told");
    while alone.core.queue.is_empty() {
        alone.turn(0);
    }
    alone.answer();
    assert_eq!(machine.collect(0), [(1, 1)], "once");
    assert_eq!(machine.status(0, 1), DONE);
    drop(wire);
}

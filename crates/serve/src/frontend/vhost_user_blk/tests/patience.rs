// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that connect and say nothing: the front-end alone, with a clock of the test's.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use flashfront_device::Arena;
use flashfront_engine::{Buf, Memory, OriginId, Request, Time};
use mio::{Events, Poll};
use rustix::event::PollFlags;

use super::super::{CONNECTIONS_MAX, VhostUserBlk};
use super::driver::becomes;
use crate::frontend::{Core, Export, Frontend, TokenRange};

const SECOND: u64 = 1_000_000_000;
/// GET_FEATURES of version 1: the first thing that a guest says.
const HELLO: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// A pump that is asked for nothing.
struct Nothing(Vec<Export>, Arena);

impl Core for Nothing {
    fn exports(&self) -> &[Export] {
        &self.0
    }
    fn memory(&mut self) -> &mut dyn Memory {
        &mut self.1
    }
    fn alloc(&mut self, _: u32) -> Option<Buf> {
        None
    }
    fn free(&mut self, _: Buf) {}
    fn submit(&mut self, request: Request) {
        panic!("nobody asked for {request:?}");
    }
}

/// All that is ready, and a turn's end.
fn turn(front: &mut VhostUserBlk, poll: &mut Poll, core: &mut Nothing, now: u64) {
    let mut events = Events::with_capacity(64);
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    for event in &events {
        front.ready(event, poll.registry(), core);
    }
    front.turn_end(Time(now), poll.registry(), core);
}

/// Whether the other side has hung up.
fn is_closed(stream: &mut UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.read(&mut [0; 64]), Ok(0))
}

#[test]
fn who_says_nothing_gives_up_his_place_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("guest");
    let mut front = VhostUserBlk::bind(&path, None, false).unwrap();
    let mut poll = Poll::new().unwrap();
    let tokens = TokenRange { first: 0, count: front.tokens_max() };
    front.register(poll.registry(), tokens).unwrap();
    let (name, origin) = ("data".to_owned(), OriginId(0));
    let export = Export { name, origin, size_bytes: 1 << 20, block_bytes: 512, read_only: false };
    let mut core = Nothing(vec![export], Arena::new(8 << 20));
    let mut guest = UnixStream::connect(&path).unwrap();
    guest.write_all(&HELLO).unwrap();
    let mut silent: Vec<_> = (1..CONNECTIONS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
    turn(&mut front, &mut poll, &mut core, 0);
    assert_eq!((front.clients(), front.next_timer()), (CONNECTIONS_MAX, Some(Time(30 * SECOND))));
    // No place for one more: it is told so at once.
    let late = UnixStream::connect(&path).unwrap();
    turn(&mut front, &mut poll, &mut core, 29 * SECOND);
    // It is closed by a thread.
    assert!(becomes(&late, PollFlags::HUP) && !silent.iter_mut().any(is_closed));
    turn(&mut front, &mut poll, &mut core, 30 * SECOND);
    assert!(silent.iter_mut().all(is_closed));
    assert_eq!((front.clients(), front.next_timer()), (1, None), "the guest stays, however long");
    let mut next = UnixStream::connect(&path).unwrap();
    // Not while too many are being closed.
    while front.clients() == 1 {
        turn(&mut front, &mut poll, &mut core, 31 * SECOND);
    }
    assert!(!is_closed(&mut next));
}

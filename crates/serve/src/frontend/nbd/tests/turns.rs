// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front-end turn by turn, in the test's own thread: what must happen in which turn.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use flashfront_engine::Time;
use mio::{Events, Poll};
use tempfile::TempDir;

use super::super::super::{Core, Frontend, TokenRange};
use super::super::{LONGEST_READ_BYTES, Listen, Nbd, NbdOptions};
use super::ram::Ram;
use super::talk::{hello, request};
use crate::upgrade::Parcel;
use flashfront_nbd_proto::wire::command;

pub(super) struct Turns {
    pub(super) nbd: Nbd,
    poll: Poll,
    ram: Ram,
    now: Time,
    pub(super) path: PathBuf,
    _dir: TempDir,
}

impl Turns {
    fn new(ram: Ram) -> Self {
        Self::with(ram, NbdOptions::default())
    }

    pub(super) fn with(ram: Ram, options: NbdOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let mut nbd = Nbd::bind(&Listen::Unix(path.clone()), options).unwrap();
        let poll = Poll::new().unwrap();
        let count = nbd.tokens_max();
        nbd.register(poll.registry(), TokenRange { first: 0, count }).unwrap();
        Self { nbd, poll, ram, now: Time(0), path, _dir: dir }
    }

    /// Holds all clients, as far as they come by themselves.
    pub(super) fn hold(&mut self, forced: bool) {
        self.nbd.hold(forced, &mut self.ram);
        self.settle();
    }

    /// Gives everything to another front-end, as to another program.
    pub(super) fn hand_over(mut self) -> Self {
        let mut parcel = Parcel::default();
        self.nbd.hand_over(&mut parcel, &mut self.ram).unwrap();
        let (at, options) = (Listen::Unix(self.path.clone()), self.nbd.options.clone());
        let mut nbd = Nbd::take_over(&at, options, 0, self.ram.exports(), &parcel).unwrap();
        let poll = Poll::new().unwrap();
        let count = nbd.tokens_max();
        nbd.register(poll.registry(), TokenRange { first: 0, count }).unwrap();
        // What the one before does now, clients never see.
        self.nbd.stop(self.poll.registry(), &mut self.ram);
        self.settle();
        Self { nbd, poll, ..self }
    }

    /// Turns until nothing moves any more. Requests stay in the queue.
    pub(super) fn settle(&mut self) {
        while self.turn() {}
    }

    /// Takes a turn; says whether anything moved.
    pub(super) fn turn(&mut self) -> bool {
        let mut events = Events::with_capacity(64);
        self.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        for event in &events {
            self.nbd.ready(event, self.poll.registry(), &mut self.ram);
        }
        let more = self.nbd.turn_end(self.now, self.poll.registry(), &mut self.ram);
        more || !events.is_empty()
    }

    /// Carries out the first `count` requests of the queue.
    pub(super) fn execute(&mut self, count: usize) {
        for request in self.ram.queue.drain(..count).collect::<Vec<_>>() {
            if self.ram.refuses(&request) {
                self.nbd.refused(request.id, &mut self.ram);
                continue;
            }
            let (id, result) = self.ram.execute(&request);
            self.nbd.reply(id, result, &mut self.ram);
        }
    }

    /// A client after its handshake that has said `bytes`.
    fn client(&mut self, bytes: &[u8]) -> UnixStream {
        let mut socket = UnixStream::connect(&self.path).unwrap();
        socket.write_all(&hello(false)).unwrap();
        socket.write_all(bytes).unwrap();
        socket.set_nonblocking(true).unwrap();
        self.settle();
        socket
    }
}

#[test]
fn a_long_read_is_not_overtaken_when_buffers_are_short() {
    let mut ram = Ram::new(64 << 20, 512);
    ram.buffers.budget_bytes = LONGEST_READ_BYTES;
    let mut turns = Turns::new(ram);
    // The first takes 32 of 40 MiB, so the second must wait, and the third behind it, though what
    // it needs is there.
    let mut first = turns.client(&request(command::READ, 0, 1, 0, 32 << 20));
    let _second = turns.client(&request(command::READ, 0, 2, 0, 32 << 20));
    let _third = turns.client(&request(command::READ, 0, 3, 0, 4096));
    assert_eq!(turns.ram.queue.len(), 32);
    // Called again it finds some of its buffers, and gives them back without calling itself once
    // more.
    turns.ram.freed = false;
    turns.nbd.room(&mut turns.ram);
    assert!(!turns.ram.freed && turns.ram.queue.len() == 32);
    turns.execute(32);
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..10_000 {
        turns.settle();
        while first.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    }
    let sectors = turns.ram.queue.iter().map(|it| it.sectors);
    let sectors = sectors.collect::<Vec<_>>();
    assert_eq!(sectors, [vec![2048; 32], vec![8]].concat());
}

#[test]
fn the_end_is_seen_with_the_last_bytes() {
    let mut turns = Turns::new(Ram::new(1 << 20, 512));
    let mut socket = UnixStream::connect(&turns.path).unwrap();
    // Both are there before the server looks, and come as one event.
    socket.write_all(&hello(false)[..7]).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    turns.settle();
    assert_eq!(turns.nbd.connections(), 0);
}

#[test]
fn a_wait_for_timeouts_is_asked_for() {
    let mut turns = Turns::new(Ram::new(1 << 20, 512));
    turns.settle();
    assert_eq!(turns.nbd.next_timer(), None);
    let _slow = UnixStream::connect(&turns.path).unwrap();
    turns.settle();
    assert_eq!(turns.nbd.next_timer(), Some(Time(30_000_000_000)));
}

/// Writes that the engine keeps, as the origin takes nothing and the dirty limit is reached; and
/// one more, which finds no buffer.
#[test]
fn a_write_waits_for_a_buffer_as_long_as_it_takes() {
    let mut ram = Ram::new(8 << 20, 512);
    ram.buffers.budget_bytes = 256 << 10;
    let mut turns = Turns::new(ram);
    let write = |cookie| [request(command::WRITE, 0, cookie, 0, 65536), vec![1; 65536]].concat();
    let mut client = turns.client(&[]);
    for cookie in 0..5 {
        client.write_all(&write(cookie)).unwrap();
        turns.settle();
    }
    assert_eq!((turns.ram.queue.len(), turns.nbd.waiting.len()), (4, 1));
    for seconds in [1, 40, 80] {
        turns.now = Time(seconds * 1_000_000_000);
        turns.settle();
    }
    turns.execute(4);
    turns.settle();
    assert_eq!((turns.ram.queue.len(), turns.nbd.waiting.len()), (1, 0));
    turns.execute(1);
    turns.settle();
    let mut replies = [0; 1000];
    while client.read(&mut replies).is_ok_and(|bytes| bytes > 0) {}
    client.write_all(&request(command::FLUSH, 0, 5, 0, 0)).unwrap();
    turns.settle();
    assert_eq!(turns.ram.queue.len(), 1, "it was hung up on");
}

/// 200 clients that stop within a long write, 20 of them with as much as the kernel takes.
#[test]
fn paused_writers_hold_no_buffers_that_others_need() {
    let mut ram = Ram::new(8 << 20, 512);
    (ram.buffers.budget_bytes, ram.buffers.passing_budget_bytes) = (4 << 20, 256 << 10);
    let options = NbdOptions { connections_max: 201, ..NbdOptions::default() };
    let mut turns = Turns::with(ram, options);
    let mut paused = Vec::new();
    for nth in 0..200 {
        let mut client = turns.client(&request(command::WRITE, 0, nth, 0, 1 << 20));
        _ = client.write(&vec![7; if nth % 10 == 0 { 900 << 10 } else { nth as usize * 50 }]);
        turns.settle();
        paused.push(client);
    }
    // All complete payload is at the engine, which ends by itself.
    while !turns.ram.queue.is_empty() {
        turns.execute(turns.ram.queue.len());
        turns.settle();
    }
    assert_eq!(turns.ram.buffers.passing_bytes, 0);
    let _good = turns.client(&[request(command::WRITE, 0, 1, 0, 65536), vec![1; 65536]].concat());
    assert_eq!(turns.ram.queue.len(), 1, "a write found no buffer");
    turns.execute(1);
    drop(paused);
    turns.settle();
    assert_eq!(turns.ram.buffers.held_bytes, 0);
}

/// Misses of all that waits; then hits, of the same client and of others.
#[test]
fn hits_pass_by_reads_that_wait_for_an_origin() {
    let mut ram = Ram::new(64 << 20, 512);
    (ram.buffers.budget_bytes, ram.buffers.passing_budget_bytes) = (4 << 20, 1 << 20);
    ram.slow = Some(0..(32 << 20) / 512);
    let mut turns = Turns::new(ram);
    let misses = |client: u64| {
        let read = move |nth| request(command::READ, 0, nth, (client * 100 + nth) << 16, 64 << 10);
        (0..100).flat_map(read).collect::<Vec<u8>>()
    };
    let mut clients: Vec<_> = (0..3).map(|client| turns.client(&misses(client))).collect();
    // 64 of them have what may wait; each of the others was refused, and waits without a buffer.
    for _ in 0..1000 {
        let queue = std::mem::take(&mut turns.ram.queue);
        let (refused, kept): (Vec<_>, Vec<_>) = queue.into_iter().partition(|it| turns.ram.refuses(it));
        turns.ram.queue = kept;
        refused.iter().for_each(|it| turns.nbd.refused(it.id, &mut turns.ram));
        turns.settle();
    }
    assert_eq!((turns.ram.queue.len(), turns.ram.buffers.passing_bytes), (64, 0));
    for client in &mut clients {
        client.write_all(&request(command::READ, 0, 1000, 40 << 20, 4096)).unwrap();
        turns.settle();
        assert_eq!(turns.ram.queue.len(), 65, "a hit waits");
        let hit = turns.ram.queue.pop().unwrap();
        let (id, result) = turns.ram.execute(&hit);
        turns.nbd.reply(id, result, &mut turns.ram);
        turns.settle();
        let mut reply = vec![0; 1 << 20];
        let bytes = client.read(&mut reply).unwrap();
        assert_eq!(reply[bytes - 4096 - 8..][..8], 1000u64.to_be_bytes(), "the reply is that of the hit");
    }
    // One waiting client leaves; the others get their answers when the origin answers.
    clients.remove(1);
    let mut answered = 0;
    while !turns.ram.queue.is_empty() {
        turns.execute(1);
        turns.settle();
        for client in &mut clients {
            while client.read(&mut vec![0; 1 << 20]).is_ok_and(|bytes| bytes > 0) {}
        }
        turns.settle();
        answered += 1;
    }
    assert!(answered >= 200, "{answered}");
    assert_eq!(turns.ram.buffers.held_bytes + turns.ram.buffers.passing_bytes, 0);
}

/// Lets two front-ends turn over the same buffers until nothing moves.
fn settle_both(one: &mut Turns, other: &mut Turns) {
    loop {
        let mut moved = one.turn();
        std::mem::swap(&mut one.ram, &mut other.ram);
        moved |= other.turn();
        std::mem::swap(&mut one.ram, &mut other.ram);
        if !moved {
            return;
        }
    }
}

#[test]
fn what_is_not_read_makes_way_for_clients_of_another_socket() {
    let mut ram = Ram::new(64 << 20, 512);
    ram.buffers.budget_bytes = LONGEST_READ_BYTES;
    let (mut one, mut other) = (Turns::new(ram), Turns::new(Ram::new(1 << 20, 512)));
    let _sitter = one.client(&request(command::READ, 0, 1, 0, 32 << 20));
    one.execute(32);
    one.settle();
    std::mem::swap(&mut one.ram, &mut other.ram);
    let _good = other.client(&request(command::READ, 0, 1, 0, 16 << 20));
    std::mem::swap(&mut one.ram, &mut other.ram);
    assert!(one.ram.queue.is_empty(), "there are no buffers for it");
    for milliseconds in [1, 5, 12] {
        (one.now, other.now) = (Time(milliseconds * 1_000_000), Time(milliseconds * 1_000_000));
        settle_both(&mut one, &mut other);
    }
    assert_eq!(one.ram.queue.len(), 16, "what nobody reads is kept");
    assert_eq!(one.nbd.connections(), 1, "who doesn't read was hung up on");
}

#[test]
fn stopping_ends_at_once_when_nothing_is_in_flight() {
    let mut turns = Turns::new(Ram::new(1 << 20, 512));
    let mut client = turns.client(&[]);
    turns.nbd.stop(turns.poll.registry(), &mut turns.ram);
    turns.settle();
    assert!(turns.nbd.idle());
    assert!(!turns.path.exists());
    client.set_nonblocking(false).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn what_the_end_of_a_turn_submits_is_told() {
    let mut turns = Turns::new(Ram::new(1 << 20, 512));
    // One request more than a connection may have.
    let bytes = (0..129).flat_map(|cookie| request(command::FLUSH, 0, cookie, 0, 0));
    let _client = turns.client(&bytes.collect::<Vec<_>>());
    assert_eq!(turns.ram.queue.len(), 128);
    turns.execute(128);
    let told = turns.nbd.turn_end(Time(0), turns.poll.registry(), &mut turns.ram);
    assert_eq!((turns.ram.queue.len(), told), (1, true));
}

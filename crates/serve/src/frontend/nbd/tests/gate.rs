// SPDX-License-Identifier: MIT OR Apache-2.0
//! An address has several front-ends.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use flashfront_engine::Time;
use mio::{Events, Poll};

use super::super::super::{Frontend, TokenRange};
use super::super::{Gate, Listen, Nbd, NbdOptions};
use super::ram::Ram;

/// A gate and its front-ends in one poller, served by one thread.
struct House {
    poll: Poll,
    gate: Gate,
    all: Vec<Nbd>,
    ram: Ram,
}

impl House {
    /// Turns until each front-end serves this many clients.
    fn turn_until(&mut self, clients: &[usize]) {
        let mut events = Events::with_capacity(16);
        while self.all.iter().map(Nbd::connections).ne(clients.iter().copied()) {
            self.poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
            for event in &events {
                let registry = self.poll.registry();
                match event.token().0 / 100 {
                    0 => self.gate.ready(event, registry, &mut self.ram),
                    nth => self.all[nth - 1].ready(event, registry, &mut self.ram),
                }
            }
            self.gate.turn_end(Time(0), self.poll.registry(), &mut self.ram);
            for nbd in &mut self.all {
                nbd.turn_end(Time(0), self.poll.registry(), &mut self.ram);
            }
        }
    }
}

#[test]
fn clients_are_spread() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let poll = Poll::new().unwrap();
    let options = NbdOptions { connections_max: 7, ..NbdOptions::default() };
    let (mut gate, mut all) = Gate::bind(&Listen::Unix(path.clone()), options, 3).unwrap();
    gate.register(poll.registry(), TokenRange { first: 0, count: 1 }).unwrap();
    for (nth, nbd) in all.iter_mut().enumerate() {
        let count = nbd.tokens_max();
        nbd.register(poll.registry(), TokenRange { first: (nth + 1) * 100, count }).unwrap();
    }
    let mut house = House { poll, gate, all, ram: Ram::new(1 << 20, 512) };
    let connect = || UnixStream::connect(&path).unwrap();
    let mut clients: Vec<_> = (0..6).map(|_| connect()).collect();
    house.turn_until(&[2, 2, 2]);
    // Two clients of the first front-end go; the next client comes to it.
    clients.remove(3);
    clients.remove(0);
    house.turn_until(&[0, 2, 2]);
    clients.push(connect());
    house.turn_until(&[1, 2, 2]);
    clients.extend((0..2).map(|_| connect()));
    house.turn_until(&[3, 2, 2]);
}

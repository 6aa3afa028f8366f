// SPDX-License-Identifier: MIT OR Apache-2.0
//! An address has several front-ends.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use flashfront_engine::Time;
use mio::{Events, Poll};

use super::super::super::{Core, Frontend, TokenRange};
use super::super::{Gate, Listen, Nbd, NbdOptions};
use super::ram::Ram;
use crate::upgrade::Parcel;

/// A gate and its front-ends in one poller, served by one thread.
struct House {
    poll: Poll,
    gate: Gate,
    all: Vec<Nbd>,
    ram: Ram,
}

fn options() -> NbdOptions {
    NbdOptions { connections_max: 7, ..NbdOptions::default() }
}

fn connect(path: &Path) -> UnixStream {
    UnixStream::connect(path).unwrap()
}

impl House {
    fn new((mut gate, mut all): (Gate, Vec<Nbd>), ram: Ram) -> Self {
        let poll = Poll::new().unwrap();
        gate.register(poll.registry(), TokenRange { first: 0, count: 1 }).unwrap();
        for (nth, nbd) in all.iter_mut().enumerate() {
            let count = nbd.tokens_max();
            nbd.register(poll.registry(), TokenRange { first: (nth + 1) * 100, count }).unwrap();
        }
        Self { poll, gate, all, ram }
    }

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
    let made = Gate::bind(&Listen::Unix(path.clone()), options(), 3).unwrap();
    let mut house = House::new(made, Ram::new(1 << 20, 512));
    let connect = || connect(&path);
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

/// Clients are greeted once, also those that one program has accepted and not greeted.
#[test]
fn the_next_program_deals_all_clients_out_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listen = Listen::Unix(path.clone());
    let mut house = House::new(Gate::bind(&listen, options(), 3).unwrap(), Ram::new(1 << 20, 512));
    let mut clients: Vec<_> = (0..4).map(|_| connect(&path)).collect();
    house.turn_until(&[2, 1, 1]);
    clients.extend((0..2).map(|_| connect(&path)));
    let mut events = Events::with_capacity(16);
    house.poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
    let event = events.iter().find(|event| event.token().0 == 0).unwrap();
    house.gate.ready(event, house.poll.registry(), &mut house.ram);
    assert!(house.all.iter().map(Nbd::connections).eq([2, 1, 1]), "nobody has looked for the two others");
    // This one waits in the kernel.
    house.gate.hold(false, &mut house.ram);
    clients.push(connect(&path));
    house.all.iter_mut().for_each(|nbd| nbd.hold(false, &mut house.ram));
    assert!(house.gate.held() && house.all.iter().all(Nbd::held));
    let mut parcel = Parcel::default();
    house.gate.hand_over(&mut parcel, &mut house.ram).unwrap();
    house.all.iter_mut().for_each(|nbd| nbd.hand_over(&mut parcel, &mut house.ram).unwrap());
    assert_eq!(parcel.state.clients, 6);
    house.gate.leave();
    drop(house);

    let ram = Ram::new(1 << 20, 512);
    let made = Gate::take_over(&listen, options(), 0, 2, ram.exports(), &parcel).unwrap();
    drop(parcel);
    let mut house = House::new(made, ram);
    house.turn_until(&[4, 3]);
    for client in &mut clients {
        client.set_nonblocking(true).unwrap();
        let mut greeting = [0; 18];
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(client.read(&mut greeting).unwrap_err().kind(), ErrorKind::WouldBlock, "it is greeted once");
    }
    // All seven have the places of the address.
    let mut late = connect(&path);
    house.poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
    let event = events.iter().find(|event| event.token().0 == 0).unwrap();
    house.gate.ready(event, house.poll.registry(), &mut house.ram);
    assert_eq!(late.read(&mut [0]).unwrap(), 0, "there is no place for an eighth");
}

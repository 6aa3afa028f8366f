// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client that waits for buffers gets them before those that came later, whatever is asked for.

use flashfront_engine::{Request, SECTOR_BYTES};
use rustix::event::{EventfdFlags, eventfd};
use vhost::vhost_user::VhostUserBackendReqHandlerMut;
use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags};

use super::super::super::piece::PieceId;
use super::super::session::Session;
use super::super::unflushed::Unflushed;
use super::super::work::Work;
use super::alone::{Slow, export};
use super::driver::{DATA, ENTRIES, MEMORY_BYTES, Machine, QUEUES, READ, USER, Wire, usual};

const MIB: u32 = 1 << 20;

/// A client, and what the listener does with it.
struct Client {
    machine: Machine,
    session: Session,
    work: Work,
    core: Slow,
}

impl Client {
    fn new() -> Self {
        let (machine, mut session) = (Machine::new(), Session::new(export(1 << 40), Unflushed::new(1, false)).unwrap());
        session.set_features(usual() | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()).unwrap();
        let region = VhostUserMemoryRegion::new(0, MEMORY_BYTES, USER, 0);
        session.set_mem_table(&[region], vec![machine.file.try_clone().unwrap()], None).unwrap();
        for queue in 0..QUEUES as u32 {
            let at = Wire::addresses(queue as usize);
            let flags = VhostUserVringAddrFlags::empty();
            session.set_vring_num(queue, ENTRIES.into()).unwrap();
            session.set_vring_addr(queue, flags, at.desc_table_addr, at.used_ring_addr, at.avail_ring_addr, 0).unwrap();
            let kick = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            session.set_vring_kick(queue as u8, Some(kick.into())).unwrap();
            session.set_vring_enable(queue, true).unwrap();
        }
        Self { machine, session, work: Work::new(0), core: Slow::new(export(1 << 40)) }
    }

    /// A turn of the pump in which the guest has kicked. The engine answers the last request of
    /// this many bytes.
    fn turn(&mut self, answer: Option<u32>) {
        if let Some(bytes) = answer {
            let same = |request: &Request| request.sectors * SECTOR_BYTES == u64::from(bytes);
            let at = self.core.queue.iter().rposition(same).unwrap();
            let request = self.core.queue.remove(at).unwrap();
            let mut answers = vec![(PieceId::decode(request.id), Ok(()))];
            self.work.answer(&mut answers, Some(&mut self.session), &mut self.core).unwrap();
        }
        for ring in &mut self.session.rings {
            ring.kicked = true;
        }
        self.work.pull(&mut self.session, &mut self.core, true, false).unwrap();
        if self.work.wants_room() {
            self.work.resume(&mut self.session, &mut self.core).unwrap();
        }
    }
}

#[test]
fn a_ring_that_is_always_full_keeps_no_other_waiting() {
    let mut client = Client::new();
    for head in 0..40 {
        client.machine.ask(0, head, READ, 0, DATA, 4096);
    }
    let other = 8;
    client.machine.ask(1, 0, READ, other, DATA, 4096);
    client.turn(None);
    assert!(client.core.queue.len() < 41, "not so many that all would have been taken");
    assert!(client.core.queue.iter().any(|request| request.lba.0 == other), "the other ring had its turn");
}

#[test]
fn a_long_request_is_not_overtaken_for_ever_by_shorter_ones() {
    let mut client = Client::new();
    // All buffers that one client may hold, but for half a MiB.
    for head in 0..63 {
        client.machine.ask(0, head, READ, 0, DATA, MIB);
    }
    client.machine.ask(1, 0, READ, 0, DATA, MIB / 2);
    (0..4).for_each(|_| client.turn(None));
    assert_eq!(client.core.queue.len(), 64);
    // It is all long; so it must wait, and meanwhile the guest always has one more that is short.
    let long = 1 << 20;
    client.machine.ask(1, 1, READ, long, DATA, MIB);
    client.turn(None);
    let mut shorts = 0;
    let at_engine = |client: &Client| client.core.queue.iter().any(|request| request.lba.0 == long);
    while !at_engine(&client) {
        shorts += 1;
        assert!(shorts < 50, "overtaken {shorts} times, and no end");
        client.machine.ask(1, 1 + shorts, READ, 0, DATA, MIB / 2);
        client.turn(Some(MIB / 2));
    }
    // All are answered in the end.
    while let Some(request) = client.core.queue.back() {
        client.turn(Some((request.sectors * SECTOR_BYTES) as u32));
    }
    assert_eq!((client.work.in_flight(), client.work.stalled()), (0, 0));
    assert_eq!(client.core.arena.allocated_bytes(), 0);
    let answered = client.machine.collect(0).len() + client.machine.collect(1).len();
    assert_eq!(answered, 65 + usize::from(shorts));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that an origin that hangs, and clients that stand still, harm nothing that does not need
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flashfront_engine::BLOCK_BYTES;

use crate::config::{Config, Size};
use crate::daemon::Hooks;
use crate::frontend::nbd::{Ask, Client, Request, connect};
use crate::rig::{Bench, ORIGIN_BYTES, Served, hanging};
use flashfront_nbd_proto::wire::{Replies, RequestHeader, command};

const MIB: u64 = 1 << 20;

/// A daemon whose origin hangs; the first MiB is in the cache and clean.
struct Beside {
    served: Served,
    config: Config,
    hangs: Arc<AtomicBool>,
    others: Vec<Client>,
}

impl Beside {
    fn new(bench: &Bench, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = bench.config();
        config.policy.sequential_bypass = Size(0);
        change(&mut config);
        let hangs = Arc::new(AtomicBool::new(false));
        let hooks = Hooks { wrap_origin: Some(hanging(&hangs)), ..Hooks::default() };
        let mut served = bench.serve_with(config.clone(), hooks);
        served.write(0, MIB / BLOCK_BYTES);
        served.drain();
        served.control.call(&crate::control::Command::Drain { start: false }).unwrap();
        // The origin's flush, which a first FLUSH waits for, is over as well.
        served.nbd.flush().unwrap();
        hangs.store(true, Ordering::SeqCst);
        Self { served, config, hangs, others: Vec::new() }
    }

    fn connect(&self) -> Client {
        connect(self.config.listeners[0].nbd().unwrap(), "", true).unwrap()
    }

    /// A further client reads blocks that are not in the cache.
    fn miss(&mut self, reads: u64, bytes: u32) {
        let mut client = self.connect();
        let places = (ORIGIN_BYTES - 8 * MIB) / u64::from(bytes);
        for nth in 0..reads {
            let offset = 8 * MIB + nth % places * u64::from(bytes);
            client.submit(Request::new(nth, Ask::READ, offset, bytes.into()), &[]).unwrap();
        }
        client.send().unwrap();
        self.others.push(client);
    }

    /// Does everything that does not need the origin.
    fn assert_unharmed(&mut self) {
        self.assert_readable();
        let mut client = self.connect();
        for round in 0..40 {
            client.write_at((round + 100) * BLOCK_BYTES, &[(round + 100) as u8 ^ 0x5a; 4096], round % 8 == 0).unwrap();
        }
        client.write_at(2 * MIB, &vec![1; MIB as usize], false).unwrap();
        // A part of a block that is in the cache.
        client.write_at(512, &[0x5a; 512], true).unwrap();
        client.disconnect().unwrap();
    }

    /// Hits, FLUSHes and status are answered.
    fn assert_readable(&mut self) {
        let mut client = self.connect();
        let mut block = [0; BLOCK_BYTES as usize];
        for round in 0..40 {
            client.read_at(round * BLOCK_BYTES, &mut block).unwrap();
            assert!(block.iter().all(|byte| *byte == round as u8 ^ 0x5a));
        }
        client.read_at(0, &mut vec![0; MIB as usize]).unwrap();
        client.flush().unwrap();
        assert!(self.served.status().blocks_cached > 0);
        client.disconnect().unwrap();
    }

    /// The origin answers again: every client that waits gets its answer.
    fn come_back(mut self, reads: u64) {
        self.hangs.store(false, Ordering::SeqCst);
        let mut data = Vec::new();
        for mut client in self.others.drain(..) {
            (0..reads).for_each(|_| assert_eq!(client.recv(&mut data).unwrap().result, Ok(())));
        }
        self.served.assert_holds(0, MIB / BLOCK_BYTES);
        self.served.stop();
    }
}

#[test]
fn all_that_needs_no_origin_goes_on_beside_one_that_hangs() {
    for (threads, clients, reads, bytes) in [(1, 6, 40, 1 << 20), (1, 30, 128, 4096), (2, 6, 40, 1 << 20)] {
        let bench = Bench::formatted();
        let mut beside = Beside::new(&bench, |config| config.threads = threads);
        (0..clients).for_each(|_| beside.miss(reads, bytes));
        beside.assert_unharmed();
        beside.come_back(reads);
    }
}

/// Requests of clients that are gone wait on, and are in no other client's way.
#[test]
fn clients_that_left_their_misses_behind_are_in_nobodys_way() {
    let bench = Bench::formatted();
    let mut beside = Beside::new(&bench, |_| {});
    for _ in 0..20 {
        beside.miss(40, 1 << 20);
        beside.others.clear();
    }
    beside.assert_unharmed();
    beside.miss(10, 1 << 20);
    beside.come_back(10);
}

/// Parts of blocks that are not in the cache.
#[test]
fn writes_that_need_the_origin_are_in_nobodys_way() {
    let bench = Bench::formatted();
    let mut beside = Beside::new(&bench, |_| {});
    for client in 0..30 {
        let mut writer = beside.connect();
        for nth in 0..35 {
            let at = 8 * MIB + (client * 35 + nth) * 4 * BLOCK_BYTES + 512;
            writer.submit(Request::new(nth, Ask::Write, at, 512), &[7; 512]).unwrap();
        }
        writer.send().unwrap();
        beside.others.push(writer);
    }
    beside.assert_unharmed();
    beside.come_back(35);
}

/// Clients that read none of their answers, and others that don't send the rest of a write.
#[test]
fn clients_that_stand_still_are_in_nobodys_way() {
    let bench = Bench::formatted();
    let mut beside = Beside::new(&bench, |_| {});
    beside.hangs.store(false, Ordering::SeqCst);
    for nth in 0..12 {
        let mut client = beside.connect();
        for read in 0..40 {
            client.submit(Request::new(read, Ask::READ, 0, MIB), &[]).unwrap();
        }
        client.send().unwrap();
        beside.others.push(client);
        let mut client = beside.connect();
        let mut part = Vec::new();
        let header = RequestHeader { flags: 0, command: command::WRITE, cookie: 0, offset: 2 * MIB, len: MIB };
        header.encode(Replies::Structured, &mut part);
        part.resize(part.len() + nth * 80_000, 7);
        client.say(&part).unwrap();
        client.send().unwrap();
        beside.others.push(client);
    }
    beside.assert_unharmed();
    // A client that reads after all gets everything.
    let mut data = Vec::new();
    for client in beside.others.iter_mut().step_by(2) {
        for _ in 0..40 {
            assert_eq!(client.recv(&mut data).unwrap().result, Ok(()));
            assert!(data.chunks(4096).enumerate().skip(1).all(|(nth, block)| block == [nth as u8 ^ 0x5a; 4096]));
        }
    }
    beside.others.clear();
    beside.come_back(0);
}

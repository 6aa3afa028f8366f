// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what requests do, and of what a guest is told about its disk.

use super::super::super::nbd::Client;
use super::super::config_space::bit;
use super::super::request::Status;
use super::driver::{DATA, DISCARD, FLUSH, GET_ID, Machine, READ, STORE, Wire, ZERO, usual};
use crate::config::{Config, Listener};
use crate::daemon::{Ended, Hooks};
use crate::rig::{Bench, ORIGIN_BYTES, Served};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;
use virtio_bindings::bindings::virtio_blk::{VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_FLUSH};

pub(super) const DONE: u8 = Status::Done as u8;
pub(super) const FAILED: u8 = Status::Failed as u8;
pub(super) const UNSUPPORTED: u8 = Status::Unsupported as u8;

pub(super) fn config(bench: &Bench) -> Config {
    let mut config = bench.config();
    config.listeners.push(Listener::VhostUserBlk { path: bench.path("guest"), volume: None });
    config
}

pub(super) fn serve(bench: &Bench) -> Served {
    bench.serve_with(config(bench), Hooks::default())
}

fn content(nbd: &mut Client, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xdd; len];
    nbd.read_at(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_a_guest_writes_is_there_for_all_and_comes_back() {
    let bench = Bench::formatted();
    let mut served = serve(&bench);
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    // Sizes on both sides of blocks and of pieces, offsets that aren't blocks, payload in odd
    // parts.
    let cases: [(u64, &[(u64, u32)]); 5] = [
        (8, &[(DATA, 4096)]),
        (3, &[(DATA, 512)]),
        (2049, &[(DATA, 1024), (DATA + 8192, 512), (DATA + 4096, 3584)]),
        (16, &[(DATA + 7, 100), (DATA + 1000, 412)]),
        (4097, &[(DATA, 2 << 20), (DATA + (4 << 20), 1 << 20), (DATA + (8 << 20), 512)]),
    ];
    for (at, (sector, parts)) in cases.into_iter().enumerate() {
        let mut expected = Vec::new();
        for (nth, &(part, len)) in parts.iter().enumerate() {
            machine.fill(part, len, (at * 16 + nth + 1) as u8);
            expected.extend(machine.content(part, len));
        }
        machine.ask_in_parts(at % 2, 1, STORE, sector, parts);
        assert_eq!(machine.run(&wire, at % 2, 1), DONE);
        assert!(content(&mut served.nbd, sector * 512, expected.len()) == expected, "case {at}");
        for &(part, len) in parts {
            machine.fill(part, len, 0);
        }
        machine.ask_in_parts(at % 2, 2, READ, sector, parts);
        wire.kick(at % 2);
        assert_eq!(wire.wait(&mut machine, at % 2, 1), [(2, expected.len() as u32 + 1)]);
        assert_eq!(machine.status(at % 2, 2), DONE);
        let found: Vec<u8> = parts.iter().flat_map(|&(part, len)| machine.content(part, len)).collect();
        assert!(found == expected, "case {at}");
    }
    drop(wire);
    served.stop();
}

#[test]
fn flush_discard_zeroes_and_name() {
    let bench = Bench::formatted();
    let mut served = serve(&bench);
    served.nbd.write_at(0, &[7; 65536], false).unwrap();
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    machine.ask(0, 0, FLUSH, 0, 0, 0);
    assert_eq!(machine.run(&wire, 0, 0), DONE);
    // Two ranges at once: sector, sectors, flags.
    let range = |machine: &Machine, nth: u64, sector: u64, sectors: u32, flags: u32| {
        use vm_memory::{Bytes, GuestAddress};
        machine.memory.write_obj(sector, GuestAddress(DATA + nth * 16)).unwrap();
        machine.memory.write_obj(sectors, GuestAddress(DATA + nth * 16 + 8)).unwrap();
        machine.memory.write_obj(flags, GuestAddress(DATA + nth * 16 + 12)).unwrap();
    };
    range(&machine, 0, 0, 8, 0);
    range(&machine, 1, 16, 9, 1);
    machine.ask(0, 1, ZERO, 0, DATA, 32);
    assert_eq!(machine.run(&wire, 0, 1), DONE);
    let bytes = content(&mut served.nbd, 0, 65536);
    let zero = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == 0);
    let kept = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == 7);
    assert!(zero(0..4096) && kept(4096..8192) && zero(8192..12800) && kept(12800..65536));
    range(&machine, 0, 64, 64, 0);
    machine.ask(0, 2, DISCARD, 0, DATA, 16);
    assert_eq!(machine.run(&wire, 0, 2), DONE);
    range(&machine, 0, 64, 64, 1);
    machine.ask(0, 3, DISCARD, 0, DATA, 16);
    assert_eq!(machine.run(&wire, 0, 3), UNSUPPORTED, "the flag is not for discards");
    for (nth, (sector, sectors)) in
        [(0, 0), (0, u32::MAX), (u64::MAX, 8), (ORIGIN_BYTES / 512, 8)].into_iter().enumerate()
    {
        range(&machine, 0, sector, sectors, 0);
        machine.ask(0, nth as u16, DISCARD, 0, DATA, 16);
        assert_eq!(machine.run(&wire, 0, nth as u16), FAILED, "{sector} {sectors}");
    }
    machine.ask(0, 4, DISCARD, 0, DATA, 15);
    assert_eq!(machine.run(&wire, 0, 4), FAILED);
    machine.ask(0, 5, GET_ID, 0, DATA, 20);
    assert_eq!(machine.run(&wire, 0, 5), DONE);
    assert_eq!(machine.content(DATA, 20), *b"data\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    machine.ask(0, 6, 99, 0, DATA, 512);
    assert_eq!(machine.run(&wire, 0, 6), UNSUPPORTED);
    drop(wire);
    served.stop();
}

#[test]
fn what_is_not_on_the_disk_is_an_error_and_nothing_else() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    let end = ORIGIN_BYTES / 512;
    let cases = [
        (end, DATA, 512),
        (end - 1, DATA, 1024),
        (u64::MAX, DATA, 512),
        (u64::MAX / 512, DATA, 512),
        (0, DATA, 511),
        (0, DATA, 0),
        (0, super::driver::MEMORY_BYTES - 512, 1024),
        (0, u64::MAX - 10, 512),
        (0, 1 << 40, 512),
    ];
    for (sector, at, len) in cases {
        for kind in [READ, STORE] {
            machine.ask(0, 1, kind, sector, at, len);
            assert_eq!(machine.run(&wire, 0, 1), FAILED, "{kind} {sector} {at:#x} {len}");
        }
    }
    machine.ask(0, 1, READ, end - 1, DATA, 512);
    assert_eq!(machine.run(&wire, 0, 1), DONE);
    drop(wire);
    served.stop();
}

#[test]
fn the_configuration_space_says_what_the_disk_is() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut wire = Wire::hello(&bench.path("guest"), usual());
    let space = wire.config(0, 60);
    let number = |at: usize, bytes: usize| {
        space[at..at + bytes].iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte))
    };
    assert_eq!(number(0, 8), ORIGIN_BYTES / 512);
    assert_eq!((number(20, 4), number(24, 1), number(26, 2)), (512, 3, 8), "512 bytes, in blocks of 4 KiB");
    assert_eq!(number(32, 1), 1, "a volatile write cache, as FLUSH was asked for");
    assert!(number(8, 4) * number(12, 4) <= 32 << 20, "the longest request that may come is one that is taken");
    assert!(number(36, 4) > 0 && number(48, 4) > 0 && number(56, 1) == 1);
    assert!(wire.frontend.get_queue_num().unwrap() >= 16);
    served.stop();
}

#[test]
fn a_guest_without_flush_loses_nothing_that_was_acknowledged() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual() & !bit(VIRTIO_BLK_F_FLUSH));
    machine.fill(DATA, 8192, 0x77);
    machine.ask(0, 1, STORE, 24, DATA, 8192);
    assert_eq!(machine.run(&wire, 0, 1), DONE);
    served.stop_at_once();
    let mut served = serve(&bench);
    assert!(content(&mut served.nbd, 24 * 512, 8192) == vec![0x77; 8192]);
    served.stop();
}

#[test]
fn a_guest_is_told_of_the_write_cache_by_flush_alone() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    // As QEMU does: the configuration comes before the features, and is not asked for again.
    let mut wire = Wire::dial(&bench.path("guest"));
    assert_eq!(wire.config(32, 1), [1]);
    let offered = wire.frontend.get_features().unwrap();
    assert!(offered & bit(VIRTIO_BLK_F_FLUSH) != 0);
    assert!(offered & bit(VIRTIO_BLK_F_CONFIG_WCE) == 0, "what a guest chose would be forgotten");
    wire.frontend.set_config(32, VhostUserConfigFlags::empty(), &[0]).unwrap_err();
    assert!(wire.is_hung_up_on());
    let wire = Wire::dial(&bench.path("guest"));
    wire.frontend.set_features(offered | bit(VIRTIO_BLK_F_CONFIG_WCE)).unwrap_err();
    served.stop();
}

#[test]
fn a_clean_stop_answers_what_is_in_flight_and_hangs_up() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    for head in 0..32 {
        machine.ask(1, head, READ, u64::from(head) * 64, DATA + u64::from(head) * 32768, 32768);
    }
    wire.kick(1);
    wire.wait(&mut machine, 1, 1);
    assert!(matches!(served.end(), Ended::Clean { .. }));
    assert!(wire.is_hung_up_on());
    // All or none of each: what is not answered is in the ring still, for the next daemon.
    let served = serve(&bench);
    let wire = machine.connect(&bench.path("guest"), usual());
    machine.ask(1, 40, READ, 0, DATA, 512);
    wire.kick(1);
    while machine.status(1, 40) != DONE {
        wire.wait(&mut machine, 1, 1);
    }
    assert!((0..32).all(|head| machine.status(1, head) == DONE));
    // A queue is stopped and goes on where it was.
    let base = wire.frontend.get_vring_base(1).unwrap();
    assert_eq!(base, 33);
    drop(wire);
    served.stop();
}

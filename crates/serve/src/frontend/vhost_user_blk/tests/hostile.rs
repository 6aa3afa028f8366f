// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that do what they must not: hung up on, or told; the daemon serves the others.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, GuestAddress};

use super::driver::{DATA, ENTRIES, INDIRECT, Machine, NEXT, READ, STORE, USER, WRITE, Wire, usual};
use super::requests::{DONE, serve};
use crate::rig::Bench;

/// Another client must be served as if nothing had been.
pub(super) fn assert_serves(bench: &Bench) {
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    machine.fill(DATA, 4096, 0x42);
    machine.ask(0, 3, STORE, 80, DATA, 4096);
    assert_eq!(machine.run(&wire, 0, 3), DONE);
    machine.ask(1, 3, READ, 80, DATA + 4096, 4096);
    assert_eq!(machine.run(&wire, 1, 3), DONE);
    assert!(machine.content(DATA + 4096, 4096).iter().all(|byte| *byte == 0x42));
}

#[test]
fn hostile_half_messages_stop_nobody() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    // GET_FEATURES is 1, version 1; then the beginnings of messages.
    let whole = [1u32.to_le_bytes(), 1u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
    let long = [2u32.to_le_bytes(), 1u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
    let mut open = Vec::new();
    for bytes in [&whole[..1], &whole[..11], &long, &[&long[..], &[0; 7]].concat()] {
        let mut stream = UnixStream::connect(bench.path("guest")).unwrap();
        stream.write_all(bytes).unwrap();
        open.push(stream);
    }
    assert_serves(&bench);
    // Clients that leave in the middle give up their places: there are but eight.
    drop(open);
    for _ in 0..32 {
        let mut stream = UnixStream::connect(bench.path("guest")).unwrap();
        stream.write_all(&long).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(super::driver::becomes(&stream, rustix::event::PollFlags::HUP));
    }
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_clients_that_never_read_stop_nobody() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut stream = UnixStream::connect(bench.path("guest")).unwrap();
    stream.set_nonblocking(true).unwrap();
    let ask = [1u32.to_le_bytes(), 1u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
    // Until the socket is full both ways.
    let mut refused = 0;
    while refused < 1000 {
        refused = if stream.write(&ask).is_ok() { 0 } else { refused + 1 };
    }
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_bytes_are_hung_up_on() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let message =
        |request: u32, flags: u32, size: u32| [request.to_le_bytes(), flags.to_le_bytes(), size.to_le_bytes()].concat();
    for bytes in [
        message(0, 1, 0),
        message(u32::MAX, u32::MAX, u32::MAX),
        message(1, 1, u32::MAX),
        message(1, 0, 0),
        message(2, 1, 0),
        [message(9, 1, 40), vec![0xff; 40]].concat(),
        [message(5, 1, 8), vec![1, 0, 0, 0, 0, 0, 0, 0]].concat(),
        [message(12, 1, 8), vec![0; 8]].concat(),
        [message(11, 1, 8), vec![0xff; 8]].concat(),
    ] {
        let mut stream = UnixStream::connect(bench.path("guest")).unwrap();
        stream.write_all(&bytes).unwrap();
        assert!(super::driver::becomes(&stream, rustix::event::PollFlags::HUP), "{bytes:?}");
    }
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_chains_are_hung_up_on() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    type Harm = fn(&mut Machine);
    let cases: [(&str, Harm); 8] = [
        ("a loop", |machine| {
            machine.descriptor(0, 0, DATA, 16, NEXT, 1);
            machine.descriptor(0, 1, DATA, 16, NEXT, 0);
        }),
        ("beyond the table", |machine| machine.descriptor(0, 0, DATA, 16, NEXT, ENTRIES)),
        ("an indirect table elsewhere", |machine| machine.descriptor(0, 0, 1 << 50, 64, INDIRECT, 0)),
        ("an indirect table of half a descriptor", |machine| machine.descriptor(0, 0, DATA, 24, INDIRECT, 0)),
        ("an indirect table in another", |machine| {
            machine.descriptor(0, 0, DATA, 16, INDIRECT, 0);
            machine.descriptor(DATA, 0, DATA, 16, INDIRECT, 0);
        }),
        ("no status", |machine| machine.descriptor(0, 0, DATA, 16, 0, 0)),
        ("a status elsewhere", |machine| {
            machine.descriptor(0, 0, DATA, 16, NEXT, 1);
            machine.descriptor(0, 1, u64::MAX, 1, WRITE, 0);
        }),
        ("an indirect table of thousands", |machine| {
            machine.descriptor(0, 0, DATA, 16 * 10_000, INDIRECT, 0);
            for index in 0..10_000 {
                machine.descriptor(DATA, index, DATA, 1, NEXT, index + 1);
            }
        }),
    ];
    for (what, harm) in cases {
        let mut machine = Machine::new();
        let wire = machine.connect(&bench.path("guest"), usual());
        harm(&mut machine);
        machine.offer(0, 0);
        wire.kick(0);
        assert!(wire.is_hung_up_on(), "{what}");
    }
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    machine.offer(0, ENTRIES);
    wire.kick(0);
    assert!(wire.is_hung_up_on(), "a head beyond the table");
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    for _ in 0..=ENTRIES {
        machine.offer(0, 0);
    }
    wire.kick(0);
    assert!(wire.is_hung_up_on(), "more requests than entries");
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_rings_are_refused() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let good = Wire::addresses(0);
    let off = USER + super::driver::MEMORY_BYTES;
    for bad in [
        VringConfigData { desc_table_addr: off, ..good },
        VringConfigData { desc_table_addr: off - 16, ..good },
        VringConfigData { used_ring_addr: off - 4, ..good },
        VringConfigData { avail_ring_addr: 0, ..good },
    ] {
        let machine = Machine::new();
        let wire = Wire::hello(&bench.path("guest"), usual());
        wire.frontend.set_mem_table(&[machine.region()]).unwrap();
        wire.frontend.set_vring_num(0, ENTRIES).unwrap();
        // Noticed at once, or when the ring is started.
        if wire.frontend.set_vring_addr(0, &bad).is_ok() {
            wire.frontend.set_vring_kick(0, wire.kick_fd(0)).unwrap_err();
        }
        assert!(wire.is_hung_up_on());
    }
    let wire = Wire::hello(&bench.path("guest"), usual());
    wire.frontend.set_vring_num(0, 65).unwrap_err();
    let wire = Wire::hello(&bench.path("guest"), usual());
    wire.frontend.set_features(1 << 63).unwrap_err();
    // Memory that is not in its file.
    let machine = Machine::new();
    let wire = Wire::hello(&bench.path("guest"), usual());
    let mut region = machine.region();
    region.memory_size *= 2;
    wire.frontend.set_mem_table(&[region]).unwrap_err();
    // Two regions of one place.
    let wire = Wire::hello(&bench.path("guest"), usual());
    wire.frontend.set_mem_table(&[machine.region(), machine.region()]).unwrap_err();
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_rings_that_run_can_not_be_moved_out_of_the_memory() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    // Its index is there, and says that there is a request; the place that names it isn't.
    let end = super::driver::MEMORY_BYTES;
    machine.memory.write_obj(1u16, GuestAddress(end - 2)).unwrap();
    let half = VringConfigData { avail_ring_addr: USER + end - 4, ..Wire::addresses(0) };
    wire.frontend.set_vring_addr(0, &half).unwrap_err();
    wire.kick(0);
    assert!(wire.is_hung_up_on());
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_memory_takes_not_all_addresses() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    // A file that is nothing but long costs its owner nothing. A little less than half of all that
    // there is: other tests share it.
    let (file, bytes) = (rustix::fs::memfd_create("long", rustix::fs::MemfdFlags::CLOEXEC).unwrap(), 30 << 40);
    rustix::fs::ftruncate(&file, bytes).unwrap();
    let regions: Vec<_> = (0..3)
        .map(|nth| VhostUserMemoryRegionInfo {
            guest_phys_addr: nth * bytes,
            memory_size: bytes,
            userspace_addr: nth * bytes,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        })
        .collect();
    for _ in 0..3 {
        let wire = Wire::hello(&bench.path("guest"), usual());
        wire.frontend.set_mem_table(&regions).unwrap_err();
        assert!(wire.is_hung_up_on());
        // All buffers are given back, though not at once (`closing`).
        let deadline = Instant::now() + Duration::from_secs(60);
        let _greedy = loop {
            let greedy = Wire::hello(&bench.path("guest"), usual());
            if greedy.frontend.set_mem_table(&regions[..1]).is_ok() {
                break greedy;
            }
            assert!(Instant::now() < deadline, "what was given back can't be had");
        };
        // It has nearly half of all: another one can't have as much, and a guest of usual size has
        // room.
        let wire = Wire::hello(&bench.path("guest"), usual());
        wire.frontend.set_mem_table(&regions[..1]).unwrap_err();
        let mut machine = Machine::new();
        let wire = machine.connect(&bench.path("guest"), usual());
        machine.ask(0, 1, READ, 0, DATA, 65536);
        assert_eq!(machine.run(&wire, 0, 1), DONE);
    }
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_memory_that_shrinks_is_no_crash() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    machine.ask(0, 1, READ, 0, DATA, 65536);
    assert_eq!(machine.run(&wire, 0, 1), DONE);
    machine.file.set_len(0).unwrap();
    wire.kick(0);
    assert!(wire.is_hung_up_on());
    // Only the data is gone; the rings are there.
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    machine.fill(DATA, 65536, 0x17);
    machine.ask(0, 0, STORE, 0, DATA, 65536);
    assert_eq!(machine.run(&wire, 0, 0), DONE);
    machine.ask(0, 1, STORE, 0, DATA, 65536);
    machine.file.set_len(DATA).unwrap();
    wire.kick(0);
    assert!(wire.is_hung_up_on());
    // The memory for requests in flight can't be made shorter at all.
    let (_, inflight) = machine.inflight.as_ref().unwrap();
    inflight.set_len(0).unwrap_err();
    // The payload is gone, and nothing else with it.
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    machine.ask(0, 1, READ, 0, DATA, 65536);
    assert_eq!(machine.run(&wire, 0, 1), DONE);
    assert!(machine.content(DATA, 65536).iter().all(|byte| *byte == 0x17), "nobody wrote zeroes");
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_clients_that_leave_with_everything_in_flight_leave_nothing_behind() {
    let bench = Bench::formatted();
    let mut served = serve(&bench);
    for _ in 0..20 {
        let mut machine = Machine::new();
        let wire = machine.connect(&bench.path("guest"), usual());
        for head in 0..ENTRIES {
            let kind = if head % 2 == 0 { READ } else { STORE };
            machine.ask(0, head, kind, u64::from(head) * 512, DATA, 256 << 10);
        }
        wire.kick(0);
    }
    assert_serves(&bench);
    // Only the NBD client is left, and no buffer of 256 KiB. (What is counted as less is how the
    // engine's are rounded.)
    while served.status().clients > 1 {
        std::thread::yield_now();
    }
    let bytes = served.status().request_buffer_bytes;
    assert!(bytes < 256 << 10, "{bytes}");
    served.stop();
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that clients send: eventfds and memory of all kinds serve, others are refused.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserInflight;
use vmm_sys_util::eventfd::EventFd;

use super::driver::{DATA, MEMORY_BYTES, Machine, READ, STORE, Wire, becomes, usual};
use super::hostile::assert_serves;
use super::requests::{DONE, serve};
use crate::rig::Bench;

/// Whatever it is.
pub(super) fn as_eventfd(file: impl Into<OwnedFd>) -> EventFd {
    #[expect(unsafe_code, reason = "the crate has no safe way")]
    // SAFETY: it is open, and not used elsewhere.
    unsafe {
        EventFd::from_raw_fd(file.into().into_raw_fd())
    }
}

fn assert_works(bench: &Bench, machine: &mut Machine, wire: &Wire) {
    machine.fill(DATA, 4096, 0x17);
    machine.ask(0, 0, STORE, 0, DATA, 4096);
    assert_eq!(machine.run(wire, 0, 0), DONE);
    machine.ask(0, 1, READ, 0, DATA + 4096, 4096);
    assert_eq!(machine.run(wire, 0, 1), DONE);
    assert!(machine.content(DATA + 4096, 4096).iter().all(|byte| *byte == 0x17), "{}", bench.dir.path().display());
}

#[test]
fn hostile_files_are_refused() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let disk = || {
        let file = tempfile::tempfile_in(bench.dir.path()).unwrap();
        file.set_len(MEMORY_BYTES).unwrap();
        file
    };
    type Use<'a> = &'a dyn Fn(&Wire, EventFd) -> bool;
    let uses: [(&str, Use<'_>); 3] = [
        ("call", &|wire, file| wire.frontend.set_vring_call(0, &file).is_err()),
        ("kick", &|wire, file| wire.frontend.set_vring_kick(0, &file).is_err()),
        ("error", &|wire, file| wire.frontend.set_vring_err(0, &file).is_err()),
    ];
    for (what, send) in uses {
        let (pipe, end) = std::io::pipe().unwrap();
        let memfd = rustix::fs::memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        for file in [OwnedFd::from(pipe), end.into(), disk().into(), memfd] {
            let mut machine = Machine::new();
            let wire = machine.connect(&bench.path("guest"), usual());
            assert!(send(&wire, as_eventfd(file)), "{what}");
            assert!(wire.is_hung_up_on(), "{what}");
        }
    }
    let wire = Wire::hello(&bench.path("guest"), usual());
    let region =
        |file: &File| vhost::VhostUserMemoryRegionInfo { mmap_handle: file.as_raw_fd(), ..Machine::new().region() };
    let event = File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    wire.frontend.set_mem_table(&[region(&event)]).unwrap_err();
    assert!(wire.is_hung_up_on());
    let file = disk();
    if rustix::fs::fcntl_get_seals(&file).is_ok() {
        eprintln!("SKIPPED: {} is on tmpfs, so there is no file that is no memory", bench.dir.path().display());
    } else {
        let wire = Wire::hello(&bench.path("guest"), usual());
        wire.frontend.set_mem_table(&[region(&file)]).unwrap_err();
        assert!(wire.is_hung_up_on());
        let mut machine = Machine::new();
        drop(machine.connect(&bench.path("guest"), usual()));
        let mut wire = Wire::hello(&bench.path("guest"), usual());
        wire.frontend.set_inflight_fd(&machine.inflight.unwrap().0, file.as_raw_fd()).unwrap_err();
        assert!(wire.is_hung_up_on());
    }
    assert_serves(&bench);
    served.stop();
}

#[test]
fn hostile_calls_that_are_full_stop_nobody() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let mut machine = Machine::new();
    let wire = machine.connect(&bench.path("guest"), usual());
    let call = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    wire.frontend.set_vring_call(0, &as_eventfd(call.try_clone().unwrap())).unwrap();
    // A write to the eventfd waits now: it is full, and no longer in non-blocking mode.
    let count = |call: &OwnedFd| {
        let mut bytes = [0; 8];
        assert!(becomes(call, rustix::event::PollFlags::IN));
        rustix::io::read(call, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    };
    // The daemon has told what was answered by the call before.
    count(&call);
    rustix::io::write(&call, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    fcntl_setfl(&call, OFlags::RDWR).unwrap();
    machine.ask(0, 1, READ, 0, DATA, 4096);
    wire.kick(0);
    while machine.collect(0).is_empty() {
        std::thread::yield_now();
    }
    assert_serves(&bench);
    // And it goes on when the client looks.
    count(&call);
    machine.ask(0, 2, READ, 0, DATA, 4096);
    wire.kick(0);
    assert!(becomes(&call, rustix::event::PollFlags::IN));
    assert_eq!((machine.status(0, 1), machine.status(0, 2)), (DONE, DONE));
    served.stop();
}

#[test]
fn calls_serve_whether_they_block_or_not_and_stay_as_they_are() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    for flags in [EventfdFlags::CLOEXEC, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK] {
        let mut machine = Machine::new();
        let wire = machine.connect(&bench.path("guest"), usual());
        let call = eventfd(0, flags).unwrap();
        let before = fcntl_getfl(&call).unwrap();
        wire.frontend.set_vring_call(1, &as_eventfd(call.try_clone().unwrap())).unwrap();
        machine.ask(1, 1, READ, 0, DATA, 4096);
        wire.kick(1);
        while machine.collect(1).is_empty() {
            assert!(becomes(&call, rustix::event::PollFlags::IN));
            rustix::io::read(&call, &mut [0; 8]).unwrap();
        }
        assert_eq!(machine.status(1, 1), DONE);
        // The client shares them.
        assert_eq!(fcntl_getfl(&call).unwrap(), before);
    }
    served.stop();
}

#[test]
fn memory_may_be_on_tmpfs_or_of_huge_pages() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    match tempfile::tempfile_in("/dev/shm") {
        Err(error) => eprintln!("SKIPPED: /dev/shm: {error}"),
        Ok(file) => {
            let mut machine = Machine::of(file);
            let wire = machine.connect(&bench.path("guest"), usual());
            assert_works(&bench, &mut machine, &wire);
        }
    }
    let huge = rustix::fs::memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB).map(File::from);
    let huge = huge.map_err(std::io::Error::from).and_then(|file| {
        // An access would end this process if there were not enough of them.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, MEMORY_BYTES)?;
        Ok(file)
    });
    match huge {
        Err(error) => eprintln!("SKIPPED: no huge pages (vm.nr_hugepages): {error}"),
        Ok(file) => {
            let mut machine = Machine::of(file);
            let wire = machine.connect(&bench.path("guest"), usual());
            assert_works(&bench, &mut machine, &wire);
        }
    }
    served.stop();
}

#[test]
fn hostile_huge_pages_that_are_not_there_are_no_crash() {
    let bench = Bench::formatted();
    let served = serve(&bench);
    let huge = match rustix::fs::memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) {
        Ok(huge) => File::from(huge),
        Err(error) => return eprintln!("SKIPPED: no huge pages: {error}"),
    };
    let page = u64::try_from(rustix::fs::fstatfs(&huge).unwrap().f_bsize).unwrap();
    huge.set_len(page).unwrap();
    let asked = VhostUserInflight { num_queues: 1, queue_size: 8, ..VhostUserInflight::default() };
    // Less than a page is refused, since what is missing of it could not be replaced.
    let mut wire = Wire::hello(&bench.path("guest"), usual());
    let (given, _) = wire.frontend.get_inflight_fd(&asked).unwrap();
    wire.frontend.set_inflight_fd(&given, huge.as_raw_fd()).unwrap_err();
    // A page that the system hasn't got is replaced, and that is noticed.
    if rustix::fs::fallocate(&huge, rustix::fs::FallocateFlags::empty(), 0, page).is_ok() {
        eprintln!("SKIPPED: there are huge pages (vm.nr_hugepages), so none is missing");
    } else {
        let mut wire = Wire::hello(&bench.path("guest"), usual());
        let given = VhostUserInflight { mmap_size: page, ..given };
        // It may be told before it is hung up on.
        let _ = wire.frontend.set_inflight_fd(&given, huge.as_raw_fd());
        assert!(wire.is_hung_up_on());
    }
    assert_serves(&bench);
    served.stop();
}

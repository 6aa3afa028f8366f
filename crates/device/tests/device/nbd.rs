// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports of an NBD server as devices: what is promised of all devices, and what becomes of I/O
//! when the server dies.

mod server;

use std::sync::mpsc::channel;

use flashfront_device::Rng;
use flashfront_device::real::{Access, DeviceFile, LinkNews, LinkWatch, OpenError, Prefer, Reactor};
use flashfront_engine::{DeviceError, Memory, Op, Span, extents};
use flashfront_nbd_proto::wire::{Errno, export_flag};

use crate::conformance::suite;
use crate::rig::{BACKENDS, Rig, pattern};
use server::{ALL, Served};

const SIZE: usize = 32 << 20;
const BLOCK: u64 = 4096;

fn served(bytes: usize, flags: u16, minimum: u32) -> (tempfile::TempDir, Served) {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::new(folder.path(), bytes, flags, minimum);
    (folder, served)
}

#[test]
fn an_export_keeps_what_all_devices_promise() {
    for (flags, minimum) in [(ALL, 1), (ALL, 4096), (export_flag::SEND_FLUSH, 512), (export_flag::SEND_FUA, 1)] {
        for prefer in BACKENDS {
            let (_folder, served) = served(SIZE, flags, minimum);
            suite(Rig::real(&served.uri(), prefer));
        }
    }
}

#[test]
fn holes_are_told() {
    let (_folder, served) = served(1 << 20, ALL, 1);
    served.disk().content[8192..12288].fill(7);
    let mut rig = Rig::real(&served.uri(), Prefer::Auto);
    let buf = rig.arena.alloc(4096);
    let span = Span::new(buf, 0, 4096);
    rig.run(Op::Map, 4096, 12288, Some(span)).unwrap();
    let told: Vec<(u64, bool)> = extents(rig.arena.bytes(span)).take(3).map(|it| (it.bytes, it.hole)).collect();
    assert_eq!(told, [(4096, true), (4096, false), (4096, true)]);
    rig.arena.free(buf);
}

#[test]
fn an_export_that_cannot_be_an_origin_is_refused_with_advice() {
    for (bytes, flags, minimum, what, todo) in [
        (1 << 20, ALL, 8192, "below 8192 bytes", "blocksize"),
        (1000, ALL, 1, "1000 bytes", "truncate"),
        (1 << 20, ALL | export_flag::READ_ONLY, 1, "read-only", "--readonly"),
        (1 << 20, 0, 1, "neither FLUSH nor FUA", "fuamode"),
    ] {
        let (_folder, served) = served(bytes, flags, minimum);
        let error = DeviceFile::open(&served.uri(), Access::Exclusive).unwrap_err();
        let OpenError::Nbd { what: found, todo: advice, .. } = &error else { panic!("{error}") };
        assert!(found.contains(what) && advice.contains(todo), "{error}");
    }
    let (_folder, served) = served(1 << 20, ALL | export_flag::READ_ONLY, 1);
    assert!(DeviceFile::open(&served.uri(), Access::ReadOnly).is_ok());
    served.hide();
    let error = DeviceFile::open(&served.uri(), Access::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("is the server running"), "{error}");
    let error = DeviceFile::open("ftp://host/disk".as_ref(), Access::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("\"ftp\" is not known"), "{error}");
}

#[test]
fn the_meaning_of_an_error_gets_through() {
    let (_folder, served) = served(1 << 20, ALL, 1);
    let mut rig = Rig::real(&served.uri(), Prefer::Auto);
    for (errno, error) in [
        (Errno::ENOSPC, DeviceError::NoSpace),
        (Errno::EPERM, DeviceError::ReadOnly),
        (Errno::EIO, DeviceError::Io),
        (Errno::EINVAL, DeviceError::Io),
    ] {
        served.disk().fails = Some(errno);
        assert_eq!(rig.write(0, &[1; 4096], 0), Err(error));
    }
    served.disk().fails = None;
    rig.write(0, &[1; 4096], 0).unwrap();
}

#[test]
fn what_a_dead_server_had_not_flushed_fails_one_flush() {
    for prefer in BACKENDS {
        let (_folder, served) = served(1 << 20, ALL, 1);
        let mut rig = Rig::real(&served.uri(), prefer);
        rig.write(0, &pattern(0, BLOCK, 1), 0).unwrap();
        rig.flush().unwrap();
        served.disk().die();
        // Nothing was lost, so nothing is told.
        assert_eq!(rig.read(0, 4096, 0).unwrap(), pattern(0, BLOCK, 1));
        rig.flush().unwrap();

        rig.write(0, &pattern(0, BLOCK, 2), 0).unwrap();
        served.disk().die();
        assert_eq!(rig.read(0, 4096, 0).unwrap(), pattern(0, BLOCK, 1), "the server forgot it");
        assert_eq!(rig.flush(), Err(DeviceError::Io));
        rig.write(0, &pattern(0, BLOCK, 3), 0).unwrap();
        rig.flush().unwrap();
        assert_eq!(&served.disk().durable[..4096], pattern(0, BLOCK, 3));
    }
}

/// A daemon before may have written it, and read it since: whoever keeps a copy must hear of it.
#[test]
fn what_was_unflushed_when_the_export_was_opened_fails_one_flush_too() {
    let (_folder, served) = served(1 << 20, ALL, 1);
    served.disk().content[..4096].copy_from_slice(&pattern(0, BLOCK, 1));
    let mut rig = Rig::real(&served.uri(), Prefer::Auto);
    assert_eq!(rig.read(0, 4096, 0).unwrap(), pattern(0, BLOCK, 1));
    served.disk().die();
    assert_eq!(rig.flush(), Err(DeviceError::Io));
    rig.flush().unwrap();
}

#[test]
fn a_flush_in_flight_when_the_server_dies_fails_if_it_covers_something() {
    let (_folder, served) = served(1 << 20, ALL, 1);
    let mut rig = Rig::real(&served.uri(), Prefer::Auto);
    rig.write(0, &pattern(0, BLOCK, 1), 0).unwrap();
    served.disk().mute = true;
    let before = served.disk().requests;
    let flush = rig.submit(Op::Flush, 0, 0, None);
    rig.device.kick();
    rig.reactor.as_ref().unwrap().wait(None, Some(std::time::Duration::ZERO)).unwrap();
    served.wait(|disk| disk.requests > before);
    served.disk().mute = false;
    served.disk().die();
    let done = rig.wait();
    assert_eq!((done[0].token, done[0].result), (flush, Err(DeviceError::Io)));
    // That was told; nobody else must be.
    rig.flush().unwrap();
}

#[test]
fn io_waits_for_a_server_that_is_away_and_goes_on_with_it() {
    let (_folder, served) = served(1 << 20, ALL, 1);
    let reactor = Reactor::new(Prefer::Auto).unwrap();
    let device = reactor.open(&served.uri(), Access::Exclusive).unwrap();
    let (news, told) = channel();
    let told_by = move |it: &LinkNews| drop(news.send(it.clone()));
    device.file().watch_link(LinkWatch { check: Box::new(|_| Ok(())), told: Box::new(told_by) });
    let file = std::sync::Arc::new(device.file().link().is_some());
    assert!(*file);
    let mut rig = Rig::new(device, Some(reactor));
    rig.flush().unwrap();
    served.hide();
    served.disk().mute = true;
    let before = served.disk().requests;
    // A write whose fate nobody knows.
    let buf = rig.arena.alloc(4096);
    let span = Span::new(buf, 0, 4096);
    rig.arena.bytes_mut(span).copy_from_slice(&pattern(0, BLOCK, 5));
    rig.submit(Op::Write, 0, BLOCK, Some(span));
    rig.device.kick();
    rig.reactor.as_ref().unwrap().wait(None, Some(std::time::Duration::ZERO)).unwrap();
    served.wait(|disk| disk.requests > before);
    served.disk().die();
    let lost = told.recv().unwrap();
    assert!(matches!(&lost, LinkNews::Lost { unflushed: false, .. }), "{lost:?}");
    served.disk().mute = false;
    served.listen();
    assert_eq!(rig.wait()[0].result, Ok(()));
    assert!(matches!(told.recv().unwrap(), LinkNews::Back { .. }));
    rig.flush().unwrap();
    assert_eq!(&served.disk().durable[..4096], pattern(0, BLOCK, 5));
    rig.arena.free(buf);
}

#[test]
fn a_server_that_comes_back_as_another_is_not_used() {
    let (_folder, served) = served(1 << 20, ALL, 1);
    served.disk().durable[..4].copy_from_slice(b"mine");
    served.disk().content[..4].copy_from_slice(b"mine");
    let reactor = Reactor::new(Prefer::Auto).unwrap();
    let device = reactor.open(&served.uri(), Access::Exclusive).unwrap();
    let (news, told) = channel();
    let check = |read: &mut flashfront_device::real::ReadAt<'_>| {
        let mut found = [0; 512];
        read(0, &mut found).unwrap();
        if found.starts_with(b"mine") { Ok(()) } else { Err("other content".to_owned()) }
    };
    let told_by = move |it: &LinkNews| drop(news.send(it.clone()));
    device.file().watch_link(LinkWatch { check: Box::new(check), told: Box::new(told_by) });
    let mut rig = Rig::new(device, Some(reactor));
    let refused = || loop {
        if let LinkNews::Refused { why } = told.recv().unwrap() {
            return why;
        }
    };
    let durable = served.disk().durable.clone();
    for (bytes, flags, first, why) in [
        (1 << 19, ALL, b"mine", "came back with 524288 bytes"),
        (1 << 20, ALL | export_flag::READ_ONLY, b"mine", "read-only"),
        (1 << 20, ALL, b"your", "other content"),
    ] {
        {
            let mut disk = served.disk();
            (disk.durable, disk.flags) = (vec![0; bytes], flags);
            disk.durable[..4].copy_from_slice(first);
            disk.die();
        }
        assert!(refused().contains(why), "{why}");
    }
    {
        let mut disk = served.disk();
        (disk.durable, disk.flags) = (durable, ALL);
        disk.die();
    }
    assert!(rig.read(0, 4096, 0).unwrap().starts_with(b"mine"));
}

/// Random writes, flushes and deaths at any request; whoever writes again what no flush covered
/// loses nothing.
#[test]
fn whoever_repeats_what_no_flush_covered_loses_nothing() {
    const BLOCKS: u64 = 32;
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let flags = [ALL, ALL, export_flag::SEND_FLUSH, export_flag::SEND_FUA][seed as usize % 4];
        let (_folder, served) = served((BLOCKS * BLOCK) as usize, flags, 1);
        let mut rig = Rig::real(&served.uri(), BACKENDS[seed as usize % 2]);
        let mut versions = [0; BLOCKS as usize];
        let mut unflushed = std::collections::BTreeSet::new();
        let mut next = 0;
        for _ in 0..20 {
            if rng.below(4) == 0 {
                let mut disk = served.disk();
                disk.dies_after = disk.is_alive().then_some(1 + rng.below(6));
            }
            for _ in 0..rng.below(8) {
                let at = rng.below(BLOCKS);
                next += 1;
                versions[at as usize] = next;
                rig.write(at * BLOCK, &pattern(at * BLOCK, BLOCK, next), 0).unwrap();
                unflushed.insert(at);
            }
            // As the engine does: again, until a flush has covered it.
            while rig.flush().is_err() {
                for at in &unflushed {
                    rig.write(at * BLOCK, &pattern(at * BLOCK, BLOCK, versions[*at as usize]), 0).unwrap();
                }
            }
            unflushed.clear();
            let disk = served.disk();
            for (at, version) in (0..).zip(versions).filter(|it| it.1 > 0) {
                let from = (at * BLOCK) as usize;
                let held = &disk.durable[from..from + BLOCK as usize];
                assert!(held == pattern(at * BLOCK, BLOCK, version), "seed {seed}: block {at}");
            }
        }
    }
}

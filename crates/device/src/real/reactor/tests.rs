// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what devices of one reactor share, and of the ring without registration.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use flashfront_engine::{Buf, Memory, Op, Span, Time, Token};

use super::{Prefer, Reactor, RealDevice};
use crate::real::Access;
use crate::{Arena, Device, DeviceIo};

const SIZE: u64 = 4 << 20;

fn reactors() -> [Reactor; 3] {
    [Reactor::new(Prefer::Uring).unwrap(), Reactor::uring(false).unwrap(), Reactor::new(Prefer::Threads).unwrap()]
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn open(reactor: &Reactor, folder: &tempfile::TempDir, name: &str) -> RealDevice {
    let path = folder.path().join(name);
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).unwrap();
    file.set_len(SIZE).unwrap();
    drop(file);
    reactor.open(&path, Access::Exclusive).unwrap()
}

fn submit(device: &mut RealDevice, arena: &mut Arena, token: u64, op: Op, offset: u64, buf: Buf) {
    let io = DeviceIo { token: Token(token), op, offset, len: 4096, span: Some(Span::new(buf, 0, 4096)) };
    device.submit(Time(0), io, arena);
    device.kick();
}

fn wait(reactor: &Reactor) {
    assert!(!reactor.wait(None, None).unwrap());
}

/// Two devices, and two arenas with the same numbers of chunks: every completion and every byte
/// arrives at its own.
#[test]
fn devices_and_arenas_are_kept_apart() {
    for reactor in reactors() {
        let folder = folder();
        let mut devices = [open(&reactor, &folder, "a"), open(&reactor, &folder, "b")];
        let mut arenas = [Arena::new(8 << 20), Arena::new(8 << 20)];
        for op in [Op::Write, Op::Read] {
            let mut bufs = Vec::new();
            for (i, (device, arena)) in devices.iter_mut().zip(&mut arenas).enumerate() {
                let buf = arena.alloc(4096);
                let fill = if op == Op::Write { i as u8 + 1 } else { 0 };
                arena.bytes_mut(Span::new(buf, 0, 4096)).fill(fill);
                submit(device, arena, 10 + i as u64, op, 4096, buf);
                bufs.push(buf);
            }
            for (i, (device, arena)) in devices.iter_mut().zip(&mut arenas).enumerate() {
                let mut done = Vec::new();
                while done.is_empty() {
                    device.poll(Time(0), arena, &mut done);
                    if done.is_empty() {
                        wait(&reactor);
                    }
                }
                assert_eq!(done.len(), 1);
                assert_eq!(done[0].token, Token(10 + i as u64));
                done[0].result.unwrap();
                assert!(arena.bytes(Span::new(bufs[i], 0, 4096)).iter().all(|byte| *byte == i as u8 + 1));
            }
        }
    }
}

/// I/O that has ended is kept until its device is polled, and no wait sleeps on it.
#[test]
fn nobody_sleeps_while_something_is_unpolled() {
    for reactor in reactors() {
        let folder = folder();
        let (mut a, mut b) = (open(&reactor, &folder, "a"), open(&reactor, &folder, "b"));
        let mut arena = Arena::new(8 << 20);
        let buf = arena.alloc(4096);
        submit(&mut a, &mut arena, 1, Op::Read, 0, buf);
        let mut done = Vec::new();
        for _ in 0..3 {
            wait(&reactor);
            b.poll(Time(0), &mut arena, &mut done);
            assert!(done.is_empty());
        }
        a.poll(Time(0), &mut arena, &mut done);
        assert_eq!(done.len(), 1);
    }
}

/// Device, arena and reactor may go in any order with I/O in flight; afterwards the lock is free.
#[test]
fn dropping_with_io_in_flight() {
    for order in 0..6 {
        for reactor in reactors() {
            let folder = folder();
            let mut arena = Arena::new(8 << 20);
            let mut device = open(&reactor, &folder, "a");
            for i in 0..64 {
                let buf = arena.alloc(4096);
                submit(&mut device, &mut arena, i, if i % 2 == 0 { Op::Write } else { Op::Read }, i * 4096, buf);
            }
            let (mut reactor, mut device, mut arena) = (Some(reactor), Some(device), Some(arena));
            for step in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][order] {
                match step {
                    0 => drop(reactor.take()),
                    1 => drop(device.take()),
                    _ => drop(arena.take()),
                }
            }
            open(&Reactor::new(Prefer::Threads).unwrap(), &folder, "a");
        }
    }
}

/// Made here, used there: the thread that kicks first is the ring's.
#[test]
fn made_on_one_thread_used_on_another() {
    for reactor in reactors() {
        let folder = folder();
        let mut device = open(&reactor, &folder, "a");
        std::thread::spawn(move || {
            let mut arena = Arena::new(8 << 20);
            let buf = arena.alloc(4096);
            arena.bytes_mut(Span::new(buf, 0, 4096)).fill(9);
            let mut done = Vec::new();
            submit(&mut device, &mut arena, 1, Op::Write, 0, buf);
            while done.is_empty() {
                wait(&reactor);
                device.poll(Time(0), &mut arena, &mut done);
            }
            done[0].result.unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(std::fs::read(folder.path().join("a")).unwrap()[..4096], [9; 4096]);
    }
}

/// The watched descriptor ends the wait whether it became readable before or during it, as often as
/// it does. I/O beside it is not lost.
#[test]
fn the_watched_descriptor_ends_the_wait() {
    for reactor in reactors() {
        let folder = folder();
        let mut device = open(&reactor, &folder, "a");
        let mut arena = Arena::new(8 << 20);
        let buf = arena.alloc(4096);
        let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
        let (ask, asked) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || asked.iter().for_each(|()| there.write_all(b"x").unwrap()));
        for i in 0..200 {
            submit(&mut device, &mut arena, i, Op::Write, i * 4096, buf);
            ask.send(()).unwrap();
            let (mut done, mut readable) = (Vec::new(), false);
            while done.is_empty() || !readable {
                readable |= reactor.wait(Some(here.as_raw_fd()), None).unwrap();
                device.poll(Time(0), &mut arena, &mut done);
            }
            (&here).read_exact(&mut [0]).unwrap();
        }
        drop(ask);
        writer.join().unwrap();
    }
}

/// Idle means waiting: with nothing in flight only the time ends a wait, and no readiness is left
/// over.
#[test]
fn idle_means_waiting() {
    for reactor in reactors() {
        let folder = folder();
        let mut device = open(&reactor, &folder, "a");
        let mut arena = Arena::new(8 << 20);
        let buf = arena.alloc(4096);
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        submit(&mut device, &mut arena, 1, Op::Write, 0, buf);
        (&there).write_all(b"x").unwrap();
        let (mut done, mut readable) = (Vec::new(), false);
        while done.is_empty() || !readable {
            readable |= reactor.wait(Some(here.as_raw_fd()), None).unwrap();
            device.poll(Time(0), &mut arena, &mut done);
        }
        (&here).read_exact(&mut [0]).unwrap();
        // A late signal may cost one more turn, never an endless one.
        let patience = Duration::from_millis(20);
        let slept = (0..10).any(|_| {
            let start = Instant::now();
            reactor.wait(Some(here.as_raw_fd()), Some(patience)).unwrap();
            start.elapsed() >= patience
        });
        assert!(slept, "{}: never sleeps", reactor.backend_name());
    }
}

/// Two rings have registered an arena's chunk: it is given back when both have let go of it.
#[test]
fn a_chunk_is_kept_until_all_rings_let_go_of_it() {
    let folder = folder();
    let reactors = [Reactor::new(Prefer::Uring).unwrap(), Reactor::new(Prefer::Uring).unwrap()];
    let mut arena = Arena::new(8 << 20);
    let buf = arena.alloc(4096);
    for (reactor, name) in reactors.iter().zip(["a", "b"]) {
        let mut device = open(reactor, &folder, name);
        let mut done = Vec::new();
        // Enough to have it registered.
        for i in 0..6000 {
            submit(&mut device, &mut arena, i, Op::Read, 0, buf);
            while done.is_empty() {
                wait(reactor);
                device.poll(Time(0), &mut arena, &mut done);
            }
            done.clear();
        }
    }
    arena.free(buf);
    let trim = |arena: &mut Arena, reactors: &[Reactor], until: Time| {
        while let Some(due) = arena.next_timer().filter(|due| *due <= until) {
            arena.trim(due, |number, chunk| reactors.iter().for_each(|it| it.unregister_chunk(number, chunk)));
        }
        arena.held_bytes()
    };
    let minute = |minutes: u64| Time(minutes * 60_000_000_000);
    assert_eq!(trim(&mut arena, &[], minute(1)), 4 << 20);
    assert_eq!(trim(&mut arena, &reactors[..1], minute(2)), 4 << 20);
    assert_eq!(trim(&mut arena, &reactors, minute(3)), 0);
}

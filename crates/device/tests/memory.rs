// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a process that was busy and is idle: RAM and pinned pages are the kernel's again,
//! and what is read later arrives. Alone in its program, because it looks at the whole process.

use flashfront_device::real::{Access, Prefer, Reactor, RealDevice};
use flashfront_device::{Arena, CHUNK_BYTES, Device, DeviceIo};
use flashfront_engine::{Buf, Memory, Op, Span, Time, Token};

const CHUNKS: u64 = 8;

/// A line of /proc/self/status, in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of status");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number of KiB") << 10
}

/// Reads one chunk's worth from its place in the file into each buffer.
fn read_all(reactor: &Reactor, device: &mut RealDevice, arena: &mut Arena, bufs: &[Buf]) {
    for (place, &buf) in (0..).zip(bufs) {
        let (token, len) = (Token(place), u64::from(CHUNK_BYTES));
        let span = Some(Span::new(buf, 0, CHUNK_BYTES));
        device.submit(Time(0), DeviceIo { token, op: Op::Read, offset: place * len, len, span }, arena);
    }
    device.kick();
    let mut done = Vec::new();
    while done.len() < bufs.len() {
        reactor.wait(None, None).expect("the kernel waits");
        device.poll(Time(0), arena, &mut done);
    }
    done.iter().for_each(|done| done.result.expect("a read of a file"));
    for (place, &buf) in (1..).zip(bufs) {
        assert!(arena.bytes(Span::new(buf, 0, CHUNK_BYTES)).iter().all(|byte| *byte == place));
    }
}

#[test]
fn an_idle_process_gives_its_buffers_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let content: Vec<u8> = (1..=CHUNKS as u8).flat_map(|place| vec![place; CHUNK_BYTES as usize]).collect();
    std::fs::write(&path, &content).unwrap();
    drop(content);
    for prefer in [Prefer::Uring, Prefer::Threads] {
        let reactor = Reactor::new(prefer).unwrap();
        let mut device = reactor.open(&path, Access::Exclusive).unwrap();
        let mut arena = Arena::new(64 << 20);
        let load_bytes = CHUNKS * u64::from(CHUNK_BYTES);
        let (rss, pinned) = (status("VmRSS"), status("VmPin"));
        let mut now = Time(0);
        // The second time the chunks of the first serve again.
        for _ in 0..2 {
            let bufs: Vec<Buf> = (0..CHUNKS).map(|_| arena.alloc(CHUNK_BYTES)).collect();
            for _ in 0..6 {
                bufs.iter().for_each(|&buf| arena.zero(Span::new(buf, 0, CHUNK_BYTES)));
                read_all(&reactor, &mut device, &mut arena, &bufs);
            }
            assert!(status("VmRSS") >= rss + load_bytes - (1 << 20), "busy");
            assert_eq!(status("VmPin") > pinned, prefer == Prefer::Uring, "registered with io_uring only");
            bufs.into_iter().for_each(|buf| arena.free(buf));
            now = now.plus_ns(60_000_000_000);
            while let Some(due) = arena.next_timer().filter(|due| *due <= now) {
                arena.trim(due, |number, chunk| reactor.unregister_chunk(number, chunk));
            }
            assert_eq!(status("VmPin"), pinned, "{prefer:?}: pinned");
            let left = status("VmRSS").saturating_sub(rss);
            assert!(left < 4 << 20, "{prefer:?}: {left} of {load_bytes} bytes are left");
        }
    }
}

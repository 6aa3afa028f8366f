// SPDX-License-Identifier: MIT OR Apache-2.0
//! A write reaches the origin only when the durable record allows for it.

use std::path::PathBuf;

use flashfront_device::real::Access;
use flashfront_device::sim::{RamDisk, RamSpec};

use super::super::record::load;
use super::*;

const SIZE: u64 = 4 << 20;
const UUID: [u8; 16] = [3; 16];
const ORIGIN: OriginId = OriginId(1);

/// A disk that looks at the record before each write.
struct Strict {
    disk: RamDisk,
    state: PathBuf,
}

impl Device for Strict {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        let record = load(Some(&self.state), &UUID, ORIGIN).unwrap();
        assert!(record.is_some() || io.op == Op::Flush, "{io:?} comes before the first record");
        for it in record.iter().flat_map(|record| &record.samples) {
            let is_in = io.offset <= it.offset && it.offset < io.offset + io.len;
            match io.op {
                Op::Write if is_in => {
                    let span = io.span.unwrap();
                    let from = span.offset() + (it.offset - io.offset) as u32;
                    let new = crc(arena.bytes(Span::new(span.buf(), from, it.len)));
                    assert!(it.hashes.contains(&new), "the record does not allow for {io:?}");
                }
                Op::Zero | Op::Punch if is_in => assert!(it.hashes.contains(&crc(&vec![0; it.len as usize])), "{io:?}"),
                Op::Discard => assert!(!is_in, "{io:?}"),
                _ => {}
            }
        }
        self.disk.submit(now, io, arena);
    }

    fn kick(&mut self) {
        self.disk.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        self.disk.poll(now, arena, done);
    }

    fn next_event(&self) -> Option<Time> {
        self.disk.next_event()
    }

    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
}

#[test]
fn a_write_waits_until_the_record_allows_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, state) = (dir.path().join("origin"), dir.path().join("state"));
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let origin = Arc::new(DeviceFile::open(&path, Access::Exclusive).unwrap());
    let watch = Watch::new(Some(&state), &origin, ORIGIN, (UUID, 9), None);
    let disk = RamDisk::new(RamSpec { size_bytes: SIZE, latency_ns: 0, jitter_ns: 0, ..RamSpec::default() });
    let (sender, woken) = std::sync::mpsc::channel();
    let strict = Strict { disk, state: state.clone() };
    let mut device = watch.around(Box::new(strict), "origin".to_owned(), move || {
        let _ = sender.send(());
    });
    let mut arena = Arena::new(64 << 20);
    let buf = arena.alloc(65536);
    let mut rng = flashfront_device::Rng::new(4);
    let mut records = 0;
    for nth in 0..300 {
        let (offset, len) = (512 * rng.below(400), 512 * (1 + rng.below(100)));
        let op = [Op::Write, Op::Write, Op::Zero, Op::Punch, Op::Discard, Op::Flush][rng.below(6) as usize];
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, len) };
        let span = (op == Op::Write).then(|| Span::new(buf, 0, len as u32));
        arena.bytes_mut(Span::new(buf, 0, 65536)).fill(rng.next_u64() as u8);
        device.submit(Time(nth), DeviceIo { token: Token(nth), op, offset, len, span }, &mut arena);
        let mut done = Vec::new();
        while done.is_empty() {
            device.kick();
            device.poll(Time(nth), &mut arena, &mut done);
            if done.is_empty() {
                // The thread that writes records wakes the pump.
                woken.recv().unwrap();
                records += 1;
            }
        }
        assert_eq!(done, [Done { token: Token(nth), result: Ok(()) }]);
    }
    assert!(records > 20, "{records}");
    // A folder that is gone, and a record that can't be written: nothing is held back for ever.
    arena.free(buf);
}

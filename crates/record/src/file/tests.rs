// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the reader of traces reads what was written.

use flashfront_sim::trace::{Op as Read, Options, Reader, Record};

use super::*;
use crate::event::{AHEAD, DISCARD, FLUSH, FUA, READ, SYNC, WRITE};

const DEVICE: u32 = 8 << 20 | 16;
const GIB: u64 = 1 << 30;

fn event(time_ns: u64, sector: u64, bytes: u32, categories: u32) -> Event {
    Event { time_ns, sector, bytes, categories, pid: 4711 }
}

fn write(writer: &mut Writer, events: impl IntoIterator<Item = Event>) {
    writer.begin(DEVICE, 1000);
    for event in events {
        writer.put(&event).unwrap();
    }
    writer.end().unwrap();
}

fn read(path: &Path) -> Vec<Record> {
    let mut reader = Reader::new(File::open(path).unwrap(), &Options::default()).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().transpose().unwrap() {
        all.push(record);
    }
    assert_eq!(reader.format().name, "blktrace");
    assert_eq!(reader.report().bad, 0);
    all
}

#[test]
fn requests_are_read_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let mut writer = Writer::create(&path, GIB, false).unwrap();
    write(
        &mut writer,
        [
            event(1000, 8, 4096, READ | AHEAD),
            event(2000, 1 << 37, 512, WRITE | SYNC | FUA),
            // Comes late.
            event(1500, 16, 1 << 20, WRITE),
            event(3000, 0, 0, WRITE | FLUSH | SYNC),
            event(4000, 64, 1 << 31, DISCARD),
            // Longer than data can be: zeroes.
            event(5000, 64, (1 << 30) + 512, WRITE),
            // No request.
            event(6000, 64, 0, WRITE),
        ],
    );
    let record = |time_ns, op, sector, sectors| Record { time_ns: Some(time_ns), op, device: DEVICE, sector, sectors };
    assert_eq!(
        read(&path),
        [
            record(0, Read::Read, 8, 8),
            record(1000, Read::Write, 1 << 37, 1),
            record(1000, Read::Write, 16, 2048),
            record(2000, Read::Flush, 0, 0),
            record(3000, Read::Discard, 64, 1 << 22),
            record(4000, Read::Discard, 64, (1 << 21) + 1),
        ]
    );
    let counts =
        Counts { reads: 1, writes: 2, discards: 2, flushes: 1, bytes_read: 4096, bytes_written: 512 + (1 << 20) };
    assert_eq!((*writer.counts(), writer.counts().requests()), (counts, 6));
}

#[test]
fn nothing_tells_of_processes_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    for processes in [false, true] {
        let path = dir.path().join(processes.to_string());
        let mut writer = Writer::create(&path, GIB, processes).unwrap();
        writer.begin(DEVICE, 0);
        writer.name(4711, b"postgres").unwrap();
        writer.put(&event(5, 8, 512, READ)).unwrap();
        writer.end().unwrap();
        let mut unpacked = Vec::new();
        io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(File::open(&path).unwrap()), &mut unpacked)
            .unwrap();
        let holds = |bytes: &[u8]| unpacked.windows(bytes.len()).any(|it| it == bytes);
        assert_eq!(holds(b"postgres"), processes);
        assert_eq!(holds(&4711_u32.to_le_bytes()), processes);
        assert_eq!(read(&path).len(), 1, "names are no requests");
    }
}

#[test]
fn a_file_is_never_larger_than_asked_for_and_is_whole_then() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let mut writer = Writer::create(&path, BYTES_MIN, false).unwrap();
    writer.begin(DEVICE, 0);
    let mut random = 1_u64;
    let mut given = 0;
    while !writer.is_full() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        writer.put(&event(given * 1000 + (random >> 55), random >> 30, 4096, READ)).unwrap();
        given += 1;
    }
    // Later requests are not in it, and not counted.
    writer.put(&event(u64::MAX, 0, 4096, READ)).unwrap();
    writer.end().unwrap();
    let bytes = fs_len(&path);
    assert_eq!(bytes, writer.bytes());
    assert!((BYTES_MIN * 3 / 4..=BYTES_MIN).contains(&bytes), "{bytes}");
    assert_eq!(read(&path).len() as u64, given);
    assert_eq!(writer.counts().requests(), given);
}

fn fs_len(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn a_file_that_exists_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    std::fs::write(&path, "mine").unwrap();
    let error = Writer::create(&path, GIB, false).err().unwrap().to_string();
    assert!(error.contains("is not overwritten"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

#[test]
fn a_killed_recording_can_be_read_up_to_its_last_member() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let mut writer = Writer::create(&path, GIB, false).unwrap();
    writer.begin(DEVICE, 0);
    for nth in 0..MEMBER_EVENTS + 100 {
        writer.put(&event(nth, nth * 8, 4096, READ)).unwrap();
    }
    drop(writer);
    assert_eq!(read(&path).len() as u64, MEMBER_EVENTS);
}

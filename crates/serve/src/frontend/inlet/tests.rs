// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that ask, a pump with a disk in RAM that answers in any order, and little memory.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use flashfront_device::Arena;
use flashfront_engine::{
    BLOCK_BYTES, Buf, Memory, OriginId, REQUEST_BYTES_MAX, Request, RequestError, RequestId, RequestOp, SECTOR_BYTES,
    Span, Time,
};
use mio::{Events, Poll};

use super::parts::{PARTS_MAX, parts};
use super::*;
use crate::frontend::{Core, Export, TokenRange};

const DISK_BYTES: u64 = 8 << 20;

fn export(size_bytes: u64) -> Export {
    Export::new("disk", OriginId(3), size_bytes)
}

fn want(op: RequestOp, offset: u64, len: u64) -> Want {
    Want { origin: OriginId(3), op, offset, len, fua: false, zeroed: false }
}

#[test]
fn a_zeroed_discard_covers_its_range() {
    // The last block is a short one.
    let export = export(5 * BLOCK_BYTES + SECTOR_BYTES);
    let sectors = export.size_bytes / SECTOR_BYTES;
    for (from, to) in (0..sectors).flat_map(|from| (from + 1..=sectors).map(move |to| (from, to))) {
        let (start, end) = (from * SECTOR_BYTES, to * SECTOR_BYTES);
        let all = parts(&Want { zeroed: true, ..want(RequestOp::Discard, start, end - start) }, &export).unwrap();
        assert!(all.len() <= PARTS_MAX);
        let mut at = start;
        for part in &all {
            assert_eq!(part.offset, at, "{all:?}");
            at += part.len;
            let whole =
                part.offset.is_multiple_of(BLOCK_BYTES) && (at.is_multiple_of(BLOCK_BYTES) || at == export.size_bytes);
            assert!(part.op != RequestOp::Discard || whole, "a block in part keeps what it had: {all:?}");
        }
        assert_eq!(at, end, "{all:?}");
        let zeroes: u64 = all.iter().filter(|part| part.op != RequestOp::Discard).map(|part| part.len).sum();
        assert!(zeroes < 2 * BLOCK_BYTES, "the blocks between are discarded: {all:?}");
    }
}

#[test]
fn what_is_out_of_order_is_refused() {
    let export = export(DISK_BYTES);
    let refused = |want: Want| assert_eq!(parts(&want, &export), None, "{want:?}");
    refused(want(RequestOp::Read, 0, 0));
    refused(want(RequestOp::Write, 100, 512));
    refused(want(RequestOp::Write, 512, 100));
    refused(want(RequestOp::Read, DISK_BYTES, 512));
    refused(want(RequestOp::Discard, DISK_BYTES - 512, 1024));
    refused(want(RequestOp::Discard, u64::MAX - 511, 512));
    refused(want(RequestOp::Write, 0, REQUEST_BYTES_MAX + 512));
    let sealed = Export { read_only: true, ..export.clone() };
    assert_eq!(parts(&want(RequestOp::WriteZeroes { may_discard: true }, 0, 512), &sealed), None);
    assert!(parts(&want(RequestOp::Read, 0, 512), &sealed).is_some());
}

/// How a request ended: its number, and its bytes.
type Answer = (u64, Result<Vec<u8>, RequestError>);

/// A request of a test. A request that is dropped unanswered says so, as a front-end's must.
struct Probe {
    number: u64,
    want: Want,
    payload: Vec<u8>,
    answers: Option<Sender<Answer>>,
}

impl Ask for Probe {
    fn want(&self) -> Want {
        self.want
    }

    fn fill(&mut self, at: usize, into: &mut [u8]) -> Result<(), RequestError> {
        let from = self.payload.get(at..at + into.len()).ok_or(RequestError::Io)?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn taken(&mut self) {
        self.payload.clear();
    }

    fn answer(mut self, result: Result<&[&[u8]], RequestError>) {
        let answers = self.answers.take().unwrap();
        answers.send((self.number, result.map(<[&[u8]]>::concat))).unwrap();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(answers) = self.answers.take() {
            answers.send((self.number, Err(RequestError::Stopping))).unwrap();
        }
    }
}

/// The pump: a disk, executed when the test says so.
struct Ram {
    arena: Arena,
    exports: Vec<Export>,
    disk: Arc<Mutex<Vec<u8>>>,
    queue: Vec<Request>,
    /// Buffers were freed that a request may wait for.
    freed: bool,
}

impl Ram {
    fn new() -> Self {
        // Two chunks for the front-end: long requests have to wait for others.
        let arena = Arena::with_reserve(16 << 20, 8 << 20);
        Self { arena, exports: vec![export(DISK_BYTES)], disk: Arc::default(), queue: Vec::new(), freed: false }
    }

    /// Carries out one of the requests that wait: the one at `nth`.
    fn execute(&mut self, nth: usize) -> RequestId {
        let request = self.queue.swap_remove(nth);
        assert_eq!(request.origin, OriginId(3));
        let mut disk = self.disk.lock().unwrap();
        disk.resize(DISK_BYTES as usize, 0);
        let start = (request.lba.0 * SECTOR_BYTES) as usize;
        let on_disk = &mut disk[start..start + (request.sectors * SECTOR_BYTES) as usize];
        let span = request.buf.map(|buf| Span::new(buf, (start as u64 % BLOCK_BYTES) as u32, on_disk.len() as u32));
        match (request.op, span) {
            (RequestOp::Read, Some(span)) => self.arena.bytes_mut(span).copy_from_slice(on_disk),
            (RequestOp::Write, Some(span)) => on_disk.copy_from_slice(self.arena.bytes(span)),
            (RequestOp::WriteZeroes { .. } | RequestOp::Discard, None) => on_disk.fill(0),
            (RequestOp::Flush, None) => {}
            other => panic!("{other:?}"),
        }
        request.id
    }
}

impl Core for Ram {
    fn exports(&self) -> &[Export] {
        &self.exports
    }

    fn memory(&mut self) -> &mut dyn Memory {
        &mut self.arena
    }

    fn alloc(&mut self, bytes: u32, _origin: OriginId) -> Option<Buf> {
        self.arena.try_alloc(bytes)
    }

    fn free(&mut self, buf: Buf) {
        self.freed = true;
        self.arena.free(buf);
    }

    fn put_back(&mut self, buf: Buf) {
        self.arena.free(buf);
    }

    fn submit(&mut self, request: Request) {
        assert!(self.queue.iter().all(|other| other.id != request.id), "an id is used twice");
        self.queue.push(request);
    }
}

/// Returns the requests of thread number `own`, one after the other: its own MiB, and many at a
/// time.
fn script(own: u64) -> Vec<(Want, Vec<u8>)> {
    let base = own << 20;
    let mut all = Vec::new();
    for round in 0..40 {
        let fill = (own * 40 + round) as u8;
        // Lengths from a sector to all of it, most of them not aligned to blocks.
        let offset = base + round % 7 * SECTOR_BYTES;
        let len = (SECTOR_BYTES << (round % 11)).min(((own + 1) << 20) - offset);
        all.push((want(RequestOp::Write, offset, len), vec![fill; len as usize]));
        all.push((want(RequestOp::Read, offset, len), Vec::new()));
        all.push((want(RequestOp::Flush, 0, 0), Vec::new()));
        all.push((want(RequestOp::Read, offset + 1, len), Vec::new()));
        all.push((Want { zeroed: true, ..want(RequestOp::Discard, offset, len) }, Vec::new()));
        all.push((want(RequestOp::Read, offset, len), Vec::new()));
    }
    all
}

#[test]
fn whoever_asks_is_answered() {
    let (mut inlet, feed) = Inlet::new().unwrap();
    let mut poll = Poll::new().unwrap();
    inlet.register(poll.registry(), TokenRange { first: 7, count: 1 }).unwrap();
    let (done, ended) = channel();
    let mut ram = Ram::new();
    std::thread::scope(|scope| {
        for own in 0..4 {
            let (feed, done) = (&feed, done.clone());
            scope.spawn(move || {
                let (answers, answered) = channel();
                let ask = |number: u64, want: Want, payload: &[u8]| {
                    let answers = Some(answers.clone());
                    feed.put(Probe { number, want, payload: payload.to_vec(), answers });
                };
                // One after the other: each sees what the one before it did.
                let mut last = Vec::new();
                for (number, (want, payload)) in (0..).zip(script(own)) {
                    ask(number, want, &payload);
                    let (of, result) = answered.recv().unwrap();
                    assert_eq!(of, number);
                    match want.op {
                        RequestOp::Read if !want.offset.is_multiple_of(SECTOR_BYTES) => {
                            assert_eq!(result, Err(RequestError::Invalid));
                        }
                        RequestOp::Read => assert!(result.unwrap() == last, "thread {own}, {want:?}"),
                        RequestOp::Write => {
                            assert_eq!(result, Ok(Vec::new()));
                            last = payload;
                        }
                        RequestOp::Discard => last = vec![0; want.len as usize],
                        _ => assert_eq!(result, Ok(Vec::new())),
                    }
                }
                // All at once, more than places and memory.
                for number in 0..300 {
                    ask(number, want(RequestOp::Read, own << 20, 1 << 20), &[]);
                }
                let mut numbers: Vec<u64> = (0..300)
                    .map(|_| answered.recv().unwrap())
                    .map(|(number, result)| {
                        assert_eq!(result.unwrap().len(), 1 << 20);
                        number
                    })
                    .collect();
                numbers.sort_unstable();
                assert!(numbers.into_iter().eq(0..300), "each once");
                done.send(()).unwrap();
            });
        }
        let mut events = Events::with_capacity(4);
        let (mut left, mut seed) = (4, 1_u64);
        while left > 0 {
            let more = inlet.turn_end(Time(0), &mut ram);
            assert!(ram.queue.len() <= REQUESTS_MAX * PARTS_MAX);
            if !more && ram.queue.is_empty() {
                // Lost wake-ups would be seen as a test that hangs here; the timeout is for the
                // last thread's end.
                poll.poll(&mut events, Some(std::time::Duration::from_millis(20))).unwrap();
                inlet.take_in(&mut ram);
            }
            // A few, in any order: others come meanwhile.
            for _ in 0..ram.queue.len().min(5) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let nth = (seed >> 33) as usize % ram.queue.len();
                let id = ram.execute(nth);
                inlet.reply(id, Ok(()));
            }
            left -= ended.try_iter().count();
        }
    });
    inlet.turn_end(Time(0), &mut ram);
    assert!(inlet.is_idle());
    assert_eq!(ram.arena.allocated_bytes(), 0, "all buffers are given back");
}

#[test]
fn the_first_failure_of_a_part_is_the_answer() {
    let (mut inlet, feed) = Inlet::new().unwrap();
    let (answers, answered) = channel();
    let mut ram = Ram::new();
    // The range is not aligned to blocks, and so long that it takes two buffers.
    let want = want(RequestOp::Read, SECTOR_BYTES, 1 << 20);
    feed.put(Probe { number: 1, want, payload: Vec::new(), answers: Some(answers) });
    assert!(inlet.take_in(&mut ram));
    let ids: Vec<RequestId> = ram.queue.iter().map(|request| request.id).collect();
    assert_eq!(ids.len(), 2);
    inlet.reply(ids[1], Err(RequestError::Io));
    inlet.turn_end(Time(0), &mut ram);
    assert!(answered.try_recv().is_err(), "the other part is still at the engine");
    inlet.reply(ids[0], Ok(()));
    inlet.turn_end(Time(0), &mut ram);
    assert_eq!(answered.recv().unwrap(), (1, Err(RequestError::Io)));
    assert_eq!(ram.arena.allocated_bytes(), 0);
}

#[test]
fn who_finds_a_part_of_his_memory_waits_without_calling_himself() {
    let (mut inlet, feed) = Inlet::new().unwrap();
    let (answers, answered) = channel();
    let mut ram = Ram::new();
    let put = |number, offset| {
        let (want, answers) = (want(RequestOp::Read, offset, 1 << 20), Some(answers.clone()));
        feed.put(Probe { number, want, payload: Vec::new(), answers });
    };
    // Seven of the eight MiB; the next one gets the eighth, and nothing for its second part.
    (0..7).for_each(|number| put(number, 0));
    put(7, SECTOR_BYTES);
    inlet.take_in(&mut ram);
    for _ in 0..3 {
        inlet.turn_end(Time(0), &mut ram);
        assert!(!ram.freed && ram.queue.len() == 7);
    }
    // All of a chunk.
    for _ in 0..4 {
        let id = ram.execute(0);
        inlet.reply(id, Ok(()));
    }
    while answered.try_recv().is_err() {
        inlet.turn_end(Time(0), &mut ram);
    }
    assert!(ram.freed);
    while ram.queue.len() < 5 {
        inlet.turn_end(Time(0), &mut ram);
    }
    while !ram.queue.is_empty() {
        let id = ram.execute(0);
        inlet.reply(id, Ok(()));
    }
    inlet.turn_end(Time(0), &mut ram);
    assert!(inlet.is_idle());
    assert_eq!(ram.arena.allocated_bytes(), 0);
}

#[test]
fn a_write_without_its_payload_fails_and_writes_nothing() {
    let (mut inlet, feed) = Inlet::new().unwrap();
    let (answers, answered) = channel();
    let mut ram = Ram::new();
    let want = want(RequestOp::Write, 0, 8192);
    feed.put(Probe { number: 1, want, payload: vec![7; 4096], answers: Some(answers) });
    inlet.turn_end(Time(0), &mut ram);
    assert_eq!(answered.recv().unwrap(), (1, Err(RequestError::Io)));
    assert!(ram.queue.is_empty() && inlet.is_idle());
    assert_eq!(ram.arena.allocated_bytes(), 0);
}

#[test]
fn nobody_waits_for_a_daemon_that_ends() {
    let (mut inlet, feed) = Inlet::new().unwrap();
    let (answers, answered) = channel();
    let mut ram = Ram::new();
    let put = |number| {
        let answers = Some(answers.clone());
        feed.put(Probe { number, want: want(RequestOp::Read, 0, 4096), payload: Vec::new(), answers });
    };
    put(1);
    inlet.take_in(&mut ram);
    put(2);
    inlet.stop(&mut ram);
    assert_eq!(answered.recv().unwrap(), (2, Err(RequestError::Stopping)), "it came too late");
    assert!(!inlet.is_idle(), "the first is at the engine");
    let id = ram.execute(0);
    inlet.reply(id, Ok(()));
    inlet.turn_end(Time(0), &mut ram);
    assert_eq!(answered.recv().unwrap(), (1, Ok(vec![0; 4096])));
    assert!(inlet.is_idle());
    inlet.close();
    put(3);
    assert_eq!(answered.recv().unwrap(), (3, Err(RequestError::Stopping)));
    drop(inlet);

    // At once: what is in the channel and at the engine is dropped, and says so.
    let (mut inlet, feed) = Inlet::new().unwrap();
    let put = |number| {
        let answers = Some(answers.clone());
        feed.put(Probe { number, want: want(RequestOp::Read, 0, 4096), payload: Vec::new(), answers });
    };
    put(4);
    inlet.take_in(&mut ram);
    put(5);
    drop(inlet);
    let mut numbers = [answered.recv().unwrap().0, answered.recv().unwrap().0];
    numbers.sort_unstable();
    assert_eq!(numbers, [4, 5]);
}

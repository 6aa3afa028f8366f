// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commits are in flight at the same time. A device that ends all of them at once is given the next
//! ones at once.

use flashfront_device::Arena;
use flashfront_engine::{
    BLOCK_BYTES, DeviceId, Effect, Effects, Engine, Input, Io, Lba, Memory, Op, OriginId, Request, RequestId,
    RequestOp, Time,
};
use flashfront_proof::{OriginSpec, WorldSpec};

const COMMIT_BLOCKS: u64 = 252;

/// An engine whose full commits are answered when the test says so, all else at once.
struct Held {
    engine: Engine,
    arena: Arena,
    now_ns: u64,
    commits: Vec<Io>,
    answered: u64,
    flushed: bool,
}

impl Held {
    fn opened() -> Self {
        let spec = WorldSpec {
            segment_blocks: 256,
            segments_per_lane: 512,
            origins: vec![OriginSpec { size_bytes: 1 << 30, ..WorldSpec::default().origins[0] }],
            ..WorldSpec::default()
        };
        let mut superblock = spec.superblock();
        superblock.epoch = 1;
        let mut options = spec.engine_options();
        (options.dirty_limit_blocks, options.sequential_bypass_bytes) = (Some(u64::MAX), 0);
        let empty = superblock.empty_checkpoints();
        let engine = Engine::new(superblock, options, Time(0)).expect("indexable");
        let arena = Arena::new(256 << 20);
        let mut held = Self { engine, arena, now_ns: 0, commits: Vec::new(), answered: 0, flushed: false };
        let (mut inputs, mut effects) = (vec![Input::Timer], Effects::default());
        while let Some(input) = inputs.pop() {
            held.engine.apply(Time(0), input, &mut held.arena, &mut effects);
            for effect in effects.0.drain(..) {
                let Effect::Io(io) = effect else { continue };
                if let (Op::Read, Some(span)) = (io.op, io.span) {
                    let head = empty.iter().find(|(offset, _)| *offset == io.offset);
                    held.arena.zero(span);
                    head.inspect(|(_, block)| held.arena.bytes_mut(span)[..block.len()].copy_from_slice(block));
                }
                inputs.push(Input::IoDone { token: io.token, result: Ok(()) });
            }
        }
        held
    }

    fn apply(&mut self, input: Input) {
        let (mut inputs, mut effects) = (vec![input], Effects::default());
        while let Some(input) = inputs.pop() {
            self.engine.apply(Time(self.now_ns), input, &mut self.arena, &mut effects);
            for effect in effects.0.drain(..) {
                match effect {
                    Effect::Io(io) if io.device == DeviceId::Cache && io.len > COMMIT_BLOCKS * BLOCK_BYTES => {
                        self.commits.push(io);
                    }
                    Effect::Io(io) => inputs.push(Input::IoDone { token: io.token, result: Ok(()) }),
                    Effect::Reply { id, result, .. } => {
                        assert_eq!(result, Ok(()));
                        self.answered += 1;
                        self.flushed |= id == RequestId(u64::MAX);
                    }
                    Effect::Event(_) => {}
                }
            }
        }
    }

    /// Writes of so many blocks, each another, come all at once.
    fn write(&mut self, first: u64, blocks: u64) {
        let buf = self.arena.alloc(BLOCK_BYTES as u32);
        for block in first..first + blocks {
            let (id, lba) = (RequestId(block), Lba(block * 8));
            let (origin, op, sectors) = (OriginId(0), RequestOp::Write, 8);
            self.apply(Input::Request(Request {
                id,
                origin,
                op,
                lba,
                sectors,
                buf: Some(buf),
                fua: false,
                since: Time(0),
                continues: false,
            }));
        }
    }

    /// The oldest commit in flight is written after so long.
    fn written(&mut self, after_ns: u64) {
        self.now_ns += after_ns;
        let io = self.commits.remove(0);
        self.apply(Input::IoDone { token: io.token, result: Ok(()) });
    }
}

#[test]
fn a_full_commit_waits_for_one_in_flight_and_takes_its_place_at_once() {
    let mut held = Held::opened();
    held.write(0, 20 * COMMIT_BLOCKS);
    assert_eq!(held.commits.len(), 8);
    assert_eq!(held.answered, 9 * COMMIT_BLOCKS, "in flight, and full");
    // It took so long that there are no more than before.
    held.written(1_000_000_000);
    assert_eq!((held.commits.len(), held.answered), (8, 10 * COMMIT_BLOCKS), "without another request");
}

#[test]
fn there_are_as_many_as_are_written_soon() {
    let mut held = Held::opened();
    held.write(0, 100 * COMMIT_BLOCKS);
    let in_flight = (0..60).map(|_| {
        held.written(10_000);
        held.commits.len()
    });
    let in_flight: Vec<usize> = in_flight.collect();
    assert_eq!(in_flight.iter().max(), Some(&32), "{in_flight:?}");
}

/// A full commit has no room for what is to be noted beside its blocks, and writers fill the next
/// at once.
#[test]
fn what_is_to_be_noted_does_not_wait_for_writers_to_pause() {
    let mut held = Held::opened();
    held.write(0, 60 * COMMIT_BLOCKS);
    let request = |id, op, sectors| {
        let (id, origin, lba) = (RequestId(id), OriginId(0), Lba(0));
        Input::Request(Request {
            id,
            origin,
            op,
            lba,
            sectors,
            buf: None,
            fua: false,
            since: Time(0),
            continues: false,
        })
    };
    held.apply(request(u64::MAX - 1, RequestOp::Discard, 8));
    held.apply(request(u64::MAX, RequestOp::Flush, 0));
    let written = (1..).find(|_| {
        held.written(1_000_000_000);
        held.flushed
    });
    assert!(written <= Some(20), "{written:?} of 60 were written");
}

#[test]
fn a_flush_covers_the_one_that_waits() {
    let mut held = Held::opened();
    held.write(0, 9 * COMMIT_BLOCKS);
    assert_eq!((held.commits.len(), held.answered), (8, 9 * COMMIT_BLOCKS));
    let (id, origin, op, lba) = (RequestId(u64::MAX), OriginId(0), RequestOp::Flush, Lba(0));
    held.apply(Input::Request(Request {
        id,
        origin,
        op,
        lba,
        sectors: 0,
        buf: None,
        fua: false,
        since: Time(0),
        continues: false,
    }));
    let mut written = 0;
    while !held.commits.is_empty() {
        assert!(!held.flushed, "{written} of 9 are written");
        held.written(1_000);
        written += 1;
    }
    assert!(held.flushed && written == 9, "{written}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of power cuts, and of reproducibility.

use flashfront_engine::{DeviceError, Memory, Op, Span, Time, Token};

use super::{DISCARDED, Fate, RamDisk, RamSpec};
use crate::{Arena, Device, DeviceIo, Done};

const FATES: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Mixed];
const LEN: u64 = 8192;

struct World {
    disk: RamDisk,
    arena: Arena,
    now: Time,
    tokens: u64,
}

fn world() -> World {
    world_of(RamSpec::default())
}

fn world_of(spec: RamSpec) -> World {
    World { disk: RamDisk::new(spec), arena: Arena::new(64 << 20), now: Time(0), tokens: 0 }
}

impl World {
    fn submit(&mut self, op: Op, offset: u64, fill: u8) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let span = matches!(op, Op::Read | Op::Write).then(|| Span::new(self.arena.alloc(LEN as u32), 0, LEN as u32));
        if let Some(span) = span {
            self.arena.bytes_mut(span).fill(fill);
        }
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, LEN) };
        self.disk.submit(self.now, DeviceIo { token, op, offset, len, span }, &mut self.arena);
        token
    }

    /// Lets everything in flight complete.
    fn settle(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        while let Some(event) = self.disk.next_event() {
            self.now = event;
            self.disk.poll(event, &mut self.arena, &mut done);
        }
        done
    }

    fn run(&mut self, op: Op, offset: u64, fill: u8) -> Result<(), DeviceError> {
        self.submit(op, offset, fill);
        self.settle()[0].result
    }
}

/// The 16 sectors at the offset, each by its first byte; asserts that none is torn inside.
fn sectors(disk: &RamDisk, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    disk.peek(offset, &mut bytes);
    let sectors = bytes.chunks(512);
    sectors.inspect(|sector| assert!(sector.iter().all(|byte| *byte == sector[0]))).map(|sector| sector[0]).collect()
}

#[test]
fn flushed_writes_survive_every_fate() {
    let mut world = world();
    for i in 0..32 {
        world.run(Op::Write, i * LEN, i as u8 + 1).unwrap();
    }
    world.run(Op::Flush, 0, 0).unwrap();
    assert_eq!(world.disk.unflushed_writes(), 0);
    for i in 0..32 {
        world.submit(Op::Write, (32 + i) * LEN, 0xff);
    }
    for fate in FATES {
        for seed in 0..20 {
            let after = world.disk.crash(seed, fate);
            for i in 0..32 {
                assert_eq!(sectors(&after, i * LEN), [i as u8 + 1; 16]);
            }
        }
    }
}

#[test]
fn unflushed_and_flying_writes_are_kept_lost_or_torn() {
    let mut world = world();
    world.run(Op::Write, 0, 1).unwrap();
    world.submit(Op::Write, LEN, 2);
    let seen = |fate, offset| {
        (0..100).map(|seed| sectors(&world.disk.crash(seed, fate), offset)).collect::<std::collections::BTreeSet<_>>()
    };
    for (offset, byte) in [(0, 1), (LEN, 2)] {
        assert_eq!(seen(Fate::Kept, offset), [vec![byte; 16]].into());
        assert_eq!(seen(Fate::Lost, offset), [vec![0; 16]].into());
        for fate in [Fate::Torn, Fate::Mixed] {
            let seen = seen(fate, offset);
            assert!(seen.len() > 20, "{fate:?}: {} ways", seen.len());
            assert!(seen.contains(&vec![byte; 16]) && seen.contains(&vec![0; 16]));
            // A prefix, a suffix, and holes.
            for shape in [
                |s: &[bool]| s[0] && !s[15],
                |s: &[bool]| !s[0] && s[15],
                |s: &[bool]| s.windows(3).any(|w| w == [true, false, true]),
            ] {
                assert!(seen.iter().any(|s| shape(&s.iter().map(|x| *x == byte).collect::<Vec<_>>())), "{fate:?}");
            }
        }
    }
}

/// Each write has its own fate: with two of them all four combinations occur.
#[test]
fn fates_are_independent() {
    let mut world = world();
    world.run(Op::Write, 0, 1).unwrap();
    world.run(Op::Write, 1 << 20, 2).unwrap();
    let seen: std::collections::BTreeSet<_> = (0..100)
        .map(|seed| world.disk.crash(seed, Fate::Mixed))
        .map(|after| (sectors(&after, 0) == [1; 16], sectors(&after, 1 << 20) == [2; 16]))
        .collect();
    assert_eq!(seen.len(), 4);
}

/// A flush covers what had completed when it was *submitted*, not what completed before it did.
#[test]
fn a_flush_covers_what_completed_before_its_submission() {
    let mut world = world_of(RamSpec { jitter_ns: 0, ..RamSpec::default() });
    world.run(Op::Write, 0, 1).unwrap();
    // Completes before the flush, but was in flight when the flush was submitted.
    world.submit(Op::Write, LEN, 2);
    world.now = world.now.plus_ns(10);
    world.submit(Op::Flush, 0, 0);
    let during = world.disk.crash(0, Fate::Lost);
    assert_eq!(sectors(&during, 0), [0; 16], "a flush in flight promises nothing");
    assert!(world.settle().iter().all(|done| done.result.is_ok()));
    let after = world.disk.crash(0, Fate::Lost);
    assert_eq!(sectors(&after, 0), [1; 16]);
    assert_eq!(sectors(&after, LEN), [0; 16]);
    world.run(Op::Flush, 0, 0).unwrap();
    assert_eq!(sectors(&world.disk.crash(0, Fate::Lost), LEN), [2; 16]);
}

#[test]
fn of_two_completed_writes_the_older_never_wins() {
    let mut world = world();
    world.run(Op::Write, 0, 1).unwrap();
    world.run(Op::Flush, 0, 0).unwrap();
    world.run(Op::Write, 0, 2).unwrap();
    world.run(Op::Write, 0, 3).unwrap();
    world.run(Op::Flush, 0, 0).unwrap();
    for fate in FATES {
        assert_eq!(sectors(&world.disk.crash(1, fate), 0), [3; 16]);
    }
}

#[test]
fn a_write_is_visible_from_its_completion_on() {
    let mut world = world();
    world.submit(Op::Write, 0, 1);
    assert_eq!(sectors(&world.disk, 0), [0; 16]);
    world.settle();
    assert_eq!(sectors(&world.disk, 0), [1; 16]);
}

#[test]
fn zero_and_discard_are_writes_too() {
    let mut world = world();
    world.run(Op::Write, 0, 1).unwrap();
    world.run(Op::Write, LEN, 1).unwrap();
    world.run(Op::Flush, 0, 0).unwrap();
    world.run(Op::Zero, 0, 0).unwrap();
    world.run(Op::Discard, LEN, 0).unwrap();
    assert_eq!((sectors(&world.disk, 0), sectors(&world.disk, LEN)), (vec![0; 16], vec![DISCARDED; 16]));
    let lost = world.disk.crash(0, Fate::Lost);
    assert_eq!((sectors(&lost, 0), sectors(&lost, LEN)), (vec![1; 16], vec![1; 16]));
}

#[test]
fn completions_reorder_and_a_seed_reproduces_everything() {
    let history = |seed| {
        let mut world = world_of(RamSpec { seed, ..RamSpec::default() });
        let submitted: Vec<_> = (0..64).map(|i| world.submit(Op::Write, i % 7 * 4096, i as u8)).collect();
        world.disk.poll(Time(125_000), &mut world.arena, &mut Vec::new());
        let after = world.disk.crash(seed, Fate::Mixed);
        let order: Vec<_> = world.settle().iter().map(|done| done.token).collect();
        assert_ne!(order[..], submitted[64 - order.len()..]);
        let image: Vec<_> = (0..4).flat_map(|i| sectors(&after, i * LEN)).collect();
        (order, image)
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

#[test]
fn corruption_is_one_bit_and_stays() {
    let mut world = world();
    world.run(Op::Write, 0, 1).unwrap();
    for flushed in [false, true] {
        let before = if flushed {
            world.run(Op::Flush, 0, 0).unwrap();
            777
        } else {
            776
        };
        world.disk.corrupt(before);
        for disk in [world.disk.crash(0, Fate::Kept), world.disk.clone()] {
            let mut byte = [0];
            disk.peek(before, &mut byte);
            assert_eq!((byte[0] ^ 1).count_ones(), 1);
        }
    }
}

#[test]
fn a_kill_keeps_what_was_completed_as_unflushed_as_it_was() {
    let mut all = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let mut world = world();
        world.run(Op::Write, 0, 1).unwrap();
        world.run(Op::Flush, 0, 0).unwrap();
        world.run(Op::Write, 0, 2).unwrap();
        world.submit(Op::Write, LEN, 3);
        let mut killed = world.disk.crash(seed, Fate::Killed);
        assert_eq!(killed.in_flight(), 0);
        assert_eq!(sectors(&killed, 0), [2; 16]);
        let flying = sectors(&killed, LEN);
        let there = flying.iter().take_while(|byte| **byte == 3).count();
        assert!(flying[there..].iter().all(|byte| *byte == 0), "its beginning, not some of it");
        all.insert(there);
        // The power fails later.
        let cut = killed.crash(seed, Fate::Lost);
        assert_eq!((sectors(&cut, 0), sectors(&cut, LEN)), (vec![1; 16], vec![0; 16]));
        // Or there is a flush first.
        killed.submit(
            world.now,
            DeviceIo { token: Token(99), op: Op::Flush, offset: 0, len: 0, span: None },
            &mut world.arena,
        );
        killed.poll(Time(u64::MAX), &mut world.arena, &mut Vec::new());
        let cut = killed.crash(seed, Fate::Lost);
        assert_eq!((sectors(&cut, 0), sectors(&cut, LEN)), (vec![2; 16], flying));
    }
    assert!(all.contains(&0) && all.contains(&16) && all.len() > 2, "{all:?}");
}

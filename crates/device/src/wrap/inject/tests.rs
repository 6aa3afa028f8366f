// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of each fault: what the caller is told, what is on the medium then, and that a seed
//! repeats it.

use flashfront_engine::{DeviceError, Memory, Op, Span, Time, Token};

use super::{Fault, Faults, Inject, Rule, SpecError};
use crate::sim::{Fate, RamDisk, RamSpec};
use crate::{Arena, Device, DeviceIo, Done};

const LEN: u64 = 8192;

struct World {
    disk: Inject<RamDisk>,
    arena: Arena,
    now: Time,
    tokens: u64,
}

fn world(spec: &str) -> World {
    let faults = if spec.is_empty() { Faults::default() } else { spec.parse().unwrap() };
    let disk = RamDisk::new(RamSpec { size_bytes: 1 << 20, ..RamSpec::default() });
    World { disk: Inject::new(disk, faults), arena: Arena::new(64 << 20), now: Time(0), tokens: 0 }
}

impl World {
    fn submit(&mut self, op: Op, offset: u64, fill: u8) -> Option<Span> {
        self.tokens += 1;
        let token = Token(self.tokens);
        let span = matches!(op, Op::Read | Op::Write).then(|| Span::new(self.arena.alloc(LEN as u32), 0, LEN as u32));
        if let Some(span) = span {
            self.arena.bytes_mut(span).fill(fill);
        }
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, LEN) };
        self.disk.submit(self.now, DeviceIo { token, op, offset, len, span }, &mut self.arena);
        span
    }

    fn settle(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        while let Some(event) = self.disk.next_event() {
            self.now = self.now.max(event);
            self.disk.poll(self.now, &mut self.arena, &mut done);
        }
        done
    }

    fn run(&mut self, op: Op, offset: u64, fill: u8) -> Result<(), DeviceError> {
        let span = self.submit(op, offset, fill);
        let done = self.settle();
        assert_eq!(done.len(), 1);
        if let (Op::Write, Some(span)) = (op, span) {
            assert!(self.arena.bytes(span).iter().all(|byte| *byte == fill), "the caller's memory was changed");
        }
        done[0].result
    }

    fn read(&mut self, offset: u64) -> Vec<u8> {
        let span = self.submit(Op::Read, offset, 0x5a).unwrap();
        assert_eq!(self.settle()[0].result, Ok(()));
        self.arena.bytes(span).to_vec()
    }

    /// The bytes on the medium.
    fn medium(&self, offset: u64) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        self.disk.inner().peek(offset, &mut bytes);
        bytes
    }
}

fn bits_off(bytes: &[u8], fill: u8) -> u32 {
    bytes.iter().map(|byte| (byte ^ fill).count_ones()).sum()
}

#[test]
fn faults_hit_what_they_were_ordered_for() {
    let mut world = world("");
    world.disk.faults.fail_nth(1, Some(Op::Write), DeviceError::NoSpace);
    assert_eq!(world.run(Op::Write, 0, 1), Ok(()));
    assert_eq!(world.run(Op::Read, 0, 0), Ok(()));
    assert_eq!(world.run(Op::Write, 0, 2), Err(DeviceError::NoSpace));
    assert_eq!(world.medium(0), [1; LEN as usize]);
    assert_eq!(world.run(Op::Write, 0, 3), Ok(()));

    world.disk.faults.fail_range(4096..4097, Some(Op::Read), DeviceError::Io);
    assert_eq!(world.run(Op::Read, 0, 0), Err(DeviceError::Io));
    assert_eq!(world.run(Op::Write, 0, 4), Ok(()));
    assert_eq!(world.run(Op::Read, LEN, 0), Ok(()));
    world.disk.faults.heal();
    assert_eq!(world.run(Op::Read, 0, 0), Ok(()));

    // A failed flush makes nothing durable.
    world.disk.faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
    assert_eq!(world.run(Op::Flush, 0, 0), Err(DeviceError::Io));
    let after = world.disk.inner().crash(0, Fate::Lost);
    let mut byte = [9];
    after.peek(0, &mut byte);
    assert_eq!(byte, [0]);

    world.submit(Op::Write, 0, 5);
    world.disk.faults.lose_device();
    assert_eq!(world.settle()[0].result, Err(DeviceError::Gone));
    assert_eq!(world.run(Op::Read, 0, 0), Err(DeviceError::Gone));
    world.disk.faults.return_device();
    assert_eq!(world.run(Op::Read, 0, 0), Ok(()));
    assert_eq!(world.disk.faults.hits().values().sum::<u64>(), 3, "{:?}", world.disk.faults.hits());
}

#[test]
fn a_device_that_is_gone_for_a_time_comes_back() {
    let mut world = world("gone,after=2,for=1s");
    assert_eq!(world.run(Op::Write, 0, 1), Ok(()));
    world.submit(Op::Write, 0, 2);
    world.submit(Op::Read, 0, 0);
    assert!(world.settle().iter().all(|done| done.result == Err(DeviceError::Gone)), "also what is in flight");
    world.now = world.now.plus_ns(500_000_000);
    assert_eq!(world.run(Op::Flush, 0, 0), Err(DeviceError::Gone));
    world.now = world.now.plus_ns(500_000_000);
    assert_eq!(world.run(Op::Flush, 0, 0), Ok(()));
    assert_eq!(world.run(Op::Write, 0, 3), Ok(()), "and stays");
}

#[test]
fn any_fault_heals_after_its_time_and_the_time_begins_with_the_first_hit() {
    let mut world = world("eio,op=write,after=1,for=3s");
    world.now = Time(10_000_000_000);
    assert_eq!(world.run(Op::Write, 0, 1), Ok(()));
    let first = world.now;
    assert_eq!(world.run(Op::Write, 0, 2), Err(DeviceError::Io));
    world.now = first.plus_ns(2_999_000_000);
    assert_eq!(world.run(Op::Write, 0, 3), Err(DeviceError::Io));
    world.now = first.plus_ns(3_000_000_000);
    assert_eq!(world.run(Op::Write, 0, 4), Ok(()));
    assert!(!world.disk.faults.ordered());
}

#[test]
fn a_timeout_comes_late_and_then_fails_and_a_stall_succeeds() {
    let mut happened = 0;
    for seed in 0..20 {
        let mut world = world(&format!("seed={seed};timeout,hold=3s,times=1"));
        assert_eq!(world.run(Op::Write, 0, 1), Err(DeviceError::Io));
        assert_eq!(world.now, Time(3_000_000_000));
        happened += u32::from(world.medium(0)[0] == 1);
    }
    assert!((1..20).contains(&happened), "a write that timed out may have happened: {happened} of 20");
    let mut world = world("stall,op=read,hold=3s");
    assert_eq!(world.run(Op::Write, 0, 7), Ok(()));
    assert!(world.now < Time(1_000_000));
    assert_eq!(world.read(0), [7; LEN as usize]);
    assert!(world.now > Time(3_000_000_000));
}

#[test]
fn a_short_write_is_a_prefix_and_fails() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let mut world = world(&format!("seed={seed};short"));
        assert_eq!(world.run(Op::Write, 0, 1), Err(DeviceError::Io));
        let medium = world.medium(0);
        let written = medium.iter().take_while(|byte| **byte == 1).count();
        assert!(medium[written..].iter().all(|byte| *byte == 0), "a prefix");
        seen.insert(written / 512);
    }
    assert!(seen.len() > 8 && seen.contains(&0) && !seen.contains(&16), "{seen:?}");
}

#[test]
fn flips_are_one_bit_each_way() {
    let mut world = world("flip,op=read,times=1");
    world.run(Op::Write, 0, 1).unwrap();
    assert_eq!(bits_off(&world.read(0), 1), 1);
    assert_eq!(bits_off(&world.read(0), 1), 0, "on the way only");
    world.disk.faults.order(Rule { op: Some(Op::Write), bytes: Some(100..101), ..Rule::always(Fault::Flip) });
    let held = world.arena.allocated_bytes();
    world.run(Op::Write, 0, 2).unwrap();
    assert_eq!(bits_off(&world.medium(0)[100..101], 2), 1);
    assert_eq!(bits_off(&world.medium(0), 2), 1);
    assert_eq!(world.arena.allocated_bytes(), held + LEN, "the copy is given back");
}

#[test]
fn rot_stays_until_it_is_written_over() {
    let mut world = world("rot,op=read,at=4096..,times=1");
    world.run(Op::Write, 0, 1).unwrap();
    let rotten = world.read(0);
    assert_eq!((bits_off(&rotten, 1), bits_off(&rotten[4096..], 1)), (1, 1));
    assert_eq!(world.read(0), rotten);
    assert_eq!(bits_off(&world.medium(0), 1), 0, "what is on the device is not harmed");
    world.run(Op::Write, 0, 1).unwrap();
    assert_eq!(bits_off(&world.read(0), 1), 0);
}

#[test]
fn lies_are_acknowledged() {
    let mut world = world("lost,times=1;lost,op=flush");
    assert_eq!(world.run(Op::Write, 0, 1), Ok(()));
    assert_eq!(world.medium(0), [0; LEN as usize], "lost");
    assert_eq!(world.run(Op::Write, 0, 1), Ok(()));
    assert_eq!(world.run(Op::Flush, 0, 0), Ok(()));
    assert!(world.disk.inner().at_risk(), "the flush was a lie");

    let mut world = self::world("seed=3;misdirect,op=write");
    assert_eq!(world.run(Op::Write, 0, 1), Ok(()));
    let mut all = vec![0; 1 << 20];
    world.disk.inner().peek(0, &mut all);
    let at = all.iter().position(|byte| *byte == 1).unwrap();
    assert!(at > 0 && at.is_multiple_of(512));
    assert_eq!(all.iter().filter(|byte| **byte == 1).count() as u64, LEN);
}

#[test]
fn a_seed_repeats_all_chance() {
    let history = |seed: u64| {
        let mut world = world(&format!("seed={seed};eio,op=read,p=0.3;short,p=0.2;flip,op=write,p=0.2;rot,p=0.1"));
        let results: Vec<_> =
            (0..200).map(|n| world.run([Op::Write, Op::Read][n % 2], n as u64 % 7 * LEN, n as u8).is_ok()).collect();
        (results, world.medium(0), world.disk.faults.hits().clone())
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
    let failed = history(1).0[..].iter().filter(|ok| !**ok).count();
    assert!((20..80).contains(&failed), "{failed} of 200: a probability is what it says");
}

#[test]
fn specs_are_read_and_mistakes_are_named() {
    let faults: Faults = "seed=7; eio,op=read,p=0.001,at=1MiB..2M ; gone , after=100,for=5min;".parse().unwrap();
    assert!(faults.ordered());
    for (text, says) in [
        ("", "eio, nospace"),
        ("seed=3", "no fault is named"),
        ("fire", "`fire` is no fault"),
        ("eio,op=erase", "read, write, flush"),
        ("rot,op=write", "no sense with `rot`"),
        ("flip,op=flush", "no sense with `flip`"),
        ("eio,hold=3s", "no sense with `eio`"),
        ("eio,p=2", "from 0.000001 to 1"),
        ("eio,p=often", "`p=often`"),
        ("eio,at=7", "a range of bytes"),
        ("eio,at=5..5", "a range of bytes"),
        ("eio,after=soon", "a whole number"),
        ("timeout,hold=3", "a time, as in"),
        ("eio,when=noon", "`when=noon` in `eio,when=noon`"),
        ("seed=x;eio", "a whole number"),
    ] {
        let error: SpecError = text.parse::<Faults>().unwrap_err();
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}

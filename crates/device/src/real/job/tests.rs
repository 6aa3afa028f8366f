// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the state machine without a kernel, and of the last resorts with one.

use std::sync::Arc;

use flashfront_engine::{DeviceError, Memory, Op, Span, Time, Token};
use rustix::io::Errno;

use super::{Job, RETRIES_MAX, Step, Way};
use crate::real::{Access, DeviceFile, Prefer, Reactor};
use crate::{Arena, DeviceIo};

struct World {
    arena: Arena,
    file: Arc<DeviceFile>,
    _folder: tempfile::TempDir,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let file = Arc::new(DeviceFile::open(&path, Access::Exclusive).unwrap());
    World { arena: Arena::new(8 << 20), file, _folder: folder }
}

impl World {
    fn job(&mut self, op: Op, len: u64) -> Job {
        let span = matches!(op, Op::Read | Op::Write).then(|| Span::new(self.arena.alloc(len as u32), 0, len as u32));
        let io = DeviceIo { token: Token(1), op, offset: 8192, len, span };
        Job::new(&self.file, 0, false, &io, &self.arena)
    }
}

#[test]
fn short_transfers_go_on_with_the_rest() {
    let mut world = world();
    for op in [Op::Read, Op::Write] {
        let mut job = world.job(op, 65536);
        let start = job.at;
        assert_eq!(job.advance(Ok(4096)), None);
        // Bytes beyond a block border are done again: direct I/O can't start inside a block.
        let odd = world.file.geometry().logical_block_bytes + 7;
        assert_eq!(job.advance(Ok(odd)), None);
        let moved = 4096 + u64::from(odd) - 7;
        match job.step() {
            Step::Read { offset, len, to: at } | Step::Write { offset, len, from: at } => {
                assert_eq!(offset, 8192 + moved);
                assert_eq!(u64::from(len), 65536 - moved);
                assert_eq!(at.as_ptr().addr() - start.as_ptr().addr(), moved as usize);
            }
            step => panic!("{step:?}"),
        }
        assert_eq!(job.advance(Ok(65536 - moved as u32)), Some(Ok(())));
    }
}

#[test]
fn no_progress_is_an_error_and_no_loop() {
    let mut world = world();
    for op in [Op::Read, Op::Write] {
        assert_eq!(world.job(op, 4096).advance(Ok(0)), Some(Err(DeviceError::Io)));
        assert_eq!(world.job(op, 4096).advance(Ok(511)), Some(Err(DeviceError::Io)));
    }
}

#[test]
fn interruptions_are_tried_again_but_not_for_ever() {
    let mut world = world();
    for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Zero, Op::Punch] {
        let mut job = world.job(op, 4096);
        for i in 0..RETRIES_MAX {
            assert_eq!(job.advance(Err(if i % 2 == 0 { Errno::INTR } else { Errno::AGAIN })), None);
        }
        assert_eq!(job.advance(Err(Errno::AGAIN)), Some(Err(DeviceError::Io)));
    }
}

#[test]
fn error_numbers_have_words() {
    let mut world = world();
    for (errno, error) in [
        (Errno::IO, DeviceError::Io),
        (Errno::INVAL, DeviceError::Io),
        (Errno::NOSPC, DeviceError::NoSpace),
        (Errno::DQUOT, DeviceError::NoSpace),
        (Errno::FBIG, DeviceError::NoSpace),
        (Errno::ROFS, DeviceError::ReadOnly),
        (Errno::PERM, DeviceError::ReadOnly),
        (Errno::NODEV, DeviceError::Gone),
        (Errno::NXIO, DeviceError::Gone),
    ] {
        assert_eq!(world.job(Op::Write, 4096).advance(Err(errno)), Some(Err(error)));
        assert_eq!(world.job(Op::Flush, 0).advance(Err(errno)), Some(Err(error)));
    }
}

#[test]
fn zero_and_discard_fall_back() {
    let mut world = world();
    for (op, ways) in [
        // Never a hole: the client wants the space.
        (Op::Zero, &[Way::ZeroRange, Way::WriteZeroes][..]),
        (Op::Punch, &[Way::PunchZero, Way::ZeroRange, Way::WriteZeroes]),
    ] {
        for refusal in [Errno::OPNOTSUPP, Errno::INVAL, Errno::REMOTEIO] {
            let mut job = world.job(op, 3 << 19);
            let (last, before) = ways.split_last().unwrap();
            for way in before {
                assert_eq!((job.way, job.advance(Err(refusal))), (*way, None), "{op:?}");
            }
            assert_eq!(job.way, *last, "{op:?}");
            let Step::Write { len, .. } = job.step() else { panic!("{job:?}") };
            assert_eq!(job.advance(Ok(len)), None);
            assert_eq!(job.advance(Ok(1 << 19)), Some(Ok(())));
        }
        // A full file system is no reason to fall back.
        assert_eq!(world.job(op, 4096).advance(Err(Errno::NOSPC)), Some(Err(DeviceError::NoSpace)));
    }
    assert_eq!(world.job(Op::Discard, 4096).advance(Err(Errno::OPNOTSUPP)), Some(Err(DeviceError::Unsupported)));
}

/// Last resorts, which no file system here needs, on every backend. Zeroes are written on a regular
/// file (which reads back); BLKDISCARD (which a regular file refuses) goes through the ring's side
/// thread.
#[test]
fn last_resorts_work() {
    for prefer in [Prefer::Uring, Prefer::Threads] {
        let mut world = world();
        let reactor = Reactor::new(prefer).unwrap();
        let path = world.file.path().with_extension("2");
        std::fs::write(&path, vec![0x77; 4 << 20]).unwrap();
        let mut device = reactor.open(&path, Access::Exclusive).unwrap();

        let middle = 4096 + (1 << 20);
        device.queue(Op::Zero, 4096, 1 << 20, &world.arena, Job::last_resort);
        assert_eq!(end(&mut device, &reactor, &mut world.arena), Ok(()));
        device.queue(Op::Punch, middle, (3 << 20) - 4096 - middle, &world.arena, Job::last_resort);
        assert_eq!(end(&mut device, &reactor, &mut world.arena), Ok(()));
        let mut bytes = vec![0; 4 << 20];
        device.file().read_at(0, &mut bytes).unwrap();
        assert!(bytes[..4096].iter().all(|byte| *byte == 0x77));
        assert!(bytes[4096..(3 << 20) - 4096].iter().all(|byte| *byte == 0));
        assert!(bytes[(3 << 20) - 4096..].iter().all(|byte| *byte == 0x77));

        for _ in 0..3 {
            device.queue(Op::Discard, 4096, 4096, &world.arena, Job::last_resort);
            assert_eq!(end(&mut device, &reactor, &mut world.arena), Err(DeviceError::Unsupported));
        }
    }
}

/// BLKDISCARD where it works: on a loop device, whose holes read as zeroes.
#[test]
fn blkdiscard_works_on_a_block_device() {
    let folder = tempfile::tempdir().unwrap();
    let backing = folder.path().join("backing");
    std::fs::write(&backing, vec![0x77; 4 << 20]).unwrap();
    let losetup = |args: &[&str]| std::process::Command::new("losetup").args(args).output();
    let made = losetup(&["--find", "--show", backing.to_str().unwrap()]);
    let Some(made) = made.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: no loop device to be had");
        return;
    };
    let path = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    for (i, prefer) in [Prefer::Uring, Prefer::Threads].into_iter().enumerate() {
        let mut arena = Arena::new(8 << 20);
        let reactor = Reactor::new(prefer).unwrap();
        let mut device = reactor.open(path.as_ref(), Access::Exclusive).unwrap();
        let at = (i as u64) << 20;
        device.queue(Op::Discard, at, 65536, &arena, Job::last_resort);
        assert_eq!(end(&mut device, &reactor, &mut arena), Ok(()));
        let mut bytes = vec![0; 65536 + 512];
        device.file().read_at(at, &mut bytes).unwrap();
        assert!(bytes[..65536].iter().all(|byte| *byte == 0) && bytes[65536..].iter().all(|byte| *byte == 0x77));
    }
    assert!(losetup(&["--detach", &path]).unwrap().status.success());
}

fn end(device: &mut crate::real::RealDevice, reactor: &Reactor, arena: &mut Arena) -> Result<(), DeviceError> {
    use crate::Device;
    device.kick();
    let mut done = Vec::new();
    loop {
        device.poll(Time(0), arena, &mut done);
        if let Some(done) = done.first() {
            return done.result;
        }
        reactor.wait(None, None).unwrap();
    }
}

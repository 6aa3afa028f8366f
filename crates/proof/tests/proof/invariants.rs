// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each invariant of ARCHITECTURE.md has a test of its name here: a short, directed life of a
//! cache. The random lives in `torture.rs` look for what these don't think of.

use flashfront_device::sim::Fate;
use flashfront_engine::{
    BLOCK_BYTES, Control, DeviceError, Durability, Event, Mode, Op, Options, OriginId, RequestError, RequestOp,
};
use flashfront_proof::{Answer, Content, OriginSpec, World, WorldSpec, identify};

const FATES: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Mixed];
const SECOND: u64 = 1_000_000_000;

fn spec(mode: Mode) -> WorldSpec {
    let origin = OriginSpec { size_bytes: 8 << 20, logical_block_bytes: 512, mode };
    WorldSpec { origins: vec![origin], ..WorldSpec::default() }
}

fn opened(spec: WorldSpec) -> World {
    let mut world = World::format(spec);
    world.open().expect("a fresh cache opens");
    world
}

/// Carries out a request, to its end.
fn ask(world: &mut World, op: RequestOp, block: u64, blocks: u64, fua: bool, write: Option<u32>) -> Answer {
    let id = world.submit(op, 0, block * 8, blocks * 8, fua, write);
    world.finish_requests();
    let at = world.answers.iter().position(|answer| answer.id == id).expect("it is answered");
    world.answers.swap_remove(at)
}

fn write(world: &mut World, block: u64, blocks: u64, number: u32) {
    let answer = ask(world, RequestOp::Write, block, blocks, false, Some(number));
    assert_eq!(answer.result, Ok(()));
}

fn flush(world: &mut World) {
    assert_eq!(ask(world, RequestOp::Flush, 0, 0, false, None).result, Ok(()));
}

/// What the first sector of a block holds.
fn read(world: &mut World, block: u64) -> Result<Content, RequestError> {
    let answer = ask(world, RequestOp::Read, block, 1, false, None);
    answer.result?;
    let sectors = (block * 8..).zip(answer.data.chunks_exact(512));
    let contents: Vec<Content> = sectors.map(|(sector, bytes)| identify(0, sector, bytes)).collect();
    assert!(contents.iter().all(|it| *it == contents[0]), "block {block} is made up of {contents:?}");
    Ok(contents[0])
}

fn on_origin(world: &World, block: u64) -> Content {
    let mut bytes = [0; 512];
    world.origins[0].inner().peek(block * BLOCK_BYTES, &mut bytes);
    identify(0, block * 8, &bytes)
}

#[test]
fn acknowledged_and_flushed_survives_any_crash() {
    for fate in FATES {
        for seed in 0..12 {
            let mut world = opened(spec(Mode::Writeback));
            write(&mut world, 10, 3, 1);
            flush(&mut world);
            let answer = ask(&mut world, RequestOp::Write, 40, 1, true, Some(2));
            assert_eq!(answer.result, Ok(()), "a write with FUA");
            // These may be lost, and must not take the others with them.
            for number in 3..3 + seed as u32 {
                world.submit(RequestOp::Write, 0, (10 + u64::from(number)) * 8 + 3, 20, false, Some(number));
                world.step();
            }
            let mut after = world.crash(seed, fate, fate);
            after.open().expect("opens after a crash");
            assert_eq!(read(&mut after, 10), Ok(Content::Write(1)), "{fate:?} {seed}");
            assert_eq!(read(&mut after, 40), Ok(Content::Write(2)), "{fate:?} {seed}: FUA");
        }
    }
}

#[test]
fn reads_return_the_newest_write() {
    for mode in Mode::ALL {
        let mut world = opened(spec(mode));
        for number in 1..200u32 {
            let block = u64::from(number) * 7 % 32;
            write(&mut world, block, 1, number);
            assert_eq!(read(&mut world, block), Ok(Content::Write(number)), "{mode}");
            if number % 16 == 0 {
                // From the device, and from the origin after destage, as well as from RAM.
                flush(&mut world);
                world.pass(SECOND);
                assert_eq!(read(&mut world, block), Ok(Content::Write(number)), "{mode}, later");
            }
        }
    }
}

#[test]
fn nothing_old_comes_back() {
    for fate in FATES {
        for (seed, mode) in Mode::ALL.into_iter().enumerate() {
            let mut world = opened(spec(Mode::Writeback));
            write(&mut world, 5, 2, 1);
            flush(&mut world);
            read(&mut world, 6).expect("a read");
            world.control(Control::SetMode { origin: OriginId(0), mode });
            write(&mut world, 5, 2, 2);
            flush(&mut world);
            let mut after = world.crash(seed as u64, fate, fate);
            after.open().expect("opens after a crash");
            assert_eq!(read(&mut after, 5), Ok(Content::Write(2)), "{fate:?} {mode}: after the crash");
            after.drain();
            // Push it out of the cache: what the origin has must be the same.
            for block in 0..1500 {
                read(&mut after, 64 + block).expect("a read");
            }
            assert_eq!(read(&mut after, 5), Ok(Content::Write(2)), "{fate:?} {mode}: after eviction");
            assert_eq!(on_origin(&after, 5), Content::Write(2), "{fate:?} {mode}: on the origin");
        }
    }
}

/// A clean block is what its origin holds, whatever the crash: the world compares them all after
/// each replay. So what somebody else writes there is seen.
#[test]
fn a_clean_block_is_what_the_origin_holds() {
    for (seed, fate) in FATES.into_iter().enumerate() {
        for mode in Mode::ALL {
            let mut world = opened(spec(Mode::Writeback));
            write(&mut world, 5, 2, 1);
            read(&mut world, 900).expect("a read");
            world.drain();
            // The commit of this one says that those are clean.
            write(&mut world, 200, 1, 9);
            flush(&mut world);
            world.control(Control::SetMode { origin: OriginId(0), mode });
            for number in 2..6 {
                write(&mut world, 300 + u64::from(number), 3, number);
            }
            let mut after = world.crash(seed as u64, fate, fate);
            after.open().expect("opens after a crash");
            let clean = after.engine().clean_blocks(usize::MAX);
            assert!(clean.iter().any(|key| key.block.0 == 6), "{fate:?} {mode}");
            let mut changed = after.crash(seed as u64, Fate::Killed, Fate::Killed);
            changed.origins[0].inner_mut().poke(6 * BLOCK_BYTES + 512, &[7; 512]);
            let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| changed.open()));
            assert!(opened.is_err(), "{fate:?} {mode}: a changed block is not seen");
        }
    }
}

#[test]
fn dirty_until_durable() {
    let mut world = opened(spec(Mode::Writeback));
    write(&mut world, 7, 4, 1);
    flush(&mut world);
    // The write to the origin fails: still dirty, told, and tried again.
    world.origins[0].faults.fail_nth(0, Some(Op::Write), DeviceError::Io);
    world.control(Control::Drain(true));
    world.drive_until(|world| world.events.iter().any(|event| matches!(event, Event::DestageFailed { .. })));
    assert_eq!(world.engine().status().blocks_dirty, 4);
    // The flush after it fails: still dirty, although the origin has the bytes.
    world.origins[0].faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
    let failures =
        |world: &World| world.events.iter().filter(|event| matches!(event, Event::DestageFailed { .. })).count();
    // What was refused at once is tried in halves, and both halves fail.
    world.drive_until(|world| failures(world) >= 2);
    assert_eq!(world.engine().status().blocks_dirty, 4, "clean before the origin's flush");
    let mut after = world.crash(1, Fate::Lost, Fate::Lost);
    after.open().expect("opens");
    assert_eq!(after.engine().status().blocks_dirty, 4);
    world.drive_until(|world| world.events.contains(&Event::Drained));
    assert_eq!(world.engine().status().blocks_dirty, 0);
    let cut = world.crash(2, Fate::Kept, Fate::Lost);
    assert_eq!(on_origin(&cut, 7), Content::Write(1), "clean means durable on the origin");
}

/// Where a block's bytes are on the cache device.
fn find_on_cache(world: &World, block: u64) -> u64 {
    let size = world.spec.superblock().cache_bytes;
    let mut bytes = [0; 512];
    for offset in (0..size).step_by(BLOCK_BYTES as usize) {
        world.cache.inner().peek(offset, &mut bytes);
        if matches!(identify(0, block * 8, &bytes), Content::Write(_)) {
            return offset;
        }
    }
    panic!("block {block} is not on the cache device");
}

#[test]
fn corruption_never_leaves() {
    let mut world = opened(spec(Mode::Writeback));
    write(&mut world, 3, 1, 1);
    write(&mut world, 4, 1, 2);
    flush(&mut world);
    let (dirty, clean) = (find_on_cache(&world, 3), find_on_cache(&world, 4));
    // Block 4 is clean when its copy rots; block 3 is written anew and dirty.
    world.drain();
    write(&mut world, 3, 1, 3);
    flush(&mut world);
    let newer = (0..world.spec.superblock().cache_bytes).step_by(4096).find(|&offset| {
        let mut bytes = [0; 512];
        world.cache.inner().peek(offset, &mut bytes);
        identify(0, 24, &bytes) == Content::Write(3)
    });
    let newer = newer.expect("the new version is on the cache device");
    assert_ne!(newer, dirty, "the log never overwrites in place");
    world.cache.inner_mut().corrupt(newer + 1000);
    world.cache.inner_mut().corrupt(clean + 2000);
    assert_eq!(read(&mut world, 4), Ok(Content::Write(2)), "a corrupt clean block is read from the origin");
    assert_eq!(read(&mut world, 3), Err(RequestError::Io), "a corrupt dirty block is an error");
    assert_eq!(read(&mut world, 2), Ok(Content::Write(0)), "its neighbours are not");
    let status = world.engine().status();
    assert_eq!(status.lost.iter().map(|key| key.block.0).collect::<Vec<_>>(), [3]);
    assert_eq!(status.counters.corrupt_blocks, 2);
    write(&mut world, 3, 1, 4);
    assert_eq!(read(&mut world, 3), Ok(Content::Write(4)), "written anew it is whole again");
    assert!(world.engine().status().lost.is_empty());
}

#[test]
fn dirty_limit_holds() {
    let spec = WorldSpec { origin_ns: 5_000_000, ..spec(Mode::Writeback) };
    let mut world = opened(spec);
    let limit = world.engine().status().dirty_limit_blocks;
    for number in 0..400u32 {
        let block = u64::from(number).wrapping_mul(2_654_435_761) % 2000;
        world.submit(RequestOp::Write, 0, block * 8, 8 * 16, false, Some(number));
        while world.in_flight() > 64 {
            assert!(world.step(), "writers wait forever");
            assert!(world.engine().status().blocks_dirty <= limit, "over the dirty limit of {limit}");
        }
    }
    while world.in_flight() > 0 {
        assert!(world.step(), "writers wait forever");
        assert!(world.engine().status().blocks_dirty <= limit, "over the dirty limit of {limit}");
    }
    assert!(world.engine().status().counters.throttled_writes > 0, "the load was too small to show anything");
}

#[test]
fn nothing_clean_is_lost() {
    for mode in [Mode::Writethrough, Mode::Writearound, Mode::Passthrough] {
        let mut world = opened(spec(mode));
        for number in 1..40 {
            write(&mut world, u64::from(number) * 3, 2, number);
        }
        flush(&mut world);
        // The cache device is gone; the origin after a power cut is all there is.
        let after = world.crash(9, Fate::Lost, Fate::Lost);
        for number in 1..40 {
            assert_eq!(on_origin(&after, u64::from(number) * 3), Content::Write(number), "{mode}");
        }
    }
}

fn busy_life(seed: u64) -> (u64, u64) {
    let mut world = opened(WorldSpec { seed, lanes: 2, ..spec(Mode::Writeback) });
    for number in 0..300u32 {
        let block = u64::from(number).wrapping_mul(40_503) % 2040;
        let op = [RequestOp::Write, RequestOp::Read, RequestOp::Write, RequestOp::Flush][number as usize % 4];
        world.submit(op, 0, block * 8, 24, false, Some(number));
        world.step();
    }
    world.finish_requests();
    world.stop();
    (world.effects_hash(), world.steps)
}

#[test]
fn same_seed_same_effects() {
    assert_eq!(busy_life(1), busy_life(1));
    assert_ne!(busy_life(1).0, busy_life(2).0, "the hash sees nothing");
}

#[test]
fn counters_only_grow() {
    let mut world = opened(spec(Mode::Writeback));
    let mut last = world.engine().status().counters;
    for number in 0..200u32 {
        let block = u64::from(number).wrapping_mul(40_503) % 2040;
        let op = [RequestOp::Write, RequestOp::Read, RequestOp::Discard, RequestOp::Flush][number as usize % 4];
        world.submit(op, 0, block * 8, 16, false, Some(number));
        world.step();
        let now = world.engine().status().counters;
        let pairs = [
            (last.reads, now.reads),
            (last.writes, now.writes),
            (last.flushes, now.flushes),
            (last.discards, now.discards),
            (last.read_hits, now.read_hits),
            (last.read_misses, now.read_misses),
            (last.origin_reads, now.origin_reads),
            (last.origin_reads_bytes, now.origin_reads_bytes),
            (last.origin_writes, now.origin_writes),
            (last.origin_writes_bytes, now.origin_writes_bytes),
            (last.cache_reads, now.cache_reads),
            (last.cache_reads_bytes, now.cache_reads_bytes),
            (last.cache_writes, now.cache_writes),
            (last.cache_writes_bytes, now.cache_writes_bytes),
            (last.commits, now.commits),
            (last.destaged_blocks, now.destaged_blocks),
        ];
        assert!(pairs.iter().all(|(before, after)| before <= after), "{last:?} then {now:?}");
        last = now;
    }
    assert!(last.reads == 50 && last.writes == 50 && last.flushes == 50 && last.discards == 50, "{last:?}");
}

#[test]
fn clean_stop_leaves_the_origin_complete() {
    let mut world = opened(spec(Mode::Writeback));
    for number in 1..300u32 {
        write(&mut world, u64::from(number) * 6, 2, number);
    }
    world.drain();
    world.stop();
    for block in 0..2048u64 {
        let number = (1..300).rev().find(|n| (u64::from(*n) * 6..u64::from(*n) * 6 + 2).contains(&block));
        assert_eq!(on_origin(&world, block), Content::Write(number.unwrap_or(0)), "block {block}");
    }
}

#[test]
fn warm_and_exact_after_a_restart() {
    let mut world = opened(spec(Mode::Writeback));
    for number in 1..60u32 {
        write(&mut world, u64::from(number) * 2, 1, number);
        read(&mut world, 1000 + u64::from(number)).expect("a read");
    }
    flush(&mut world);
    let before = world.engine().status();
    let mut crashed = world.crash(4, Fate::Lost, Fate::Lost);
    let opened = crashed.open().expect("opens after a crash");
    assert!(opened.blocks_dirty == before.blocks_dirty, "{} dirty, {} after", before.blocks_dirty, opened.blocks_dirty);
    assert!(opened.blocks_cached >= before.blocks_dirty);
    world.stop();
    let mut again = World::on(world.spec.clone(), world.cache.clone(), world.origins.clone(), world.now);
    let reopened = again.open().expect("opens after a stop");
    assert_eq!(reopened.blocks_cached, before.blocks_cached, "all of it is warm after a clean stop");
    assert_eq!(reopened.blocks_dirty, before.blocks_dirty);
    assert_eq!(reopened.commits_replayed, 0, "a clean stop leaves nothing to replay");
}

#[test]
fn crash_keeps_a_prefix() {
    // Writes one after the other, each in its own commit: what survives is the first so many.
    let options = Options { durability: Durability::Always, ..Options::default() };
    for fate in FATES {
        for seed in 0..20 {
            let mut world = opened(WorldSpec { seed, options: options.clone(), ..spec(Mode::Writeback) });
            for number in 1..=12u32 {
                world.submit(RequestOp::Write, 0, u64::from(number) * 8, 8, false, Some(number));
                for _ in 0..seed % 5 {
                    world.step();
                }
            }
            let mut after = world.crash(seed, fate, Fate::Kept);
            after.open().expect("opens after a crash");
            let kept: Vec<bool> = (1..=12).map(|n| read(&mut after, u64::from(n)) == Ok(Content::Write(n))).collect();
            let first_lost = kept.iter().position(|kept| !kept).unwrap_or(12);
            assert!(kept[first_lost..].iter().all(|kept| !kept), "{fate:?} {seed}: {kept:?} is no prefix");
        }
    }
}

#[test]
fn recovery_after_a_second_crash_during_replay() {
    for steps in 0..60 {
        let mut world = opened(spec(Mode::Writeback));
        for number in 1..40u32 {
            write(&mut world, u64::from(number) * 5, 2, number);
            if number % 4 == 0 {
                flush(&mut world);
            }
        }
        flush(&mut world);
        let mut replaying = world.crash(steps, Fate::Mixed, Fate::Mixed);
        replaying.begin_open();
        for _ in 0..steps {
            replaying.step();
        }
        let mut after = replaying.crash(steps, Fate::Mixed, Fate::Mixed);
        after.open().expect("opens after the second crash");
        for number in 1..40u32 {
            assert_eq!(read(&mut after, u64::from(number) * 5), Ok(Content::Write(number)), "cut after {steps} steps");
        }
    }
}

#[test]
fn a_torn_checkpoint_is_not_used() {
    // A power cut at every step of a stop, which ends with a checkpoint.
    let mut steps = 0;
    loop {
        let mut world = opened(spec(Mode::Writeback));
        for number in 1..30u32 {
            write(&mut world, u64::from(number) * 9, 1, number);
        }
        flush(&mut world);
        world.control(Control::Stop);
        for _ in 0..steps {
            world.step();
        }
        let stopped = world.events.contains(&Event::Stopped);
        let mut after = world.crash(steps, Fate::Torn, Fate::Kept);
        after.open().expect("opens after a crash");
        for number in 1..30u32 {
            assert_eq!(read(&mut after, u64::from(number) * 9), Ok(Content::Write(number)), "cut after {steps} steps");
        }
        if stopped {
            break;
        }
        steps += 1;
    }
    assert!(steps >= 4, "the stop took {steps} steps: too few to cut anything");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A log that has rotted before a durable commit has not ended there. These tests open such logs.

use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::format::CommitHeader;
use flashfront_engine::{BLOCK_BYTES, DeviceError, Mode, Op, OpenError, RequestOp};
use flashfront_proof::{Client, OriginSpec, World, WorldSpec};

fn opened(segment_blocks: u32) -> World {
    let origin = OriginSpec { size_bytes: 8 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let mut world = World::format(WorldSpec { origins: vec![origin], segment_blocks, ..WorldSpec::default() });
    world.open().expect("a fresh cache opens");
    world
}

/// Writes a block durably. Each such write is a commit.
fn write(world: &mut World, block: u64, number: u32) {
    world.submit(RequestOp::Write, 0, block * 8, 8, true, Some(number));
    world.finish_requests();
}

/// The commits on the cache device: the number and the first byte of each.
fn commits(world: &World) -> Vec<(u64, u64)> {
    let mut commits = Vec::new();
    let mut block = [0; BLOCK_BYTES as usize];
    for offset in (0..world.engine().superblock().cache_bytes).step_by(BLOCK_BYTES as usize) {
        world.cache.inner().peek(offset, &mut block);
        commits.extend(CommitHeader::decode(&block).map(|header| (header.seq, offset)));
    }
    commits.sort_unstable();
    commits
}

/// Older data is never served silently, whichever header rots after a power cut. Only the last
/// header can't be told from a torn one. Segments have 64 or 16 blocks: the log is without and with
/// segment ends in between.
#[test]
fn a_rotten_header_is_not_the_end_of_the_log() {
    for segment_blocks in [16, 64] {
        let mut world = opened(segment_blocks);
        for number in 1..=40 {
            write(&mut world, u64::from(number) % 7, number);
        }
        let all = commits(&world);
        assert!(all.len() >= 40, "each write was a commit of its own");
        let last = all.len() - 1;
        for (nth, &(seq, offset)) in all.iter().enumerate() {
            let mut after = world.crash(7, Fate::Kept, Fate::Kept);
            after.cache.inner_mut().corrupt(offset + 8);
            match after.open() {
                Err(OpenError::LogDamaged { lane: 0, commit, durable }) => {
                    assert_eq!(commit, seq);
                    assert!(durable >= seq);
                }
                other => {
                    assert!(nth == last, "commit {seq} of {last} rotten, in segments of {segment_blocks}: {other:?}")
                }
            }
        }
    }
}

/// A rotten header is also found where each commit fills a segment, as streaming writes do. The
/// next commit is in a segment that only the damaged header named.
#[test]
fn a_rotten_header_of_a_full_segment_is_found_too() {
    let mut world = opened(16);
    for number in 1..=12 {
        world.submit(RequestOp::Write, 0, u64::from(number) * 15 * 8, 15 * 8, true, Some(number));
        world.finish_requests();
    }
    let all = commits(&world);
    assert!(all.len() >= 12);
    for (nth, &(seq, offset)) in all.iter().enumerate() {
        let mut after = world.crash(7, Fate::Kept, Fate::Kept);
        after.cache.inner_mut().corrupt(offset + 8);
        let outcome = after.open();
        let found = matches!(outcome, Err(OpenError::LogDamaged { commit, .. }) if commit == seq);
        assert!(found || nth == all.len() - 1, "commit {seq} rotten: {outcome:?}");
    }
}

/// Small commits are read many at a time, large commits alone. Both are read as far as the log
/// goes.
#[test]
fn commits_of_all_sizes_are_replayed() {
    let mut world = opened(64);
    for number in 1..=60 {
        let blocks = if number % 9 == 0 { 50 } else { 1 };
        world.submit(RequestOp::Write, 0, u64::from(number) * 8, blocks * 8, true, Some(number));
        world.finish_requests();
    }
    let mut after = world.crash(3, Fate::Lost, Fate::Lost);
    let opened = after.open().expect("it opens");
    assert_eq!(opened.commits_replayed, world.engine().status().counters.commits);
}

/// A read that fails is not the end of the log. Either the flushed data is there, or the cache is
/// not opened.
#[test]
fn a_failed_read_is_not_the_end_of_the_log() {
    let (mut opens, mut refusals) = (0, 0);
    for times in [1, 50] {
        for nth in 0..20 {
            let mut world = opened(64);
            for number in 1..=60 {
                world.submit(RequestOp::Write, 0, u64::from(number) * 8, 8, false, Some(number));
            }
            world.finish_requests();
            world.submit(RequestOp::Flush, 0, 0, 0, false, None);
            world.finish_requests();
            let dirty = world.engine().status().blocks_dirty;
            let mut after = world.crash(7, Fate::Killed, Fate::Killed);
            let rule = Rule { op: Some(Op::Read), after: nth, times, ..Rule::always(Fault::Error(DeviceError::Io)) };
            after.cache.faults.order(rule);
            match after.open() {
                Ok(opened) => {
                    assert_eq!(opened.blocks_dirty, dirty, "read {nth} failed {times} times");
                    opens += 1;
                }
                Err(OpenError::Read { .. }) => refusals += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(opens > 10 && refusals > 2, "{opens} opened, {refusals} refused");
}

/// Clean blocks that are dropped at the opening are not in its checkpoint, so the log needs no
/// notes about them. A former version wrote a note for each block, 252 of them for each flush of
/// the cache device. The first FLUSH, or a stop, waited for all of them.
#[test]
fn what_is_dropped_at_the_opening_is_not_noted_block_by_block() {
    let origin = OriginSpec { size_bytes: 2 << 20, logical_block_bytes: 512, mode: Mode::Writearound };
    let mut client = Client::fresh(WorldSpec { origins: vec![origin], ..WorldSpec::default() });
    client.read_all();
    assert!(client.world.engine().status().blocks_cached > 400);
    client.stop();
    client.world.spec.options.drop_clean = true;
    assert_eq!(client.open().blocks_cached, 0);
    client.flush(0);
    client.finish();
    assert_eq!(client.world.counters().commits, 0);
    // No old data comes back where such a block is written past the cache.
    client.world.spec.options.drop_clean = false;
    client.write(0, 80, 8, false);
    client.flush(0);
    client.finish();
    client.crash(1, Fate::Kept, Fate::Lost);
    assert_eq!(client.open().blocks_cached, 0);
    client.read_all();
    client.leave();
}

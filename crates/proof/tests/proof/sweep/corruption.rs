// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bits rot on the cache device, and clients are never given rotten bits.

use flashfront_device::sim::Fate;
use flashfront_engine::format::{CommitHeader, Entry};
use flashfront_engine::{Block, Control, DeviceError, Event, Key, Mode, Op, OriginId, RequestError};
use flashfront_proof::Client;

use super::{evict_all, lazy, small};

/// The place of the newest copy of each block of origin 0 on the cache device: (block, first byte).
fn copies(client: &Client) -> Vec<(u64, u64)> {
    let mut found: std::collections::BTreeMap<u64, (u64, u64)> = std::collections::BTreeMap::new();
    let superblock = client.world.spec.superblock();
    for offset in (superblock.slot_offset(0, 0)..superblock.cache_bytes).step_by(4096) {
        let mut bytes = vec![0; 4096];
        client.world.cache.inner().peek(offset, &mut bytes);
        let Some(header) = CommitHeader::decode(&bytes) else { continue };
        for (block, entry) in header.placed(0) {
            let at = offset + 4096 * u64::from(block);
            if let Entry::Dirty { key, .. } | Entry::Clean { key, .. } = entry {
                let newest = found.entry(key.block.0).or_insert((header.seq, at));
                *newest = (*newest).max((header.seq, at));
            }
        }
    }
    found.into_iter().map(|(block, (_, at))| (block, at)).collect()
}

fn key(block: u64) -> Key {
    Key { origin: OriginId(0), block: Block(block) }
}

/// Invariant 5: every copy in the cache rots. Clean blocks are healed. Each dirty block fails
/// alone, and is listed.
#[test]
fn rot_of_every_copy_is_seen() {
    let mut client = Client::fresh(small(Mode::Writeback, 4));
    client.write(0, 0, 800, false);
    client.finish();
    client.world.drain();
    client.world.pass(10_000_000);
    client.flush(0);
    client.finish();
    // 100 clean blocks; each rots.
    let rotten = copies(&client);
    assert_eq!(rotten.len(), 100);
    rotten.iter().for_each(|(block, at)| client.world.cache.inner_mut().corrupt(at + block * 40 % 4096));
    client.read(0, 0, 800);
    client.finish();
    assert!(client.take_failed().is_empty(), "the origin has it all");
    let status = client.world.engine().status();
    assert_eq!((status.counters.corrupt_blocks, status.lost.len()), (100, 0));

    // A dirty block rots among sound ones.
    client.write(0, 80, 80, true);
    client.finish();
    let (block, at) = copies(&client)[15];
    client.world.cache.inner_mut().corrupt(at + 77);
    let bad = client.read(0, 80, 80);
    let good = [client.read(0, 80, 40), client.read(0, 128, 32)];
    client.finish();
    assert_eq!(client.take_failed(), [(bad, RequestError::Io)], "not {good:?}");
    let status = client.world.engine().status();
    assert_eq!(status.lost, [key(block)]);
    assert!(client.take_events().contains(&Event::Corrupt { key: key(block), dirty: true }));
    // A write of a part of this block fails, in all modes, since the rest of the block is lost.
    for mode in [Mode::Writeback, Mode::Writethrough] {
        client.world.control(Control::SetMode { origin: OriginId(0), mode });
        let part = client.write(0, block * 8 + 2, 3, false);
        client.finish();
        assert_eq!(client.take_failed(), [(part, RequestError::Io)], "{mode}");
    }
    // A drain takes all other blocks, and ends.
    client.world.drain();
    assert_eq!(client.world.engine().status().blocks_dirty, 1);
    assert_eq!(client.world.engine().status().lost, [key(block)]);
    // A block that is written anew is well again, in any mode.
    client.write(0, block * 8, 8, false);
    client.finish();
    assert!(client.take_failed().is_empty());
    assert_eq!(client.world.engine().status().lost, []);
    client.read_all();
    client.leave();
}

/// A direct write that would replace a lost block, and fails, does not uncover the origin's old
/// data.
#[test]
fn a_failed_rewrite_leaves_a_lost_block_lost() {
    let mut client = Client::fresh(small(Mode::Writeback, 2));
    client.write(0, 80, 8, true);
    client.finish();
    let (block, at) = copies(&client)[0];
    client.world.cache.inner_mut().corrupt(at);
    client.read(0, 80, 8);
    client.finish();
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writethrough });
    client.world.origins[0].faults.fail_nth(0, Some(Op::Write), DeviceError::Io);
    client.write(0, 80, 8, false);
    client.finish();
    client.read(0, 80, 8);
    client.finish();
    assert_eq!(client.take_failed().len(), 3, "both reads and the write");
    assert_eq!(client.world.engine().status().lost, [key(block)]);
    client.write(0, 80, 8, true);
    client.finish();
    assert_eq!(client.world.engine().status().lost, []);
    client.crash(1, Fate::Lost, Fate::Lost);
    client.open();
    client.read_all();
    client.leave();
}

/// A direct write goes over a lost block that was durable. The log knows the block until the origin
/// has flushed the new data. So no power cut uncovers what the origin had before both.
#[test]
fn a_lost_block_is_dropped_after_the_origins_flush() {
    for cut in 0..40 {
        let mut client = Client::fresh(small(Mode::Writeback, 2));
        client.write(0, 80, 8, true);
        client.finish();
        // A later commit says that the first one was durable. Damage to the last commit can't be
        // told from a torn write.
        client.write(0, 800, 8, true);
        client.finish();
        let (_, at) = copies(&client)[0];
        client.world.cache.inner_mut().corrupt(at);
        client.read(0, 80, 8);
        client.finish();
        assert_eq!(client.world.engine().status().lost, [key(10)]);
        client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writethrough });
        client.write(0, 80, 8, false);
        super::events(&mut client, cut);
        client.crash(cut, Fate::Lost, Fate::Lost);
        client.open();
        // The read gets the new data, or the lost block's error, and never the origin's old data.
        client.read(0, 80, 8);
        client.finish();
    }
}

/// A drain tries lost blocks once more.
#[test]
fn a_drain_tries_lost_blocks_again() {
    let mut client = Client::fresh(lazy(2));
    client.write(0, 0, 800, false);
    client.flush(0);
    client.finish();
    client.world.cache.faults.fail_range(0..u64::MAX, Some(Op::Read), DeviceError::Io);
    client.world.drain();
    assert_eq!(client.world.engine().status().lost.len(), 100);
    client.world.cache.faults.heal();
    client.take_events();
    client.world.drain();
    let status = client.world.engine().status();
    assert_eq!((status.lost.len(), status.blocks_dirty), (0, 0));
    client.leave();
}

/// Destage and reclaim find rot too. Lost blocks in many segments don't keep other blocks from
/// moving.
#[test]
fn lost_blocks_do_not_stop_the_cache() {
    let mut client = Client::fresh(lazy(8));
    client.write(0, 0, 8 * 150, false);
    client.flush(0);
    client.finish();
    let segments: Vec<(u64, u64)> = copies(&client).into_iter().step_by(16).collect();
    segments.iter().for_each(|(_, at)| client.world.cache.inner_mut().corrupt(at + 9));
    client.world.drain();
    let lost: Vec<Key> = segments.iter().map(|(block, _)| key(*block)).collect();
    assert_eq!(client.world.engine().status().lost, lost);
    assert!(lost.len() > 8, "more than reclaim looks at at once");
    evict_all(&mut client, 8 * 200);
    // These new writes are enough to need every segment that can be had.
    for round in 0..4 {
        for at in (8 * 200..8 * 600).step_by(64) {
            client.write(0, at + round, 64, false);
            client.finish_to(8);
        }
    }
    client.finish();
    assert!(client.take_failed().is_empty());
    for (block, _) in segments {
        client.write(0, block * 8, 8, false);
    }
    client.finish();
    assert_eq!(client.world.engine().status().lost, []);
    client.leave();
}

/// Rot in the log's own headers costs at most the blocks of those commits. The cache never hangs or
/// lies.
#[test]
fn rotten_headers_do_not_stop_reclaim() {
    let mut client = Client::fresh(small(Mode::Writeback, 8));
    client.write(0, 0, 8 * 200, false);
    client.flush(0);
    client.finish();
    let superblock = client.world.spec.superblock();
    let mut rotten = 0;
    for offset in (superblock.slot_offset(0, 0)..superblock.cache_bytes).step_by(4096) {
        let mut bytes = vec![0; 4096];
        client.world.cache.inner().peek(offset, &mut bytes);
        if CommitHeader::decode(&bytes).is_some() {
            client.world.cache.inner_mut().corrupt(offset + 100);
            rotten += 1;
        }
    }
    assert!(rotten > 5);
    evict_all(&mut client, 8 * 300);
    assert!(client.take_failed().is_empty());
    client.read_all();
    client.leave();
}

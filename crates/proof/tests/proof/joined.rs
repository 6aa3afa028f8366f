// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads join a read of the origin that is under way for another client. They wait for that read,
//! and nothing is read twice. The client's oracle judges each answer. Torture shows, too, that no
//! reader gets data from before a write (canary `joined-void`).

use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{BLOCK_BYTES, Counters, DeviceError, Mode, Op, Options};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const UNIT: u64 = 16;
/// An origin latency so low that nothing is read around a miss.
const FAST_NS: u64 = 100_000;
const SLOW_NS: u64 = 1_000_000;
/// The time that a busy disk keeps what it has read. It is longer than all else takes.
const BUSY_NS: u64 = 50_000_000;

fn client(origin_ns: u64, mode: Mode) -> Client {
    // 4,092 blocks and a half.
    let origin = OriginSpec { size_bytes: 4092 * BLOCK_BYTES + 2048, logical_block_bytes: 512, mode };
    let options = Options { sequential_bypass_bytes: 0, ..Options::default() };
    let mut client = Client::fresh(WorldSpec {
        segments_per_lane: 64,
        stripe_blocks: 1024,
        origin_ns,
        origins: vec![origin],
        options,
        ..WorldSpec::default()
    });
    // From here on the cache knows how slow the origin is.
    client.read(0, 4000 * 8, 8);
    client.finish();
    client
}

fn counters(client: &Client) -> Counters {
    client.world.engine().status().counters
}

/// Sends these reads all at once; each is a first sector and a number of sectors. Returns the reads
/// and the blocks that they asked of the origin, and the blocks that they joined.
fn at_once(client: &mut Client, reads: &[(u64, u64)]) -> (u64, u64, u64) {
    let before = counters(client);
    for &(sector, sectors) in reads {
        client.read(0, sector, sectors);
    }
    client.finish();
    assert_eq!(client.take_failed(), []);
    let after = counters(client);
    assert_eq!(
        after.read_hits - before.read_hits,
        after.joined_blocks - before.joined_blocks,
        "nothing else was a hit"
    );
    let read = (after.origin_reads_bytes - before.origin_reads_bytes).div_ceil(BLOCK_BYTES);
    (after.origin_reads - before.origin_reads, read, after.joined_blocks - before.joined_blocks)
}

#[test]
fn what_is_asked_for_by_several_at_once_is_read_once() {
    let mut client = client(FAST_NS, Mode::Writeback);
    assert_eq!(at_once(&mut client, &[(800, 8); 5]), (1, 1, 4));
    client.leave();
}

/// Each request shares a block with the next request and adds blocks of its own, as an unaligned
/// guest reads.
#[test]
fn requests_that_overlap_read_each_block_once() {
    let mut client = client(FAST_NS, Mode::Writeback);
    assert_eq!(at_once(&mut client, &[(807, 64), (871, 64), (935, 64)]), (3, 25, 2), "in order");
    assert_eq!(at_once(&mut client, &[(1935, 64), (1871, 64), (1807, 64)]), (3, 25, 2), "backwards");
    client.leave();
}

#[test]
fn what_lies_between_is_read_as_one() {
    let mut client = client(FAST_NS, Mode::Writeback);
    let (ios, blocks, joined) = at_once(&mut client, &[(816, 8), (800, 40)]);
    assert_eq!((ios, blocks, joined), (2, 6, 0), "two I/Os around one block cost a disk more than one");
    assert_eq!(at_once(&mut client, &[(1600, 8), (1632, 8), (1600, 40)]), (3, 5, 2), "but its ends are there");
}

/// Reads of the last half block share one read. All of them get zeroes behind the origin's end.
#[test]
fn the_end_of_an_origin_is_shared() {
    let mut client = client(FAST_NS, Mode::Writeback);
    assert_eq!(at_once(&mut client, &[(4091 * 8, 12), (4092 * 8, 4), (4092 * 8, 4)]), (1, 2, 2));
}

#[test]
fn a_neighbour_under_way_is_waited_for() {
    let mut client = client(SLOW_NS, Mode::Writeback);
    assert_eq!(at_once(&mut client, &[(104 * 8, 8), (105 * 8, 8), (97 * 8, 16)]), (1, UNIT, 3));
    let before = counters(&client).origin_reads;
    client.read(0, 96 * 8, UNIT * 8);
    client.finish();
    assert_eq!(counters(&client).origin_reads, before, "the others came along all the same");
    client.leave();
}

/// A piece that misses on both sides of a hole waits for its own read. The second side was asked
/// for, so it is neither a hit nor a neighbour.
#[test]
fn who_waits_for_his_own_read_has_missed() {
    let mut client = client(SLOW_NS, Mode::Writeback);
    client.write(0, 101 * 8, 8, false);
    client.finish();
    let before = counters(&client);
    client.read(0, 96 * 8, UNIT * 8);
    client.finish();
    let after = counters(&client);
    assert_eq!(after.origin_reads - before.origin_reads, 1);
    assert_eq!((after.read_hits - before.read_hits, after.read_misses - before.read_misses), (1, UNIT - 1));
    assert_eq!((after.joined_blocks, after.neighbour_blocks), (before.joined_blocks, before.neighbour_blocks));
    assert_eq!(after.promoted_blocks - before.promoted_blocks, UNIT - 1);
    client.leave();
}

#[test]
fn a_read_is_found_on_both_sides_of_a_region() {
    let mut client = client(FAST_NS, Mode::Writeback);
    assert_eq!(at_once(&mut client, &[(254 * 8, 32), (255 * 8, 8), (256 * 8, 8), (257 * 8, 32)]), (2, 7, 3));
    client.leave();
}

/// A read in passthrough joins no other read. A client that looks for a fault, or compares, wants
/// each request to go to the disk.
#[test]
fn nobody_joins_past_the_cache() {
    let mut client = client(FAST_NS, Mode::Passthrough);
    assert_eq!(at_once(&mut client, &[(800, 8); 3]), (3, 3, 0));
    client.leave();
}

/// A joined read counts as a second look. A full cache admits a block that two clients read at once
/// as soon as a block that is read twice.
#[test]
fn who_joins_counts_as_a_second_look() {
    let fill = |client: &mut Client| {
        for block in (0..4).flat_map(|_| 0..900).chain(900..2000) {
            client.read(0, block * 8, 8);
            client.finish();
        }
    };
    let until_promoted = |at_once: u64| {
        let mut client = client(FAST_NS, Mode::Writeback);
        fill(&mut client);
        let before = counters(&client).promoted_blocks;
        (1..50_u64)
            .find(|turn| {
                (0..at_once).for_each(|_| _ = client.read(0, 3000 * 8, 8));
                client.finish();
                // More blocks are read between two turns than the window has.
                for block in 2000 + turn * 20..2040 + turn * 20 {
                    client.read(0, block * 8, 8);
                    client.finish();
                }
                counters(&client).promoted_blocks > before
            })
            .expect("it is admitted at some time")
    };
    let (alone, two) = (until_promoted(1), until_promoted(2));
    assert!(two < alone, "after {alone} turns alone, {two} by two");
}

#[test]
fn who_waits_for_a_read_that_fails_reads_by_himself() {
    for (origin_ns, first) in [(FAST_NS, 800), (SLOW_NS, 800)] {
        let mut client = client(origin_ns, Mode::Writeback);
        // A wide read that fails is tried a second time without neighbours.
        let times = if origin_ns == SLOW_NS { 2 } else { 1 };
        client.world.origins[0].faults.order(Rule {
            op: Some(Op::Read),
            times,
            ..Rule::always(Fault::Error(DeviceError::Io))
        });
        let before = counters(&client).origin_reads;
        let failing = client.read(0, first, 8);
        let apart = if origin_ns == SLOW_NS { 8 } else { 0 };
        (0..3).for_each(|nth| _ = client.read(0, first + nth * apart, 8));
        client.finish();
        let failed: Vec<_> = client.take_failed().into_iter().map(|(id, _)| id).collect();
        assert_eq!(failed, [failing], "an error is of the read that met it");
        assert!(counters(&client).origin_reads - before > times);
        assert_eq!(counters(&client).joined_blocks, 0, "what they read themselves is no hit");
        client.leave();
    }
}

/// A write waits for both readers, and a later read gets the new data.
#[test]
fn nobody_joins_a_read_from_before_a_write() {
    for mode in [Mode::Writeback, Mode::Writearound, Mode::Writethrough] {
        let mut client = client(FAST_NS, mode);
        client.hold_read(0, BUSY_NS);
        let before = counters(&client).joined_blocks;
        client.read(0, 800, 8);
        client.read(0, 800, 8);
        client.write(0, 802, 3, false);
        client.read(0, 800, 8);
        client.finish();
        assert_eq!(counters(&client).joined_blocks - before, 1);
        client.leave();
    }
}

/// A reader of a neighbour must not join a read from before a write of that neighbour. Neighbours
/// aren't locked. A write past the cache may come while a read around the neighbour is held up.
/// When that read ends, the index does not have the neighbour.
#[test]
fn a_neighbour_written_since_is_not_joined() {
    let mut client = client(SLOW_NS, Mode::Writearound);
    client.hold_read(0, BUSY_NS);
    let reading = client.read(0, 104 * 8, 8);
    let writing = client.write(0, 97 * 8, 8, false);
    assert!(client.world.drive_until(|world| !world.waits(writing)));
    assert!(client.world.waits(reading), "the read was over: nothing was shown");
    let before = counters(&client).joined_blocks;
    client.read(0, 97 * 8, 8);
    client.read(0, 98 * 8, 8);
    client.finish();
    assert_eq!(counters(&client).joined_blocks - before, 1, "the one beside it");
    client.leave();
}

/// The other way round, a reader that joined before the write came has the block locked. It gets
/// the data from before the write.
#[test]
fn a_write_of_a_neighbour_waits_for_who_joined() {
    let mut client = client(SLOW_NS, Mode::Writearound);
    client.hold_read(0, BUSY_NS);
    client.read(0, 104 * 8, 8);
    let joined = client.read(0, 97 * 8, 8);
    let writing = client.write(0, 97 * 8, 8, false);
    assert!(client.world.drive_until(|world| !world.waits(joined)));
    assert!(client.world.waits(writing), "it didn't wait for who reads the block");
    client.finish();
    client.read(0, 97 * 8, 8);
    client.finish();
    client.leave();
}

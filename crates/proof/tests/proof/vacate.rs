// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a cache is emptied while clients are served, so that the cache can shrink to its
//! beginning.

use flashfront_device::sim::Fate;
use flashfront_engine::{Control, Mode, Options};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

/// Blocks of a segment, and segments of the cache.
const SEGMENT: u64 = 32;
const SEGMENTS: u32 = 96;
/// How long I/Os of the origins take: of a fast one, of a slow one, and of one that is slower than
/// clients write.
const ORIGINS_NS: [u64; 3] = [5_000_000, 20_000_000, 100_000_000];
/// A block in sectors.
const B: u64 = 8;

/// A cache before an origin of `blocks` blocks, of which each I/O takes `origin_ns`.
fn client(seed: u64, lanes: u32, blocks: u64, origin_ns: u64) -> Client {
    let origin = OriginSpec { size_bytes: blocks * 4096, logical_block_bytes: 512, mode: Mode::Writeback };
    Client::fresh(WorldSpec {
        seed,
        lanes,
        segment_blocks: SEGMENT as u32,
        segments_per_lane: SEGMENTS / lanes,
        stripe_blocks: 64,
        origin_ns,
        origins: vec![origin],
        options: Options { sequential_bypass_bytes: 0, read_around_blocks: 0, ..Options::default() },
        ..WorldSpec::default()
    })
}

/// Writes each block in turn, and reads some, until so many blocks were asked for.
fn fill(client: &mut Client, blocks: u64) {
    for first in (0..blocks).step_by(16) {
        client.write(0, first * B, 16 * B, first % 160 == 0);
        client.finish_to(8);
    }
    client.finish();
}

fn left(client: &Client) -> Option<u64> {
    client.world.engine().status().left_in_end
}

fn vacate(client: &mut Client, keep_segments: Option<u32>) {
    client.world.control(Control::Vacate { keep_segments, dirty_limit_blocks: None });
}

/// What fits before the end is moved there: nothing is dropped for that, and reads hit as before.
#[test]
fn what_fits_before_the_end_is_moved_there() {
    for (lanes, origin_ns) in [1, 2].into_iter().flat_map(|lanes| ORIGINS_NS.map(|origin_ns| (lanes, origin_ns))) {
        let blocks = u64::from(SEGMENTS) * SEGMENT / 3;
        let mut client = client(1, lanes, blocks, origin_ns);
        fill(&mut client, blocks);
        // All of the log was in use once.
        fill(&mut client, blocks);
        let before = client.world.engine().status();
        vacate(&mut client, Some(SEGMENTS / lanes * 3 / 5));
        assert!(left(&client).is_some_and(|left| left > 0), "the end holds nothing");
        let mut nth = 0;
        while left(&client) != Some(0) {
            nth += 1;
            assert!(nth < 100_000, "{:?} blocks stay in the end", left(&client));
            if nth % 50 == 0 && client.world.in_flight() == 0 {
                client.write(0, nth / 50 % blocks * B, B, false);
            }
            assert!(client.world.step(), "{:?} blocks stay in the end", left(&client));
        }
        client.finish();
        let after = client.world.engine().status();
        assert_eq!(after.blocks_cached, before.blocks_cached, "{lanes} lanes, {origin_ns} ns");
        assert_eq!(after.counters.evicted_blocks, before.counters.evicted_blocks);
        let misses = after.counters.read_misses;
        client.read_all();
        // Room for the next move is made meanwhile.
        let missed = client.world.counters().read_misses - misses;
        assert!(missed <= blocks / 50, "{missed} of {blocks} blocks are not cached any more");
        client.crash(1, Fate::Kept, Fate::Kept);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// More is live than fits: what is clean is judged by the policy, and what is dirty stays or is
/// destaged. Clients write all the time.
#[test]
fn what_does_not_fit_is_judged_by_the_policy() {
    for seed in 0..4 {
        let blocks = u64::from(SEGMENTS) * SEGMENT;
        let mut client = client(seed, 1, blocks, ORIGINS_NS[0]);
        fill(&mut client, blocks * 9 / 10);
        vacate(&mut client, Some(SEGMENTS / 2));
        let mut written = 0;
        while left(&client) != Some(0) {
            written += 1;
            assert!(written < 20_000, "{:?} blocks stay in the end", left(&client));
            client.write(0, written * 2_654_435_761 % blocks * B, B, false);
            client.finish_to(4);
            // Clients don't ask all the time.
            client.world.pass(1_000_000);
        }
        client.finish();
        let kept = client.world.engine().status().blocks_cached;
        assert!(kept <= u64::from(SEGMENTS / 2 + 6) * SEGMENT, "{kept} blocks are in the smaller part");
        assert!(kept > u64::from(SEGMENTS / 2) * SEGMENT / 2, "only {kept} blocks are left");
        client.crash(seed, Fate::Kept, Fate::Kept);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// Clients that never pause, and write as fast as they can, don't keep the end from being emptied.
/// First all that is live has room before it, then it has not.
#[test]
fn writers_that_never_pause_keep_no_end() {
    let all = u64::from(SEGMENTS) * SEGMENT;
    for (part, origin_ns) in [5, 16].into_iter().flat_map(|part| ORIGINS_NS.map(|origin_ns| (part, origin_ns))) {
        let blocks = all * part / 16;
        let mut client = client(1, 1, blocks, origin_ns);
        fill(&mut client, blocks);
        fill(&mut client, blocks);
        vacate(&mut client, Some(SEGMENTS / 2));
        let mut written = 0;
        while left(&client) != Some(0) {
            written += 1;
            assert!(written < 10 * all, "{part}, {origin_ns} ns: {:?} blocks stay in the end", left(&client));
            client.write(0, written * 2_654_435_761 % blocks * B, B, false);
            client.finish_to(16);
        }
        println!("{part}, {origin_ns} ns: {written} blocks were written until the end was empty");
        // From then on it holds what streams had begun there by then, at most: two segments each.
        for _ in 0..all / 4 {
            written += 1;
            client.write(0, written * 2_654_435_761 % blocks * B, B, false);
            client.finish_to(16);
            let left = left(&client);
            assert!(left <= Some(6 * SEGMENT), "{part}, {origin_ns} ns: {left:?} blocks after {written}");
        }
        client.finish();
        client.crash(1, Fate::Kept, Fate::Kept);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// The dirty limit of the smaller cache comes into force as blocks are destaged: no writer waits
/// until a large part is.
#[test]
fn the_dirty_limit_falls_as_blocks_are_destaged() {
    let blocks = u64::from(SEGMENTS) * SEGMENT;
    let mut client = client(1, 1, blocks, ORIGINS_NS[1]);
    let limit = blocks * 3 / 4;
    client.world.control(Control::SetDirtyLimit { blocks: limit });
    let (mut written, mut longest) = (0, 0);
    let dirty = |client: &Client| client.world.engine().status().blocks_dirty;
    let mut write = |client: &mut Client| {
        written += 1;
        let began = client.world.now;
        client.write(0, written * 2_654_435_761 % blocks * B, B, false);
        client.finish_to(0);
        client.world.now.since_ns(began)
    };
    while dirty(&client) < limit * 9 / 10 {
        write(&mut client);
    }
    let aim = blocks / 4;
    client.world.control(Control::Vacate { keep_segments: Some(SEGMENTS / 2), dirty_limit_blocks: Some(aim) });
    assert_eq!(client.world.engine().status().dirty_limit_blocks, limit, "what was set is told");
    let began = client.world.now;
    while dirty(&client) > aim {
        longest = longest.max(write(&mut client));
    }
    let whole = client.world.now.since_ns(began);
    println!("a write took {longest} ns at most, of {whole} ns");
    assert!(longest * 5 < whole, "a write took {longest} ns of {whole}");
    for _ in 0..blocks / 8 {
        write(&mut client);
        assert!(dirty(&client) <= aim, "{} blocks are dirty", dirty(&client));
    }
    vacate(&mut client, None);
    while dirty(&client) <= aim * 2 {
        write(&mut client);
    }
    client.leave();
}

/// The end serves again when it need not stay empty, and after a power cut.
#[test]
fn the_end_is_used_again() {
    for crashes in [false, true] {
        let mut client = client(3, 1, 1024, ORIGINS_NS[0]);
        fill(&mut client, 1024);
        let all = client.world.engine().status();
        vacate(&mut client, Some(SEGMENTS / 2));
        client.world.drive_until(|world| world.engine().status().left_in_end == Some(0));
        assert_eq!(left(&client), Some(0));
        assert!(client.world.engine().status().segments_free + u64::from(SEGMENTS / 3) < all.segments_free);
        if crashes {
            client.crash(3, Fate::Kept, Fate::Kept);
            client.open();
        } else {
            vacate(&mut client, None);
        }
        assert_eq!(left(&client), None);
        let free = client.world.engine().status().segments_free;
        assert!(free + 8 > all.segments_free, "{free} segments are free of {}", all.segments_free);
        client.leave();
    }
}

/// A writer that needs all of the cache gets room, though an end is to be empty: the origin takes
/// nothing.
#[test]
fn no_writer_waits_for_an_end_that_can_not_be_emptied() {
    let blocks = u64::from(SEGMENTS) * SEGMENT;
    let mut client = client(5, 1, blocks, ORIGINS_NS[0]);
    client.world.control(Control::SetDirtyLimit { blocks: blocks * 3 / 4 });
    vacate(&mut client, Some(SEGMENTS / 3));
    fill(&mut client, blocks * 2 / 3);
    fill(&mut client, blocks * 2 / 3);
    client.leave();
}

/// A cache that has moved all of its blocks many times is emptied like a new one.
#[test]
fn the_end_of_a_cache_that_has_lived_for_long_is_emptied() {
    let all = u64::from(SEGMENTS) * SEGMENT;
    let blocks = all * 9 / 10;
    let mut client = client(7, 1, all, ORIGINS_NS[0]);
    fill(&mut client, blocks);
    let mut written = 0;
    while client.world.counters().reinserted_blocks < 3 * all {
        written += 1;
        assert!(written < 40 * all, "only {} blocks were moved", client.world.counters().reinserted_blocks);
        client.write(0, written * 2_654_435_761 % blocks * B, B, false);
        client.finish_to(16);
    }
    client.finish();
    vacate(&mut client, Some(SEGMENTS / 2));
    let emptied = client.world.drive_until(|world| world.engine().status().left_in_end == Some(0));
    assert!(emptied, "{:?} blocks stay in the end", left(&client));
    client.leave();
}

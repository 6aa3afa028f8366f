// SPDX-License-Identifier: MIT OR Apache-2.0
//! Neighbours of a miss come along from a slow origin, seen from outside. They go into the cache
//! while it has room, and else into the window. No client is worse off. Torture shows that no
//! neighbour is ever old (canary `stale-neighbour`).

use flashfront_device::sim::Fate;
use flashfront_engine::format::Shares;
use flashfront_engine::{BLOCK_BYTES, Counters, DeviceError, Mode, Op, Options, OriginId, VolumeChange};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const UNIT: u64 = 16;

fn world(origin_ns: u64, options: Options) -> WorldSpec {
    // 4,092 blocks and a half.
    let origin = OriginSpec { size_bytes: 4092 * BLOCK_BYTES + 2048, logical_block_bytes: 512, mode: Mode::Writeback };
    let options = Options { sequential_bypass_bytes: 0, ..options };
    WorldSpec { segments_per_lane: 64, origin_ns, origins: vec![origin], options, ..WorldSpec::default() }
}

/// A client of a cache of 1,024 blocks. The origin takes 1 to 2 ms, and the cache knows it.
fn client(options: Options) -> Client {
    client_of(world(1_000_000, options))
}

/// A client whose writes go past the cache.
fn client_past_the_cache() -> Client {
    let mut spec = world(1_000_000, Options::default());
    spec.origins[0].mode = Mode::Writearound;
    client_of(spec)
}

fn client_of(spec: WorldSpec) -> Client {
    let mut client = Client::fresh(spec);
    read(&mut client, 4000);
    client
}

fn counters(client: &Client) -> Counters {
    client.world.engine().status().counters
}

fn read(client: &mut Client, block: u64) {
    client.read(0, block * 8, 8);
    client.finish();
}

/// Reads these blocks, one after the other. Returns the number of blocks that the origin was asked
/// for.
fn origin_blocks(client: &mut Client, blocks: std::ops::Range<u64>) -> u64 {
    let before = counters(client).origin_reads_bytes;
    blocks.for_each(|block| read(client, block));
    client.judge();
    (counters(client).origin_reads_bytes - before) / BLOCK_BYTES
}

#[test]
fn what_is_beside_a_miss_is_a_hit() {
    let mut client = client(Options::default());
    assert_eq!(origin_blocks(&mut client, 101..102), UNIT);
    assert_eq!(origin_blocks(&mut client, 96..112), 0);
    assert_eq!(counters(&client).neighbour_blocks, UNIT - 1);
}

#[test]
fn what_follows_a_miss_in_two_units_is_a_hit() {
    let mut client = client(Options::default());
    let before = counters(&client).origin_reads_bytes;
    client.read(0, 110 * 8, 4 * 8);
    client.finish();
    assert_eq!((counters(&client).origin_reads_bytes - before) / BLOCK_BYTES, UNIT);
    assert_eq!(origin_blocks(&mut client, 110..126), 0);
}

#[test]
fn only_what_is_missing_is_read() {
    let mut client = client(Options::default());
    client.write(0, 96 * 8, 16, false);
    client.write(0, 111 * 8, 8, false);
    client.finish();
    assert_eq!(origin_blocks(&mut client, 104..105), UNIT - 3, "between what is cached at both ends");
    assert_eq!(origin_blocks(&mut client, 96..112), 0);
    client.leave();
}

/// The last whole blocks of an origin, and the half block behind them, are read together.
#[test]
fn an_origin_that_ends_within_a_block_is_read_to_its_end() {
    let mut client = client(Options::default());
    assert_eq!(origin_blocks(&mut client, 4081..4092), 12);
    client.read(0, 4092 * 8, 4);
    client.finish();
    client.judge();
}

#[test]
fn only_a_slow_origin_is_asked_for_more() {
    let mut client = Client::fresh(world(100_000, Options::default()));
    assert_eq!(origin_blocks(&mut client, 100..140), 40);
    assert_eq!(counters(&client).neighbour_blocks, 0);
}

/// A volume's own width counts from the next miss on, also while others are under way.
#[test]
fn a_volume_has_a_width_of_its_own() {
    let mut client = client(Options::default());
    let set = |client: &mut Client, read_around_bytes| {
        let shares = Shares { read_around_bytes, ..Shares::default() };
        let ticket = client.ask_volume(VolumeChange::SetShares { origin: OriginId(0), shares });
        client.await_volume(ticket).expect("the width is possible");
    };
    set(&mut client, Some(0));
    assert_eq!(origin_blocks(&mut client, 100..140), 40);
    for (bytes, first, width) in [(32 << 10, 201, 8), (256 << 10, 300, 64), (4 << 10, 400, 1)] {
        set(&mut client, Some(bytes));
        assert_eq!(origin_blocks(&mut client, first..first + 1), width, "{bytes}");
    }
    set(&mut client, None);
    assert_eq!(origin_blocks(&mut client, 500..501), UNIT);
    for nth in 0..12 {
        client.read(0, (1000 + nth * 100) * 8, 8);
        set(&mut client, [None, Some(0), Some(256 << 10), Some(32 << 10)][nth as usize % 4]);
    }
    client.finish();
    client.judge();
    client.leave();
}

#[test]
fn it_can_be_switched_off_and_a_budget_buys_only_what_was_asked_for() {
    let off = Options { read_around_blocks: 0, ..Options::default() };
    let budget = Options { flash_writes_per_day_bytes: Some(1 << 40), ..Options::default() };
    for (options, read) in [(off, 40), (budget, 48)] {
        let mut client = client(options);
        assert_eq!(origin_blocks(&mut client, 100..140), read, "whole units, if they may wait in RAM");
        assert_eq!(counters(&client).neighbour_blocks, 0);
    }
}

/// A write of a neighbour is acknowledged while the read around it is at the origin. Later reads
/// get the new data.
#[test]
fn a_write_does_not_wait_for_the_read_around_it() {
    let mut client = client(Options::default());
    let reading = client.read(0, 104 * 8, 8);
    let writing = client.write(0, 105 * 8, 8, true);
    assert!(client.world.drive_until(|world| !world.waits(writing)));
    assert!(client.world.waits(reading), "the read was over: nothing was shown");
    client.finish();
    assert_eq!(origin_blocks(&mut client, 96..112), 0);
    client.leave();
}

/// A read around a miss does not bring back data from before a write past the cache. When the read
/// ends, the index has nothing that could tell.
#[test]
fn what_was_written_past_the_cache_is_not_taken_from_the_read_around_it() {
    let mut client = client_past_the_cache();
    // The disk holds back what it has read, as a busy disk does.
    client.hold_read(0, 50_000_000);
    let reading = client.read(0, 104 * 8, 8);
    let writing = client.write(0, 97 * 8, 8, false);
    assert!(client.world.drive_until(|world| !world.waits(writing)));
    assert!(client.world.waits(reading), "the read was over: nothing was shown");
    client.finish();
    let before = counters(&client).read_misses;
    origin_blocks(&mut client, 96..105);
    assert_eq!(counters(&client).read_misses - before, 1, "all but the written one had come along");
}

/// Neighbours beside such writes wait for the proof of the origin's next flush, as all promoted
/// blocks do.
#[test]
fn neighbours_come_to_the_log_beside_writes_that_no_flush_has_covered() {
    let mut client = client_past_the_cache();
    client.write(0, 2000 * 8, 8, false);
    client.finish();
    let before = counters(&client).neighbour_blocks;
    assert_eq!(origin_blocks(&mut client, 96..176), 5 * UNIT);
    assert_eq!(counters(&client).neighbour_blocks - before, 5 * (UNIT - 1));
    client.flush(0);
    client.finish();
    client.crash(1, Fate::Kept, Fate::Lost);
    let opened = client.open();
    // One commit of 15 blocks was open when the flush came.
    assert!((81 - 14..=97).contains(&opened.blocks_cached), "{opened:?}");
    client.leave();
}

/// A bad sector is an error for its own readers, not for its neighbours. A disk may try for long,
/// so the sector is tried once.
#[test]
fn an_error_beside_a_block_is_not_its_own() {
    let mut client = client(Options::default());
    let bad = 105 * BLOCK_BYTES..106 * BLOCK_BYTES;
    client.world.origins[0].faults.fail_range(bad, Some(Op::Read), DeviceError::Io);
    let before = counters(&client).origin_reads_bytes;
    read(&mut client, 104);
    read(&mut client, 103);
    assert_eq!(client.take_failed(), []);
    assert_eq!((counters(&client).origin_reads_bytes - before) / BLOCK_BYTES, UNIT + 2);
    let bad = client.read(0, 105 * 8, 8);
    client.finish();
    let failed = client.take_failed();
    assert!(failed.len() == 1 && failed[0].0 == bad, "{failed:?}");
}

/// Fills the cache of 1,024 blocks with data that is read again and again, so that its gate is
/// shut.
fn fill(client: &mut Client) {
    for _ in 0..4 {
        (0..900).for_each(|block| read(client, block));
    }
    (900..2000).for_each(|block| read(client, block));
}

/// Neighbours wait in the window, which is RAM, while the cache is full. Of blocks that are read
/// once in order, fifteen of sixteen are hits and cost no flash.
#[test]
fn neighbours_wait_beside_a_full_cache() {
    let mut client = client(Options::default());
    fill(&mut client);
    let before = counters(&client);
    let scanned = origin_blocks(&mut client, 2000..4000);
    let after = counters(&client);
    let (misses, brought) = (after.read_misses - before.read_misses, after.neighbour_blocks - before.neighbour_blocks);
    assert!(misses <= 2000 / UNIT + UNIT && scanned <= 2000 + 2 * UNIT, "{misses} misses, {scanned} blocks");
    assert!(after.promoted_blocks - before.promoted_blocks + brought <= UNIT, "a scan went to flash");
}

/// Neighbours stay away when nobody asks for them. Only one unit in 32 still brings them, to show
/// whether that has changed.
#[test]
fn neighbours_that_nobody_asks_for_stay_away() {
    let mut client = client(Options::default());
    fill(&mut client);
    // Each turn reads one block of each of 125 units, and each time another block. The neighbours
    // that wait leave the window unread.
    let turn = |client: &mut Client, nth: u64| {
        let blocks = (0..125).map(|unit| 2000 + unit * UNIT + nth);
        blocks.map(|block| origin_blocks(client, block..block + 1)).sum::<u64>()
    };
    for nth in 0..3 {
        turn(&mut client, nth);
    }
    let before = counters(&client);
    let asked = turn(&mut client, 3);
    let misses = counters(&client).read_misses - before.read_misses;
    assert!(misses > 110, "{misses} of 125 missed: nothing is shown");
    assert!(asked <= misses + 125 / 16 * UNIT, "{asked} blocks for {misses} misses");
}

/// A neighbour that waits becomes an ordinary block once somebody has asked for it. Asked for again
/// and again, it is cached.
#[test]
fn a_neighbour_that_is_asked_for_is_cached_like_any_other() {
    let mut client = client(Options::default());
    fill(&mut client);
    read(&mut client, 2000);
    let before = counters(&client).promoted_blocks;
    // More blocks are read between two turns than the window has.
    for _ in 0..12 {
        read(&mut client, 2005);
        (0..6).for_each(|unit| read(&mut client, 2100 + unit * UNIT));
    }
    assert!(counters(&client).promoted_blocks > before, "it never was");
    let before = counters(&client).read_misses;
    (0..6).for_each(|unit| read(&mut client, 2200 + unit * UNIT));
    read(&mut client, 2005);
    assert_eq!(counters(&client).read_misses - before, 6, "it is there whatever else is read");
    client.judge();
    client.leave();
}

/// A neighbour that is written while it waits is read as it was written. That holds also if it is
/// written past the cache, where no index entry hides the old copy.
#[test]
fn a_neighbour_that_waits_is_forgotten_when_it_is_written() {
    for mode in [Mode::Writeback, Mode::Writearound, Mode::Writethrough] {
        let mut spec = world(1_000_000, Options::default());
        spec.origins[0].mode = mode;
        let mut client = Client::fresh(spec);
        read(&mut client, 4000);
        fill(&mut client);
        let before = counters(&client).waiting_neighbour_blocks;
        read(&mut client, 2000);
        assert_eq!(counters(&client).waiting_neighbour_blocks - before, UNIT - 1);
        client.write(0, 2003 * 8, 8, false);
        client.write(0, 2004 * 8 + 2, 3, false);
        client.finish();
        origin_blocks(&mut client, 2000..2016);
        client.leave();
    }
}

/// A scan with neighbours takes no more of a full cache away than a scan without them.
#[test]
fn a_full_cache_takes_no_neighbours() {
    let pushed_out = |options: Options| {
        let mut client = client(options);
        fill(&mut client);
        let before = counters(&client);
        let scanned = origin_blocks(&mut client, 2000..4000);
        let after = counters(&client);
        let brought = after.neighbour_blocks - before.neighbour_blocks;
        assert!(scanned <= 2000 + 2 * UNIT && brought <= UNIT, "{brought} of {scanned} blocks");
        after.evicted_blocks - before.evicted_blocks
    };
    let alone = pushed_out(Options { read_around_blocks: 0, ..Options::default() });
    let ours = pushed_out(Options::default());
    assert!(ours <= alone + 2 * UNIT, "{ours} blocks were pushed out, {alone} without neighbours");
}

/// A cache full of neighbours that nobody read admits blocks that are missed for the first time. It
/// takes no more neighbours.
#[test]
fn neighbours_in_vain_make_way() {
    let mut client = client(Options::default());
    // One block of each of 250 units. The units are four times the cache, and one block in sixteen
    // is wanted.
    let wanted = || (0..250).map(|unit| unit * UNIT);
    for _ in 0..6 {
        wanted().for_each(|block| read(&mut client, block));
    }
    let before = counters(&client);
    wanted().for_each(|block| read(&mut client, block));
    let after = counters(&client);
    assert_eq!(after.read_misses - before.read_misses, 0, "all that is wanted fits four times");
    assert!(after.neighbour_blocks < 3 * 1024, "{} neighbours were brought", after.neighbour_blocks);
}

#[test]
fn what_if_of_the_present_size_counts_what_came_along() {
    const BLOCKS: u64 = 1 << 15;
    let origin = OriginSpec { size_bytes: BLOCKS * BLOCK_BYTES, logical_block_bytes: 512, mode: Mode::Writeback };
    let world = WorldSpec { segments_per_lane: 576, origins: vec![origin], ..world(1_000_000, Options::default()) };
    let mut client = Client::fresh(world);
    let mut read_files = |files: std::ops::Range<u64>| {
        let before = counters(&client);
        for file in files {
            // 32 blocks in order, four at a time; the next 32 lie elsewhere.
            let first = file * 1031 % (BLOCKS / 32) * 32;
            for block in (first..first + 32).step_by(4) {
                client.read(0, block * 8, 4 * 8);
                client.finish();
            }
        }
        let status = client.world.engine().status();
        let (hits, misses) =
            (status.counters.read_hits - before.read_hits, status.counters.read_misses - before.read_misses);
        (hits as f64 / (hits + misses) as f64, status.what_if)
    };
    // The first call fills the cache. The second call is the one that the shadow speaks of: its
    // last rounds.
    read_files(0..BLOCKS / 32);
    let (hits, what_if) = read_files(BLOCKS / 32..2 * BLOCKS / 32);
    assert!(hits > 0.7, "{hits}");
    for it in &what_if {
        let more = it.totals.read_hit_ratio() - hits;
        // The shadow has a sample of 288 blocks, and not quite of the same reads. Without
        // neighbours only a cache of four times the size would have hits.
        let known = match it.size_percent {
            50 => more.abs() < 0.1,
            100 => more.abs() < 0.05,
            _ => more > -0.05,
        };
        assert!(known, "{} %: {more} more than {hits}", it.size_percent);
    }
    assert_eq!(what_if.len(), 4);
}

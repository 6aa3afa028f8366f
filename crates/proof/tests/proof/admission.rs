// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads are cached as the window and the budget of writes to the cache device allow, seen from
//! outside.

use flashfront_device::Rng;
use flashfront_engine::{BLOCK_BYTES, Counters, Mode, Options, policy};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const DAY_NS: u64 = 86_400_000_000_000;

/// A client of a cache of 1,024 blocks before an origin of 4,096.
fn client(options: Options) -> Client {
    let origin = OriginSpec { size_bytes: 4096 * BLOCK_BYTES, logical_block_bytes: 512, mode: Mode::Writeback };
    let options = Options { sequential_bypass_bytes: 0, ..options };
    Client::fresh(WorldSpec { segments_per_lane: 64, origins: vec![origin], options, ..WorldSpec::default() })
}

fn counters(client: &Client) -> Counters {
    client.world.engine().status().counters
}

fn read(client: &mut Client, block: u64) {
    client.read(0, block * 8, 8);
    client.finish();
}

/// A client of a cache that is full of blocks 0 to 2,047, as far as they fit.
fn full() -> Client {
    let mut client = client(Options::default());
    (0..2048).for_each(|block| read(&mut client, block));
    client
}

#[test]
fn a_block_that_is_not_admitted_is_a_hit_all_the_same_when_it_comes_again_soon() {
    let mut client = full();
    let before = counters(&client);
    read(&mut client, 4000);
    read(&mut client, 4000);
    let after = counters(&client);
    assert_eq!(after.read_misses - before.read_misses, 1);
    assert_eq!(after.ram_hits - before.ram_hits, 1);
    assert_eq!(after.promoted_blocks, before.promoted_blocks, "it was written to flash");
}

#[test]
fn the_window_shows_what_was_written_last_in_every_mode() {
    for mode in [Mode::Writeback, Mode::Writethrough, Mode::Writearound] {
        let origin = OriginSpec { size_bytes: 4096 * BLOCK_BYTES, logical_block_bytes: 512, mode };
        let mut client =
            Client::fresh(WorldSpec { segments_per_lane: 64, origins: vec![origin], ..WorldSpec::default() });
        (0..2048).for_each(|block| read(&mut client, block));
        let before = counters(&client).ram_hits;
        for block in 4000..4008 {
            read(&mut client, block);
            // Whole, in part, and gone: each time the client knows what it must read.
            client.write(0, block * 8, 8, false);
            read(&mut client, block);
            client.write(0, block * 8 + 3, 2, false);
            read(&mut client, block);
            client.change(flashfront_engine::RequestOp::Discard, 0, block * 8, 8, false);
            read(&mut client, block);
            read(&mut client, block);
        }
        client.judge();
        assert!(counters(&client).ram_hits > before, "{mode:?}: the window never answered, so nothing was shown");
    }
}

#[test]
fn a_scan_over_a_full_cache_writes_next_to_nothing_to_flash() {
    let mut client = full();
    let before = counters(&client).promoted_blocks;
    (2048..4096).for_each(|block| read(&mut client, block));
    let promoted = counters(&client).promoted_blocks - before;
    assert!(promoted <= 20, "{promoted} of 2,048 blocks were written to flash");
}

/// Random reads, three days long, more of them than the budget can cache; returns what was counted,
/// by day.
fn three_days(policy: &str, budget: Option<u64>, write_every: u64) -> [Counters; 3] {
    let policy = policy::by_name(policy).expect("a policy");
    let mut client = client(Options { policy, flash_writes_per_day_bytes: budget, ..Options::default() });
    let mut rng = Rng::new(3);
    let mut before = Counters::default();
    std::array::from_fn(|_| {
        for nth in 0..8000 {
            let block = rng.below(4096);
            if write_every > 0 && nth % write_every == 0 {
                client.write(0, block * 8, 8, false);
            } else {
                client.read(0, block * 8, 8);
            }
            client.finish();
            client.world.pass(DAY_NS / 8000);
        }
        let after = counters(&client);
        let day = Counters {
            cache_writes_bytes: after.cache_writes_bytes - before.cache_writes_bytes,
            over_budget_blocks: after.over_budget_blocks - before.over_budget_blocks,
            promoted_blocks: after.promoted_blocks - before.promoted_blocks,
            write_hits: after.write_hits + after.write_misses - before.write_hits - before.write_misses,
            ..Counters::default()
        };
        before = after;
        day
    })
}

#[test]
fn fills_stay_within_the_budget_of_writes_a_day() {
    let budget = 4 << 20;
    let free = three_days("fifo", None, 0);
    assert!(free.iter().all(|day| day.cache_writes_bytes > 4 * budget && day.over_budget_blocks == 0), "{free:?}");
    for (nth, day) in three_days("fifo", Some(budget), 0).iter().enumerate() {
        let written = day.cache_writes_bytes;
        assert!(written <= budget * 5 / 4, "day {nth}: {written} bytes, a day and a quarter's are {}", budget * 5 / 4);
        assert!(written >= budget * 3 / 4, "day {nth}: {written} bytes of {budget} used");
        assert!(day.over_budget_blocks > 0 && day.promoted_blocks > 100, "day {nth}: {day:?}");
    }
}

/// The daemon's policy admits less by itself, so that a smaller budget is what ends it; and
/// `status` tells what is left.
#[test]
fn the_daemons_own_policy_keeps_to_the_budget() {
    let own = Options::default().policy.name;
    let free = three_days(own, None, 0);
    let budget = free[1].cache_writes_bytes.min(free[2].cache_writes_bytes) / 4;
    println!("{free:?} {budget}");
    for (nth, day) in three_days(own, Some(budget), 0).iter().enumerate() {
        let written = day.cache_writes_bytes;
        assert!(written <= budget * 5 / 4, "day {nth}: {written} bytes, a day and a quarter's are {}", budget * 5 / 4);
        assert!(day.over_budget_blocks > 0 && day.promoted_blocks > 0, "day {nth}: {day:?}");
    }
    let mut client = client(Options { flash_writes_per_day_bytes: Some(budget), ..Options::default() });
    let left = |client: &Client| client.world.engine().status().flash_writes_left_bytes;
    assert_eq!(client.world.engine().status().flash_writes_per_day_bytes, Some(budget));
    client.world.pass(DAY_NS);
    read(&mut client, 0);
    let quarter = (budget / 4) as i64;
    assert!((1..=quarter).contains(&left(&client)), "{} of {quarter}", left(&client));
    for nth in 0..1000 {
        client.write(0, nth * 8, 8, false);
    }
    client.finish();
    assert!(left(&client) < 0, "{}", left(&client));
}

#[test]
fn writes_are_absorbed_beyond_the_budget_and_end_the_fills() {
    for policy in ["fifo", "gated"] {
        for (nth, day) in three_days(policy, Some(1 << 20), 2).iter().enumerate().skip(1) {
            assert_eq!(day.write_hits, 4000, "{policy}, day {nth}: writes that the cache took");
            assert!(day.cache_writes_bytes > 15 << 20, "{policy}, day {nth}: {day:?}");
            assert_eq!(day.promoted_blocks, 0, "{policy}, day {nth}: blocks were cached on credit");
        }
    }
}

#[test]
fn a_burst_of_writes_takes_clean_segments_before_dirty_ones() {
    // The origin is slow: what is destaged during the burst is what somebody was in a hurry for.
    let options = Options { sequential_bypass_bytes: 0, dirty_age_max_ns: u64::MAX / 4, ..Options::default() };
    let origin = OriginSpec { size_bytes: 4096 * BLOCK_BYTES, logical_block_bytes: 512, mode: Mode::Writeback };
    let spec = WorldSpec {
        segments_per_lane: 64,
        origins: vec![origin],
        origin_ns: 5_000_000,
        options,
        ..WorldSpec::default()
    };
    let mut client = Client::fresh(spec);
    (0..1024).for_each(|block| read(&mut client, block));
    // Two fifths of the cache: more than the zone of writes may have at first, less than may be
    // dirty.
    for nth in 0..400 {
        client.write(0, (2000 + nth * 5) * 8, 8, false);
        client.finish();
    }
    let counters = counters(&client);
    println!("{counters:?}");
    assert!(counters.destaged_blocks <= 64, "{} blocks destaged in a hurry", counters.destaged_blocks);
}

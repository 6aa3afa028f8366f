// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes have parts of the cache of their own: a smallest one.

use flashfront_engine::format::Shares;
use flashfront_engine::{Counters, Mode, Options, OriginId, OriginStatus, VolumeChange, VolumeError};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

/// Blocks of the quiet volume that are asked for again and again.
const QUIET_BLOCKS: u64 = 600;

/// A cache of 3,072 blocks before two volumes: a quiet one, and a noisy one that is much larger.
fn client(seed: u64, lanes: u32, mode: Mode) -> Client {
    let origin = |mib: u64| OriginSpec { size_bytes: mib << 20, logical_block_bytes: 512, mode };
    let options = Options { sequential_bypass_bytes: 0, read_around_blocks: 0, ..Options::default() };
    let segments_per_lane = 192 / lanes;
    Client::fresh(WorldSpec {
        seed,
        lanes,
        segments_per_lane,
        origins: vec![origin(64), origin(64)],
        options,
        ..WorldSpec::default()
    })
}

/// The engine is not walked after each input: half a million come.
fn unchecked(mut client: Client) -> Client {
    client.world.spec.check = false;
    client
}

fn counters(client: &Client) -> Counters {
    client.world.engine().status().counters
}

fn set(client: &mut Client, origin: u32, shares: Shares) -> Result<usize, VolumeError> {
    let ticket = client.ask_volume(VolumeChange::SetShares { origin: OriginId(origin), shares });
    client.await_volume(ticket)
}

fn of(client: &Client, origin: u32) -> OriginStatus {
    let status = client.world.engine().status();
    status.origins.into_iter().find(|it| it.id.0 == origin).expect("it is there")
}

fn min(blocks: u64) -> Shares {
    Shares { min_bytes: blocks * 4096, ..Shares::default() }
}

/// Reads blocks of a volume, and counts those that were missed.
fn read(client: &mut Client, origin: usize, blocks: impl Iterator<Item = u64>) -> u64 {
    let before = counters(client).read_misses;
    for block in blocks {
        client.read(origin, block * 8, 8);
        client.finish_to(4);
    }
    client.finish();
    counters(client).read_misses - before
}

/// The quiet volume's blocks lie in many stripes. (A stripe has 4,096 blocks.)
fn quiet() -> impl Iterator<Item = u64> {
    (0..QUIET_BLOCKS).map(|nth| nth * 27)
}

/// The noisy volume reads five times what the cache has, each block three times.
fn noise(client: &mut Client, round: u64) {
    let blocks = (0..5000_u64).map(|nth| (round * 5000 + nth) * 7919 % 16_384);
    read(client, 1, blocks.flat_map(|block| [block, block, block]));
}

/// The quiet volume's misses in five rounds beside the noise, and the blocks that reclaim copied.
fn beside_noise(client: &mut Client) -> (u64, u64) {
    let mut missed = 0;
    for round in 0..5 {
        noise(client, round);
        missed += read(client, 0, quiet());
    }
    (missed, counters(client).reinserted_blocks)
}

#[test]
fn a_noisy_volume_takes_no_hits_from_a_quiet_one_below_its_smallest_part() {
    for lanes in [1, 4] {
        let mut alone = unchecked(client(3, lanes, Mode::Writearound));
        read(&mut alone, 0, quiet());
        let (without, copied) = beside_noise(&mut alone);
        let mut shared = unchecked(client(3, lanes, Mode::Writearound));
        set(&mut shared, 0, min(QUIET_BLOCKS + 50)).unwrap();
        read(&mut shared, 0, quiet());
        let (with, copied_with) = beside_noise(&mut shared);
        let appended = counters(&shared).promoted_blocks;
        println!("{lanes} lanes: missed {without} and {with}, copied {copied} and {copied_with} of {appended}");
        assert!(without > 100, "the noise was too weak to show anything: {without}");
        assert_eq!(with, 0, "of {}", 5 * QUIET_BLOCKS);
        // What is kept is copied less than once for each block that comes.
        assert!(copied_with - copied.min(copied_with) < appended / 2, "{copied_with} were copied, {appended} came");
        assert_eq!(of(&shared, 0).evicted_below_min, 0);
        shared.leave();
        alone.leave();
    }
}

/// Writers don't wait for ever where nothing else is left: what is dirty has half of the cache.
#[test]
fn writers_go_on_beside_the_largest_smallest_parts() {
    let mut client = client(5, 1, Mode::Writeback);
    set(&mut client, 0, min(1536)).unwrap();
    read(&mut client, 0, (0..1700).map(|nth| nth * 9));
    for nth in 0..3000_u64 {
        client.write(1, nth * 7919 % 16_000 * 8, 8 * 4, nth % 50 == 0);
        client.finish_to(8);
    }
    client.finish();
    assert!(of(&client, 0).blocks_cached > 500, "{:?}", of(&client, 0));
    client.leave();
}

#[test]
fn parts_that_make_no_sense_are_refused() {
    let mut client = client(11, 1, Mode::Writeback);
    set(&mut client, 1, min(1000)).unwrap();
    let most_bytes = 1536 * 4096;
    let error = VolumeError::PartsTooLarge { min_bytes: 537 * 4096, others_bytes: 1000 * 4096, most_bytes };
    assert_eq!(set(&mut client, 0, min(537)), Err(error));
    assert_eq!(client.world.engine().superblock().origins[0].shares, Shares::default());
    set(&mut client, 0, min(536)).unwrap();
    set(&mut client, 1, min(900)).unwrap();
    client.leave();
}

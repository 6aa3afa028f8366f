// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes have parts of the cache of their own: a smallest one, and a largest one.

use flashfront_device::sim::Fate;
use flashfront_engine::format::Shares;
use flashfront_engine::{Control, Counters, Mode, Options, OriginId, OriginStatus, VolumeChange, VolumeError};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

/// Blocks of the quiet volume that are asked for again and again.
const QUIET_BLOCKS: u64 = 600;

/// A cache of 3,072 blocks before two volumes: a quiet one, and a noisy one that is much larger.
pub(crate) fn client(seed: u64, lanes: u32, mode: Mode) -> Client {
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

fn max(blocks: u64) -> Shares {
    Shares { max_bytes: blocks * 4096, ..Shares::default() }
}

/// The engine is not walked after each input: half a million come.
pub(crate) fn unchecked(mut client: Client) -> Client {
    client.world.spec.check = false;
    client
}

pub(crate) fn counters(client: &Client) -> Counters {
    client.world.engine().status().counters
}

pub(crate) fn set(client: &mut Client, origin: u32, shares: Shares) -> Result<usize, VolumeError> {
    let ticket = client.ask_volume(VolumeChange::SetShares { origin: OriginId(origin), shares });
    client.await_volume(ticket)
}

pub(crate) fn of(client: &Client, origin: u32) -> OriginStatus {
    let status = client.world.engine().status();
    status.origins.into_iter().find(|it| it.id.0 == origin).expect("it is there")
}

fn min(blocks: u64) -> Shares {
    Shares { min_bytes: blocks * 4096, ..Shares::default() }
}

/// Reads blocks of a volume, and counts those that were missed.
pub(crate) fn read(client: &mut Client, origin: usize, blocks: impl Iterator<Item = u64>) -> u64 {
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

/// Looks after each request that the volume has no more than its largest part.
fn read_within(client: &mut Client, origin: usize, most: u64, blocks: impl Iterator<Item = u64>) -> u64 {
    let before = counters(client).read_misses;
    for block in blocks {
        client.read(origin, block * 8, 8);
        client.finish_to(4);
        let cached = of(client, origin as u32).blocks_cached;
        assert!(cached <= most, "{cached} blocks, of {most}");
    }
    client.finish();
    counters(client).read_misses - before
}

/// Invariant of a largest part; and what came first does not stay for ever.
#[test]
fn a_volume_has_no_more_than_its_largest_part() {
    for lanes in [1, 4] {
        let mut client = client(7, lanes, Mode::Writearound);
        set(&mut client, 1, max(512)).unwrap();
        read_within(&mut client, 1, 512, (0..2000).map(|nth| nth * 8));
        assert!(of(&client, 1).blocks_cached > 400, "{:?}", of(&client, 1));
        // Others are asked for from now on.
        let others = || (0..300_u64).map(|nth| nth * 41 + 3);
        for _ in 0..6 {
            read_within(&mut client, 1, 512, others());
        }
        let missed = read_within(&mut client, 1, 512, others());
        println!("{lanes} lanes: {missed} of 300 are missed");
        assert!(missed < 60, "{missed} of 300 are missed");
        // The other volume has the rest.
        read(&mut client, 0, (0..1500).map(|nth| nth * 9));
        assert_eq!(read(&mut client, 0, (0..1500).map(|nth| nth * 9)), 0);
        // A crash brings nothing back that was dropped.
        client.crash(1, Fate::Kept, Fate::Kept);
        client.open();
        let cached = of(&client, 1).blocks_cached;
        assert!(cached <= 512, "{cached} after a crash");
        client.read_all();
        client.leave();
    }
}

/// What is written counts, too. It is dirty at first, and dropped when it is clean.
#[test]
fn writes_of_a_volume_stay_within_its_largest_part() {
    let mut client = client(9, 1, Mode::Writeback);
    set(&mut client, 1, max(600)).unwrap();
    for nth in 0..2000_u64 {
        client.write(1, nth * 7919 % 16_000 * 8, 8 * 4, false);
        client.finish_to(8);
        let it = of(&client, 1);
        assert!(it.blocks_dirty <= 600 && it.blocks_cached <= 700, "{it:?}");
    }
    client.finish();
    client.read_all();
    client.leave();
}

/// What is brought takes no room from what the volume has, unless that may leave.
#[test]
fn what_is_brought_ends_at_the_largest_part() {
    for lanes in [1, 4] {
        let mut client = client(13, lanes, Mode::Writearound);
        set(&mut client, 1, max(640)).unwrap();
        for part in 0..20 {
            client.warm(1, part * 64 * 8, 64 * 8, false);
            client.finish();
        }
        let done = counters(&client);
        assert_eq!(done.warmed_blocks + done.unwarmed_blocks, 1280);
        assert!((500..=640).contains(&done.warmed_blocks) && done.evicted_blocks == 0, "{done:?}");
        assert_eq!(read_within(&mut client, 1, 640, 0..500), 0, "what came first is there");
        client.leave();
    }
}

#[test]
fn parts_that_make_no_sense_are_refused() {
    let mut client = client(11, 1, Mode::Writeback);
    let least_bytes = 257 * 4096;
    assert_eq!(set(&mut client, 0, max(256)), Err(VolumeError::LargestPartTooSmall { least_bytes }));
    let crossed = Shares { min_bytes: 400 * 4096, ..max(300) };
    let error = VolumeError::PartsCrossed { min_bytes: 400 * 4096, max_bytes: 300 * 4096 };
    assert_eq!(set(&mut client, 0, crossed), Err(error));
    set(&mut client, 1, min(1000)).unwrap();
    let most_bytes = 1536 * 4096;
    let error = VolumeError::PartsTooLarge { min_bytes: 537 * 4096, others_bytes: 1000 * 4096, most_bytes };
    assert_eq!(set(&mut client, 0, min(537)), Err(error));
    assert_eq!(client.world.engine().superblock().origins[0].shares, Shares::default());
    set(&mut client, 0, min(536)).unwrap();
    set(&mut client, 1, min(900)).unwrap();
    client.leave();
}

/// A volume's own threshold counts, and the cache's where it has none.
#[test]
fn streams_of_a_volume_pass_by_its_own_threshold() {
    let mut client = client(13, 1, Mode::Writearound);
    client.world.control(Control::SetSequentialBypass { bytes: 64 << 10 });
    let stream = |client: &mut Client, origin, from: u64| {
        let before = counters(client).bypassed_sequential;
        for nth in 0..32 {
            client.read(origin, (from + nth * 8) * 8, 64);
            client.finish();
        }
        counters(client).bypassed_sequential - before
    };
    let own = |bypass_bytes| Shares { bypass_bytes, ..Shares::default() };
    assert_eq!([stream(&mut client, 0, 0), stream(&mut client, 1, 0)], [30, 30]);
    set(&mut client, 0, own(Some(0))).unwrap();
    assert_eq!([stream(&mut client, 0, 1000), stream(&mut client, 1, 1000)], [0, 30]);
    set(&mut client, 0, own(Some(512 << 10))).unwrap();
    client.world.control(Control::SetSequentialBypass { bytes: 0 });
    assert_eq!([stream(&mut client, 0, 2000), stream(&mut client, 1, 2000)], [16, 0]);
    set(&mut client, 0, own(None)).unwrap();
    assert_eq!([stream(&mut client, 0, 3000), stream(&mut client, 1, 3000)], [0, 0]);
    let wide = |bytes| Shares { read_around_bytes: Some(bytes), ..Shares::default() };
    let most_bytes = 256 << 10;
    for bytes in [4095, 260 << 10, u32::MAX] {
        let error = VolumeError::BadReadAround { bytes: bytes.into(), most_bytes };
        assert_eq!(set(&mut client, 0, wide(bytes)), Err(error));
    }
    client.crash(1, Fate::Kept, Fate::Kept);
    client.open();
    assert_eq!(client.world.engine().superblock().origins[0].shares, own(None));
    client.leave();
}

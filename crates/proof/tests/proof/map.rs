// SPDX-License-Identifier: MIT OR Apache-2.0
//! A map never shows a hole where anything but zeroes can be read.

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Control, DeviceError, Extent, MAP_BYTES, Mode, Op, RequestError, RequestOp, extents};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const BLOCKS: u64 = 512;
/// A short last block.
const SECTORS: u64 = BLOCKS * 8 + 3;

fn spec(mode: Mode, seed: u64, lanes: u32) -> WorldSpec {
    let origin = OriginSpec { size_bytes: SECTORS * 512, logical_block_bytes: 512, mode };
    WorldSpec { seed, lanes, origins: vec![origin], ..WorldSpec::default() }
}

/// Any whole blocks, up to the end of the disk.
fn blocks(rng: &mut Rng) -> (u64, u64) {
    let first = rng.below(BLOCKS);
    let most = [4, 40, BLOCKS][rng.below(3) as usize];
    let blocks = 1 + rng.below(most);
    (first * 8, (blocks * 8).min(SECTORS - first * 8))
}

/// Writes, zeroes, discards, drains and maps at the same time.
fn life(mode: Mode, seed: u64, lanes: u32) -> u64 {
    let mut client = Client::fresh(spec(mode, seed, lanes));
    let mut rng = Rng::new(seed);
    let zeroes = RequestOp::WriteZeroes { may_discard: true };
    for _ in 0..400 {
        let (sector, sectors) = blocks(&mut rng);
        match rng.below(12) {
            0..3 => drop(client.write(0, sector, sectors.min(64), rng.below(8) == 0)),
            3 => drop(client.write(0, sector, 1 + rng.below(8).min(sectors - 1), false)),
            4 => drop(client.change(zeroes, 0, sector, sectors, false)),
            5 => drop(client.change(zeroes, 0, sector, sectors.min(24), false)),
            6 => drop(client.change(RequestOp::Discard, 0, sector, sectors, false)),
            7 => drop(client.flush(0)),
            8 => client.world.control(Control::Drain(rng.below(3) > 0)),
            _ => drop(client.map(0, sector, sectors)),
        }
        for _ in 0..rng.below(6) {
            client.world.step();
        }
        client.judge();
        if client.world.in_flight() > 24 {
            client.finish_to(8);
        }
    }
    client.map(0, 0, SECTORS);
    client.finish();
    client.read_all();
    client.finish();
    client.holes
}

#[test]
fn holes_read_as_zeroes() {
    for mode in Mode::ALL {
        for seed in 0..8 {
            let holes = life(mode, seed, 1 + seed as u32 % 2);
            assert!(holes > 1000, "{mode} {seed}: {holes} sectors were told to be holes");
        }
    }
}

/// What a map of everything tells.
fn all(client: &mut Client) -> Vec<Extent> {
    client.world.submit(RequestOp::Map, 0, 0, SECTORS, false, None);
    client.world.finish_requests();
    let answer = client.world.answers.pop().expect("one for each request");
    assert_eq!((answer.result, answer.data.len()), (Ok(()), MAP_BYTES as usize));
    extents(&answer.data).collect()
}

#[test]
fn a_dirty_block_over_a_hole_is_data_until_it_is_zeroed() {
    let mut client = Client::fresh(spec(Mode::Writeback, 1, 2));
    let extent = |sectors: u64, hole| Extent { bytes: sectors * 512, hole };
    let zeroes = RequestOp::WriteZeroes { may_discard: true };
    // The short last block is written like data.
    client.change(zeroes, 0, 0, SECTORS, false);
    client.finish();
    client.world.drain();
    assert_eq!(all(&mut client), [extent(SECTORS, true)]);
    client.write(0, 80, 16, false);
    // A part of the last block, and a part of another.
    client.write(0, SECTORS - 1, 1, false);
    client.write(0, 801, 1, false);
    client.finish();
    let dirty = [
        extent(80, true),
        extent(16, false),
        extent(704, true),
        extent(8, false),
        extent(SECTORS / 8 * 8 - 808, true),
        extent(3, false),
    ];
    assert_eq!(all(&mut client), dirty);
    // What no longer is dirty is what the origin has.
    client.world.drain();
    assert_eq!(all(&mut client), dirty);
    // The short last block is written like data.
    client.change(zeroes, 0, 0, SECTORS, false);
    client.finish();
    client.world.drain();
    assert_eq!(all(&mut client), [extent(SECTORS, true)]);
    // After a power cut the same is known.
    client.write(0, 0, 8, true);
    client.finish();
    client.crash(3, Fate::Lost, Fate::Kept);
    client.world.open().expect("opens after a power cut");
    assert_eq!(all(&mut client), [extent(8, false), extent(SECTORS - 8, true)]);
}

#[test]
fn an_origin_that_does_not_tell_has_no_holes() {
    for error in [DeviceError::Unsupported, DeviceError::Io] {
        let mut client = Client::fresh(spec(Mode::Writeback, 1, 1));
        client.change(RequestOp::WriteZeroes { may_discard: true }, 0, 0, SECTORS, false);
        client.finish();
        let rule = Rule { op: Some(Op::Map), ..Rule::always(Fault::Error(error)) };
        client.world.origins[0].faults.order(rule);
        assert_eq!(all(&mut client), [Extent { bytes: SECTORS * 512, hole: false }]);
    }
}

#[test]
fn a_map_of_very_many_dirty_blocks_tells_of_the_first() {
    let mut client = Client::fresh(spec(Mode::Writeback, 1, 1));
    client.change(RequestOp::WriteZeroes { may_discard: true }, 0, 0, SECTORS, false);
    client.finish();
    // Every other block, of which a list has no room for more than so many.
    let in_list = 341;
    for block in (0..BLOCKS).step_by(2) {
        client.write(0, block * 8, 8, false);
        client.finish_to(16);
    }
    client.finish();
    let told = all(&mut client);
    assert!(told.len() > in_list, "{}", told.len());
    assert!(told.windows(2).all(|two| two[0].hole != two[1].hole), "{told:?}");
}

#[test]
fn maps_of_parts_of_blocks_are_refused() {
    let mut client = Client::fresh(spec(Mode::Writeback, 1, 1));
    for (sector, sectors) in [(1, 8), (0, 7), (0, 0), (8, SECTORS)] {
        client.world.submit(RequestOp::Map, 0, sector, sectors, false, None);
        client.world.finish_requests();
        let answer = client.world.answers.pop().expect("one for each request");
        assert_eq!(answer.result, Err(RequestError::Invalid), "{sector} {sectors}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes may have any bytes. What is beside them in their sectors stays, whatever other client
//! writes there at the same time.

use flashfront_device::sim::Fate;
use flashfront_engine::{Mode, Options, RequestOp};
use flashfront_proof::{OriginSpec, World, WorldSpec};

/// Two mebibytes and a short last block.
const DISK_BYTES: u64 = (2 << 20) + 1024;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Begins a write of `len` bytes at `at`, each of them `byte`.
fn write(world: &mut World, at: u64, len: u64, byte: u8, fua: bool) {
    let (lba, end) = (at / 512, (at + len).div_ceil(512));
    let op = RequestOp::WriteBytes { head: (at % 512) as u16, tail: (end * 512 - at - len) as u16 };
    world.submit(op, 0, lba, end - lba, fua, Some(u32::from(byte)));
}

/// Waits for all answers, which are good ones.
fn finish(world: &mut World) {
    world.finish_requests();
    assert!(world.answers.drain(..).all(|answer| answer.result.is_ok()));
}

fn read_all(world: &mut World, disk_bytes: u64) -> Vec<u8> {
    let mut all = Vec::new();
    for lba in (0..disk_bytes / 512).step_by(1024) {
        let sectors = (disk_bytes / 512 - lba).min(1024);
        world.submit(RequestOp::Read, 0, lba, sectors, false, None);
        world.finish_requests();
        let answer = world.answers.pop().expect("one for each request");
        assert_eq!(answer.result, Ok(()));
        all.extend(answer.data);
    }
    all
}

/// Writes of odd places and lengths, some from others' ends and some across blocks, many at once.
fn life(mode: Mode, logical_block_bytes: u32, seed: u64) {
    let disk_bytes = DISK_BYTES.next_multiple_of(u64::from(logical_block_bytes));
    let origin = OriginSpec { size_bytes: disk_bytes, logical_block_bytes, mode };
    let mut world = World::format(WorldSpec { seed, origins: vec![origin], ..WorldSpec::default() });
    world.open().expect("a fresh cache opens");
    let mut model = read_all(&mut world, disk_bytes);
    let mut random = Random(seed);
    for _ in 0..8 {
        // Neighbours that share sectors and blocks, in flight together; the last bytes of the disk
        // among them.
        let mut places = vec![(disk_bytes - 300, 300), (disk_bytes - 400, 99)];
        let mut at = random.below(disk_bytes / 2);
        for _ in 0..24 {
            let long = 1 + random.below(9000);
            let len = [1, 2, 511, 512, 513, long][random.below(6) as usize];
            places.push((at, len));
            at += len + [0, 0, 1, 600][random.below(4) as usize];
        }
        for (at, len) in places {
            let byte = random.below(255) as u8 + 1;
            write(&mut world, at, len, byte, random.below(8) == 0);
            model[at as usize..(at + len) as usize].fill(byte);
            if random.below(4) == 0 {
                world.step();
            }
        }
        finish(&mut world);
        assert!(read_all(&mut world, disk_bytes) == model, "{mode} {logical_block_bytes} {seed}");
    }
    world.submit(RequestOp::Flush, 0, 0, 0, false, None);
    finish(&mut world);
    let mut after = world.crash(seed, Fate::Mixed, Fate::Mixed);
    after.open().expect("opens after a crash");
    assert!(read_all(&mut after, disk_bytes) == model, "{mode} {logical_block_bytes} {seed}: after a power cut");
}

#[test]
fn writes_of_bytes_leave_their_neighbours_alone() {
    for mode in Mode::ALL {
        for logical_block_bytes in [512, 4096] {
            (0..3).for_each(|seed| life(mode, logical_block_bytes, seed));
        }
    }
}

#[test]
fn what_is_asked_for_ahead_is_in_the_cache_however_much_it_is() {
    // A read of so much is a stream, and goes past the cache.
    let options = Options { sequential_bypass_bytes: 256 << 10, ..Options::default() };
    let mut world = World::format(WorldSpec { options, ..WorldSpec::default() });
    world.open().expect("a fresh cache opens");
    for lba in (0..2048).step_by(512) {
        world.submit(RequestOp::Prefetch, 0, lba, 512, false, None);
        finish(&mut world);
    }
    let before = world.engine().status().counters;
    assert_eq!(before.bypassed_sequential, 0);
    read_all(&mut world, 1 << 20);
    let after = world.engine().status().counters;
    assert_eq!(after.origin_reads, before.origin_reads, "all of it was there: {before:?}");
}

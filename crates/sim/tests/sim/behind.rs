// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destage hurries while reclaim would give up what is dirty, and no longer. Once nobody needs
//! room, readers have the disk.

use flashfront_device::Rng;
use flashfront_device::sim::known;
use flashfront_engine::{BLOCK_BYTES, Mode, Options};
use flashfront_sim::system::{Ask, Asker, Flashfront, FlashfrontSpec};

const GIB: u64 = 1 << 30;
/// What is written and read until the cache is full of it.
const BUSY_BLOCKS: u64 = GIB / BLOCK_BYTES;

fn client() -> Asker<Flashfront> {
    let model = |name| known().into_iter().find(|it| it.name == name).expect("a known device").model;
    let system = Flashfront::new(&FlashfrontSpec {
        origin: model("wd-re-4tb"),
        origin_bytes: 64 * GIB,
        cache: model("intel-p4500"),
        cache_bytes: 160 << 20,
        mode: Mode::Writeback,
        options: Options { read_around_blocks: 1, dirty_age_max_ns: u64::MAX / 4, ..Options::default() },
    });
    Asker::new(system, 1)
}

/// A backup's stream, which passes the cache: MiB a second, over two minutes from now on.
fn streams(client: &mut Asker<Flashfront>, from: &mut u64) -> f64 {
    let (begin, before) = (client.now, *from);
    while client.now.since_ns(begin) < 120_000_000_000 {
        client.ask(Ask::Read, *from, 256 << 10);
        *from += 256 << 10;
    }
    (*from - before) as f64 / 120.0 / f64::from(1 << 20)
}

#[test]
fn who_reads_from_the_disk_has_it_when_nobody_needs_room() {
    let mut rng = Rng::new(7);
    let (mut idle, mut from) = (client(), 2 * GIB);
    let alone = streams(&mut idle, &mut from);
    let mut client = client();
    client.in_flight_max = 16;
    for _ in 0..300_000 {
        let rank = 2_f64.powf(rng.below(18_000_000) as f64 / 1e6) as u64;
        let block = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BUSY_BLOCKS;
        client.ask(if rng.below(5) == 0 { Ask::Write } else { Ask::Read }, block * BLOCK_BYTES, BLOCK_BYTES);
    }
    client.in_flight_max = 1;
    let (dirty, mut from) = (client.system.status().blocks_dirty, 2 * GIB);
    let beside = [(); 2].map(|()| streams(&mut client, &mut from));
    let left = client.system.status().blocks_dirty;
    println!("{alone:.1} MiB a second alone, {beside:.1?} beside {dirty} dirty blocks, of which {left} are left");
    assert!(beside[0] > 0.95 * alone, "destage goes on hurrying");
    assert!(left > dirty / 2, "{left} of {dirty} dirty blocks are left: nobody waits for that");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk writes what destage gave it in the pauses of its readers. That nobody has to wait for a
//! flush that is put off is tested in crates/proof.

use flashfront_device::Rng;
use flashfront_device::sim::known;
use flashfront_engine::{BLOCK_BYTES, Mode, Options};
use flashfront_sim::load::idle;
use flashfront_sim::system::{Ask, Asker, Bare, Flashfront, FlashfrontSpec, System};

const GIB: u64 = 1 << 30;
const LIMIT_BLOCKS: u64 = 1 << 16;
/// 85 % of them: destage has half of the disk's time.
const DIRTY_BLOCKS: u64 = 56_000;
const READS: u64 = 1000;

/// Reads at random places that nobody has read before, each after a pause of 20 to 80 ms: ms that
/// one takes in the mean.
fn reads_ms(client: &mut Asker<impl System>) -> f64 {
    let mut rng = Rng::new(5);
    let mut took_ns = 0;
    for _ in 0..READS {
        let pause_ns = (20 + rng.below(60)) * 1_000_000;
        idle(&mut client.system, &mut client.now, pause_ns, &mut |_| true).expect("nobody stops it");
        let asked = client.now;
        client.ask(Ask::Read, 32 * GIB + rng.below(8 << 20) * BLOCK_BYTES, BLOCK_BYTES);
        took_ns += client.now.since_ns(asked);
    }
    took_ns as f64 / READS as f64 / 1e6
}

/// With each batch flushed as soon as it was written reads took 26 ms; alone 11.
#[test]
fn who_reads_now_and_then_hardly_waits_for_destage() {
    let model = |name| known().into_iter().find(|it| it.name == name).expect("a known device").model;
    let alone = reads_ms(&mut Asker::new(Bare::new(model("wd-re-4tb"), 64 * GIB), 1));
    let system = Flashfront::new(&FlashfrontSpec {
        origin: model("wd-re-4tb"),
        origin_bytes: 64 * GIB,
        cache: model("intel-p4500"),
        cache_bytes: 512 << 20,
        mode: Mode::Writeback,
        options: Options { dirty_limit_blocks: Some(LIMIT_BLOCKS), ..Options::default() },
    });
    let mut client = Asker::new(system, 32);
    let mut rng = Rng::new(7);
    for _ in 0..DIRTY_BLOCKS {
        client.ask(Ask::Write, rng.below(8 << 20) * BLOCK_BYTES, BLOCK_BYTES);
    }
    client.in_flight_max = 1;
    client.ask(Ask::Flush, 0, 0);
    let dirty = client.system.status().blocks_dirty;
    let beside = reads_ms(&mut client);
    let destaged = dirty - client.system.status().blocks_dirty;
    println!("{alone:.2} ms alone, {beside:.2} beside {dirty} dirty blocks, of which {destaged} were destaged");
    assert!(beside < 2.0 * alone, "{beside:.2} ms, {alone:.2} alone");
    assert!(destaged > 5_000, "{destaged} blocks while nobody read for four fifths of the time");
}

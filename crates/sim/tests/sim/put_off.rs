// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk writes what destage gave it in the pauses of who reads from it: it is not made to do all
//! of it at once.

use flashfront_device::Rng;
use flashfront_device::sim::known;
use flashfront_engine::{BLOCK_BYTES, Mode, Options, RequestOp};
use flashfront_sim::load::idle;
use flashfront_sim::system::{Ask, Asker, Bare, Flashfront, FlashfrontSpec, System};
use flashfront_sim::{Client, OriginSpec, WorldSpec};

const GIB: u64 = 1 << 30;
const LIMIT_BLOCKS: u64 = 1 << 16;
/// 85 % of them: destage has half of the disk's time.
const DIRTY_BLOCKS: u64 = 56_000;
const READS: u64 = 1000;
/// Of a batch, far apart.
const RUNS: u64 = 40;

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

/// What a client does, to its end.
type Act = fn(&mut Client);

/// A batch that is written, and whose flush is put off.
fn client_with_a_written_batch() -> Client {
    let origins = vec![OriginSpec { size_bytes: 32 << 20, logical_block_bytes: 512, mode: Mode::Writeback }];
    let mut client = Client::fresh(WorldSpec { segments_per_lane: 64, origins, ..WorldSpec::default() });
    for nth in 0..RUNS {
        client.write(0, nth * 1024, 8, false);
    }
    client.flush(0);
    client.finish();
    let flushes = client.world.counters().origin_flushes;
    while client.world.counters().origin_writes < RUNS {
        assert!(client.world.step(), "nobody asks for anything: all is destaged");
    }
    assert_eq!(client.world.counters().origin_flushes, flushes, "the flush is put off");
    client
}

/// Until a batch is clean that is flushed when the origin has had the time for it, or at once.
#[test]
fn nobody_waits_for_a_flush_that_is_put_off() {
    let took_ns = |what: Act| {
        let mut client = client_with_a_written_batch();
        let began = client.world.now;
        what(&mut client);
        client.world.now.since_ns(began)
    };
    let clean = |client: &mut Client| {
        client.world.drive_until(|world| world.engine().status().blocks_dirty == 0);
    };
    let left_alone = took_ns(clean);
    let asked: [(&str, Act); 3] = [
        ("a discard", |client| {
            client.change(RequestOp::Discard, 0, 0, 8, false);
            client.finish();
        }),
        ("a drain", |client| client.world.drain()),
        ("a stop", |client| client.world.stop()),
    ];
    for (name, what) in asked {
        let took = took_ns(what);
        assert!(took * 4 < left_alone, "{name} took {took} ns, and {left_alone} if nobody waits");
    }
}

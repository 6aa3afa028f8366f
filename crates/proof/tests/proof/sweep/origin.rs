// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads are current, and no old data comes back, whichever way the writes went.

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{Control, Mode, OriginId, RequestOp, policy};
use flashfront_proof::{Client, WorldSpec};

use super::{FATES, anything, events, evict_all, small};

/// Invariant 2: 32 clients on a small range, in each mode, with mode switches too.
#[test]
fn many_clients_read_the_newest_write() {
    for (seed, mode) in (0..).zip(Mode::ALL) {
        for switching in [false, true] {
            let mut spec = WorldSpec { seed, lanes: 2, stripe_blocks: 8, ..small(mode, 4) };
            spec.options.sequential_bypass_bytes = 128 << 10;
            let mut client = Client::fresh(spec);
            let mut rng = Rng::new(seed);
            for nth in 0..500 {
                anything(&mut client, &mut rng, 600, 80);
                client.finish_to(31);
                if switching && nth % 25 == 0 {
                    let mode = Mode::ALL[rng.below(4) as usize];
                    client.world.control(Control::SetMode { origin: OriginId(0), mode });
                }
            }
            client.finish();
            assert!(client.take_failed().is_empty());
            client.read_all();
            client.leave();
        }
    }
}

/// Invariant 3: newer data goes past the cache over a cached block, in each way that exists. The
/// power is cut after each number of events. Then everything is evicted and read again.
#[test]
fn no_way_past_the_cache_brings_old_data_back() {
    const BLOCK: u64 = 40 * 8;
    type Way = fn(&mut Client);
    let set = |client: &mut Client, mode| client.world.control(Control::SetMode { origin: OriginId(0), mode });
    let ways: [(&str, Way); 7] = [
        ("writethrough", |client| {
            client.write(0, BLOCK, 16, false);
        }),
        ("writearound, in part", |client| {
            client.write(0, BLOCK + 3, 7, true);
        }),
        ("sequential", |client| {
            for nth in 0..6 {
                client.write(0, BLOCK - 160 + nth * 32, 32, false);
            }
        }),
        ("discard", |client| {
            client.change(RequestOp::Discard, 0, BLOCK, 16, true);
        }),
        ("zeroes", |client| {
            client.change(RequestOp::WriteZeroes { may_discard: true }, 0, BLOCK - 8, 200, true);
        }),
        ("drain", |client| client.world.control(Control::Drain(true))),
        ("rewritten", |client| {
            client.write(0, BLOCK, 16, false);
        }),
    ];
    for (nth, (name, way)) in ways.into_iter().enumerate() {
        for dirty in [false, true] {
            for cut in [0, 1, 2, 3, 4, 6, 9, 14, 30] {
                let mut spec = small(Mode::Writeback, 3);
                spec.options.sequential_bypass_bytes = 64 << 10;
                spec.options.commit_age_max_ns = 1_000_000;
                spec.options.policy = policy::by_name("reinsert").expect("a policy");
                let mut client = Client::fresh(spec);
                client.write(0, BLOCK - 80, 160, true);
                client.finish();
                if !dirty {
                    client.world.drain();
                    client.world.pass(10_000_000);
                }
                match nth {
                    0 => set(&mut client, Mode::Writethrough),
                    1 => set(&mut client, Mode::Writearound),
                    _ => {}
                }
                way(&mut client);
                events(&mut client, cut);
                client.judge();
                client.crash(cut, FATES[(cut as usize + nth) % 4], FATES[cut as usize % 4]);
                client.open();
                eprintln!("{name}, dirty {dirty}, cut after {cut} events");
                client.read(0, BLOCK - 160, 400);
                client.finish();
                evict_all(&mut client, 1024);
                client.read_all();
                client.leave();
            }
        }
    }
}

/// Invariant 7: in writethrough and writearound, after a FLUSH, the origin alone has everything.
#[test]
fn origins_alone_are_complete_outside_writeback() {
    for mode in [Mode::Writethrough, Mode::Writearound, Mode::Passthrough] {
        for seed in 0..8 {
            let mut client = Client::fresh(WorldSpec { seed, ..small(mode, 2) });
            let mut rng = Rng::new(seed);
            for _ in 0..150 {
                anything(&mut client, &mut rng, 1500, 40);
                client.finish_to(8);
            }
            client.crash(seed, Fate::Lost, FATES[seed as usize % 4]);
            // The cache device is never looked at again.
            client.judge_origins();
        }
    }
}

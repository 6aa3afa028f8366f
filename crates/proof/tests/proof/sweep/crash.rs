// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power cuts leave flushed data, and a prefix of the rest. (`cargo x sweep` cuts everywhere.)

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{Mode, RequestOp, policy};
use flashfront_proof::{Client, Content, WorldSpec, identify};

use super::{FATES, anything, events, place, small};

/// The part of a lane's log that survives is a prefix of it.
#[test]
fn what_survives_is_always_a_prefix() {
    let mut cut_short = 0;
    for seed in 0..60 {
        let mut client = Client::fresh(WorldSpec { seed, ..small(Mode::Writeback, 8) });
        for nth in 0..120 {
            client.write(0, nth * 8, 8, false);
            client.finish();
        }
        let mut rng = Rng::new(seed);
        client.world.pass(rng.below(400_000));
        client.crash(seed, FATES[seed as usize % 4], Fate::Lost);
        client.open();
        let world = &mut client.world;
        world.submit(RequestOp::Read, 0, 0, 120 * 8, false, None);
        world.finish_requests();
        let data = world.answers.pop().expect("an answer").data;
        let survived = |nth: u64| identify(0, nth * 8, &data[nth as usize * 4096..][..512]) != Content::Write(0);
        let prefix = (0..120).take_while(|nth| survived(*nth)).count() as u64;
        assert!((prefix..120).all(|nth| !survived(nth)), "seed {seed}: a hole after {prefix} writes");
        cut_short += u64::from(prefix < 120);
    }
    assert!(cut_short > 20, "only {cut_short} power cuts lost anything: the test proves little");
}

/// After a crash the cache is as warm as before, except for blocks that were not written yet.
#[test]
fn a_crash_leaves_the_cache_warm() {
    let mut spec = small(Mode::Writeback, 8);
    spec.options.policy = policy::by_name("reinsert").expect("a policy");
    let mut client = Client::fresh(spec);
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let (at, sectors) = place(&mut rng, 4000, 60);
        if rng.below(3) == 0 {
            client.write(0, at, sectors, false)
        } else {
            client.read(0, at, sectors)
        };
        client.finish_to(4);
    }
    // A FLUSH covers requests that were acknowledged before it.
    client.finish();
    client.flush(0);
    client.finish();
    let before = client.world.engine().status();
    client.crash(1, Fate::Lost, Fate::Lost);
    let opened = client.open();
    // Promoted blocks and survivors each had at most one open commit in RAM.
    assert!(opened.blocks_cached + 2 * 16 >= before.blocks_cached, "{opened:?} after {before:?}");
    assert!(opened.blocks_dirty >= before.blocks_dirty, "{opened:?} after {before:?}");
    client.read_all();
}

/// A clean stop keeps exactly the dirty blocks dirty.
#[test]
fn dirty_bits_are_exact_after_a_clean_stop() {
    let mut client = Client::fresh(small(Mode::Writeback, 8));
    let mut rng = Rng::new(9);
    for _ in 0..150 {
        anything(&mut client, &mut rng, 3000, 30);
        client.finish_to(4);
    }
    client.finish();
    client.world.pass(150_000_000);
    client.world.control(flashfront_engine::Control::Stop);
    let before = client.world.engine().status();
    client.stop();
    let opened = client.open();
    assert_eq!((opened.blocks_cached, opened.blocks_dirty), (before.blocks_cached, before.blocks_dirty));
    assert_eq!(opened.commits_replayed, 0, "a clean stop leaves nothing to replay");
    client.read_all();
    client.leave();
}

/// Invariant 1, with a daemon that is killed before the power fails. Only that daemon knew which
/// writes the devices hold, but not on their media. The FLUSH of the next daemon covers those
/// writes.
#[test]
fn the_flush_of_the_next_daemon_covers_what_a_killed_one_wrote() {
    for mode in Mode::ALL {
        let mut client = Client::fresh(small(mode, 2));
        client.write(0, 320, 64, false);
        client.finish();
        // In writeback this lasts until the commit is written, though not flushed.
        client.world.pass(1_000_000_000);
        client.crash(0, Fate::Killed, Fate::Killed);
        client.open();
        // Data that is there is there for good, once it is flushed.
        client.read(0, 320, 64);
        client.finish();
        client.flush(0);
        client.finish();
        client.crash(1, Fate::Lost, Fate::Lost);
        client.open();
        eprintln!("{mode}");
        client.read_all();
        client.leave();
    }
}

/// Invariant 3, with a daemon that is killed. The next daemon reads data that the killed one wrote,
/// and caches it. The data must be on the origin's medium before it is in the log. Otherwise the
/// origin would bring older data back when the block is evicted.
#[test]
fn what_a_killed_daemon_wrote_is_durable_before_the_next_one_caches_it() {
    for mode in [Mode::Writethrough, Mode::Writearound] {
        let mut committed = 0;
        for cut in (0..200).step_by(7) {
            let mut spec = small(mode, 2);
            spec.options.policy = policy::by_name("reinsert").expect("a policy");
            let mut client = Client::fresh(spec);
            client.write(0, 0, 2048, false);
            client.finish();
            client.world.pass(10_000_000);
            client.crash(0, Fate::Killed, Fate::Killed);
            client.open();
            // These reads fill a commit, in an order that is no sequential stream.
            (0..32).for_each(|nth| _ = client.read(0, nth * 11 % 32 * 64, 64));
            events(&mut client, cut);
            client.judge();
            committed += client.world.counters().commits;
            client.crash(cut, Fate::Kept, Fate::Lost);
            client.open();
            eprintln!("{mode}, cut after {cut} events");
            client.read_all();
            client.leave();
        }
        assert!(committed > 0, "nothing was committed: the test proves nothing");
    }
}

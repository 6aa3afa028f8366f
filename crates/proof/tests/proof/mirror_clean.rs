// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clean data is on the lead of a mirrored cache only. What the other member lacks is forgotten,
//! and never looked for there. The index keeps at least 16 bits of a checksum. That is enough for
//! rot, and not for thousands of blocks that were never written.

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{Control, DeviceError, Event, MirrorStatus, Mode, Op, Options, policy};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

fn client(seed: u64) -> Client {
    let origin = OriginSpec { size_bytes: 4 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let options = Options { sequential_bypass_bytes: 0, ..Options::default() };
    Client::fresh(WorldSpec { seed, origins: vec![origin], mirrored: true, options, ..WorldSpec::default() })
}

/// Blocks that their origin refuses for now are behind this one.
const REFUSED: u64 = 220;

/// A second member that came when the lead alone held blocks that had been dirty, beside others
/// that still are.
fn with_a_new_mirror() -> Client {
    let mut client = client(0);
    client.world.member_mut(1).expect("a mirrored world").faults.lose_device();
    client.world.origins[0].faults.fail_range(REFUSED * 4096..u64::MAX, Some(Op::Write), DeviceError::NoSpace);
    for nth in 0..25 {
        client.write(0, nth * 64, 64, false);
        client.write(0, (REFUSED + nth) * 8, 8, true);
        client.finish();
    }
    client.world.pass(10_000_000_000);
    let status = client.world.engine().status();
    assert_eq!((status.blocks_dirty, status.mirror), (25, MirrorStatus::Alone { member: 0 }));
    client.world.take_away(1);
    client.world.control(Control::AddMirror);
    assert!(client.world.drive_until(|world| world.engine().status().mirror == MirrorStatus::Whole));
    client
}

fn lead_dies(client: &mut Client) {
    client.world.cache.faults.lose_device();
    client.write(0, 300 * 8, 8, true);
    client.finish();
    assert_eq!(client.world.engine().status().mirror, MirrorStatus::Alone { member: 1 });
}

/// Everything is read, and nothing was looked for where it is not.
fn nothing_seems_damaged(client: &mut Client) {
    client.read_all();
    assert_eq!(client.take_failed(), []);
    let corrupt = client.take_events().into_iter().filter(|event| matches!(event, Event::Corrupt { .. })).count();
    assert_eq!(corrupt, 0, "clean blocks were looked for on a device that does not have them");
}

#[test]
fn a_new_mirror_is_not_asked_for_what_was_clean_before_it_came() {
    let mut client = with_a_new_mirror();
    lead_dies(&mut client);
    nothing_seems_damaged(&mut client);
    client.world.origins[0].faults.heal();
    client.leave();
}

#[test]
fn nor_after_a_restart() {
    let mut client = with_a_new_mirror();
    client.stop();
    client.open();
    lead_dies(&mut client);
    nothing_seems_damaged(&mut client);
    client.world.origins[0].faults.heal();
    client.leave();
}

/// A power cut tears a commit of clean blocks on the lead; its header is whole on the other member.
#[test]
fn a_commit_that_only_the_other_member_has_brings_no_clean_blocks() {
    let mut replayed = 0;
    for seed in 0..200 {
        let mut client = client(seed);
        let mut rng = Rng::new(seed);
        for _ in 0..8 {
            client.read(0, rng.below(900) * 8, 120);
            client.finish_to(4);
        }
        (0..rng.below(12)).for_each(|_| _ = client.world.step());
        client.crash(seed, Fate::Mixed, Fate::Lost);
        replayed += client.open().commits_replayed;
        nothing_seems_damaged(&mut client);
    }
    assert!(replayed > 100, "{replayed} commits replayed");
}

/// be looked for on the other member when the lead dies.
#[test]
fn a_segment_that_replay_saw_reused_is_not_taken_for_mirrored() {
    let mut damaged = Vec::new();
    for seed in 0..12 {
        let origin = OriginSpec { size_bytes: 8 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
        let options = Options {
            sequential_bypass_bytes: 0,
            read_around_blocks: 0,
            policy: policy::by_name("fifo").expect("a policy of ours"),
            ..Options::default()
        };
        let spec = WorldSpec {
            seed,
            origins: vec![origin],
            mirrored: true,
            options,
            segments_per_lane: 96,
            origin_ns: 200_000,
            check: false,
            ..WorldSpec::default()
        };
        let mut client = Client::fresh(spec);
        let mut rng = Rng::new(seed);
        for step in 0..700 + rng.below(500) {
            let at = rng.below(2040) * 8;
            if step % 200 < 100 {
                client.write(0, at, 64, false);
            } else {
                client.read(0, at, 64);
            }
            client.finish_to(4);
            if step % 100 == 99 {
                client.world.pass(rng.below(3_000_000_000));
            }
        }
        for _ in 0..rng.below(400) {
            client.world.step();
        }
        client.crash(seed, Fate::Kept, Fate::Kept);
        client.open();
        client.take_events();
        client.world.cache.faults.lose_device();
        client.write(0, 0, 8, true);
        client.finish();
        assert_eq!(client.world.engine().status().mirror, MirrorStatus::Alone { member: 1 });
        client.read_all();
        assert_eq!(client.take_failed(), []);
        let corrupt = client.take_events().into_iter().filter(|event| matches!(event, Event::Corrupt { .. })).count();
        if corrupt > 0 {
            damaged.push((seed, corrupt));
        }
    }
    assert_eq!(damaged, [], "(seed, clean blocks that were looked for on a device that does not have them)");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine foresees of a request, before it takes it, whether it ends without an answer of an
//! origin.

use flashfront_device::Rng;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Buf, Lba, Mode, OriginId, Request, RequestId, RequestOp};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const MINUTE_NS: u64 = 60_000_000_000;
/// A day: the origin answers nothing while a test lasts.
const SILENCE: Fault = Fault::Stall { hold_ns: 1440 * MINUTE_NS };

fn foreseen(client: &mut Client, op: RequestOp, lba: u64, sectors: u64, fua: bool) -> bool {
    let (id, origin, buf) = (RequestId(0), OriginId(0), Some(Buf(0)));
    let request =
        Request { id, origin, op, lba: Lba(lba), sectors, buf, fua, since: client.world.now, continues: false };
    let world = &mut client.world;
    world.engine.as_mut().expect("it is open").ends_by_itself(world.now, &request, &mut world.arena)
}

/// A cache that holds some of its origin, part of it dirty, before the origin falls silent.
fn before_silence(mode: Mode, lanes: u32, seed: u64) -> (Client, Rng) {
    let origin = OriginSpec { size_bytes: 6 << 20, logical_block_bytes: 512, mode };
    let mut spec = WorldSpec {
        lanes,
        stripe_blocks: 16,
        segment_blocks: 16,
        segments_per_lane: 128 / lanes,
        origins: vec![origin],
        ..WorldSpec::default()
    };
    spec.options.dirty_limit_blocks = Some(400);
    let (mut client, mut rng) = (Client::fresh(spec), Rng::new(seed));
    let blocks = client.sectors(0) / 8;
    for nth in 0..600 {
        let at = rng.below(blocks / 2) * 8;
        if nth % 3 == 0 {
            client.read(0, at, 8)
        } else {
            client.write(0, at, 8, false)
        };
        client.finish_to(8);
    }
    client.finish();
    client.world.origins[0].faults.order(Rule::always(SILENCE));
    (client, rng)
}

#[test]
fn what_is_foreseen_to_end_ends() {
    for (mode, lanes, seed) in [Mode::Writeback, Mode::Writethrough, Mode::Passthrough]
        .into_iter()
        .flat_map(|mode| [1, 2].map(|lanes| (mode, lanes)))
        .flat_map(|(mode, lanes)| [1, 2, 3].map(|seed| (mode, lanes, seed)))
    {
        let (mut client, mut rng) = before_silence(mode, lanes, seed);
        let all = client.sectors(0);
        let (mut ended, mut waiting) = ([0; 2], 0);
        for nth in 0..1500 {
            let sectors = 1 + rng.below([8, 8, 16, 200][nth % 4]);
            let mut lba = rng.below(all - sectors);
            let (write, fua) = (rng.below(2) == 0, rng.below(4) == 0);
            // Most are of whole blocks.
            let sectors = if rng.below(4) > 0 { sectors.next_multiple_of(8) } else { sectors };
            if sectors.is_multiple_of(8) {
                lba = lba.min(all - sectors) / 8 * 8;
            }
            let op = if write { RequestOp::Write } else { RequestOp::Read };
            let ends = foreseen(&mut client, op, lba, sectors, fua);
            if !ends && (waiting >= 60 || rng.below(8) > 0) {
                continue;
            }
            let id = if write { client.write(0, lba, sectors, fua) } else { client.read(0, lba, sectors) };
            if !ends {
                waiting += 1;
                continue;
            }
            let began = client.world.now;
            client.world.drive_until(|world| !world.waits(id) || world.now.since_ns(began) > MINUTE_NS);
            assert!(
                !client.world.waits(id),
                "{mode:?}, {lanes} lanes, seed {seed}: {op:?} {nth} at {lba}, {sectors} sectors, waits for the origin"
            );
            ended[usize::from(write)] += 1;
            client.judge();
        }
        let hits = if mode == Mode::Passthrough { 0 } else { 50 };
        let absorbed = if mode == Mode::Writeback { 15 } else { 0 };
        assert!(ended[0] >= hits && ended[1] >= absorbed, "{mode:?}: {ended:?} ended, {waiting} wait");
        assert!(waiting == 60, "{mode:?}: {waiting} wait");
        client.world.origins[0].faults.heal();
        client.world.pass(1441 * MINUTE_NS);
        client.finish();
        client.leave();
    }
}

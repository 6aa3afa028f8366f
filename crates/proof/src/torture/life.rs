// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lives a plan: clients, faults and power cuts. At the end come a drain, a stop, and a look at the
//! bare origins.

use std::collections::BTreeMap;

use flashfront_device::wrap::Fault;
use flashfront_device::{Device, Rng};
use flashfront_engine::format::Mirror;
use flashfront_engine::{
    Control, DeviceError, DeviceId, Event, MirrorStatus, Mode, Op, OriginId, RequestId, RequestOp, buffers_most,
};

use super::clients::ClientPlan;
use super::extra::Extra;
use super::plan::{Plan, Trouble};
use super::{moves, trouble, volumes};
use crate::client::Client;
use crate::spec::WorldSpec;
use crate::sweep::FATES;

mod restart;

/// The most lost blocks that are left alone.
const LOST_MAX: usize = 3;
/// Requests for each look at the bare origins, where destage is ordered.
const ORDER_EVERY: u64 = 12;
/// The owner of requests that restore lost blocks. It is none of the clients.
const OPERATOR: usize = usize::MAX;

/// The account of a life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// The hash over all effects.
    pub hash: u64,
    /// The number of inputs of the engine.
    pub steps: u64,
    /// Requests answered.
    pub answers: u64,
    /// Power cuts.
    pub crashes: u64,
    /// The number of faults that hit an I/O.
    pub faults: u64,
    /// The virtual time that passed.
    pub virtual_ns: u64,
    /// Whether the cache refused to open after its device had lied. Refusing is right, as it is
    /// loud.
    pub refused: bool,
    /// The number of turns in which lanes worked at the same time.
    pub turns_apart: u64,
}

struct Life {
    plan: Plan,
    /// Sources of random numbers, one for each concern. So a plan without faults asks for the same
    /// requests.
    rng: Rng,
    mirror_rng: Rng,
    fault_rng: Rng,
    control_rng: Rng,
    kill_rng: Rng,
    fate_rng: Rng,
    extra_rng: Rng,
    volume_rng: Rng,
    order_rng: Rng,
    link_rng: Rng,
    move_rng: Rng,
    client: Client,
    /// The client of each request in flight.
    owners: BTreeMap<RequestId, usize>,
    /// The place at which each client's last request ended.
    streams: Vec<u64>,
    /// The turns apart of worlds that ended by a power cut.
    turns_apart: u64,
    crashes: u64,
    /// Whether nothing was dirty when the power was last cut.
    whole: bool,
    /// The member of a mirrored cache that has had faults since both were well.
    victim: Option<u8>,
    /// The largest dirty limit since the opening. `None`: the blocks that replay found may exceed
    /// the limit, or blocks were lost.
    limit: Option<u64>,
}

/// Lives the life that `plan` and `seed` decide.
///
/// # Panics
/// When the engine breaks a promise; the message says what and where.
#[must_use]
pub fn run(mut plan: Plan, seed: u64) -> Lived {
    plan.add_extras(seed);
    let client = first_client(&plan);
    let limit = Some(client.world.engine().status().dirty_limit_blocks);
    let mut life = Life {
        rng: Rng::new(seed ^ 0x11fe),
        mirror_rng: Rng::new(seed ^ 0x31770e),
        fault_rng: Rng::new(seed ^ 0xfa_017),
        control_rng: Rng::new(seed ^ 0xc0_27_01),
        kill_rng: Rng::new(seed ^ 0x51_6a_11),
        fate_rng: Rng::new(seed ^ 0xfa_7e_05),
        extra_rng: Rng::new(seed ^ 0xe8_7a_a5),
        volume_rng: Rng::new(seed ^ 0x0_7ab1e5),
        order_rng: Rng::new(seed ^ 0x0b_de_55),
        link_rng: Rng::new(seed ^ 0x11_4c),
        move_rng: Rng::new(seed ^ 0x03_07e5),
        client,
        owners: BTreeMap::new(),
        streams: vec![0; plan.clients.len()],
        turns_apart: 0,
        crashes: 0,
        whole: true,
        victim: None,
        limit,
        plan,
    };
    for generation in 1..=life.plan.generations {
        life.serve();
        if generation < life.plan.generations && !life.fall() {
            return life.outcome(true);
        }
    }
    let ended = life.end();
    life.outcome(!ended)
}

/// Makes a fresh cache and opens it. Its oracle knows what this plan's devices may do.
fn first_client(plan: &Plan) -> Client {
    let mirror_later = plan.spec.mirrored && plan.has(Extra::MirrorLater);
    let mirrored = plan.spec.mirrored && !mirror_later;
    let mut client = Client::fresh(WorldSpec { mirrored, ..plan.spec.clone() });
    if mirror_later {
        client.world.put_beside();
    }
    if plan.trouble == Trouble::CacheLies {
        client.oracle.history = None;
        client.oracle.remember();
    }
    if plan.fickle && matches!(plan.trouble, Trouble::Errors | Trouble::CacheDies) {
        client.make_origins_fickle();
        // An origin may have dropped a block that is read from it and cached. After a power cut
        // such a block is read from the origin again, and may be older.
        client.oracle.forgive_time_travel();
    }
    client.world.forgetful = plan.has(Extra::Forgetful);
    let fickle = plan.fickle && matches!(plan.trouble, Trouble::Errors | Trouble::CacheDies);
    let unmarked = client.world.forgetful && plan.trouble == Trouble::CacheDies && !plan.one_dies();
    // Where the oracle allows older data, a clean block may be older.
    client.world.deceived = plan.trouble == Trouble::CacheLies || fickle || unmarked;
    if client.world.forgetful && plan.trouble == Trouble::CacheDies && !plan.one_dies() {
        // A failed cache that is marked nowhere is replayed, over data that was written and read
        // since.
        client.oracle.forgive_time_travel();
    }
    client
}

fn one_in(rng: &mut Rng, n: u64) -> bool {
    n > 0 && rng.below(n) == 0
}

impl Life {
    fn outcome(&self, refused: bool) -> Lived {
        let world = &self.client.world;
        let devices = world.origins.iter().chain([&world.cache]).chain(&world.mirror);
        Lived {
            hash: world.effects_hash(),
            steps: world.steps,
            answers: self.client.answers,
            crashes: self.crashes,
            faults: devices.flat_map(|device| device.faults.hits().values()).sum(),
            virtual_ns: world.now.0,
            turns_apart: self.turns_apart + world.arena.turns_apart(),
            refused,
        }
    }

    /// Serves the requests of an opening.
    fn serve(&mut self) {
        for _ in 0..self.plan.requests {
            let who = self.rng.below(self.plan.clients.len() as u64) as usize;
            self.submit(who);
            self.wait_for(who);
            if self.volumes_change() && one_in(&mut self.volume_rng, 12) {
                volumes::change(&mut self.volume_rng, &mut self.client, self.plan.spec.origins.len());
            }
            volumes::share(&mut self.volume_rng, &mut self.client, &self.plan);
            if one_in(&mut self.control_rng, self.plan.control_every) {
                self.control();
            }
            if one_in(&mut self.fault_rng, self.plan.faults_every) {
                self.trouble();
            }
            if one_in(&mut self.link_rng, self.plan.breaks_every) {
                trouble::break_connection(&mut self.link_rng, &mut self.client);
            }
            if self.plan.spec.mirrored && one_in(&mut self.mirror_rng, 10) {
                self.add_mirror();
            }
            moves::order(&mut self.move_rng, &mut self.client.world, &self.plan);
            if one_in(&mut self.rng, self.plan.pause_every) {
                let ns = self.rng.below(self.plan.pause_ns);
                self.client.world.pass(ns);
            }
            self.judge();
            if one_in(&mut self.order_rng, ORDER_EVERY) {
                let (_, fate) = FATES[self.order_rng.below(4) as usize];
                self.client.judge_order(self.order_rng.next_u64(), fate);
            }
            self.restore();
        }
    }

    /// Whether volumes come and go.
    fn volumes_change(&self) -> bool {
        self.plan.has(Extra::Volumes) && self.plan.trouble == Trouble::None
    }

    /// Whether both members are in use. A cache is called whole until the failure of one member is
    /// recorded. The other member must not die before that.
    fn both_are_well(&self) -> bool {
        let engine = self.client.world.engine();
        engine.status().mirror == MirrorStatus::Whole && engine.superblock().pairing.mirror == Mirror::Whole
    }

    fn trouble(&mut self) {
        if !self.plan.one_dies() {
            self.trouble_anywhere();
            return;
        }
        let whole = self.both_are_well();
        let any = self.mirror_rng.below(2) as u8;
        let victim = self.victim.or(whole.then_some(any));
        if let Some(victim) = victim.filter(|_| whole) {
            self.victim = Some(victim);
            trouble::order_on(victim, true, &mut self.fault_rng, &mut self.client);
            if self.mirror_rng.below(2) == 0 {
                self.crash_at_failure(victim);
            }
        }
    }

    /// Orders a fault on any device. In a mirrored world that may be the other member.
    fn trouble_anywhere(&mut self) {
        let members = self.plan.spec.mirrored && self.plan.trouble == Trouble::CacheDies;
        if members && one_in(&mut self.extra_rng, 3) {
            // A client may see older data, as where a cache on one device dies.
            self.client.oracle.forgive_time_travel();
            let member = self.extra_rng.below(2) as u8;
            // Rot of the only copy may be taken for the end of the log. Such rot is left to lives
            // whose cache lies.
            trouble::order_on(member, false, &mut self.fault_rng, &mut self.client);
        } else {
            trouble::order(self.plan.trouble, &mut self.fault_rng, &mut self.client);
        }
    }

    /// Cuts the power just when a member fails. All that was acknowledged since must be on the
    /// other member.
    fn crash_at_failure(&mut self, victim: u8) {
        let disk = self.client.world.member_mut(victim).expect("a mirrored world");
        disk.faults.fail_nth(0, Some(Op::Write), DeviceError::Io);
        let (sector, sectors) = self.place(0, 0);
        let id = self.client.write(0, sector, sectors, true);
        self.owners.insert(id, 0);
        let failed = |event: &Event| matches!(event, Event::MemberFailed { .. });
        let mut steps = 0;
        while steps < 40 && !self.client.world.events.iter().any(failed) && self.client.world.step() {
            steps += 1;
        }
        for _ in 0..self.mirror_rng.below(6) {
            self.client.world.step();
        }
        self.judge();
        self.crash();
        assert!(self.reopen(), "one member alone opens");
    }

    /// Does what an operator does when one member is out. The cache gets another member or, rashly,
    /// the same one again.
    fn add_mirror(&mut self) {
        let status = self.client.world.engine().status();
        let world = &mut self.client.world;
        match status.mirror {
            MirrorStatus::None if !status.cache_failed && one_in(&mut self.extra_rng, 3) => {
                world.control(Control::AddMirror);
            }
            MirrorStatus::Alone { member } if !status.cache_failed => {
                let again = self.mirror_rng.below(3) == 0;
                let Some(disk) = world.member_mut(1 - member).filter(|disk| disk.next_event().is_none()) else {
                    return;
                };
                disk.faults.heal();
                if !again {
                    world.take_away(1 - member);
                }
                world.control(Control::AddMirror);
            }
            MirrorStatus::Whole if self.victim.is_some() && self.both_are_well() && self.mirror_rng.below(4) == 0 => {
                // Both members are well again, so the next fault may hit the other member. But
                // rotten blocks stay, found or not, and an I/O that is held back will fail later.
                self.client.world.heal();
                let disk = self.victim.and_then(|victim| self.client.world.member_mut(victim));
                let ill = disk.is_some_and(|disk| disk.faults.any_rotten() || disk.next_event().is_some());
                self.victim = self.victim.filter(|_| ill);
            }
            _ => {}
        }
    }

    /// Does what an operator does when several blocks are listed as lost: restores them, from a
    /// backup for example. A lost block holds its segment. A cache whose segments are all held
    /// takes no writes.
    fn restore(&mut self) {
        let lost = self.client.world.engine().status().lost;
        // The last try may still be waiting for room.
        let restoring = self.owners.values().any(|owner| *owner == OPERATOR);
        if lost.len() > LOST_MAX && !restoring {
            for key in lost {
                let (origin, sector) = (key.origin.0 as usize, key.block.0 * 8);
                let sectors = 8.min(self.client.sectors(origin) - sector);
                let id = self.client.write(origin, sector, sectors, false);
                self.owners.insert(id, OPERATOR);
            }
        }
    }

    /// Waits until this client may ask again.
    fn wait_for(&mut self, who: usize) {
        loop {
            let waiting = self.owners.values().filter(|owner| **owner == who).count();
            if waiting < self.plan.clients[who].depth {
                return;
            }
            let all = self.owners.len();
            self.client.finish_to(all - 1);
            self.judge();
        }
    }

    /// Asserts what must be true at every moment.
    fn judge(&mut self) {
        self.judge_failures();
        let world = &self.client.world;
        self.owners.retain(|id, _| world.waits(*id));
        let status = world.engine().status();
        let reserve: u64 = buffers_most(self.plan.spec.lanes).iter().map(|of| u64::from(of.0 * of.1) * 4096).sum();
        assert!(status.buffer_bytes <= reserve, "{} bytes of buffers, reserved are {reserve}", status.buffer_bytes);
        assert!(!self.plan.one_dies() || status.lost.is_empty() && !status.cache_failed, "one member lost: {status:?}");
        let (front, most) = (status.ram_front_bytes, self.plan.spec.options.ram_front_bytes);
        assert!(front <= most, "{front} bytes of RAM front, {most} are allowed");
        let (window, most) = (status.window_bytes, status.capacity_blocks * 4096 / 32);
        assert!(window <= most, "{window} bytes of window, {most} are allowed");
        if let Some(day) = status.flash_writes_per_day_bytes {
            let (day, left) = (day as i64, status.flash_writes_left_bytes);
            assert!((-day..=day / 4).contains(&left), "{left} bytes left of {day} a day");
        }
        if let Some(limit) = self.limit {
            assert!(status.blocks_dirty <= limit, "{} blocks are dirty, the limit is {limit}", status.blocks_dirty);
        }
    }

    /// Asserts that requests fail and blocks rot only where the devices give a reason.
    fn judge_failures(&mut self) {
        let failed = self.client.take_failed();
        let excused = self.may_fail();
        assert!(failed.is_empty() || excused, "no device failed that has no mirror, but {failed:?} did");
        let events = self.client.take_events();
        let corrupt = events.iter().find(|event| matches!(event, Event::Corrupt { .. }));
        assert!(corrupt.is_none() || self.may_rot(), "no device lied, but the engine says {corrupt:?}");
        let unreadable = |event: &Event| match event {
            Event::Corrupt { .. } => true,
            Event::DeviceFailed { device: DeviceId::Cache | DeviceId::Mirror, op, .. } => *op == Op::Read,
            _ => false,
        };
        if events.iter().any(unreadable) {
            // Lost blocks don't count as dirty. When they are found again, they do.
            self.limit = None;
        }
    }

    /// Whether requests may fail: a device without a mirror does, or a server has lost something,
    /// or is away for too long.
    pub(super) fn may_fail(&self) -> bool {
        let hangs = self.plan.breaks_every > 0 && self.plan.spec.origin_limit_ns.is_some();
        self.plan.trouble != Trouble::None && !self.plan.one_dies() || self.client.lost || hangs
    }

    /// Whether a cache device may return other bytes than those that were written there.
    fn may_rot(&self) -> bool {
        let world = &self.client.world;
        let mut disks = [&world.cache].into_iter().chain(&world.mirror);
        self.plan.trouble == Trouble::CacheLies || disks.any(|disk| disk.faults.hits().contains_key(Fault::Rot.name()))
    }

    fn place(&mut self, origin: usize, who: usize) -> (u64, u64) {
        let ClientPlan { sectors_max, hot_sectors, sequential, .. } = self.plan.clients[who];
        let all = self.client.sectors(origin);
        let longest = if one_in(&mut self.rng, 2) { 8 } else { sectors_max };
        let sectors = 1 + self.rng.below(longest);
        let sectors = if one_in(&mut self.rng, 3) { sectors.next_multiple_of(8) } else { sectors }.min(all);
        let sector = match self.rng.below(10) {
            0 => all - sectors,
            1 | 2 => self.streams[who],
            3 => self.rng.below(all),
            _ if sequential => self.streams[who],
            _ => self.rng.below(hot_sectors),
        };
        let sector = if one_in(&mut self.rng, 2) { sector / 8 * 8 } else { sector };
        let sector = if sector + sectors > all { all - sectors } else { sector };
        self.streams[who] = sector + sectors;
        (sector, sectors)
    }

    fn submit(&mut self, who: usize) {
        let plan = self.plan.clients[who];
        let mut origin = self.rng.below(self.plan.spec.origins.len() as u64) as usize;
        if self.volumes_change() {
            origin = volumes::pick(&mut self.volume_rng, &self.client, origin, self.plan.spec.origins.len());
        }
        let id = if one_in(&mut self.rng, plan.flush_every) {
            self.client.flush(origin)
        } else {
            let (sector, sectors) = self.place(origin, who);
            let reads = self.rng.below(100) < plan.reads;
            if reads && self.plan.has(Extra::Warm) && one_in(&mut self.extra_rng, 3) {
                self.client.warm(origin, sector, sectors, self.extra_rng.below(2) == 0)
            } else if reads {
                self.client.read(origin, sector, sectors)
            } else {
                let fua = one_in(&mut self.rng, plan.fua_every);
                let (op, sectors) = self.change(origin, sector, sectors, plan.special_every);
                self.client.change(op, origin, sector, sectors, fua)
            }
        };
        self.owners.insert(id, who);
    }

    /// Begins a write, or now and then a discard or write-zeroes. Long discards and zeroes take
    /// another path than short ones.
    fn change(&mut self, origin: usize, sector: u64, sectors: u64, special_every: u64) -> (RequestOp, u64) {
        if !one_in(&mut self.rng, special_every) {
            return (RequestOp::Write, sectors);
        }
        let longer = (sectors * 8).min(self.client.sectors(origin) - sector);
        let sectors = if one_in(&mut self.rng, 2) { sectors } else { longer };
        let op = match self.rng.below(3) {
            0 => RequestOp::Discard,
            n => RequestOp::WriteZeroes { may_discard: n == 1 },
        };
        (op, sectors)
    }

    fn control(&mut self) {
        let rng = &mut self.control_rng;
        let origin = rng.below(self.plan.spec.origins.len() as u64) as u32;
        let blocks = rng.below(self.client.world.engine().status().capacity_blocks);
        let control = match rng.below(8) {
            0..=3 => Control::SetMode { origin: OriginId(origin), mode: Mode::ALL[rng.below(4) as usize] },
            4 => Control::SetDirtyLimit { blocks },
            5 => Control::SetSequentialBypass { bytes: rng.below(1 << 20) },
            n => Control::Drain(n == 6),
        };
        self.client.world.control(control);
        let now = self.client.world.engine().status().dirty_limit_blocks;
        self.limit = self.limit.map(|limit| limit.max(now));
    }

    /// Reads everything, drains and stops. Then the origins alone must hold all blocks but those
    /// that are reported as lost.
    fn end(&mut self) -> bool {
        self.client.world.heal();
        if self.plan.spec.origin_limit_ns.is_some() {
            // Late I/O may still be given up. A device that hangs is not well before it has
            // answered all.
            self.client.world.pass(trouble::LONG_NS);
            assert!(self.client.world.drive_until(|world| world.hung().is_empty()), "a device hangs for ever");
        }
        self.client.finish();
        self.judge_failures();
        self.client.read_all();
        if !self.client.take_failed().is_empty() && self.client.world.engine().status().lost.is_empty() {
            // Such a block was just being destaged from RAM. Its rotten copy failed a read, and the
            // block is clean now.
            self.client.read_all();
        }
        let failed = self.client.take_failed();
        let status = self.client.world.engine().status();
        let excused = !status.lost.is_empty() || status.cache_failed;
        assert!(
            failed.is_empty() || excused,
            "all devices are well and nothing is listed as lost, but {failed:?} failed"
        );
        self.client.leave_but_lost();
        self.judge_failures();
        true
    }
}

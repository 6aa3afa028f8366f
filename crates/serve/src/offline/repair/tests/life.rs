// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches as daemons leave them, each made of one seed: the production engine in virtual time.
//!
//! The seed says all: lanes, segments, volumes, what clients ask, when the cache is opened, stopped
//! or loses its power. So a test that fails can be run again on the same bytes.

use flashfront_device::sim::{Fate, Link, RamDisk, RamSpec};
use flashfront_device::wrap::Inject;
use flashfront_device::{Device, Rng};
use flashfront_engine::format::Superblock;
use flashfront_engine::{
    BLOCK_BYTES, BLOCK_SECTORS, Control, Durability, Event, Mode, Options, OriginId, RequestOp, SECTOR_BYTES, Time,
};
use flashfront_proof::{Content, OriginSpec, World, WorldSpec, identify};

/// Blocks that are read at once.
const AT_ONCE: u64 = 64;
const IN_FLIGHT_MAX: usize = 16;

/// A cache at rest, and the origins that belong to it.
pub(super) struct Life {
    /// What the cache device holds.
    pub(super) image: Vec<u8>,
    /// What it held at earlier moments: a device that lost a write may still hold that.
    pub(super) earlier: Vec<Vec<u8>>,
    /// Writes with a higher number came after the last opening.
    pub(super) opened_at: u32,
    spec: WorldSpec,
    origins: Vec<RamDisk>,
    now: Time,
    writes: u32,
}

/// What clients read: of each origin all sectors.
pub(super) type Volumes = Vec<Vec<Content>>;

/// A life that goes on.
struct Living {
    rng: Rng,
    world: World,
    earlier: Vec<Vec<u8>>,
    opened_at: u32,
    writes: u32,
    /// The place that most requests are near to, of each origin.
    hot: Vec<u64>,
}

impl Life {
    /// The life of this seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let lanes = if rng.below(3) == 0 { 2 + rng.below(2) as u32 } else { 1 };
        let segment_blocks = *pick(&mut rng, &[8, 16, 16, 32]);
        let segments_per_lane = 24 + rng.below(24) as u32;
        let slots = u64::from(lanes * segment_blocks * segments_per_lane);
        let mut origin = || OriginSpec {
            size_bytes: (slots / 3 + rng.below(slots)) * BLOCK_BYTES,
            logical_block_bytes: 512,
            mode: Mode::Writeback,
        };
        let mut origins = vec![origin()];
        if seed.is_multiple_of(4) {
            origins.push(origin());
        }
        let durability = if rng.below(5) == 0 { Durability::Always } else { Durability::Flush };
        let options = Options { durability, commit_age_max_ns: 1 + rng.below(1_000_000_000), ..Options::default() };
        let spec = WorldSpec {
            seed,
            lanes,
            segment_blocks,
            segments_per_lane,
            stripe_blocks: 16,
            origins,
            cache_ns: 10_000 + rng.below(200_000),
            origin_ns: 20_000 + rng.below(2_000_000),
            options,
            batches: rng.below(2) == 0,
            check: false,
            ..WorldSpec::default()
        };
        Living::new(World::format(spec), rng, 0).live()
    }

    /// Goes on with another image of the cache device.
    pub(super) fn go_on(&self, image: &[u8], seed: u64) -> Self {
        Living::new(self.world(image), Rng::new(seed), self.writes).live()
    }

    /// A world with this image of the cache device, not opened.
    fn world(&self, image: &[u8]) -> World {
        let size_bytes = image.len() as u64;
        let mut disk = RamDisk::new(RamSpec { size_bytes, logical_block_bytes: 4096, ..RamSpec::default() });
        disk.poke(0, image);
        let faultless = |disk: &RamDisk| {
            flashfront_proof::Disk::new(
                Inject::new(Link::new(disk.clone()), flashfront_device::wrap::Faults::default()),
                None,
            )
        };
        let origins = self.origins.iter().map(faultless).collect();
        let mut world = World::on(self.spec.clone(), faultless(&disk), origins, self.now);
        // After such damage a clean block may be an older one: that it is listed or counted is what
        // these tests show.
        world.deceived = true;
        world
    }

    /// What clients read with this image of the cache device.
    pub(super) fn served(&self, image: &[u8]) -> Result<Volumes, String> {
        let mut world = self.world(image);
        world.open().map_err(|error| error.to_string())?;
        let mut volumes = Volumes::new();
        for (at, origin) in self.spec.origins.iter().enumerate() {
            let (mut volume, sectors) = (Vec::new(), origin.size_bytes / SECTOR_BYTES);
            for first in (0..sectors).step_by((AT_ONCE * BLOCK_SECTORS) as usize) {
                let count = (AT_ONCE * BLOCK_SECTORS).min(sectors - first);
                world.submit(RequestOp::Read, at, first, count, false, None);
                world.finish_requests();
                let answer = world.answers.pop().unwrap();
                answer.result.map_err(|error| format!("sector {first} of origin {at}: {error:?}"))?;
                let sectors = (first..).zip(answer.data.chunks(SECTOR_BYTES as usize));
                volume.extend(sectors.map(|(sector, bytes)| identify(at, sector, bytes)));
            }
            volumes.push(volume);
        }
        Ok(volumes)
    }
}

fn pick<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[rng.below(all.len() as u64) as usize]
}

impl Living {
    fn new(world: World, rng: Rng, writes: u32) -> Self {
        let hot = vec![0; world.spec.origins.len()];
        Self { rng, world, earlier: Vec::new(), opened_at: writes, writes, hot }
    }

    fn live(mut self) -> Life {
        let openings = 1 + self.rng.below(4);
        for _ in 0..openings {
            self.opened_at = self.writes;
            self.world.open().expect("nothing is damaged yet");
            for _ in 0..20 + self.rng.below(160) {
                self.act();
                if self.rng.below(40) == 0 {
                    self.earlier.push(image(&self.world));
                }
            }
            self.end();
            self.earlier.push(image(&self.world));
        }
        self.earlier.pop();
        Life {
            image: image(&self.world),
            earlier: self.earlier,
            opened_at: self.opened_at,
            spec: self.world.spec.clone(),
            origins: self.world.origins.iter().map(|origin| (**origin.inner()).clone()).collect(),
            now: self.world.now,
            writes: self.writes,
        }
    }

    /// A place: origin, first block, blocks.
    fn place(&mut self) -> (usize, u64, u64) {
        let origin = self.rng.below(self.hot.len() as u64) as usize;
        let all = self.world.spec.origins[origin].size_bytes / BLOCK_BYTES;
        if self.rng.below(20) == 0 {
            self.hot[origin] = self.rng.below(all);
        }
        let near = self.rng.below(3) > 0;
        let first = if near { (self.hot[origin] + self.rng.below(60)) % all } else { self.rng.below(all) };
        let most = if self.rng.below(6) == 0 { 60 } else { 8 };
        (origin, first, (1 + self.rng.below(most)).min(all - first))
    }

    fn act(&mut self) {
        let (origin, first, blocks) = self.place();
        let (lba, sectors) = (first * BLOCK_SECTORS, blocks * BLOCK_SECTORS);
        let id = OriginId(origin as u32);
        match self.rng.below(100) {
            0..58 => {
                self.writes += 1;
                let part = self.rng.below(12) == 0;
                let (lba, sectors) = if part { (lba + 3, sectors - 5) } else { (lba, sectors) };
                let fua = self.rng.below(8) == 0;
                self.world.submit(RequestOp::Write, origin, lba, sectors, fua, Some(self.writes));
            }
            58..68 => _ = self.world.submit(RequestOp::Flush, origin, 0, 0, false, None),
            68..84 => _ = self.world.submit(RequestOp::Read, origin, lba, sectors, false, None),
            84..88 => {
                let op = RequestOp::WriteZeroes { may_discard: false };
                self.world.submit(op, origin, lba, sectors, false, None);
            }
            88..90 => {
                self.world.drain();
                self.world.control(Control::Drain(false));
            }
            90 => self.world.control(Control::Drain(true)),
            91..93 => self.world.control(Control::Drain(false)),
            93..97 => {
                let ns = self.rng.below(3_000_000_000);
                self.world.pass(ns);
            }
            97 => {
                let modes = [Mode::Writeback, Mode::Writeback, Mode::Writethrough, Mode::Writearound];
                let mode = *pick(&mut self.rng, &modes);
                self.world.control(Control::SetMode { origin: id, mode });
            }
            _ => {
                let blocks = 10 + self.rng.below(1000);
                self.world.control(Control::SetDirtyLimit { blocks });
            }
        }
        if self.world.in_flight() >= IN_FLIGHT_MAX || self.rng.below(3) > 0 {
            self.world.finish_requests();
        } else {
            self.step();
        }
        self.world.answers.clear();
        self.world.events.clear();
    }

    fn step(&mut self) {
        for _ in 0..self.rng.below(30) {
            self.world.step();
        }
    }

    /// A clean stop, or a power cut or the end of the daemon in the middle of anything.
    fn end(&mut self) {
        if self.rng.below(3) == 0 {
            self.world.finish_requests();
            self.stop();
            return;
        }
        for _ in 0..self.rng.below(6) {
            self.act();
        }
        self.step();
        let fates = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Mixed, Fate::Killed];
        let (cache, origins) = (*pick(&mut self.rng, &fates), *pick(&mut self.rng, &fates));
        self.world = self.world.crash(self.rng.next_u64(), cache, origins);
    }

    /// As a daemon stops: with a superblock that says so.
    fn stop(&mut self) {
        self.world.control(Control::Stop);
        assert!(self.world.drive_until(|world| world.events.contains(&Event::Stopped)), "the stop never ends");
        self.world.events.clear();
        let dirty_blocks = self.world.engine().status().blocks_dirty;
        let superblock = self.world.engine().superblock().clone();
        self.world.engine = None;
        let update = superblock.update + 1;
        let superblock = Superblock { clean: true, dirty_blocks, update, ..superblock };
        for offset in Superblock::offsets(superblock.cache_bytes) {
            self.world.cache.inner_mut().poke(offset, &superblock.encode());
        }
    }
}

fn image(world: &World) -> Vec<u8> {
    let mut bytes = vec![0; world.cache.geometry().size_bytes as usize];
    world.cache.inner().peek(0, &mut bytes);
    bytes
}

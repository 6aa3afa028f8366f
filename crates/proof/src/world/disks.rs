// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the disks of a world, finds them again after a power cut, takes them away and replaces
//! them.
//!
//! What a daemon looks up before it opens a cache (which superblock counts, whether the cache
//! failed) is looked up here in the same way.

use std::ops::Range;

use flashfront_device::sim::{Fate, Link, RamDisk, RamSpec};
use flashfront_device::wrap::{Faults, Inject};
use flashfront_device::{Device, Rng};
use flashfront_engine::format::{Mirror, PairingError, Superblock, choose};
use flashfront_engine::{DeviceId, OriginId, SECTOR_BYTES, Time};

use super::World;
use super::disk::Disk;
use super::superblocks::{read_superblock, write_superblock};
use crate::spec::WorldSpec;
use crate::stamp::{SECTOR, stamp};

/// Tells the mirror's faults from those of the other devices: 1 is the cache device, origins count
/// from 2.
const MIRROR: u64 = 9;

impl World {
    /// A freshly formatted cache before origins whose sectors all hold write 0.
    #[must_use]
    pub fn format(spec: WorldSpec) -> Self {
        let superblock = spec.superblock();
        let member = |member| {
            let mut disk = RamDisk::new(spec.cache_disk(superblock.cache_bytes, member));
            for (offset, block) in superblock.empty_checkpoints() {
                disk.poke(offset, &block);
            }
            write_superblock(&mut disk, &superblock, member);
            disk
        };
        let (cache, mirror) = (member(0), spec.mirrored.then(|| member(1)));
        let origins: Vec<_> = (0..spec.origins.len()).map(|nth| fresh_origin(nth, spec.origin_disk(nth))).collect();
        let seed = spec.seed;
        let faulty =
            |disk, nth: u64, limit| Disk::new(Inject::new(Link::new(disk), Faults::seeded(seed ^ nth << 16)), limit);
        let cache = faulty(cache, 1, spec.cache_limit_ns);
        let origins = (2..).zip(origins).map(|(nth, disk)| faulty(disk, nth, spec.origin_limit_ns)).collect();
        let mirror = mirror.map(|disk| faulty(disk, MIRROR, spec.cache_limit_ns));
        let mut world = Self { mirror, ..Self::on(spec, cache, origins, Time(0)) };
        world.plant();
        world
    }

    /// Plants the bug of connections, if it is chosen.
    fn plant(&mut self) {
        #[cfg(feature = "canary")]
        if crate::canary::untold() {
            self.origins.iter_mut().for_each(|disk| disk.inner_mut().plant_untold());
        }
    }

    /// A fresh origin for this place, whose spec is there.
    pub(crate) fn fresh_disk(&self, nth: usize) -> Disk {
        let disk = fresh_origin(nth, self.spec.origin_disk(nth));
        let faults = Faults::seeded(self.spec.seed ^ (nth as u64 + 2) << 16);
        Disk::new(Inject::new(Link::new(disk), faults), self.spec.origin_limit_ns)
    }

    /// An origin becomes larger. Its new sectors hold write 0. The volume stays as it is.
    pub(crate) fn grow_disk(&mut self, nth: usize, size_bytes: u64) {
        let disk = self.origins[nth].inner_mut();
        let from = disk.geometry().size_bytes;
        disk.grow(size_bytes);
        fill(disk, nth, from..size_bytes);
    }

    /// Takes over what this superblock says, with which the cache is opened.
    pub(super) fn learn(&mut self, superblock: &Superblock) {
        for record in &superblock.origins {
            // A volume may have grown, or not, when the power was cut.
            self.spec.origins[record.id.0 as usize].size_bytes = record.size_bytes;
        }
        self.alone = false;
    }

    /// The superblock that counts, as a daemon chooses it; `None`: there is none to begin with. One
    /// that names another place than its own is not looked at: a daemon would exchange the devices.
    #[must_use]
    pub fn chosen(&self) -> Option<Result<Superblock, PairingError>> {
        let disks = [(0, Some(&self.cache)), (1, self.mirror.as_ref())];
        let mut found = disks.into_iter().filter_map(|(member, disk)| {
            read_superblock(disk?.inner()).filter(|superblock| superblock.pairing.member == member)
        });
        let first = found.next()?;
        Some(choose(&first, found.next().as_ref(), self.alone))
    }

    /// Whether both members of a mirrored cache are complete.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.chosen().is_some_and(|chosen| chosen.is_ok_and(|it| it.pairing.mirror == Mirror::Whole))
    }

    /// The member that a cache of two devices does without.
    #[must_use]
    pub fn needless(&self) -> Option<u8> {
        let pairing = self.chosen()?.ok()?.pairing;
        (self.mirror.is_some() && pairing.mirror != Mirror::Whole).then_some(1 - pairing.lead)
    }

    /// Whether there is a whole superblock to begin with.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.chosen().is_some_and(|chosen| chosen.is_ok())
    }

    /// Whether the cache failed earlier, so that it must not be replayed, as a daemon looks it up.
    #[must_use]
    pub fn must_not_open(&self) -> bool {
        self.recorded_failure || self.chosen().is_some_and(|chosen| chosen.is_ok_and(|superblock| superblock.failed))
    }

    /// Puts an empty cache in the place of the one that failed.
    pub fn replace_cache(&mut self) {
        let fresh = Self::format(WorldSpec { seed: self.spec.seed ^ 0xf7e5, ..self.spec.clone() });
        (self.cache, self.mirror, self.recorded_failure) = (fresh.cache, fresh.mirror, false);
    }

    /// A member of a mirrored cache.
    pub fn member_mut(&mut self, member: u8) -> Option<&mut Disk> {
        if member == 0 { Some(&mut self.cache) } else { self.mirror.as_mut() }
    }

    /// The devices that hang.
    #[must_use]
    pub fn hung(&self) -> Vec<DeviceId> {
        let members = [(DeviceId::Cache, Some(&self.cache)), (DeviceId::Mirror, self.mirror.as_ref())];
        let origins = (0..).zip(&self.origins).map(|(nth, disk)| (DeviceId::Origin(OriginId(nth)), Some(disk)));
        members
            .into_iter()
            .chain(origins)
            .filter(|(_, disk)| disk.is_some_and(|it| it.hang().is_some()))
            .map(|it| it.0)
            .collect()
    }

    /// Waits until nothing is in flight that was given up: a daemon that is started anew opens no
    /// device before.
    pub(super) fn await_answers(&mut self) {
        while !self.hung().is_empty()
            && let Some(next) = self.next_event()
        {
            self.now = self.now.max(next);
            for disk in [&mut self.cache].into_iter().chain(&mut self.mirror).chain(&mut self.origins) {
                disk.poll(self.now, &mut self.arena, &mut Vec::new());
            }
        }
    }

    /// All devices are well from now on, and their servers are there.
    pub fn heal(&mut self) {
        for disk in [&mut self.cache].into_iter().chain(&mut self.mirror).chain(&mut self.origins) {
            disk.faults.heal();
            disk.inner_mut().heal();
        }
    }

    /// Whether the server of an origin is there again from now on.
    pub(super) fn is_back(&self) -> bool {
        self.origins.iter().any(|disk| disk.inner().returns().is_some_and(|when| when <= self.now))
    }

    /// The origins whose connection was lost with something unflushed, since this was last asked.
    pub(crate) fn take_losses(&mut self) -> Vec<usize> {
        let origins = self.origins.iter_mut().enumerate();
        origins.filter_map(|(nth, disk)| disk.inner_mut().take_loss().then_some(nth)).collect()
    }

    /// Puts a device full of garbage in the place of a member.
    pub fn take_away(&mut self, member: u8) {
        let disk = self.full_of_garbage(member);
        if let Some(old) = self.member_mut(member) {
            *old = old.around(disk);
            old.faults.heal();
        }
    }

    /// Puts a device full of garbage beside a cache without a mirror.
    pub fn put_beside(&mut self) {
        let disk = self.full_of_garbage(1);
        let disk = Inject::new(Link::new(disk), Faults::seeded(self.spec.seed ^ MIRROR << 16));
        self.mirror = Some(Disk::new(disk, self.spec.cache_limit_ns));
        self.spec.mirrored = true;
    }

    fn full_of_garbage(&self, member: u8) -> RamDisk {
        let spec = self.spec.cache_disk(self.cache.geometry().size_bytes, member);
        let mut disk = RamDisk::new(spec);
        let garbage: Vec<u8> = (0..64 << 10).map(|at| ((at * 31) >> 3) as u8).collect();
        for offset in (0..disk.geometry().size_bytes).step_by(garbage.len()) {
            let len = (disk.geometry().size_bytes - offset).min(garbage.len() as u64) as usize;
            disk.poke(offset, &garbage[..len]);
        }
        disk
    }

    /// The world after a power cut now; it is not open.
    #[must_use]
    pub fn crash(&self, seed: u64, cache_fate: Fate, origins: Fate) -> Self {
        let mut rng = Rng::new(seed);
        let mirror_fate = self.mirror_fate.filter(|_| cache_fate != Fate::Killed).unwrap_or(cache_fate);
        let cache = self.cache.around(self.cache.inner().crash(rng.next_u64(), cache_fate));
        let mirror = self.mirror.as_ref().map(|it| it.around(it.inner().crash(rng.next_u64(), mirror_fate)));
        let cut = |origin: &Disk| origin.around(origin.inner().crash(rng.next_u64(), origins));
        let origins = self.origins.iter().map(cut).collect();
        let spec = WorldSpec { seed: rng.next_u64(), ..self.spec.clone() };
        let mut next = Self::on(spec, cache, origins, self.now);
        next.hashed = self.hashed.clone();
        next.steps = self.steps;
        (next.mirror, next.alone) = (mirror, self.alone);
        next.plant();
        next.recorded_failure = self.recorded_failure;
        (next.fickle, next.forgetful) = (self.fickle, self.forgetful);
        (next.deceived, next.holds) = (self.deceived, self.holds);
        next
    }
}

fn fresh_origin(origin: usize, spec: RamSpec) -> RamDisk {
    let mut disk = RamDisk::new(spec);
    fill(&mut disk, origin, 0..spec.size_bytes);
    disk
}

/// All sectors of this part hold write 0.
fn fill(disk: &mut RamDisk, origin: usize, part: Range<u64>) {
    let mut bytes = [0; SECTOR];
    for sector in part.start / SECTOR_BYTES..part.end / SECTOR_BYTES {
        stamp(origin, sector, 0, &mut bytes);
        disk.poke(sector * SECTOR_BYTES, &bytes);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache that is filled in virtual time, to be damaged, repaired and served by a real daemon.
//!
//! Its content depends on a seed and on nothing else. A clock would decide where commits begin and
//! end, and which are in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use flashfront_device::sim::{Fate, Link, RamDisk, RamSpec};
use flashfront_device::wrap::{Fault, Faults, Inject, Rule};
use flashfront_device::{Device, Rng};
use flashfront_engine::format::Superblock;
use flashfront_engine::{BLOCK_BYTES, BLOCK_SECTORS, DeviceError, Mode, Op, RequestOp, SECTOR_BYTES, Time};
use flashfront_proof::{Content, OriginSpec, World, WorldSpec, identify, stamp};

use super::{BLOCK_LEN, blocks};
use crate::offline::repair::{Older, Repair, RepairReport};
use crate::offline::{CheckReport, check};
use crate::rig::{Bench, ORIGIN_BYTES, Served};

/// Blocks of the volume that the tests write.
const BLOCKS: u64 = 2000;

/// A filled cache, and the newest version of each block: the number of the write that it came with.
pub(super) struct Filled {
    pub(super) bench: Bench,
    pub(super) image: Vec<u8>,
    newest: BTreeMap<u64, u32>,
}

pub(super) fn content(block: u64, version: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_LEN];
    for (sector, bytes) in (block * BLOCK_SECTORS..).zip(bytes.chunks_mut(SECTOR_BYTES as usize)) {
        stamp(0, sector, version, bytes);
    }
    bytes
}

/// A run of the production engine in virtual time: what it leaves depends on nothing but what it is
/// asked.
struct Run {
    world: World,
    newest: BTreeMap<u64, u32>,
    writes: u32,
}

impl Run {
    fn write(&mut self, first: u64, blocks: u64) {
        let blocks = blocks.min(BLOCKS - first);
        self.writes += 1;
        self.newest.extend((first..first + blocks).map(|block| (block, self.writes)));
        self.submit(RequestOp::Write, first, blocks, Some(self.writes));
    }

    fn submit(&mut self, op: RequestOp, first: u64, blocks: u64, write: Option<u32>) {
        self.world.submit(op, 0, first * BLOCK_SECTORS, blocks * BLOCK_SECTORS, false, write);
        self.world.finish_requests();
        self.world.answers.clear();
    }

    fn flush(&mut self) {
        self.submit(RequestOp::Flush, 0, 0, None);
    }

    fn freeze(&mut self) {
        let rule = Rule { op: Some(Op::Write), ..Rule::always(Fault::Error(DeviceError::Io)) };
        self.world.origins[0].faults.order(rule);
    }
}

impl Filled {
    /// Three runs: one that fills, evicts and destages; one that leaves dirty blocks at a clean
    /// stop; one that adds more, and ends as asked. `seed` says what is written where.
    pub(super) fn new(crash: bool, seed: u64) -> Self {
        let bench = Bench::formatted();
        let disk = |path: &Path, seed| {
            let bytes = std::fs::read(path).unwrap();
            let mut disk = RamDisk::new(RamSpec { size_bytes: bytes.len() as u64, seed, ..RamSpec::default() });
            disk.poke(0, &bytes);
            flashfront_proof::Disk::new(Inject::new(Link::new(disk), Faults::default()), None)
        };
        let (cache, origin) = (disk(&bench.cache(), seed), disk(&bench.origin(), seed + 1));
        let size_bytes = ORIGIN_BYTES;
        let spec = WorldSpec {
            seed,
            origins: vec![OriginSpec { size_bytes, logical_block_bytes: 512, mode: Mode::Writeback }],
            check: false,
            ..WorldSpec::default()
        };
        let mut rng = Rng::new(seed);
        let mut run = Run { world: World::on(spec, cache, vec![origin], Time(0)), newest: BTreeMap::new(), writes: 0 };
        run.world.open().unwrap();
        for _ in 0..300 {
            run.write(rng.below(BLOCKS), 1 + rng.below(40));
        }
        run.flush();
        run.world.drain();
        // Read again, so that clean blocks of an origin are in the log too.
        (0..200).for_each(|nth| run.submit(RequestOp::Read, BLOCKS + nth * 3, 1, None));
        run.world.stop();
        run.freeze();
        run.world.open().unwrap();
        for _ in 0..20 {
            run.write(rng.below(BLOCKS), 1 + rng.below(30));
        }
        run.flush();
        run.world.stop();
        run.world.open().unwrap();
        for _ in 0..20 {
            run.write(rng.below(BLOCKS), 1 + rng.below(20));
            run.flush();
        }
        let world = run.world.crash(seed, Fate::Kept, Fate::Kept);
        for (path, disk) in [(bench.cache(), &world.cache), (bench.origin(), &world.origins[0])] {
            let mut bytes = vec![0; disk.geometry().size_bytes as usize];
            disk.inner().peek(0, &mut bytes);
            std::fs::write(path, bytes).unwrap();
        }
        if !crash {
            // A daemon knows how to leave a superblock that says so.
            bench.serve_frozen().stop();
        }
        let image = std::fs::read(bench.cache()).unwrap();
        Self { bench, image, newest: run.newest }
    }

    pub(super) fn restore(&self) {
        let cache = File::options().write(true).open(self.bench.cache()).unwrap();
        cache.write_all_at(&self.image, 0).unwrap();
        self.forget_openings();
    }

    /// An older image is refused where it is known that the cache was served on.
    pub(super) fn forget_openings(&self) {
        match std::fs::remove_dir_all(self.bench.path("state")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.unwrap(),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.bench.cache()).unwrap()
    }

    pub(super) fn check(&self) -> CheckReport {
        check(&self.bench.cache(), &mut |_, _| {}).unwrap()
    }

    pub(super) fn plan(&self, writable: bool) -> Repair {
        Repair::plan(&self.bench.cache(), None, writable, &mut |_, _| {}).unwrap()
    }

    /// Repairs, and compares the whole volume with what was written.
    pub(super) fn repaired(&self, older: Older, what: &str) -> RepairReport {
        let planned = self.plan(false);
        let before = self.bytes();
        let report = planned.report().clone();
        drop(planned);
        assert_eq!(report, *self.plan(false).report(), "{what}");
        assert!(self.bytes() == before, "{what}: a plan changes nothing");
        let done = self.plan(true).write(Some(older)).unwrap();
        assert_eq!((done.needed, done.repaired), (report.needed, report.needed), "{what}");
        let checked = self.check();
        assert!(checked.ok, "{what}: {:?}\n{:?}", checked.damage, report);
        let again = self.plan(true);
        assert!(!again.report().needed, "{what}: {:?}", again.report());
        let again = again.write(None).unwrap();
        assert!(!again.repaired, "{what}");
        let kept = if older == Older::Keep { done.older_blocks } else { 0 };
        if done.needed {
            assert_eq!(checked.blocks_dirty, done.dirty_kept + kept, "{what}: {done:?}");
            assert_eq!(checked.blocks_cached, checked.blocks_dirty + done.clean_kept, "{what}");
        }
        self.compare(&done, what);
        done
    }

    /// What a client reads is the newest version, or it was listed, or it may be in a commit that
    /// was named as lost.
    pub(super) fn compare(&self, report: &RepairReport, what: &str) {
        let listed: BTreeSet<u64> = report.lost.iter().chain(&report.older).flat_map(blocks).collect();
        let unknown: u64 = report.unknown.iter().map(|gap| gap.blocks_at_most).sum();
        let mut served = self.bench.serve_frozen();
        let mut silent = Vec::new();
        for (block, version) in self.read(&mut served) {
            let newest = self.newest.get(&block).copied().unwrap_or(0);
            assert!(version <= newest, "{what}: block {block} has version {version}");
            if version < newest && !listed.contains(&block) {
                silent.push(block);
            }
        }
        assert!(silent.len() as u64 <= unknown, "{what}: {silent:?} are older, of {unknown} unknown: {report:?}");
        // It goes on as any cache does: new data, a crash, and that again.
        served.nbd.write_at(0, &content(0, 7777), true).unwrap();
        served.stop_at_once();
        let mut served = self.bench.serve_frozen();
        assert_eq!(self.read(&mut served)[0], (0, 7777), "{what}");
        served.stop();
        assert!(self.check().ok, "{what}: {:?}", self.check());
    }

    pub(super) fn read(&self, served: &mut Served) -> Vec<(u64, u32)> {
        const AT_ONCE: u64 = 200;
        let mut found = Vec::new();
        for first in (0..BLOCKS).step_by(AT_ONCE as usize) {
            let mut bytes = vec![0; AT_ONCE as usize * BLOCK_LEN];
            served.nbd.read_at(first * BLOCK_BYTES, &mut bytes).unwrap();
            for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_LEN)) {
                let version = match identify(0, block * BLOCK_SECTORS, &bytes[..SECTOR_BYTES as usize]) {
                    Content::Write(version) => version,
                    _ => 0,
                };
                let whole = if version == 0 { vec![0; BLOCK_LEN] } else { content(block, version) };
                assert!(bytes == whole, "block {block} holds something else");
                found.push((block, version));
            }
        }
        found
    }

    pub(super) fn superblock(&self) -> Superblock {
        Superblock::of_image(&self.image).unwrap()
    }
}

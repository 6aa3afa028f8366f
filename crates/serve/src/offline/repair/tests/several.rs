// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several damages at once, on caches of many shapes: what a repair says is lost bounds what is
//! lost.
//!
//! All that happens follows from a seed. A failure names the seed; `REPAIR_SEED=N` runs that seed
//! again. `REPAIR_SEEDS=N` runs the first N seeds, and with `REPAIR_SEED` the N seeds from there.

use std::collections::BTreeSet;

use flashfront_proof::Content;

use super::life::{Life, Volumes};
use super::*;
use crate::offline::check;

/// Seeds of an ordinary run.
const SEEDS: u64 = 24;
/// Damaged copies of each cache.
const COPIES: u64 = 6;

/// Tries all seeds, so that one run tells how many fail.
pub(super) fn try_seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (first, count) = match number("REPAIR_SEED") {
        Some(first) => (first, 1),
        None => (0, SEEDS),
    };
    let seeds = first..first + number("REPAIR_SEEDS").unwrap_or(count);
    let file = tempfile::NamedTempFile::new_in("/dev/shm").or_else(|_| tempfile::NamedTempFile::new()).unwrap();
    let mut failed = Vec::new();
    for seed in seeds.clone() {
        let tried = std::panic::catch_unwind(|| try_seed(file.path(), seed));
        failed.extend(tried.is_err().then_some(seed));
    }
    assert!(failed.is_empty(), "of the seeds {seeds:?} these fail, `REPAIR_SEED={}`: {failed:?}", failed[0]);
}

fn try_seed(path: &Path, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xdead);
    let life = Life::new(seed);
    let repaired = Case::new(path, &life, seed).damage_and_repair(&mut rng, &format!("seed {seed}"));
    // A cache that was repaired lives on, and is damaged again.
    if let Some(image) = repaired {
        let life = life.go_on(&image, seed ^ 0xbeef);
        Case::new(path, &life, seed).damage_and_repair(&mut rng, &format!("seed {seed}, second life"));
    }
}

/// A sound cache, and what is right.
struct Case<'a> {
    path: &'a Path,
    life: &'a Life,
    superblock: Superblock,
    right: Volumes,
    lanes: Vec<Sound>,
    harms: Vec<Harm>,
}

/// What replay of a sound lane goes by.
struct Sound {
    lane: u32,
    /// The checkpoint.
    head: CheckpointHeader,
    /// The commits after the checkpoint before that one, with the slots of their headers.
    commits: Vec<(u32, CommitHeader)>,
}

impl<'a> Case<'a> {
    fn new(path: &'a Path, life: &'a Life, seed: u64) -> Self {
        std::fs::write(path, &life.image).unwrap();
        let right = life.served(&life.image).unwrap();
        let device = DeviceFile::open(path, Access::ReadOnly).unwrap();
        let superblock = crate::superblock::read(&device).unwrap().superblock;
        let lanes = (0..superblock.lanes).map(|lane| Sound::new(&device, &superblock, lane)).collect();
        drop(device);
        let mut harms: Vec<Harm> = (0..superblock.lanes).flat_map(|lane| harms(path, lane, seed)).collect();
        harms.extend((0..superblock.lanes).flat_map(|lane| wide(life, &superblock, lane, seed)));
        Self { path, life, superblock, right, lanes, harms }
    }

    /// Damages copies of the cache and repairs them; the last one that was repaired.
    fn damage_and_repair(&self, rng: &mut Rng, what: &str) -> Option<Vec<u8>> {
        let mut last = None;
        for copy in 0..COPIES {
            let chosen = |_| &self.harms[rng.below(self.harms.len() as u64) as usize];
            let chosen: Vec<&Harm> = (0..2 + copy % 3).map(chosen).collect();
            let targets: Vec<Target> = chosen.iter().map(|harm| harm.target).collect();
            let what = format!("{what}, copy {copy} {targets:?}");
            std::fs::write(self.path, &self.life.image).unwrap();
            chosen.iter().for_each(|harm| harm.plant(self.path));
            let older = if rng.below(2) == 0 { Older::Drop } else { Older::Keep };
            last = self.repair(older, &what).or(last);
        }
        last
    }

    fn repair(&self, older: Older, what: &str) -> Option<Vec<u8>> {
        let damaged = std::fs::read(self.path).unwrap();
        let plan = match Repair::plan(self.path, None, true, &mut |_, _| {}) {
            Err(RepairError::NoSuperblock(_)) => return None,
            plan => plan.unwrap(),
        };
        let report = match plan.write(Some(older)) {
            Err(RepairError::NoRoom { .. }) => return None,
            report => report.unwrap(),
        };
        let checked = check(self.path, &mut |_, _| {}).unwrap();
        assert!(checked.ok, "{what}: {checked:?}\n{report:?}");
        let repaired = std::fs::read(self.path).unwrap();
        std::fs::write(self.path, &damaged).unwrap();
        self.compare(&damaged, &repaired, &report, what);
        report.needed.then_some(repaired)
    }

    /// What is served is the newest, or listed, or counted.
    fn compare(&self, damaged: &[u8], repaired: &[u8], report: &RepairReport, what: &str) {
        let served = self.life.served(repaired).unwrap_or_else(|error| panic!("{what}: {error}\n{report:?}"));
        let listed: BTreeSet<(usize, u64)> = report.lost.iter().chain(&report.older).flat_map(listed).collect();
        let tail: BTreeSet<(usize, u64)> = self.lanes.iter().flat_map(|lane| lane.tail(self, damaged)).collect();
        let unknown: u64 = report.unknown.iter().map(|gap| gap.blocks_at_most).sum();
        let mut silent = BTreeSet::new();
        for (origin, (right, served)) in self.right.iter().zip(&served).enumerate() {
            for (sector, (right, served)) in (0..).zip(right.iter().zip(served)) {
                let place = (origin, sector / BLOCK_SECTORS);
                assert_ne!(*served, Content::Any, "{what}: sector {sector} holds something else\n{report:?}");
                // What the last daemon wrote and no flush covered may be there or not.
                let newer = matches!(served, Content::Write(write) if *write > self.life.opened_at && served > right);
                if served != right && !newer && !listed.contains(&place) && !tail.contains(&place) {
                    silent.insert(place);
                }
            }
        }
        let count = silent.len() as u64;
        assert!(count <= unknown, "{what}: {silent:?} are older, of {unknown} unknown: {report:#?}");
    }
}

fn listed(range: &LostRange) -> impl Iterator<Item = (usize, u64)> + use<> {
    let origin: usize = range.origin.strip_prefix("origin").unwrap().parse().unwrap();
    blocks(range).map(move |block| (origin, block))
}

impl Sound {
    fn new(device: &DeviceFile, superblock: &Superblock, lane: u32) -> Self {
        let mut reader = Reader { device, superblock, damage: Vec::new() };
        let walk = reader.lane(lane, &mut || {});
        assert!(reader.damage.is_empty(), "{:?}", reader.damage);
        let (_, head) = walk.checkpoint.unwrap();
        let (first, next) = (reader.area(lane, 0).head, reader.area(lane, 1).head);
        let from = first.into_iter().chain(next).map(|head| head.seq).min().unwrap();
        let header = |slot: u32| Some((slot, reader.header(lane, slot)?));
        let found = reader.headers(lane, &walk.open, &mut || {});
        let before = found.iter().filter(|(_, it)| (from..head.seq).contains(&it.seq)).filter_map(|it| header(*it.0));
        let since = walk.commits.iter().filter_map(|(_, slot, _)| header(*slot));
        let mut commits: Vec<(u32, CommitHeader)> = before.chain(since).collect();
        commits.sort_by_key(|(_, header)| header.seq);
        Self { lane, head, commits }
    }

    /// The blocks of commits that are gone as a power cut takes them: nothing that is left proves
    /// that the first of them was durable.
    fn tail(&self, of: &Case<'_>, damaged: &[u8]) -> BTreeSet<(usize, u64)> {
        let device = DeviceFile::open(of.path, Access::ReadOnly).unwrap();
        let reader = Reader { device: &device, superblock: &of.superblock, damage: Vec::new() };
        let areas = [0, 1].map(|area| reader.area(self.lane, area));
        let newest = areas.iter().filter(|area| area.head.is_some()).max_by_key(|area| area.head.unwrap().generation);
        let ages = newest.and_then(|area| area.own_ages()).into_iter().flatten().copied().max();
        // If both heads are sound, but the newest is not there, it is as if it had not been
        // written.
        let both = areas.iter().all(|area| area.head.is_some());
        let from = newest.filter(|_| both).map_or(self.head.seq, |area| area.head.unwrap().seq).min(self.head.seq);
        let block = |offset: u64| offset as usize..offset as usize + BLOCK_LEN;
        let same = |slot: u32| {
            let block = block(of.superblock.slot_offset(self.lane, slot));
            of.life.image[block.clone()] == damaged[block]
        };
        let commits = &self.commits[self.commits.partition_point(|(_, header)| header.seq < from)..];
        let left = commits.iter().filter(|(slot, _)| same(*slot)).map(|(_, header)| header.durable_seq);
        let durable = left.chain(ages).max().unwrap_or(0);
        let torn = commits
            .iter()
            .position(|(slot, header)| header.seq > durable && !(*slot..=slot + header.data_blocks()).all(same));
        let gone = torn.map_or(&[][..], |torn| &commits[torn..]);
        let places = gone.iter().flat_map(|(_, header)| &header.entries).flat_map(|entry| match *entry {
            Entry::Dirty { key, .. } | Entry::Clean { key, .. } | Entry::Cleaned { key, .. } => places(key, 1),
            Entry::Invalidate { key, blocks } => places(key, u64::from(blocks)),
            _ => Vec::new(),
        });
        places.collect()
    }
}

fn places(key: Key, blocks: u64) -> Vec<(usize, u64)> {
    (key.block.0..key.block.0 + blocks).map(|block| (key.origin.0 as usize, block)).collect()
}

/// Damages of more than a block: what an earlier moment had there, and whole areas.
fn wide(life: &Life, superblock: &Superblock, lane: u32, seed: u64) -> Vec<Harm> {
    let mut rng = Rng::new(seed ^ u64::from(lane));
    let (mut all, segment_blocks) = (Vec::new(), superblock.segment_blocks);
    let area = |area| (superblock.checkpoint_offset(lane, area), superblock.checkpoint_blocks);
    for at in 0..2 {
        let (offset, blocks) = area(at);
        all.push(Harm::new(Target::Area, offset, vec![0; blocks as usize * BLOCK_LEN]));
    }
    for earlier in &life.earlier {
        let slot = rng.below(u64::from(superblock.slots())) as u32;
        let segment = slot / segment_blocks * segment_blocks;
        let head = superblock.checkpoint_offset(lane, rng.below(2) as u32);
        let places = [
            (superblock.slot_offset(lane, slot), 1),
            (superblock.slot_offset(lane, slot), 1 + rng.below(u64::from(segment + segment_blocks - slot)) as u32),
            (superblock.slot_offset(lane, segment), segment_blocks),
            (head, 1),
            (head, 2),
            (head, superblock.checkpoint_blocks),
        ];
        let (offset, blocks) = places[rng.below(places.len() as u64) as usize];
        let bytes = &earlier[offset as usize..][..blocks as usize * BLOCK_LEN];
        all.push(Harm::new(Target::LostWrites, offset, bytes.to_vec()));
    }
    all
}

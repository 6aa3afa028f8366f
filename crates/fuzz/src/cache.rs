// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real caches to be damaged: what the engine itself left on its virtual devices after a short
//! life.
//!
//! Made once for each process, always the same. Small, so that a run is short: 24 segments of 8
//! blocks.

use std::collections::HashSet;
use std::sync::OnceLock;

use flashfront_device::sim::{Fate, Link, RamDisk};
use flashfront_device::{Device, wrap::Inject};
use flashfront_engine::format::{CheckpointHeader, CommitHeader, Entry, Superblock, decode_checkpoint_entries};
use flashfront_engine::{BLOCK_BYTES, Key, Mode, RequestOp, Time};
use flashfront_proof::{OriginSpec, World, WorldSpec};

pub(crate) const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks of each origin.
const ORIGIN_BLOCKS: u64 = 64;

/// What a block of the cache device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Superblock,
    Table,
    CheckpointHead,
    CheckpointBody,
    Commit,
    /// Data, or nothing.
    Other,
}

/// A cache at rest.
pub(crate) struct Cache {
    spec: WorldSpec,
    now: Time,
    disk: RamDisk,
    /// The other member, of a mirrored one.
    mirror: Option<RamDisk>,
    origins: Vec<RamDisk>,
    /// The disk's content, byte for byte.
    pub(crate) bytes: Vec<u8>,
    /// All blocks by what they are; of data only a few.
    pub(crate) blocks: Vec<(Kind, usize)>,
    /// Which checksums were ever given to which blocks.
    known: HashSet<(Key, u32)>,
    /// The number of the last write.
    pub(crate) writes: u32,
}

impl Cache {
    /// All there are, the mirrored ones last.
    pub(crate) fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Cache>> = OnceLock::new();
        ALL.get_or_init(|| vec![crashed(), stopped(), lanes(), reclaimed(), fresh(), mirrored()])
    }

    /// The caches on one device.
    pub(crate) fn single() -> &'static [Self] {
        let all = Self::all();
        &all[..all.partition_point(|cache| cache.mirror.is_none())]
    }

    fn of(mut world: World, writes: u32) -> Self {
        if world.engine.is_some() {
            world = world.crash(7, Fate::Kept, Fate::Kept);
        }
        let disk = (**world.cache.inner()).clone();
        let mut bytes = vec![0; disk.geometry().size_bytes as usize];
        disk.peek(0, &mut bytes);
        let mirror = world.mirror.as_ref().map(|disk| (**disk.inner()).clone());
        let origins = world.origins.iter().map(|origin| (**origin.inner()).clone()).collect();
        let superblock = Superblock::of_image(&bytes).expect("the engine's own superblock is sound");
        let spec = WorldSpec { check: false, ..world.spec };
        let (blocks, known) = (Vec::new(), HashSet::new());
        let mut it = Self { spec, now: world.now, disk, mirror, origins, bytes, blocks, known, writes };
        it.survey(&superblock);
        it
    }

    /// Notes what is where.
    fn survey(&mut self, superblock: &Superblock) {
        let last = self.bytes.len() / BLOCK - 1;
        let mut others = 0;
        let mut generation = 0;
        for (nth, block) in self.bytes.chunks(BLOCK).enumerate() {
            let in_area = (0..superblock.lanes).any(|lane| {
                let area = superblock.checkpoint_offset(lane, 0)..superblock.slot_offset(lane, 0);
                area.contains(&((nth * BLOCK) as u64))
            });
            let kind = if nth == 0 || nth == last {
                Kind::Superblock
            } else if block.starts_with(b"FFvt") {
                Kind::Table
            } else if let Some(head) = CheckpointHeader::decode(block) {
                generation = head.generation;
                Kind::CheckpointHead
            } else if in_area {
                for entry in decode_checkpoint_entries(generation, block).unwrap_or_default() {
                    self.known.insert((entry.key, entry.checksum));
                }
                Kind::CheckpointBody
            } else if let Some(commit) = CommitHeader::decode(block) {
                self.known.extend(commit.entries.iter().filter_map(claim));
                Kind::Commit
            } else {
                others += 1;
                Kind::Other
            };
            if kind != Kind::Other || others % 4 == 1 {
                self.blocks.push((kind, nth * BLOCK));
            }
        }
        // Groups of equal size in the choice of a block, whatever their number.
        self.blocks.sort_by_key(|(kind, at)| (*kind as u8, *at));
    }

    /// The blocks of a kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> &[(Kind, usize)] {
        let from = self.blocks.partition_point(|(it, _)| (*it as u8) < kind as u8);
        let to = self.blocks.partition_point(|(it, _)| *it as u8 <= kind as u8);
        &self.blocks[from..to]
    }

    /// A world with this cache, but for these blocks (first byte, content), not opened.
    pub(crate) fn world(&self, changed: &[(usize, Vec<u8>)]) -> World {
        let inject = |disk: &RamDisk| {
            flashfront_proof::Disk::new(Inject::new(Link::new(disk.clone()), Default::default()), None)
        };
        let origins = self.origins.iter().map(inject).collect();
        let mut world = World::on(self.spec.clone(), inject(&self.disk), origins, self.now);
        // A damaged cache may have older clean blocks: the daemon compares them with the origin,
        // this world does not.
        world.deceived = true;
        world.mirror = self.mirror.as_ref().map(inject);
        change(&mut world, 0, changed);
        world
    }

    /// Whether an entry in a changed block makes garbage pass for a block. It has a checksum that
    /// the engine never gave to it, but that fits what is there. Whoever can forge that can write
    /// what he likes.
    pub(crate) fn is_forged(&self, block: &[u8], generation: u64) -> bool {
        if let Some(commit) = CommitHeader::decode(block) {
            return commit.entries.iter().filter_map(claim).any(|claim| !self.known.contains(&claim));
        }
        let entries = decode_checkpoint_entries(generation, block).unwrap_or_default();
        entries.iter().any(|entry| !self.known.contains(&(entry.key, entry.checksum)))
    }
}

fn claim(entry: &Entry) -> Option<(Key, u32)> {
    match *entry {
        Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } => Some((key, checksum)),
        _ => None,
    }
}

/// Puts these blocks (first byte, content) on a member.
pub(crate) fn change(world: &mut World, member: u8, blocks: &[(usize, Vec<u8>)]) {
    let Some(disk) = world.member_mut(member) else { return };
    for (at, block) in blocks {
        disk.inner_mut().poke(*at as u64, block);
    }
}

fn spec(mode: Mode) -> WorldSpec {
    WorldSpec {
        segment_blocks: 8,
        segments_per_lane: 24,
        stripe_blocks: 16,
        origins: vec![OriginSpec { size_bytes: ORIGIN_BLOCKS * BLOCK_BYTES, logical_block_bytes: 512, mode }],
        ..WorldSpec::default()
    }
}

/// Writes blocks here and there: (origin, block, blocks).
fn write(world: &mut World, places: &[(usize, u64, u64)], writes: &mut u32) {
    for &(origin, block, blocks) in places {
        *writes += 1;
        world.submit(RequestOp::Write, origin, block * 8, blocks * 8, false, Some(*writes));
        world.finish_requests();
    }
}

fn flush(world: &mut World, origin: usize) {
    world.submit(RequestOp::Flush, origin, 0, 0, false, None);
    world.finish_requests();
}

fn read(world: &mut World, origin: usize, block: u64, blocks: u64) {
    world.submit(RequestOp::Read, origin, block * 8, blocks * 8, false, None);
    world.finish_requests();
    world.answers.clear();
}

fn opened(spec: WorldSpec) -> World {
    let mut world = World::format(spec);
    world.open().expect("a fresh cache opens");
    world
}

/// Never opened.
fn fresh() -> Cache {
    Cache::of(World::format(spec(Mode::Writeback)), 0)
}

/// A log behind an empty checkpoint, cut off by a crash: dirty, clean and destaged blocks, some
/// flushed.
fn crashed() -> Cache {
    let (mut world, mut writes) = (opened(spec(Mode::Writeback)), 0);
    read(&mut world, 0, 40, 6);
    write(&mut world, &[(0, 0, 3), (0, 9, 1), (0, 1, 1)], &mut writes);
    world.drain();
    write(&mut world, &[(0, 2, 2), (0, 41, 1)], &mut writes);
    world.submit(RequestOp::WriteZeroes { may_discard: false }, 0, 9 * 8, 8, false, None);
    world.finish_requests();
    flush(&mut world, 0);
    write(&mut world, &[(0, 20, 3), (0, 0, 1)], &mut writes);
    world.pass(1_100_000_000);
    Cache::of(world, writes)
}

/// A cache on two devices.
fn mirrored() -> Cache {
    let (mut world, mut writes) = (opened(WorldSpec { mirrored: true, ..spec(Mode::Writeback) }), 0);
    read(&mut world, 0, 40, 6);
    write(&mut world, &[(0, 0, 3), (0, 9, 1)], &mut writes);
    world.drain();
    write(&mut world, &[(0, 2, 2), (0, 41, 1)], &mut writes);
    flush(&mut world, 0);
    write(&mut world, &[(0, 20, 3), (0, 0, 1)], &mut writes);
    world.pass(1_100_000_000);
    Cache::of(world, writes)
}

/// A clean stop with dirty and clean blocks in the checkpoint.
fn stopped() -> Cache {
    let (mut world, mut writes) = (opened(spec(Mode::Writeback)), 0);
    read(&mut world, 0, 50, 8);
    write(&mut world, &[(0, 0, 4), (0, 30, 2)], &mut writes);
    world.drain();
    write(&mut world, &[(0, 2, 4)], &mut writes);
    world.stop();
    Cache::of(world, writes)
}

/// Two lanes, two origins, two openings.
fn lanes() -> Cache {
    let second = OriginSpec { size_bytes: 48 << 12, logical_block_bytes: 4096, mode: Mode::Writethrough };
    let mut spec = WorldSpec { lanes: 2, stripe_blocks: 4, ..spec(Mode::Writeback) };
    spec.origins.push(second);
    let (mut world, mut writes) = (opened(spec), 0);
    write(&mut world, &[(0, 2, 5), (1, 0, 2), (0, 3, 1)], &mut writes);
    world.stop();
    world.open().expect("after a clean stop a cache opens");
    write(&mut world, &[(0, 8, 6), (1, 3, 4)], &mut writes);
    flush(&mut world, 0);
    write(&mut world, &[(0, 9, 1)], &mut writes);
    world.pass(1_100_000_000);
    Cache::of(world, writes)
}

/// A full cache: freed segments, destaged blocks, dropped ones.
fn reclaimed() -> Cache {
    let (mut world, mut writes) = (opened(WorldSpec { origin_ns: 100_000, ..spec(Mode::Writeback) }), 0);
    for round in 0..5 {
        for block in (0..ORIGIN_BLOCKS - 4).step_by(4) {
            write(&mut world, &[(0, block + round % 3, 3)], &mut writes);
        }
        flush(&mut world, 0);
    }
    world.drain();
    world.control(flashfront_engine::Control::SetMode {
        origin: flashfront_engine::OriginId(0),
        mode: Mode::Writearound,
    });
    write(&mut world, &[(0, 5, 4)], &mut writes);
    flush(&mut world, 0);
    Cache::of(world, writes)
}

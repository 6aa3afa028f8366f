// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a full cache takes to open after a power cut, by size.
//!
//! A device model in virtual time (3 GB/s, 80 us) holds a cache of one origin four times its size: three
//! quarters of it are in the checkpoint, the last quarter, the most that may be, is in the log behind it.
//! Its blocks are made up when they are read, in an order of keys that has nothing to do with the index's:
//! the worst there is. Prints device time, CPU time and memory.
//!
//! recovery GIB...: cache sizes; 64 256 1024 by default. The tables need 11.7 bytes of RAM per block.

use std::collections::VecDeque;

use flashfront_device::Arena;
use flashfront_engine::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointEntry, CheckpointHeader, CommitHeader, Entry, OriginRecord,
    Superblock, checkpoint_blocks, encode_checkpoint_ages, encode_checkpoint_entries,
};
use flashfront_engine::{
    BLOCK_BYTES, Block, DeviceId, Effect, Effects, Engine, Event, Input, Io, Key, Memory, Mode, Op, Options, OriginId,
    Time,
};

const BYTES_PER_SECOND: u64 = 3_000_000_000;
const LATENCY_NS: u64 = 80_000;
const SEGMENT_BLOCKS: u64 = 256;
/// Blocks of a stripe of the origin, which all go to one lane.
const STRIPE_BLOCKS: u64 = 4096;
const COMMIT_BLOCKS: u64 = 252;

/// A cache that nobody has written.
struct Media {
    superblock: Superblock,
    /// Segments of a lane that are in the checkpoint; the others but four are in the log.
    old_segments: u64,
}

impl Media {
    fn new(gib: u64) -> Self {
        let (bytes, lanes) = (gib << 30, if gib < 64 { 1 } else { 4 });
        let slots = bytes / BLOCK_BYTES / lanes;
        // A checkpoint area takes 1/255 of its slots, there are two.
        let segments = slots * 126 / 128 / SEGMENT_BLOCKS;
        let area = checkpoint_blocks(segments as u32, SEGMENT_BLOCKS as u32);
        let record = OriginRecord {
            id: OriginId(0),
            mode: Mode::Writeback,
            size_bytes: 4 * bytes,
            name: "data".to_owned(),
            identity: String::new(),
            fingerprint: 0,
            changed_ns: 0,
        };
        let superblock = Superblock {
            uuid: *b"a made up cache!",
            update: 1,
            epoch: 2,
            clean: false,
            failed: false,
            dirty_blocks: 0,
            pairing: Default::default(),
            cache_bytes: (2 + lanes * (2 * area + segments * SEGMENT_BLOCKS)) * BLOCK_BYTES,
            lanes: lanes as u32,
            segment_blocks: SEGMENT_BLOCKS as u32,
            segments_per_lane: segments as u32,
            checkpoint_blocks: area as u32,
            stripe_blocks: STRIPE_BLOCKS as u32,
            first_block: 1,
            origins: vec![record],
        };
        Self { superblock, old_segments: segments * 3 / 4 }
    }

    fn segments(&self) -> u64 {
        u64::from(self.superblock.segments_per_lane)
    }

    /// Blocks in the checkpoint of a lane.
    fn entries(&self) -> u64 {
        self.old_segments * (SEGMENT_BLOCKS - 4)
    }

    fn commits(&self) -> u64 {
        self.segments() - 8 - self.old_segments
    }

    /// The block that is in the n-th full slot of a lane: all different, in no order.
    fn key(&self, lane: u64, nth: u64) -> Key {
        let lanes = u64::from(self.superblock.lanes);
        let blocks = self.superblock.origins[0].size_bytes / BLOCK_BYTES / lanes;
        // An odd factor and a power of two: a permutation.
        let mixed = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (blocks.next_power_of_two() / 2 - 1);
        let (stripe, within) = (mixed / STRIPE_BLOCKS, mixed % STRIPE_BLOCKS);
        Key { origin: OriginId(0), block: Block((stripe * lanes + lane) * STRIPE_BLOCKS + within) }
    }

    /// The slot of the n-th commit behind the checkpoint: one to a segment.
    fn commit_slot(&self, nth: u64) -> u64 {
        (self.old_segments + nth) * SEGMENT_BLOCKS
    }

    fn heads(&self, nth: u64) -> [u32; 3] {
        let spare = |back: u64| ((self.segments() - back) * SEGMENT_BLOCKS) as u32;
        [self.commit_slot(nth) as u32, spare(2), spare(4)]
    }

    /// Makes up one block of the device.
    fn block(&self, offset: u64, block: &mut [u8]) {
        for lane in 0..self.superblock.lanes {
            let area = self.superblock.checkpoint_offset(lane, 0);
            let end = area + u64::from(self.superblock.checkpoint_blocks) * BLOCK_BYTES;
            if (area..end).contains(&offset) {
                return self.checkpoint_block(lane, (offset - area) / BLOCK_BYTES, block);
            }
            let (first, last) = (self.superblock.slot_offset(lane, 0), self.segments() * SEGMENT_BLOCKS * BLOCK_BYTES);
            if (first..first + last).contains(&offset) {
                return self.slot(lane, (offset - first) / BLOCK_BYTES, block);
            }
        }
        block.fill(0);
    }

    fn checkpoint_block(&self, lane: u32, nth: u64, block: &mut [u8]) {
        let age_blocks = self.segments().div_ceil(CHECKPOINT_AGES_MAX as u64);
        if nth == 0 {
            let header = CheckpointHeader {
                cache_tag: self.superblock.cache_tag(),
                epoch: 1,
                generation: 2,
                seq: 1_000_000_000,
                entries: self.entries(),
                heads: self.heads(0),
                next_segments: [u32::MAX; 3],
                lane: lane as u16,
                checksum_bits: 16,
            };
            header.encode_into(block);
        } else if nth <= age_blocks {
            let count = CHECKPOINT_AGES_MAX.min(self.segments() as usize - (nth as usize - 1) * CHECKPOINT_AGES_MAX);
            encode_checkpoint_ages(2, &vec![1; count], block);
        } else {
            let first = (nth - 1 - age_blocks) * CHECKPOINT_ENTRIES_MAX as u64;
            let entries = (first..self.entries().min(first + CHECKPOINT_ENTRIES_MAX as u64)).map(|nth| {
                let slot = nth / (SEGMENT_BLOCKS - 4) * SEGMENT_BLOCKS + nth % (SEGMENT_BLOCKS - 4) + 1;
                let key = self.key(u64::from(lane), nth);
                CheckpointEntry { key, dirty: nth % 4 == 0, hits: 0, slot: slot as u32, checksum: nth as u32 }
            });
            encode_checkpoint_entries(2, &entries.collect::<Vec<_>>(), block);
        }
    }

    fn slot(&self, lane: u32, slot: u64, block: &mut [u8]) {
        block.fill(0);
        let (segment, at) = (slot / SEGMENT_BLOCKS, slot % SEGMENT_BLOCKS);
        let Some(nth) = segment.checked_sub(self.old_segments) else { return };
        if at > 0 || nth >= self.commits() {
            return;
        }
        let first = self.entries() + nth * COMMIT_BLOCKS;
        let dirty = |nth| Entry::Dirty { key: self.key(u64::from(lane), nth), checksum: nth as u32 };
        let header = CommitHeader {
            cache_tag: self.superblock.cache_tag(),
            epoch: 1,
            seq: 1_000_000_000 + nth,
            // Not the last few: those are verified, against data that is not there, and dropped.
            durable_seq: (1_000_000_000 + nth).saturating_sub(8),
            heads: self.heads(nth + 1),
            next_segment: (self.old_segments + nth + 2) as u32,
            lane: lane as u16,
            stream: 0,
            unproven: 0,
            entries: (first..first + COMMIT_BLOCKS).map(dirty).collect(),
        };
        header.encode_into(block);
    }
}

/// What one opening took.
struct Took {
    device_ns: u64,
    read_bytes: u64,
    blocks: u64,
    commits: u64,
}

/// Opens the cache: the device's clock goes by what is read, and stands still while the engine computes.
fn open(media: &Media) -> Took {
    let mut arena = Arena::new(512 << 20);
    let mut engine = Engine::new(media.superblock.clone(), Options::default(), Time(0)).expect("the origin fits");
    let (mut effects, mut queue) = (Effects::default(), VecDeque::<(Time, Io)>::new());
    let (mut now, mut free, mut read_bytes) = (Time(0), Time(0), 0);
    engine.apply(now, Input::Timer, &mut arena, &mut effects);
    loop {
        for effect in effects.0.drain(..) {
            match effect {
                Effect::Io(io) => {
                    assert_eq!(io.device, DeviceId::Cache);
                    // The pipe is one, the latency is each one's own.
                    free = free.max(now).plus_ns(io.len * 1_000_000_000 / BYTES_PER_SECOND);
                    queue.push_back((free.plus_ns(LATENCY_NS), io));
                }
                Effect::Event(Event::OpenFailed(error)) => panic!("{error}"),
                Effect::Event(_) | Effect::Reply { .. } => {}
            }
        }
        let Some((due, io)) = queue.pop_front() else { panic!("nothing happens") };
        if io.op == Op::Write {
            // The first write is the new checkpoint's: replay is over.
            let status = engine.status();
            let commits = media.commits().saturating_sub(9) * u64::from(media.superblock.lanes);
            return Took { device_ns: due.0, read_bytes, blocks: status.blocks_cached, commits };
        }
        now = now.max(due);
        if let (Op::Read, Some(span)) = (io.op, io.span) {
            read_bytes += io.len;
            let blocks = arena.bytes_mut(span).chunks_exact_mut(BLOCK_BYTES as usize);
            (io.offset..).step_by(BLOCK_BYTES as usize).zip(blocks).for_each(|(at, block)| media.block(at, block));
        }
        engine.apply(now, Input::IoDone { token: io.token, result: Ok(()) }, &mut arena, &mut effects);
    }
}

/// Time that this process has had a CPU so far, in nanoseconds.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// The most memory that this process has used so far, in bytes.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn main() {
    let sizes: Vec<u64> = std::env::args().skip(1).map(|it| it.parse().expect("sizes in GiB")).collect();
    let sizes = if sizes.is_empty() { vec![64, 256, 1024] } else { sizes };
    println!(
        "| cache | lanes | blocks | commits replayed | read | device time | CPU | peak memory |\n|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    for gib in sizes {
        let media = Media::new(gib);
        let began = cpu_ns();
        let took = open(&media);
        println!(
            "| {gib} GiB | {} | {:.1} M | {} | {:.2} GB | {:.2} s | {:.1} s | {} MiB |",
            media.superblock.lanes,
            took.blocks as f64 / 1e6,
            took.commits,
            took.read_bytes as f64 / 1e9,
            took.device_ns as f64 / 1e9,
            (cpu_ns() - began) as f64 / 1e9,
            peak_rss() >> 20
        );
    }
}

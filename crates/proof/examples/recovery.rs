// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how long a full cache takes to open after a power cut, by size.
//!
//! A device model in virtual time (3 GB/s, 80 us) holds a cache of one origin. The origin is four
//! times as large as the cache. Three quarters of the cache are in the checkpoint. The last
//! quarter, the most that is allowed, is in the log behind the checkpoint.
//!
//! Blocks of the device are made up when they are read. The order of their keys has nothing to do
//! with the order of the index, which is the worst case.
//!
//! The program prints memory and two times by a wall clock: until replay is over, and until clients
//! may come.
//!
//! recovery [--threads N,...] GIB...: threads for lanes, 1 by default; cache sizes, 64 256 1024 by
//! default. The tables need 11.7 bytes of RAM per block.

use std::collections::VecDeque;
use std::time::Instant;

use flashfront_device::Arena;
use flashfront_engine::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointEntry, CheckpointHeader, CommitHeader, Entry, OriginRecord,
    Superblock, checkpoint_blocks, encode_checkpoint_ages, encode_checkpoint_entries,
};
use flashfront_engine::{
    BLOCK_BYTES, Block, Effect, Effects, Engine, Event, Input, Io, Key, Memory, Mode, Op, Options, OriginId, Time,
};

/// The daemon's allocator: tables are in large pages.
#[global_allocator]
static TABLES: flashfront_device::Tables = flashfront_device::Tables;

const BYTES_PER_SECOND: u64 = 3_000_000_000;
const LATENCY_NS: u64 = 80_000;
const SEGMENT_BLOCKS: u64 = 256;
/// Blocks of a stripe of the origin, which all go to one lane.
const STRIPE_BLOCKS: u64 = 4096;
const COMMIT_BLOCKS: u64 = 252;

/// A cache that nobody has written.
struct Media {
    superblock: Superblock,
    /// Segments of a lane that are in the checkpoint. All others but four are in the log.
    old_segments: u64,
}

impl Media {
    fn new(gib: u64) -> Self {
        let (bytes, lanes) = (gib << 30, if gib < 64 { 1 } else { 4 });
        let slots = bytes / BLOCK_BYTES / lanes;
        // There are two checkpoint areas, and each takes 1/255 of the slots.
        let segments = slots * 126 / 128 / SEGMENT_BLOCKS;
        let area = checkpoint_blocks(segments as u32, SEGMENT_BLOCKS as u32);
        let record = OriginRecord {
            id: OriginId(0),
            mode: Mode::Writeback,
            size_bytes: 4 * bytes,
            name: "data".to_owned(),
            ..OriginRecord::default()
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
            grown: None,
            table: None,
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

    /// The key of the n-th full slot of a lane. All keys are different, and they are in no order.
    fn key(&self, lane: u64, nth: u64) -> Key {
        let lanes = u64::from(self.superblock.lanes);
        let blocks = self.superblock.origins[0].size_bytes / BLOCK_BYTES / lanes;
        // An odd factor and a power of two make a permutation.
        let mixed = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (blocks.next_power_of_two() / 2 - 1);
        let (stripe, within) = (mixed / STRIPE_BLOCKS, mixed % STRIPE_BLOCKS);
        Key { origin: OriginId(0), block: Block((stripe * lanes + lane) * STRIPE_BLOCKS + within) }
    }

    /// The slot of the n-th commit behind the checkpoint. Each segment has one commit.
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
                eras_blocks: 0,
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
        let dirty = |nth| Entry::Dirty { key: self.key(u64::from(lane), nth), checksum: nth as u32, era: 0 };
        let header = CommitHeader {
            cache_tag: self.superblock.cache_tag(),
            epoch: 1,
            seq: 1_000_000_000 + nth,
            // The last few commits are not called durable. They are verified against data that is
            // not there, and dropped.
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

/// The times and sizes of one opening: until replay was over, and until clients may come.
struct Took {
    replayed: Clocks,
    ready: Clocks,
    read_bytes: u64,
    blocks: u64,
    commits: u64,
}

/// Times as a wall clock would show them.
#[derive(Clone, Copy, Default)]
struct Clocks {
    all_ns: u64,
    /// The part of `all_ns` in which the device had something to do; `engine_ns` is the engine's
    /// part.
    device_ns: u64,
    engine_ns: u64,
}

/// Opens the cache with `threads` threads for its lanes. The device works while the engine
/// computes. All I/O that has ended by then is applied together, as in a daemon's pump. Making the
/// blocks up takes no time.
fn open(media: &Media, threads: usize) -> Took {
    let mut arena = Arena::new(512 << 20);
    let lanes = media.superblock.lanes as usize;
    if threads.min(lanes) > 1 {
        arena.set_apart(lanes, threads.min(lanes) - 1, 16 << 20).expect("there are threads");
    }
    let mut engine = Engine::new(media.superblock.clone(), Options::default(), Time(0)).expect("the origin fits");
    let mut effects = Effects::default();
    let (mut clocks, mut replayed, mut read_bytes) = (Clocks::default(), None, 0);
    // I/O in the order in which it ends. All I/O shares one pipe, and each has its own latency.
    let (mut under_way, mut pipe_free) = (VecDeque::<(u64, Io)>::new(), 0);
    engine.apply(Time(0), Input::Timer, &mut arena, &mut effects);
    loop {
        for effect in std::mem::take(&mut effects.0) {
            match effect {
                Effect::Io(io) => {
                    let transfer_ns = io.len * 1_000_000_000 / BYTES_PER_SECOND;
                    pipe_free = clocks.all_ns.max(pipe_free) + transfer_ns;
                    clocks.device_ns += transfer_ns;
                    under_way.push_back((pipe_free + LATENCY_NS, io));
                }
                Effect::Event(Event::OpenFailed(error)) => panic!("{error}"),
                Effect::Event(Event::Ready { blocks_cached, commits_replayed, .. }) => {
                    let replayed = replayed.expect("nothing is written before");
                    return Took {
                        replayed,
                        ready: clocks,
                        read_bytes,
                        blocks: blocks_cached,
                        commits: commits_replayed,
                    };
                }
                Effect::Event(_) | Effect::Reply { .. } => {}
            }
        }
        let first_due = under_way.front().expect("something happens").0;
        clocks.all_ns = clocks.all_ns.max(first_due);
        let due = under_way.iter().take_while(|(due, _)| *due <= clocks.all_ns).count();
        let ended: Vec<Io> = under_way.drain(..due).map(|(_, io)| io).collect();
        if ended.iter().any(|io| io.op != Op::Read) {
            replayed.get_or_insert(clocks);
        }
        for io in &ended {
            if let (Op::Read, Some(span)) = (io.op, io.span) {
                read_bytes += io.len;
                let blocks = arena.bytes_mut(span).chunks_exact_mut(BLOCK_BYTES as usize);
                (io.offset..).step_by(BLOCK_BYTES as usize).zip(blocks).for_each(|(at, block)| media.block(at, block));
            }
        }
        let (now, began) = (Time(clocks.all_ns), Instant::now());
        for io in ended {
            engine.take(now, Input::IoDone { token: io.token, result: Ok(()) }, &mut arena, &mut effects);
        }
        engine.settle(now, &mut arena, &mut effects);
        let took_ns = began.elapsed().as_nanos() as u64;
        (clocks.all_ns, clocks.engine_ns) = (clocks.all_ns + took_ns, clocks.engine_ns + took_ns);
    }
}

/// The most memory that this process has used so far, in bytes.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn main() {
    let mut sizes: Vec<u64> = Vec::new();
    let mut threads = vec![1];
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--threads" => {
                let list = args.next().expect("numbers of threads, separated by commas");
                threads = list.split(',').map(|it| it.parse().expect("a number of threads")).collect();
            }
            size => sizes.push(size.parse().expect("sizes in GiB")),
        }
    }
    let sizes = if sizes.is_empty() { vec![64, 256, 1024] } else { sizes };
    println!(
        "| cache | lanes | threads | blocks | commits replayed | read | replayed | ready | the device alone | the engine alone | peak memory |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    for (gib, threads) in sizes.iter().flat_map(|gib| threads.iter().map(|threads| (*gib, *threads))) {
        let media = Media::new(gib);
        let took = open(&media, threads);
        let seconds = |ns: u64| ns as f64 / 1e9;
        println!(
            "| {gib} GiB | {} | {threads} | {:.1} M | {} | {:.2} GB | {:.1} s | {:.1} s | {:.2} s | {:.1} s | {} MiB |",
            media.superblock.lanes,
            took.blocks as f64 / 1e6,
            took.commits,
            took.read_bytes as f64 / 1e9,
            seconds(took.replayed.all_ns),
            seconds(took.ready.all_ns),
            seconds(took.ready.device_ns),
            seconds(took.ready.engine_ns),
            peak_rss() >> 20
        );
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two blocks in one slot of a checkpoint: it is written while the cache is used.

use std::fs::File;
use std::os::unix::fs::FileExt;

use flashfront_device::real::{Access, DeviceFile};
use flashfront_engine::format::{
    CheckpointEntry, CheckpointHeader, CommitHeader, Entry, NO_SLOT, STREAMS, Superblock, encode_checkpoint_ages,
    encode_checkpoint_entries, seal_checksum,
};
use flashfront_engine::{BLOCK_BYTES, Block, Key};

use crate::offline::{Older, Repair};
use crate::rig::Bench;

const GENERATION: u64 = 1;
const SEQ: u64 = 5;

/// Media structures by hand, of lane 0.
struct Writer {
    superblock: Superblock,
    file: File,
}

impl Writer {
    fn new(bench: &Bench) -> Self {
        let device = DeviceFile::open(&bench.cache(), Access::ReadOnly).unwrap();
        let superblock = crate::superblock::read(&device).unwrap().superblock;
        Self { superblock, file: File::options().write(true).open(bench.cache()).unwrap() }
    }

    fn key(&self, block: u64) -> Key {
        Key { origin: self.superblock.origins[0].id, block: Block(block) }
    }

    fn sum(&self, block: u64, data: &[u8]) -> u32 {
        let data = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32;
        seal_checksum(data, self.key(block), self.superblock.cache_tag())
    }

    fn put(&self, offset: u64, encode: impl Fn(&mut [u8])) {
        let mut block = vec![0; BLOCK_BYTES as usize];
        encode(&mut block);
        self.file.write_all_at(&block, offset).unwrap();
    }

    fn commit(&self, slot: u32, seq: u64, next: u32, entries: Vec<Entry>) {
        let header = CommitHeader {
            cache_tag: self.superblock.cache_tag(),
            epoch: self.superblock.epoch,
            seq,
            durable_seq: seq - 1,
            heads: [next, NO_SLOT, NO_SLOT],
            next_segment: NO_SLOT,
            lane: 0,
            stream: 0,
            unproven: 0,
            entries,
        };
        self.put(self.superblock.slot_offset(0, slot), |to| header.encode_into(to));
    }

    /// A checkpoint of these entries; the log goes on in segment 0.
    fn checkpoint(&self, entries: &[CheckpointEntry]) {
        let start = self.superblock.checkpoint_offset(0, GENERATION as u32);
        let head = CheckpointHeader {
            cache_tag: self.superblock.cache_tag(),
            epoch: self.superblock.epoch,
            generation: GENERATION,
            seq: SEQ,
            entries: entries.len() as u64,
            heads: [0, NO_SLOT, NO_SLOT],
            next_segments: [NO_SLOT; STREAMS],
            lane: 0,
            checksum_bits: 32,
            eras_blocks: 0,
        };
        let mut ages = vec![0; self.superblock.segments_per_lane as usize];
        (ages[1], ages[2]) = (SEQ - 2, SEQ - 1);
        self.put(start, |to| head.encode_into(to));
        self.put(start + BLOCK_BYTES, |to| encode_checkpoint_ages(GENERATION, &ages, to));
        self.put(start + 2 * BLOCK_BYTES, |to| encode_checkpoint_entries(GENERATION, entries, to));
    }
}

/// Block `gone` was in a slot when the first part of the index was walked. Its segment was freed,
/// and `there` written into the slot, when the rest was walked.
fn walked_meanwhile(bench: &Bench, (gone, dirty): (u64, bool), there: u64) -> Writer {
    let it = Writer::new(bench);
    let data = [7; BLOCK_BYTES as usize];
    let segment = it.superblock.segment_blocks;
    let slot = segment + 1;
    let entry =
        |block, dirty| CheckpointEntry { key: it.key(block), dirty, hits: 0, slot, checksum: it.sum(block, &data) };
    it.checkpoint(&[entry(gone, dirty), entry(there, true)]);
    it.commit(0, SEQ, segment, vec![Entry::Freed { segment: 1 }]);
    let dirty = Entry::Dirty { key: it.key(there), checksum: it.sum(there, &data), era: 0 };
    it.commit(segment, SEQ + 1, segment + 2, vec![dirty]);
    it.put(it.superblock.slot_offset(0, slot), |to| to.copy_from_slice(&data));
    it
}

#[test]
fn a_segment_freed_while_the_checkpoint_was_written_is_no_damage() {
    for (gone, there) in [((9, false), 5), ((5, false), 9), ((9, true), 5), ((5, true), 9)] {
        let bench = Bench::formatted();
        walked_meanwhile(&bench, gone, there);
        let report = bench.check();
        assert!(report.ok, "{report:?}");
        assert_eq!((report.blocks_cached, report.blocks_dirty), (1, 1));
        let mut served = bench.serve_frozen();
        assert_eq!(served.status().blocks_dirty, 1, "as the engine has it");
        served.stop_at_once();
    }
}

/// Both copies have the same content: each would pass for the slot's. Only the missing commit knew
/// where the older one is by now.
#[test]
fn repair_keeps_what_is_known_to_be_there() {
    for (gone, there) in [(9, 5), (5, 9)] {
        let bench = Bench::formatted();
        let it = walked_meanwhile(&bench, (gone, true), there);
        // A commit in between is missing, and with it that the segment was freed.
        it.put(it.superblock.slot_offset(0, 0), |_| {});
        assert!(!bench.check().ok);
        let plan = Repair::plan(&bench.cache(), None, true, &mut |_, _| {}).unwrap();
        let report = plan.write(Some(Older::Keep)).unwrap();
        assert_eq!((report.dirty_kept, report.older_blocks, report.lost_blocks), (1, 0, 1), "{report:?}");
        assert_eq!(report.lost[0].lba, gone * 8, "{report:?}");
        assert!(bench.check().ok);
    }
}

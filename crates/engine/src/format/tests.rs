// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has a fitting checksum and is refused all the same.

use alloc::vec;

use super::*;
use crate::fact::types::Mode;

mod volumes;

/// Two lanes of 16 segments of 8 blocks.
pub(super) fn superblock() -> Superblock {
    let origin = OriginRecord {
        id: OriginId(0),
        mode: Mode::Writeback,
        size_bytes: 1 << 20,
        name: "data".into(),
        ..OriginRecord::default()
    };
    Superblock {
        uuid: [1; 16],
        update: 3,
        epoch: 2,
        clean: true,
        failed: false,
        dirty_blocks: 0,
        pairing: Pairing::default(),
        cache_bytes: 2 << 20,
        lanes: 2,
        segment_blocks: 8,
        segments_per_lane: 16,
        checkpoint_blocks: 3,
        stripe_blocks: 16,
        first_block: 1,
        grown: None,
        table: None,
        origins: vec![origin],
    }
}

fn head() -> CheckpointHeader {
    CheckpointHeader {
        cache_tag: 7,
        epoch: 2,
        generation: 5,
        seq: 9,
        entries: 128,
        heads: [0, 127, NO_SLOT],
        next_segments: [0, 15, NO_SLOT],
        lane: 1,
        checksum_bits: 32,
        eras_blocks: 0,
    }
}

fn commit() -> CommitHeader {
    let key = Key { origin: OriginId(0), block: Block(4) };
    CommitHeader {
        cache_tag: 7,
        epoch: 2,
        seq: 9,
        durable_seq: 8,
        heads: [0, 127, NO_SLOT],
        next_segment: 15,
        lane: 1,
        stream: 0,
        unproven: 1,
        entries: vec![Entry::Dirty { key, checksum: 1, era: 7 }, Entry::Freed { segment: 3 }, Entry::Dead],
    }
}

#[test]
fn a_number_that_nothing_counts_to_is_damage() {
    for (number, sound) in [(NUMBER_MAX - 1, true), (NUMBER_MAX, false), (u64::MAX, false)] {
        for (update, epoch) in [(number, 2), (3, number)] {
            let decoded = Superblock::decode(&Superblock { update, epoch, ..superblock() }.encode());
            assert_eq!(decoded.is_ok(), sound, "update {update}, epoch {epoch}");
        }
        let mut block = vec![0; BLOCK_LEN];
        for (epoch, generation, seq) in [(number, 5, 9), (2, number, 9), (2, 5, number)] {
            CheckpointHeader { epoch, generation, seq, ..head() }.encode_into(&mut block);
            assert_eq!(CheckpointHeader::decode(&block).is_some(), sound, "checkpoint {epoch} {generation} {seq}");
        }
        for (epoch, seq, durable_seq) in [(number, 9, 8), (2, number, 8), (2, 9, number)] {
            CommitHeader { epoch, seq, durable_seq, ..commit() }.encode_into(&mut block);
            assert_eq!(CommitHeader::decode(&block).is_some(), sound, "commit {epoch} {seq} {durable_seq}");
        }
    }
}

#[test]
fn a_layout_beyond_64_bits_is_refused() {
    let most = u32::MAX;
    let huge = Superblock { lanes: most, segment_blocks: most, segments_per_lane: most, ..superblock() };
    for huge in [
        huge.clone(),
        Superblock { lanes: 256, ..huge.clone() },
        Superblock { lanes: 256, segment_blocks: 4096, checkpoint_blocks: most, first_block: most, ..huge.clone() },
        Superblock { lanes: 256, segment_blocks: 4096, cache_bytes: u64::MAX, ..huge },
    ] {
        assert!(matches!(Superblock::decode(&huge.encode()), Err(SuperblockError::Nonsense(_))), "{huge:?}");
    }
}

#[test]
fn no_more_is_dirty_than_there_is_room_for() {
    let superblock = superblock();
    let room = u64::from(superblock.lanes) * u64::from(superblock.slots());
    let decoded = |dirty_blocks| Superblock::decode(&Superblock { dirty_blocks, ..superblock.clone() }.encode());
    assert_eq!(decoded(room).map(|it| it.dirty_blocks), Ok(room));
    for dirty in [room + 1, u64::MAX] {
        assert_eq!(decoded(dirty), Err(SuperblockError::Nonsense("dirty_blocks")));
    }
}

#[test]
fn a_checkpoint_fits_its_area_and_names_places_that_are_there() {
    let superblock = superblock();
    assert!(head().fits(&superblock, 1));
    // Generation 5 lies in area 1.
    assert!(!head().fits(&superblock, 0));
    for bad in [
        CheckpointHeader { entries: 129, ..head() },
        CheckpointHeader { heads: [0, 128, NO_SLOT], ..head() },
        CheckpointHeader { next_segments: [16, 0, 0], ..head() },
        CheckpointHeader { checksum_bits: CHECKSUM_BITS_MIN - 1, ..head() },
        CheckpointHeader { checksum_bits: 33, ..head() },
    ] {
        assert!(!bad.fits(&superblock, 1), "{bad:?}");
    }
}

#[test]
fn a_commit_fits_where_its_data_stays_in_its_segment() {
    let superblock = superblock();
    // Two data blocks: slot 5 of a segment of 8 is the last that has room for them.
    for (slot, fits) in [(0, true), (5, true), (6, false), (7, false), (125, true), (126, false), (128, false)] {
        assert_eq!(commit().fits(&superblock, slot), fits, "slot {slot}");
    }
    for bad in [CommitHeader { heads: [128, 0, 0], ..commit() }, CommitHeader { next_segment: 16, ..commit() }] {
        assert!(!bad.fits(&superblock, 0), "{bad:?}");
        // Nobody follows the log from there.
        let fitted = bad.fitted(&superblock, 0).expect("its blocks are there");
        assert!(fitted.fits(&superblock, 0) && fitted.entries == commit().entries);
    }
    assert_eq!(commit().fitted(&superblock, 6), None, "its blocks are not");
    assert_eq!(commit().fitted(&superblock, 5), Some(commit()));
}

#[test]
fn eras_are_read_as_they_were_written() {
    let (origin, era) = (OriginId(2), 7 << 32 | 5);
    let key = Key { origin, block: Block(4) };
    let entries = [EraEntry::Sent { origin, era }, EraEntry::Version { key, slot: 9, checksum: 0xabc, era }];
    let mut block = vec![0; BLOCK_LEN];
    encode_checkpoint_eras(5, &entries, &mut block);
    assert_eq!(decode_checkpoint_eras(5, &block).as_deref(), Some(&entries[..]));
    assert_eq!(decode_checkpoint_eras(6, &block), None, "of another checkpoint");
    block[100] ^= 1;
    assert_eq!(decode_checkpoint_eras(5, &block), None, "damaged");
    let header = CommitHeader {
        entries: vec![Entry::Sent { origin, era }, Entry::Dirty { key, checksum: 1, era: 5 }],
        ..commit()
    };
    header.encode_into(&mut block);
    assert_eq!(CommitHeader::decode(&block), Some(header));
    let head = CheckpointHeader { eras_blocks: superblock().checkpoint_blocks, ..head() };
    assert!(!head.fits(&superblock(), 1), "eras would lie over the head");
}

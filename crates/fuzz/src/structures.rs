// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoders of what is on a cache device, one block at a time.
//!
//! What is decoded can be encoded, and is the same then.

use flashfront_engine::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, COMMIT_ENTRIES_MAX, CheckpointHeader, CommitHeader,
    decode_checkpoint_ages, decode_checkpoint_entries, encode_checkpoint_ages, encode_checkpoint_entries,
};

use crate::Target;
use crate::bytes::Bytes;
use crate::cache::{BLOCK, Kind};
use crate::patch::fit_checksum;

pub(crate) const TARGET: Target = Target {
    name: "structures",
    summary: "decoders of commit headers and checkpoints",
    input_bytes_max: BLOCK + 2,
    heap_bytes_max: 1 << 20,
    body,
};

/// What makes a block one of a kind, at its beginning.
const COMMIT: [u8; 4] = *b"FFcm";
const CHECKPOINT: [u8; 4] = *b"FFck";

fn body(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let what = bytes.u8();
    let mut block = bytes.take(BLOCK).to_vec();
    block.resize(BLOCK, 0);
    let kind = [Kind::Commit, Kind::CheckpointHead, Kind::CheckpointBody, Kind::Other][usize::from(what & 3)];
    if what & 4 == 0 {
        match kind {
            Kind::Commit => block[..4].copy_from_slice(&COMMIT),
            Kind::CheckpointHead => block[..4].copy_from_slice(&CHECKPOINT),
            _ => {}
        }
        fit_checksum(&mut block, kind);
    }
    let mut again = vec![0; BLOCK];
    if let Some(header) = CommitHeader::decode(&block) {
        assert!(header.entries.len() <= COMMIT_ENTRIES_MAX && header.data_blocks() as usize <= header.entries.len());
        header.encode_into(&mut again);
        assert_eq!(CommitHeader::decode(&again), Some(header));
    }
    if let Some(header) = CheckpointHeader::decode(&block) {
        header.encode_into(&mut again);
        assert_eq!(CheckpointHeader::decode(&again), Some(header));
    }
    let generation = u64::from_le_bytes(block[8..16].try_into().expect("8 bytes"));
    if let Some(entries) = decode_checkpoint_entries(generation, &block) {
        assert!(entries.len() <= CHECKPOINT_ENTRIES_MAX);
        encode_checkpoint_entries(generation, &entries, &mut again);
        assert_eq!(decode_checkpoint_entries(generation, &again), Some(entries));
    }
    if let Some(ages) = decode_checkpoint_ages(generation, &block) {
        assert!(ages.len() <= CHECKPOINT_AGES_MAX);
        encode_checkpoint_ages(generation, &ages, &mut again);
        assert_eq!(decode_checkpoint_ages(generation, &again), Some(ages));
    }
    // Of another generation, or of another length: not this one's.
    assert!(decode_checkpoint_entries(generation ^ 1, &block).is_none());
    assert!(CommitHeader::decode(&block[1..]).is_none());
}

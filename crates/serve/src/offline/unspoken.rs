// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many blocks may be in a lane of which nothing that is left can say which they are.
//!
//! A block is known by an entry of the checkpoint, or by the header of its commit. Where entries of
//! a checkpoint are lost and a header too, only the slots can be counted (test:
//! `repair_of_several_damages_serves_only_what_is_right`).

use flashfront_engine::format::Entry;

use super::blocks::Blocks;
use super::reader::{Reader, checksum_of};
use super::scan::Headers;

impl Reader<'_> {
    /// Finds slots for which neither a header nor an entry in `known` speaks.
    ///
    /// `ages` are those of the segments in the checkpoint whose entries are lost, if they are
    /// known. Behind the last commit of a segment there was nothing.
    pub(super) fn unspoken(&self, lane: u32, headers: &Headers, ages: Option<&[u64]>, known: &Blocks) -> u64 {
        let segments = 0..self.superblock.segments_per_lane;
        segments.map(|segment| self.unspoken_in(lane, segment, headers, ages, known)).sum()
    }

    fn unspoken_in(&self, lane: u32, segment: u32, headers: &Headers, ages: Option<&[u64]>, known: &Blocks) -> u64 {
        let age = ages.map(|ages| ages[segment as usize]);
        if age == Some(0) {
            return 0;
        }
        let slots = self.superblock.segment_blocks;
        let first = segment * slots;
        let bytes = self.segment(lane, segment);
        let mut spoken = vec![false; slots as usize];
        // Where the last commit ends that the checkpoint knew.
        let mut end = None;
        for (&slot, placed) in headers.range(first..first + slots) {
            let Some(header) = self.header(lane, slot) else { continue };
            let verifies = |(at, entry): (u32, &Entry)| match *entry {
                Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } => {
                    let sum = bytes.block(at).ok().map(|block| checksum_of(block, key, self.superblock));
                    Some((at, sum == Some(checksum)))
                }
                _ => None,
            };
            let verified: Vec<(u32, bool)> = header.placed(slot).filter_map(verifies).collect();
            let all = verified.iter().all(|(_, verifies)| *verifies);
            if all {
                spoken[(slot - first) as usize..][..=header.data_blocks() as usize].fill(true);
            } else {
                verified
                    .iter()
                    .filter(|(_, verifies)| *verifies)
                    .for_each(|(at, _)| spoken[(at - first) as usize] = true);
            }
            let sound = verified.is_empty() || verified.iter().any(|(_, verifies)| *verifies);
            if sound && age.is_some_and(|age| placed.seq >= age) {
                end = Some((slot - first + header.data_blocks() + 1) as usize);
            }
        }
        if age.is_some() && end.is_none() {
            // All that is left may be older than the segment's last use.
            spoken.fill(false);
        }
        let count = |(at, spoken): (u32, &bool)| !spoken && !known.is_taken(first + at);
        (0..).zip(&spoken[..end.unwrap_or(spoken.len())]).filter(|it| count(*it)).count() as u64
    }
}

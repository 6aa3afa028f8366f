// SPDX-License-Identifier: MIT OR Apache-2.0
//! Surveys a trace before it is played: how much it touches, how long it takes, and how large its
//! disks are.

use std::collections::BTreeMap;

use flashfront_engine::BLOCK_BYTES;

use crate::replay::key::{BLOCK_OF_KEY, STRETCH_BITS};
use crate::replay::survey::Unique;
use crate::replay::{Blocks, Progress, Reading, Source, SourceError};
use crate::trace::{PLACE_SECTORS_MAX, SECTOR_BYTES};

/// Disks end at a multiple of this.
const DISK_UNIT_BYTES: u64 = 1 << 30;
/// Disks of more than that together are none: the engine finds its way on 256 TiB.
const ORIGIN_BYTES_MAX: u64 = PLACE_SECTORS_MAX * SECTOR_BYTES;

/// The figures of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// Bytes read, in whole blocks.
    pub read_bytes: u64,
    /// Bytes written, in whole blocks.
    pub write_bytes: u64,
    /// Distinct blocks that are asked for, in bytes.
    pub touched_bytes: u64,
    /// From the first request to the last; nothing if they have no times.
    pub span_ns: Option<u64>,
    /// All disks, one behind the other.
    pub origin_bytes: u64,
    /// Where each begins, by the upper part of its blocks' keys.
    pub(super) places: BTreeMap<u64, u64>,
}

impl Survey {
    pub(super) fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Where a block is on the one disk that all are.
    pub(super) fn offset(&self, key: u64) -> u64 {
        self.places[&(key >> STRETCH_BITS)] + (key & BLOCK_OF_KEY) * BLOCK_BYTES
    }
}

/// Reads a trace once.
pub(super) fn survey(source: &Source, progress: &Progress) -> Result<(Reading, Survey), SourceError> {
    source.must_be_a_file()?;
    let mut blocks = source.open(progress)?;
    let (mut survey, mut unique) = (Survey::default(), Unique::default());
    let (mut ends, mut first_ns, mut last_ns) = (BTreeMap::<u64, u64>::new(), None, 0);
    loop {
        let batch = blocks.batch()?;
        if batch.is_empty() {
            break;
        }
        for access in batch {
            unique.add(access.key);
            let end = ends.entry(access.key >> STRETCH_BITS).or_default();
            *end = (*end).max((access.key & BLOCK_OF_KEY) + 1);
            first_ns.get_or_insert(access.time_ns);
            last_ns = access.time_ns;
            let (requests, bytes) = if access.write {
                (&mut survey.writes, &mut survey.write_bytes)
            } else {
                (&mut survey.reads, &mut survey.read_bytes)
            };
            *requests += u64::from(access.first);
            *bytes += BLOCK_BYTES;
        }
    }
    let unique_blocks = unique.blocks();
    let reading = Reading::of(source, &blocks, unique_blocks)?;
    survey.touched_bytes = unique_blocks * BLOCK_BYTES;
    survey.span_ns = blocks.is_timed().then(|| last_ns - first_ns.unwrap_or(last_ns));
    survey.place(&ends, &blocks, source)?;
    Ok((reading, survey))
}

impl Survey {
    /// Puts the disks one behind the other.
    fn place(&mut self, ends: &BTreeMap<u64, u64>, blocks: &Blocks, source: &Source) -> Result<(), SourceError> {
        for (&disk, &end) in ends {
            self.places.insert(disk, self.origin_bytes);
            self.origin_bytes += (end * BLOCK_BYTES).next_multiple_of(DISK_UNIT_BYTES);
            if self.origin_bytes > ORIGIN_BYTES_MAX {
                return Err(SourceError::Far { path: source.path.clone(), format: blocks.format().name });
            }
        }
        Ok(())
    }
}

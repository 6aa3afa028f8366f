// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places that were read in a trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use flashfront_sim::trace::{Op, Options, Reader, SECTOR_BYTES};

use super::of_file;

/// Places are told by parts of 64 KiB, so that a long trace takes little RAM: a byte for each MiB
/// that was read.
const PART_BYTES: u64 = 64 << 10;

/// The bytes of a volume of that size that were read. A trace must be of one disk.
pub(super) fn read_places(path: &Path, size: u64) -> anyhow::Result<Vec<Range<u64>>> {
    let file = File::open(path).map_err(|error| of_file(path, error))?;
    let reader = Reader::new(file, &Options::default()).map_err(|error| of_file(path, error))?;
    let (mut parts, mut device) = (BTreeMap::<u64, u16>::new(), None);
    for record in reader {
        let record = record.map_err(|error| of_file(path, error))?;
        if record.op != Op::Read {
            continue;
        }
        if *device.get_or_insert(record.device) != record.device {
            return Err(of_file(
                path,
                "the trace has requests of several disks, and it is not known which one is the volume; record the volume alone",
            ));
        }
        let (first, end) = (record.sector * SECTOR_BYTES, (record.sector + u64::from(record.sectors)) * SECTOR_BYTES);
        for part in first / PART_BYTES..end.min(size).div_ceil(PART_BYTES) {
            let begin = part * PART_BYTES;
            let bits = parts.entry(part).or_default();
            for block in 0..16 {
                let at = begin + block * (PART_BYTES / 16);
                if at < end && at + PART_BYTES / 16 > first {
                    *bits |= 1 << block;
                }
            }
        }
    }
    if parts.is_empty() {
        return Err(of_file(path, "nothing was read there that lies in the volume; choose another recording"));
    }
    let blocks = parts.into_iter().flat_map(|(part, bits)| {
        let of_part = (0..16_u64).filter(move |block| bits >> block & 1 == 1);
        of_part.map(move |block| part * PART_BYTES + block * (PART_BYTES / 16))
    });
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for at in blocks {
        match ranges.last_mut().filter(|last| last.end == at) {
            Some(last) => last.end += PART_BYTES / 16,
            None => ranges.push(at..at + PART_BYTES / 16),
        }
    }
    Ok(ranges)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads an origin's samples, and compares them with a record.

use std::io;

use flashfront_device::real::{DeviceFile, ReadAt, each};

use super::record::{Sample, crc};
use super::samples::Samples;

/// Looked at at once.
const PLACE_BYTES: u64 = 4096;
/// A superblock that is torn between two of these is still told.
const SECTOR_BYTES: u64 = 512;
/// Read at once.
const READ_BYTES: u64 = 1 << 20;

/// Samples an origin.
pub(super) fn sample(origin: &DeviceFile) -> io::Result<Samples> {
    // Writes of daemons before this one may be in a volatile cache, and undone by a power cut.
    origin.sync()?;
    Ok(Samples::new(take(origin)?))
}

/// Reads the sampled places of an origin, and says which are vital.
fn take(origin: &DeviceFile) -> io::Result<Vec<(Sample, bool)>> {
    let ranges = flashfront_device::real::sampled(origin)?;
    let kinds = [(ranges.vital, SECTOR_BYTES, true), (ranges.others, PLACE_BYTES, false)];
    let parts = kinds.iter().flat_map(|(ranges, unit, vital)| {
        let cut = |&(start, end): &(u64, u64)| {
            (start..end).step_by(READ_BYTES as usize).map(move |from| (from, (end - from).min(READ_BYTES)))
        };
        ranges.iter().flat_map(cut).map(|part| (part, *unit, *vital))
    });
    let parts: Vec<_> = parts.collect();
    // Several at a time: the first write waits for it, and a server may be 50 ms away.
    let read = |_, &((from, len), unit, vital): &((u64, u64), u64, bool)| {
        let mut bytes = vec![0; len as usize];
        // A place that can't be read is no sample.
        if origin.read_at(from, &mut bytes).is_err() {
            return Vec::new();
        }
        let sample = |(nth, part): (usize, &[u8])| {
            (Sample { offset: from + nth as u64 * unit, len: part.len() as u32, hashes: vec![crc(part)] }, vital)
        };
        bytes.chunks(unit as usize).enumerate().map(sample).collect()
    };
    let mut found: Vec<(Sample, bool)> = each(&parts, read).into_iter().flatten().collect();
    found.sort_by_key(|(sample, _)| sample.offset);
    Ok(found)
}

/// Finds the first place that holds nothing of what the record allows.
pub(super) fn changed(size: u64, read: &mut ReadAt<'_>, samples: &[Sample]) -> Option<u64> {
    // Read by runs of neighbours.
    let is_next = |one: &Sample, next: &Sample| one.offset + u64::from(one.len) == next.offset;
    for run in samples.chunk_by(is_next) {
        for part in run.chunks((READ_BYTES / PLACE_BYTES) as usize) {
            let start = part[0].offset;
            let end = part.last().map_or(start, |it| it.offset.saturating_add(u64::from(it.len)));
            if end > size {
                return Some(start);
            }
            let mut bytes = vec![0; (end - start) as usize];
            // A bad sector proves nothing.
            if read(start, &mut bytes).is_err() {
                continue;
            }
            for it in part {
                let held = &bytes[(it.offset - start) as usize..][..it.len as usize];
                if !it.hashes.contains(&crc(held)) {
                    return Some(it.offset);
                }
            }
        }
    }
    None
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Surveys a trace by reading it once.

use std::collections::BTreeMap;
use std::time::Duration;

use flashfront_sim::trace::{Op, ReadError, Reader, SECTOR_BYTES};

/// Counts of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) requests: u64,
    pub(super) writes: u64,
    pub(super) discards: u64,
    /// The bytes of reads and writes.
    pub(super) bytes: u64,
    /// The longest read or write.
    pub(super) longest_bytes: u64,
    /// The time from the first request to the last; `None` if the trace has no times.
    pub(super) span: Option<Duration>,
    /// The first time.
    pub(super) first_ns: u64,
    /// Each disk of the trace: how many bytes it has at least, and where it lies on a target.
    disks: BTreeMap<u32, Disk>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Disk {
    bytes: u64,
    first_byte: u64,
}

/// Disks begin at multiples of this, so that no request of a later disk is moved within a block.
const ALIGNED: u64 = 1 << 20;

impl Survey {
    pub(super) fn of(reader: Reader) -> Result<Self, ReadError> {
        let mut survey = Self::default();
        let (mut first, mut last) = (None::<u64>, 0);
        let mut all_have_times = true;
        for record in reader {
            let record = record?;
            survey.requests += 1;
            match record.time_ns {
                Some(ns) => {
                    first = Some(first.map_or(ns, |it| it.min(ns)));
                    last = last.max(ns);
                }
                None => all_have_times = false,
            }
            if record.op == Op::Flush {
                continue;
            }
            let bytes = u64::from(record.sectors) * SECTOR_BYTES;
            survey.writes += u64::from(record.op == Op::Write);
            survey.discards += u64::from(record.op == Op::Discard);
            survey.bytes += if record.op == Op::Discard { 0 } else { bytes };
            if record.op != Op::Discard {
                survey.longest_bytes = survey.longest_bytes.max(bytes);
            }
            let disk = survey.disks.entry(record.device).or_default();
            // A place beyond all disks stays one.
            disk.bytes = disk.bytes.max(record.sector.saturating_mul(SECTOR_BYTES).saturating_add(bytes));
        }
        let mut next = 0;
        for disk in survey.disks.values_mut() {
            disk.first_byte = next;
            next = next.saturating_add(disk.bytes).saturating_add(ALIGNED - 1) / ALIGNED * ALIGNED;
        }
        survey.first_ns = first.unwrap_or(0);
        survey.span = first.filter(|_| all_have_times).map(|first| Duration::from_nanos(last - first));
        Ok(survey)
    }

    /// The place on a target where a disk of the trace begins.
    pub(super) fn first_byte(&self, device: u32) -> u64 {
        self.disks.get(&device).map_or(0, |disk| disk.first_byte)
    }

    /// How large a target must be.
    pub(super) fn end_bytes(&self) -> u64 {
        self.disks.values().map(|disk| disk.first_byte.saturating_add(disk.bytes)).max().unwrap_or(0)
    }
}

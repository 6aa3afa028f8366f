// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds where the blocks of the traced disk begin.
//!
//! Before 2008 partitions began at sector 63. There a file system's 4 KiB straddle two blocks of
//! the disk. In CloudPhysics' public trace four fifths of the requests do. They cost 1.142 M
//! instead of 1.053 M accesses. Requests begin and end where blocks do, so the sectors where they
//! do, modulo 8, tell the phase. Each disk of a trace has its own.

use std::collections::BTreeMap;

use super::record::{Op, Record};
use super::split::{BLOCK_SECTORS, Grid};

/// How often requests begin and end at each sector modulo 8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridFinder {
    disks: BTreeMap<u32, Edges>,
}

type Edges = [u64; BLOCK_SECTORS as usize];

/// Where the blocks of one disk begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskGrid {
    /// The number of the disk in the trace.
    pub device: u32,
    /// Its reads and writes that were looked at.
    pub requests: u64,
    /// The grid that most of them fit on; the aligned one if none is better.
    pub grid: Grid,
    /// The share of their beginnings and ends that are on it.
    pub share: f64,
}

impl GridFinder {
    /// Requests after which the phase is known well enough.
    pub const REQUESTS: usize = 100_000;

    /// Counts a record.
    pub fn add(&mut self, record: &Record) {
        if matches!(record.op, Op::Read | Op::Write) {
            let edges = self.disks.entry(record.device).or_default();
            edges[(record.sector % BLOCK_SECTORS) as usize] += 1;
            edges[((record.sector + u64::from(record.sectors)) % BLOCK_SECTORS) as usize] += 1;
        }
    }

    /// The share of beginnings and ends at each phase, of all disks; all 0 without requests.
    #[must_use]
    pub fn shares(&self) -> [f64; BLOCK_SECTORS as usize] {
        let edges = self.all();
        let all = edges.iter().sum::<u64>().max(1);
        edges.map(|edges| edges as f64 / all as f64)
    }

    /// The grid that most requests of all disks fit on; the aligned one if none is better.
    #[must_use]
    pub fn grid(&self) -> Grid {
        Grid::shifted(best(&self.all()) as u8)
    }

    /// Each disk, in the order of its number.
    pub fn disks(&self) -> impl Iterator<Item = DiskGrid> {
        self.disks.iter().map(|(&device, edges)| {
            let (best, all) = (best(edges), edges.iter().sum::<u64>());
            DiskGrid {
                device,
                requests: all / 2,
                grid: Grid::shifted(best as u8),
                share: edges[best] as f64 / all.max(1) as f64,
            }
        })
    }

    fn all(&self) -> Edges {
        let mut all = Edges::default();
        for edges in self.disks.values() {
            all.iter_mut().zip(edges).for_each(|(all, edges)| *all += edges);
        }
        all
    }

    /// Reads up to so many records ahead and counts them; they come again, before the others.
    pub fn ahead<E, I: Iterator<Item = Result<Record, E>>>(mut records: I, most: usize) -> (Self, Ahead<E, I>) {
        let mut phases = Self::default();
        let read: Vec<_> = records.by_ref().take(most).collect();
        read.iter().flatten().for_each(|record| phases.add(record));
        (phases, Ahead { read: read.into_iter(), records })
    }
}

fn best(edges: &Edges) -> usize {
    (1..edges.len()).fold(0, |best, phase| if edges[phase] > edges[best] { phase } else { best })
}

/// All records, of which some were read ahead.
#[derive(Debug)]
pub struct Ahead<E, I> {
    read: std::vec::IntoIter<Result<Record, E>>,
    records: I,
}

impl<E, I> Ahead<E, I> {
    /// The reader of the records.
    pub fn get_ref(&self) -> &I {
        &self.records
    }
}

impl<E, I: Iterator<Item = Result<Record, E>>> Iterator for Ahead<E, I> {
    type Item = Result<Record, E>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read.next().or_else(|| self.records.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sector: u64, sectors: u32) -> Record {
        Record { time_ns: None, op: Op::Write, device: 0, sector, sectors }
    }

    #[test]
    fn a_partition_at_sector_63_is_found() {
        let requests =
            (0..100).map(|nth| Ok::<_, ()>(if nth % 5 == 0 { record(nth, 1) } else { record(63 + 8 * nth, 16) }));
        let (phases, ahead) = GridFinder::ahead(requests.clone(), 60);
        assert_eq!(phases.grid(), Grid::shifted(7));
        assert!(phases.shares()[7] > 0.8 && (phases.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(ahead.eq(requests), "reading ahead loses nothing");
    }

    #[test]
    fn each_disk_has_its_own_phase() {
        let mut phases = GridFinder::default();
        for nth in 0..5 {
            phases.add(&record(8 * nth, 8));
            let other = Record { device: 3, ..record(63 + 8 * nth, 16) };
            (0..nth % 2).for_each(|_| phases.add(&other));
        }
        let disks: Vec<_> = phases.disks().map(|it| (it.device, it.requests, it.grid.phase(), it.share)).collect();
        assert_eq!(disks, [(0, 5, 0, 1.0), (3, 2, 7, 1.0)]);
        assert_eq!(phases.grid(), Grid::ALIGNED, "as most of all");
    }

    #[test]
    fn without_a_better_one_the_grid_is_aligned() {
        assert_eq!(GridFinder::default().grid(), Grid::ALIGNED);
        let mut phases = GridFinder::default();
        phases.add(&record(3, 5));
        assert_eq!(phases.grid(), Grid::ALIGNED);
        phases.add(&Record { op: Op::Discard, ..record(3, 8) });
        assert_eq!(phases.shares()[3], 0.5, "discards don't count");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds where the blocks of the traced disk begin.
//!
//! A partition that begins at sector 63, as they did before 2008, makes a file system's 4 KiB straddle two blocks of the disk:
//! of CloudPhysics' public trace four fifths of the requests do, and cost 1.142 M accesses instead of 1.053 M. Requests begin and end where
//! blocks do, so the sectors where they do, modulo 8, tell the phase.

use super::split::{BLOCK_SECTORS, Grid};
use super::{Op, Record};

/// How often requests begin and end at each sector modulo 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    edges: [u64; BLOCK_SECTORS as usize],
}

impl Phases {
    /// Requests after which the phase is known well enough.
    pub const REQUESTS: usize = 100_000;

    /// Counts a record.
    pub fn add(&mut self, record: &Record) {
        if matches!(record.op, Op::Read | Op::Write) {
            self.edges[(record.sector % BLOCK_SECTORS) as usize] += 1;
            self.edges[((record.sector + u64::from(record.sectors)) % BLOCK_SECTORS) as usize] += 1;
        }
    }

    /// The share of beginnings and ends at each phase; all 0 without requests.
    #[must_use]
    pub fn shares(&self) -> [f64; BLOCK_SECTORS as usize] {
        let all = self.edges.iter().sum::<u64>().max(1);
        self.edges.map(|edges| edges as f64 / all as f64)
    }

    /// The grid that most requests fit on; the aligned one if none is better.
    #[must_use]
    pub fn grid(&self) -> Grid {
        let mut best = 0;
        for phase in 1..self.edges.len() {
            if self.edges[phase] > self.edges[best] {
                best = phase;
            }
        }
        Grid::shifted(best as u8)
    }

    /// Reads up to so many records ahead and counts them; they come again, before the others.
    pub fn ahead<E, I: Iterator<Item = Result<Record, E>>>(mut records: I, most: usize) -> (Self, Ahead<E, I>) {
        let mut phases = Self::default();
        let read: Vec<_> = records.by_ref().take(most).collect();
        read.iter().flatten().for_each(|record| phases.add(record));
        (phases, Ahead { read: read.into_iter(), records })
    }
}

/// All records, of which some were read ahead.
#[derive(Debug)]
pub struct Ahead<E, I> {
    read: std::vec::IntoIter<Result<Record, E>>,
    records: I,
}

impl<E, I> Ahead<E, I> {
    /// What they are read from.
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
        let (phases, ahead) = Phases::ahead(requests.clone(), 60);
        assert_eq!(phases.grid(), Grid::shifted(7));
        assert!(phases.shares()[7] > 0.8 && (phases.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(ahead.eq(requests), "reading ahead loses nothing");
    }

    #[test]
    fn without_a_better_one_the_grid_is_aligned() {
        assert_eq!(Phases::default().grid(), Grid::ALIGNED);
        let mut phases = Phases::default();
        phases.add(&record(3, 5));
        assert_eq!(phases.grid(), Grid::ALIGNED);
        phases.add(&Record { op: Op::Discard, ..record(3, 8) });
        assert_eq!(phases.shares()[3], 0.5, "discards don't count");
    }
}

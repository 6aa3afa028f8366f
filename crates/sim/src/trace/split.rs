// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a record into the blocks of 4 KiB that it touches, on a grid that may be shifted.

use super::record::Record;

/// Sectors of a block.
pub(super) const BLOCK_SECTORS: u64 = 8;

/// The grid says where blocks begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// Sectors before a block's first one, modulo 8.
    phase: u8,
}

/// A block that a record touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The number on the grid. On a shifted one block 0 is the part of a block before the first
    /// whole one.
    pub block: u64,
    /// Not all of it: the cache would have to complete it.
    pub partial: bool,
}

/// The blocks that a record touches, in order.
#[derive(Clone, Debug)]
pub struct Accesses {
    next: u64,
    /// The one behind the last.
    end: u64,
    /// Partial blocks, if there are any.
    first_partial: Option<u64>,
    last_partial: Option<u64>,
}

impl Grid {
    /// Blocks begin at sector 0, 8, 16.
    pub const ALIGNED: Self = Self { phase: 0 };

    /// Blocks begin at sectors that are `phase` modulo 8.
    #[must_use]
    pub fn shifted(phase: u8) -> Self {
        Self { phase: phase % BLOCK_SECTORS as u8 }
    }

    /// By how many sectors it is shifted.
    #[must_use]
    pub fn phase(self) -> u8 {
        self.phase
    }

    /// The sectors of its first block before this record, and of its last block behind it.
    #[must_use]
    pub fn left_out(self, record: &Record) -> (u64, u64) {
        let shift = (BLOCK_SECTORS - u64::from(self.phase)) % BLOCK_SECTORS;
        let from = record.sector.saturating_add(shift);
        let to = from.saturating_add(record.sectors.into());
        (from % BLOCK_SECTORS, (BLOCK_SECTORS - to % BLOCK_SECTORS) % BLOCK_SECTORS)
    }

    /// The blocks that this record touches; none for a flush.
    #[must_use]
    pub fn accesses(self, record: &Record) -> Accesses {
        let shift = (BLOCK_SECTORS - u64::from(self.phase)) % BLOCK_SECTORS;
        // No record reaches to where this would overflow (SECTOR_MAX).
        let from = record.sector.saturating_add(shift);
        let to = from.saturating_add(record.sectors.into());
        if from == to {
            return Accesses { next: 0, end: 0, first_partial: None, last_partial: None };
        }
        Accesses {
            next: from / BLOCK_SECTORS,
            end: to.div_ceil(BLOCK_SECTORS),
            first_partial: (!from.is_multiple_of(BLOCK_SECTORS)).then_some(from / BLOCK_SECTORS),
            last_partial: (!to.is_multiple_of(BLOCK_SECTORS)).then_some(to / BLOCK_SECTORS),
        }
    }
}

impl Iterator for Accesses {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let block = self.next;
        if block == self.end {
            return None;
        }
        self.next += 1;
        let partial = self.first_partial == Some(block) || self.last_partial == Some(block);
        Some(Access { block, partial })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Accesses {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Op, SECTOR_MAX};

    fn blocks(grid: Grid, sector: u64, sectors: u32) -> Vec<(u64, bool)> {
        let record = Record { time_ns: None, op: Op::Read, device: 0, sector, sectors };
        grid.accesses(&record).map(|it| (it.block, it.partial)).collect()
    }

    #[test]
    fn what_is_left_out_and_what_is_asked_for_are_whole_blocks() {
        for (grid, sector, sectors, left_out) in [
            (Grid::ALIGNED, 8, 16, (0, 0)),
            (Grid::ALIGNED, 7, 8, (7, 1)),
            (Grid::ALIGNED, 9, 2, (1, 5)),
            (Grid::shifted(7), 7, 16, (0, 0)),
            (Grid::shifted(7), 8, 3, (1, 4)),
        ] {
            let record = Record { time_ns: None, op: Op::Read, device: 0, sector, sectors };
            assert_eq!(grid.left_out(&record), left_out, "{sector} {sectors}");
            let blocks = grid.accesses(&record).len() as u64;
            assert_eq!(blocks * BLOCK_SECTORS, left_out.0 + u64::from(sectors) + left_out.1);
        }
    }

    #[test]
    fn requests_are_cut_at_the_grid() {
        assert_eq!(blocks(Grid::ALIGNED, 8, 16), [(1, false), (2, false)]);
        assert_eq!(blocks(Grid::ALIGNED, 7, 8), [(0, true), (1, true)]);
        assert_eq!(blocks(Grid::ALIGNED, 4, 12), [(0, true), (1, false)]);
        assert_eq!(blocks(Grid::ALIGNED, 9, 2), [(1, true)]);
        assert_eq!(blocks(Grid::ALIGNED, 9, 0), []);
        assert_eq!(blocks(Grid::shifted(7), 7, 16), [(1, false), (2, false)]);
        assert_eq!(blocks(Grid::shifted(7), 0, 8), [(0, true), (1, true)]);
        assert_eq!(blocks(Grid::shifted(15), 15, 8), [(2, false)]);
        assert_eq!(blocks(Grid::shifted(8), 8, 8), [(1, false)]);
        assert_eq!(blocks(Grid::shifted(1), SECTOR_MAX - 8, 8).len(), 2);
    }
}

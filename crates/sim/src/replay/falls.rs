// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds falls: sizes at which a larger cache does worse than a smaller one, by fewer hits or by
//! more reads of the origin.

use super::Row;

/// The worst fall: from the best smaller cache to a larger one, in points (hundredths of the
/// accesses).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fall {
    /// Blocks of the smaller cache.
    pub from: u64,
    /// Blocks of the larger one.
    pub to: u64,
    /// By how much the larger one is worse; 0 if no larger cache is.
    pub points: f64,
}

/// The worst fall of hits. The rows are of one policy and one trace, by rising size.
#[must_use]
pub fn of_hits(rows: &[Row]) -> Fall {
    worst(rows, |row| row.totals.hits as f64)
}

/// The worst rise of reads of the origin ([`Row::origin_reads`]).
#[must_use]
pub fn of_origin_reads(rows: &[Row]) -> Fall {
    worst(rows, |row| -(row.origin_reads as f64))
}

fn worst(rows: &[Row], good: impl Fn(&Row) -> f64) -> Fall {
    let Some(mut best) = rows.first() else { return Fall::default() };
    let mut worst = Fall::default();
    for row in rows {
        let points = (good(best) - good(row)) * 100.0 / row.totals.accesses as f64;
        if points > worst.points {
            worst = Fall { from: best.cache_blocks, to: row.cache_blocks, points };
        }
        if points <= 0.0 {
            best = row;
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use flashfront_engine::shadow::Totals;

    use super::*;
    use crate::replay::Size;

    #[test]
    fn the_worst_fall_is_from_the_best_before() {
        let row = |cache_blocks, hits, origin_reads| Row {
            policy: "",
            size: Size::Blocks(cache_blocks),
            cache_blocks,
            flash_writes_per_day_bytes: None,
            totals: Totals { accesses: 1000, hits, ..Totals::default() },
            origin_reads,
            occupancy: None,
        };
        let rows = [row(10, 300, 900), row(20, 340, 700), row(30, 320, 690), row(40, 330, 710), row(50, 335, 600)];
        assert_eq!(of_hits(&rows), Fall { from: 20, to: 30, points: 2.0 });
        assert_eq!(of_origin_reads(&rows), Fall { from: 30, to: 40, points: 2.0 });
        assert_eq!(of_hits(&rows[..2]), Fall::default());
        assert_eq!(of_hits(&[]), Fall::default());
    }
}

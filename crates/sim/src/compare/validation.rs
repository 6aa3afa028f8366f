// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how far the models are from the published figures: the error of the median cell, and
//! the error that nine cells of ten keep.

use super::cell::Cell;
use super::task::Suite;

/// The errors of all cells of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// The number of cells.
    pub cells: usize,
    /// Half of the cells have at most this error, as a part of the published figure.
    pub median: f64,
    /// Nine of ten cells have at most this error.
    pub nine_of_ten: f64,
}

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes moved, and dirty bytes.
    Bytes,
    /// KiB/s and I/Os a second.
    Speed,
    /// Hits.
    Hits,
}

impl Cell {
    /// The kind of the cell's figure.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.metric {
            "hit_ratio" => Kind::Hits,
            "kbps" | "kbps_write" | "iops" => Kind::Speed,
            _ => Kind::Bytes,
        }
    }
}

impl Suite {
    /// The errors of one system's cells of a kind, or of all rivals' cells together. `None` if
    /// nothing was published.
    #[must_use]
    pub fn errors(&self, cells: &[Cell], kind: Kind, system: Option<&str>) -> Option<Errors> {
        let ours = |cell: &&Cell| match system {
            Some(name) => cell.system == name,
            None => !matches!(cell.system, "ssd" | "hdd" | "flashfront"),
        };
        let cells = cells.iter().filter(ours).filter(|cell| cell.kind() == kind);
        let mut errors: Vec<f64> = cells.filter_map(|cell| Some(self.error(cell, cell.published?))).collect();
        errors.sort_by(f64::total_cmp);
        let at = |part: f64| errors[((errors.len() as f64 * part).ceil() as usize).max(1) - 1];
        (!errors.is_empty()).then(|| Errors { cells: errors.len(), median: at(0.5), nine_of_ten: at(0.9) })
    }

    /// Returns a cell's error as a part of the published figure.
    ///
    /// Published bytes count as at least a hundredth of what the task asks for. Less than that is
    /// metadata and the rounding of a counter.
    fn error(&self, cell: &Cell, published: f64) -> f64 {
        let floor = match (cell.kind(), cell.metric) {
            (Kind::Bytes, "dirty_mb") => self.asked_bytes(&cell.task) / 100.0 / f64::from(1 << 20),
            (Kind::Bytes, _) => self.asked_bytes(&cell.task) / 100.0 / 1024.0,
            _ => 0.0,
        };
        (cell.simulated - published).abs() / published.max(floor)
    }

    fn asked_bytes(&self, task: &str) -> f64 {
        let sessions = self.sessions();
        let tasks = sessions.iter().flat_map(|session| &session.tasks).filter(|it| it.name == task);
        tasks.flat_map(|task| &task.jobs).map(|job| job.total_bytes).sum::<u64>() as f64
    }
}

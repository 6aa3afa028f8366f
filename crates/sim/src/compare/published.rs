// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published figures are small tables in this folder. The first lines of each name its source.
//!
//! They are read by hand and not by the crate csv: no field of ours is quoted, and rows borrow from
//! the program.

/// The figures of a table.
#[derive(Clone, Debug)]
pub struct Published {
    /// Task, system, metric, figure.
    rows: Vec<(&'static str, &'static str, &'static str, f64)>,
}

impl Published {
    /// Reads a table of this folder.
    pub(super) fn read(text: &'static str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
        let row = |line: &'static str| {
            let mut fields = line.split(',');
            let mut next = || fields.next().expect("four columns");
            (next(), next(), next(), next().parse().expect("a figure"))
        };
        Self { rows: lines.map(row).collect() }
    }

    /// A figure, if the source has it.
    #[must_use]
    pub fn get(&self, task: &str, system: &str, metric: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| (row.0, row.1, row.2) == (task, system, metric));
        row.map(|row| row.3)
    }

    /// All figures of a task: system, metric, figure.
    #[must_use]
    pub fn of_task(&self, task: &str) -> Vec<(&'static str, &'static str, f64)> {
        self.rows.iter().filter(|row| row.0 == task).map(|row| (row.1, row.2, row.3)).collect()
    }

    /// The number of figures.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the table has no figure.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

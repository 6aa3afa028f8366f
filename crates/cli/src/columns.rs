// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table for a terminal of 80 columns. Figures that have no room beside the names stand in a
//! second part below, with the names once more.

use std::fmt::Display;

/// Columns that a terminal has at least.
pub(crate) const WIDTH: usize = 80;

/// Names that are longer lose their end.
const NAME_MAX: usize = 26;

/// A table while it is filled.
#[derive(Debug)]
pub(crate) struct Columns {
    /// How many columns are names, which stand at the left.
    names: usize,
    /// The heading, then the rows.
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// A table with columns of names, then columns of figures.
    pub(crate) fn new<N: Display, F: Display>(
        names: impl IntoIterator<Item = N>,
        figures: impl IntoIterator<Item = F>,
    ) -> Self {
        let mut heading: Vec<String> = names.into_iter().map(|it| it.to_string()).collect();
        let names = heading.len();
        heading.extend(figures.into_iter().map(|it| it.to_string()));
        Self { names, rows: vec![heading] }
    }

    /// Adds a row, with a cell for each column.
    pub(crate) fn row<T: Display>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().map(|it| it.to_string()).enumerate();
        self.rows.push(cells.map(|(nth, cell)| if nth < self.names { cut(cell) } else { cell }).collect());
    }

    /// The table, in as many parts as it takes.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width = |nth: usize| {
            self.rows.iter().filter_map(|row| row.get(nth)).map(|it| it.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let names: usize = widths[..self.names].iter().map(|it| it + 2).sum();
        let (mut from, mut parts) = (self.names, Vec::new());
        while from < columns {
            // A part has a column at least, even if that is too wide.
            let (mut to, mut room) = (from, WIDTH.saturating_sub(names));
            while to < columns && (to == from || widths[to] + 2 <= room) {
                room = room.saturating_sub(widths[to] + 2);
                to += 1;
            }
            parts.push(self.part(&widths, from..to));
            from = to;
        }
        parts.join("\n")
    }

    fn part(&self, widths: &[usize], figures: std::ops::Range<usize>) -> String {
        let line = |row: &Vec<String>| {
            let names = (0..self.names).map(|nth| format!("{:<1$}  ", row[nth], widths[nth]));
            let cells = figures.clone().map(|nth| format!("{:>1$}  ", row.get(nth).map_or("", |it| it), widths[nth]));
            names.chain(cells).collect::<String>().trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }
}

fn cut(name: String) -> String {
    if name.chars().count() <= NAME_MAX { name } else { name.chars().take(NAME_MAX - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_fits_is_one() {
        let mut table = Columns::new(["cache", "policy"], ["hits", "flash"]);
        table.row(["4.00 MiB", "lru", "7.1 %", "10.0 MiB"]);
        assert_eq!(table.text(), "cache     policy   hits     flash\n4.00 MiB  lru     7.1 %  10.0 MiB\n");
    }

    #[test]
    fn what_has_no_room_stands_below_with_the_names() {
        let figures: Vec<String> = (0..20).map(|nth| format!("figure {nth}")).collect();
        let mut table = Columns::new(["name"], &figures);
        table.row(["a name that is much longer than any window"].into_iter().map(str::to_owned).chain(figures.clone()));
        let text = table.text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for figure in &figures {
            let shown =
                text.lines().filter(|line| line.starts_with("a name that")).filter(|line| line.contains(&**figure));
            assert!(shown.count() >= 1, "{figure} is missing in {text}");
        }
        assert_eq!(text.matches("a name that is much longe…").count(), text.matches("name  ").count(), "{text}");
        assert!(text.contains("\n\n"), "parts are apart: {text}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table of a report: rows below a head; in a narrow window a card for each row, with the
//! columns' names in it.

use std::fmt::Write;

use super::page::escaped;

/// A cell.
#[derive(Debug, Default)]
pub(super) struct Cell {
    /// The text as it stands in the page: escaped already.
    html: String,
    title: String,
    class: &'static str,
}

impl Cell {
    /// A cell with a text.
    pub(super) fn text(text: &str) -> Self {
        Self { html: escaped(text), ..Self::default() }
    }

    /// A cell with elements that are written already, on a line of its own in a narrow window.
    pub(super) fn drawn(html: String) -> Self {
        Self { html, class: "drawn", ..Self::default() }
    }

    /// A cell that is to be seen before others.
    pub(super) fn marked(self) -> Self {
        Self { class: "marked", ..self }
    }

    /// Adds more text for readers who point at the cell.
    pub(super) fn titled(self, title: &str) -> Self {
        Self { title: escaped(title), ..self }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::text(text.as_ref())
    }
}

/// A table while it is filled.
#[derive(Debug)]
pub(super) struct Table {
    /// Each column: its name, and whether its cells are names and no figures.
    columns: Vec<(String, bool)>,
    body: String,
}

impl Table {
    /// A table with columns of names, then columns of figures.
    pub(super) fn new<N: AsRef<str>, F: AsRef<str>>(
        names: impl IntoIterator<Item = N>,
        figures: impl IntoIterator<Item = F>,
    ) -> Self {
        let names = names.into_iter().map(|it| (escaped(it.as_ref()), true));
        let figures = figures.into_iter().map(|it| (escaped(it.as_ref()), false));
        let columns: Vec<(String, bool)> = names.collect();
        Self { columns: columns.into_iter().chain(figures).collect(), body: String::new() }
    }

    /// Adds a row; it stands out if it is ours.
    pub(super) fn row(&mut self, is_ours: bool, cells: impl IntoIterator<Item = Cell>) {
        self.body.push_str(if is_ours { "<tr class=\"ours\">" } else { "<tr>" });
        for (cell, (column, is_name)) in cells.into_iter().zip(&self.columns) {
            let blank = match &*cell.html {
                "" => "blank",
                "-" => "none",
                _ => "",
            };
            let classes = [if *is_name { "name" } else { "" }, cell.class, blank];
            let classes: Vec<&str> = classes.into_iter().filter(|it| !it.is_empty()).collect();
            let class = if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
            let title = if cell.title.is_empty() { String::new() } else { format!(" title=\"{}\"", cell.title) };
            write!(self.body, "<td{class} data-column=\"{column}\"{title}>{}</td>", cell.html)
                .expect("a string takes any text");
        }
        self.body.push_str("</tr>\n");
    }

    /// Begins a new group of rows.
    pub(super) fn group(&mut self) {
        if !self.body.is_empty() {
            self.body.push_str("</tbody>\n<tbody>\n");
        }
    }

    /// The table as an element.
    pub(super) fn html(self) -> String {
        let head = |(column, is_name): &(String, bool)| {
            format!("<th{}>{column}</th>", if *is_name { " class=\"name\"" } else { "" })
        };
        let head: String = self.columns.iter().map(head).collect();
        format!(
            "<div class=\"rows\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{}</tbody></table></div>\n",
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_knows_its_column() {
        let mut table = Table::new(["system"], ["MB/s", "a < b"]);
        table.row(true, ["<b>".into(), "1".into(), Cell::from("-").titled("why \"not\"")]);
        let html = table.html();
        for part in [
            "<th class=\"name\">system</th><th>MB/s</th><th>a &lt; b</th>",
            "<tr class=\"ours\"><td class=\"name\" data-column=\"system\">&lt;b&gt;</td>",
            "<td class=\"none\" data-column=\"a &lt; b\" title=\"why &quot;not&quot;\">-</td>",
        ] {
            assert!(html.contains(part), "{part} is missing in {html}");
        }
    }
}

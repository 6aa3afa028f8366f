// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volumes as a table. A narrow window shows the first columns.

use flashfront_serve::report::StatusReport;

use super::rows::{Row, Sort};
use crate::human;

/// Columns of characters for a name; a longer one loses its end.
const NAME: usize = 16;
/// Columns of characters for a figure, with the space before it.
const FIGURE: usize = 10;

type Figure = fn(&Row) -> String;

/// The figures, in the order of their weight.
const FIGURES: [(&str, Figure); 9] = [
    ("read/s", |row| human::bytes(row.read_bytes_per_s as u64)),
    ("written/s", |row| human::bytes(row.written_bytes_per_s as u64)),
    ("requests", |row| human::count(row.requests_per_s.round() as u64)),
    ("hits", |row| human::percent(row.hit_ratio)),
    ("slowest", |row| if row.p99_us > 0.0 { human::latency((row.p99_us * 1e3) as u64) } else { "-".to_owned() }),
    ("dirty", |row| human::bytes(row.dirty_bytes)),
    ("cached", |row| human::bytes(row.cached_bytes)),
    ("gain", |row| human::percent(row.gain)),
    ("flash/s", |row| human::bytes(row.flash_written_bytes_per_s as u64)),
];

/// The line above the table.
pub(super) fn head(report: &StatusReport, by: Sort) -> String {
    let volumes = human::counted(report.volumes.len() as u64, "volume");
    let up = human::span(report.uptime_s);
    format!("flashfront {}  up {up}  {volumes} by {}  (b r h s d c f g n sort, q ends)", report.version, by.name())
}

/// The heading, all volumes together, and each, as wide as there is room.
pub(super) fn lines(all: &Row, volumes: &[Row], columns: usize) -> Vec<String> {
    let figures = &FIGURES[..FIGURES.len().min(columns.saturating_sub(NAME) / FIGURE)];
    let line = |name: &str, cells: Vec<String>| {
        let cells: String = cells.into_iter().map(|cell| format!("{cell:>FIGURE$}")).collect();
        format!("{:<NAME$}{cells}", cut(name))
    };
    let row = |row: &Row| line(&row.name, figures.iter().map(|(_, figure)| figure(row)).collect());
    let heading = line("volume", figures.iter().map(|(name, _)| (*name).to_owned()).collect());
    [heading, row(all)].into_iter().chain(volumes.iter().map(row)).collect()
}

/// A name that has room.
fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME) {
        Some(_) => name.chars().take(NAME - 1).chain(['…']).collect(),
        None => name.to_owned(),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a replay as people read it: a table.

use std::fmt::Write;

use flashfront_sim::replay::Replayed;

use crate::columns::Columns;
use crate::human;
use crate::trace::told::how;

pub(super) fn table(name: &str, replayed: &Replayed) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{name}: {}, {} requests, footprint {}{}",
        replayed.reading.format.name,
        human::count(replayed.reading.requests),
        human::blocks(replayed.reading.unique_blocks),
        how(&replayed.reading)
    )?;
    let bounded = replayed.rows.iter().any(|row| row.flash_writes_per_day_bytes.is_some());
    let figures =
        ["hits", "read hits", "flash writes", "fills", "absorbed", "reinserted", "origin read", "origin write"];
    let bound = bounded.then_some("flash writes a day");
    let held = replayed.rows.iter().any(|row| row.occupancy.is_some());
    let held: &[&str] = if held { &["live", "dead", "live unread", "cleaned"] } else { &[] };
    let mut table = Columns::new(["cache", "policy"], figures.into_iter().chain(bound).chain(held.iter().copied()));
    for row in &replayed.rows {
        let totals = &row.totals;
        let bound = row.flash_writes_per_day_bytes.map(human::bytes);
        let cells = [
            human::blocks(row.cache_blocks),
            row.policy.to_owned(),
            human::percent(Some(totals.hit_ratio())),
            human::percent((totals.reads > 0).then(|| totals.read_hit_ratio())),
            human::blocks(totals.flash_blocks_written()),
            human::blocks(totals.fill_blocks),
            human::blocks(totals.absorbed_blocks),
            human::blocks(totals.reinserted_blocks),
            human::blocks(totals.origin_read_blocks),
            human::blocks(totals.origin_write_blocks),
        ];
        let held = row
            .occupancy
            .map(|(held, unread)| [held.live_blocks, held.dead_blocks, unread, held.cleaned_blocks].map(human::blocks));
        let bound = bounded.then(|| bound.unwrap_or_else(|| "-".to_owned()));
        table.row(cells.into_iter().chain(bound).chain(held.into_iter().flatten()));
    }
    out.push_str(&table.text());
    Ok(out)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a replay as people read it: a table.

use std::fmt::Write;

use flashfront_sim::replay::Replayed;

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
    let wide = replayed.rows.iter().map(|row| row.policy.len()).fold(10, usize::max);
    writeln!(
        out,
        "{:>10}  {:<wide$} {:>7} {:>9}  {:>12} {:>11} {:>11} {:>11}  {:>11} {:>12}",
        "cache",
        "policy",
        "hits",
        "read hits",
        "flash writes",
        "fills",
        "absorbed",
        "reinserted",
        "origin read",
        "origin write"
    )?;
    for row in &replayed.rows {
        let totals = &row.totals;
        let budget = row.flash_writes_per_day_bytes;
        let budget = budget.map_or_else(String::new, |bytes| format!("  of {} a day", human::bytes(bytes)));
        writeln!(
            out,
            "{:>10}  {:<wide$} {:>7} {:>9}  {:>12} {:>11} {:>11} {:>11}  {:>11} {:>12}{budget}",
            human::blocks(row.cache_blocks),
            row.policy,
            human::percent(Some(totals.hit_ratio())),
            human::percent((totals.reads > 0).then(|| totals.read_hit_ratio())),
            human::blocks(totals.flash_blocks_written()),
            human::blocks(totals.fill_blocks),
            human::blocks(totals.absorbed_blocks),
            human::blocks(totals.reinserted_blocks),
            human::blocks(totals.origin_read_blocks),
            human::blocks(totals.origin_write_blocks)
        )?;
    }
    Ok(out)
}

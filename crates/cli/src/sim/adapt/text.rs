// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of `sim adapt`, as a table.

use std::fmt::{self, Write};

use flashfront_sim::adapt::{Experiment, Findings};

use crate::columns::Columns;
use crate::human;

/// Ends of the rounds that the table shows.
pub(in crate::sim) fn shown(rounds: u64) -> Vec<u64> {
    let mut shown: Vec<u64> = [1, 4, rounds].into_iter().filter(|round| *round <= rounds).collect();
    shown.dedup();
    shown
}

pub(super) fn table(outcome: &Findings, experiment: &Experiment) -> Result<String, fmt::Error> {
    let (mut out, rounds) = (String::new(), shown(experiment.rounds));
    write!(
        out,
        "{}: a cache of {} full of junk, then reads of {} of data, {} a round; static optimum {}, ",
        outcome.case.name,
        human::blocks(experiment.cache_blocks),
        human::blocks(outcome.reads.data_blocks),
        human::count(experiment.cache_blocks),
        human::percent(Some(outcome.reads.static_optimum))
    )?;
    writeln!(out, "{}", turnover(outcome))?;
    let mut figures = vec!["junk".to_owned()];
    figures.extend(rounds.iter().map(|round| format!("reads r{round}")));
    figures.extend(rounds.iter().map(|round| format!("hits r{round}")));
    figures.extend(["turnover", "below opt.", "worst turnover", "worst round", "flash"].map(str::to_owned));
    let mut table = Columns::new(["policy"], figures);
    let last = outcome.points();
    for row in &outcome.rows {
        let mut cells = vec![row.policy.to_owned()];
        cells.push(human::percent(Some(row.junk_blocks as f64 / row.cache_blocks as f64)));
        for round in &rounds {
            cells.push(format!("{:.2}", outcome.origin_reads_per_compulsory(row, outcome.end_of_round(*round))));
        }
        for round in &rounds {
            let (from, to) = (outcome.end_of_round(round - 1), outcome.end_of_round(*round));
            cells.push(format!("{:.2}", outcome.hit_ratio(row, from, to) * 100.0));
        }
        let after = outcome.after_turnover().map(|(from, to)| outcome.hit_ratio(row, from, to) * 100.0);
        let below = after.map(|hits| outcome.reads.static_optimum * 100.0 - hits);
        let over = outcome.worst_turnover(row).map(|below| below * 100.0);
        let figure = |it: Option<f64>| it.map_or("-".to_owned(), |it| format!("{it:.2}"));
        let worst = outcome.worst_round(row).map(|(round, below)| format!("{:.2} in {round}", below * 100.0));
        cells.extend([figure(after), figure(below), figure(over), worst.unwrap_or("-".to_owned())]);
        cells.push(human::blocks(row.points[last].flash_blocks_written()));
        table.row(cells);
    }
    out.push_str(&table.text());
    Ok(out)
}

/// The meaning of the tables' columns.
pub(super) const MEANING: &str = "\
`reads rN`: blocks read from the origin for each that had to be, after N rounds.
`hits rN`: percent in round N; `turnover`: percent after a turnover. `below
opt.`: points below the optimum. `worst turnover`, `worst round`: points below
LRU at the worst.
";

/// When there is one.
pub(in crate::sim) fn turnover(outcome: &Findings) -> String {
    match outcome.reads.turnover() {
        Some(at) => format!("turnover after {:.1} rounds", at as f64 / outcome.end_of_round(1) as f64),
        None => "no turnover".to_owned(),
    }
}

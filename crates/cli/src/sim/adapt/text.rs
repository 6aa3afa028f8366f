// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `sim adapt` found, as a table.

use std::fmt::{self, Write};

use flashfront_sim::adapt::{Experiment, Outcome};

use crate::human;

/// Ends of the rounds that the table shows.
pub(in crate::sim) fn shown(rounds: u64) -> Vec<u64> {
    let mut shown: Vec<u64> = [1, 4, rounds].into_iter().filter(|round| *round <= rounds).collect();
    shown.dedup();
    shown
}

pub(super) fn table(outcome: &Outcome, experiment: &Experiment) -> Result<String, fmt::Error> {
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
    let wide = rounds.len() * 7 - 1;
    let names = outcome.rows.iter().map(|row| row.policy.len()).fold(12, usize::max);
    writeln!(
        out,
        "{:<names$} {:>7}  {:^wide$}  {:^wide$}  {:>8} {:>6}  {:^19}  {:>7}",
        "", "", "origin read /", "hits in", "hits", "below", "below LRU in worst", "flash"
    )?;
    write!(out, "{:<names$} {:>7} ", "policy", "junk")?;
    rounds.iter().try_for_each(|round| write!(out, " {:>6}", format!("r {round}")))?;
    write!(out, " ")?;
    rounds.iter().try_for_each(|round| write!(out, " {:>6}", format!("r {round}")))?;
    writeln!(out, "  {:>8} {:>6}  {:>8} {:>10}  {:>7}", "turnover", "opt.", "turnover", "round", "writes")?;
    let last = outcome.points();
    for row in &outcome.rows {
        write!(
            out,
            "{:<names$} {:>7} ",
            row.policy,
            human::percent(Some(row.junk_blocks as f64 / row.cache_blocks as f64))
        )?;
        for round in &rounds {
            write!(out, " {:>6.2}", outcome.origin_reads_per_compulsory(row, outcome.end_of_round(*round)))?;
        }
        write!(out, " ")?;
        for round in &rounds {
            let (from, to) = (outcome.end_of_round(round - 1), outcome.end_of_round(*round));
            write!(out, " {:>6.2}", outcome.hit_ratio(row, from, to) * 100.0)?;
        }
        let after = outcome.after_turnover().map(|(from, to)| outcome.hit_ratio(row, from, to) * 100.0);
        let below = after.map(|hits| outcome.reads.static_optimum * 100.0 - hits);
        let figure = |it: Option<f64>| it.map_or("-".to_owned(), |it| format!("{it:.2}"));
        let flash = human::blocks(row.points[last].flash_blocks_written());
        let worst = outcome.worst_round(row).map(|(round, below)| format!("{:.2} r {round}", below * 100.0));
        let worst = worst.unwrap_or("-".to_owned());
        let over = outcome.worst_turnover(row).map(|below| below * 100.0);
        writeln!(out, "  {:>8} {:>6}  {:>8} {worst:>10}  {flash:>7}", figure(after), figure(below), figure(over))?;
    }
    Ok(out)
}

/// When there is one.
pub(in crate::sim) fn turnover(outcome: &Outcome) -> String {
    match outcome.reads.turnover() {
        Some(at) => format!("turnover after {:.1} rounds", at as f64 / outcome.end_of_round(1) as f64),
        None => "no turnover".to_owned(),
    }
}

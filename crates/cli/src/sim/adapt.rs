// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim adapt`: a cache full of junk meets new data. The command tells how soon each
//! policy holds the wanted blocks.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use flashfront_sim::adapt::load::{self, Case};
use flashfront_sim::adapt::{Adapted, CACHE_BLOCKS, Experiment, Findings, ROUNDS};
use serde::Serialize;

use self::text::table;
use super::replay::{policies, policy_names};
use super::report::{self, ReportArgs};
use crate::csv::{self, Column, optional};
use crate::progress::LOOK_EVERY;
use crate::{human, progress};

pub(super) mod text;

/// Fill a cache with junk, then ask for something else: how soon each policy holds what is wanted.
///
/// Only the policies run. The default load is random reads of 4 KiB after Zipf's law with exponent
/// 1.2. They are of as much data as the cache holds, and of twelve times as much. It is the
/// experiment that lvmcache was known to fail: full of data that nobody asked for any more, it kept
/// that. The other loads are made to hurt policies that think twice before they cache something.
#[derive(Debug, Args)]
pub(crate) struct Adapt {
    /// Loads, separated by commas, or `all`.
    #[arg(long, value_name = "L", default_value = "zipf", value_delimiter = ',', value_parser = load_names())]
    load: Vec<String>,
    /// Policies, separated by commas, or `all`.
    #[arg(long, value_name = "P", default_value = "flashfront,lru,s3fifo,smq,smq_4k", value_delimiter = ',', value_parser = policy_names())]
    policy: Vec<String>,
    /// The size of the cache in blocks of 4 KiB.
    #[arg(long, value_name = "N", default_value_t = 1 << 18, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(CACHE_BLOCKS))]
    cache_blocks: u64,
    /// The length of the experiment, in rounds of as many reads as the cache has blocks.
    #[arg(long, value_name = "N", default_value_t = 24, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(ROUNDS))]
    rounds: u64,
    /// Another seed gives other reads of the same kind.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Print one JSON object for each case and policy, a line each.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the curves as CSV: a line for each case, policy and eighth of a round. Each line has
    /// the turnover, and how far the policy is below others.
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    report: ReportArgs,
}

fn cases(names: &[String]) -> Vec<&'static Case> {
    let asked = |name: &str| names.iter().any(|it| it == name || it == "all");
    load::ALL.iter().filter(|load| asked(load.name)).flat_map(|load| load.cases.iter().copied()).collect()
}

/// The loads that [`cases`] knows.
fn load_names() -> PossibleValuesParser {
    let load = |load: &load::Load| PossibleValue::new(load.name).help(load.summary);
    PossibleValuesParser::new(load::ALL.iter().map(load).chain([PossibleValue::new("all").help("each of them")]))
}

/// The result of a policy in a case, as scripts read it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    case: &'a str,
    policy: &'a str,
    cache_blocks: u64,
    data_blocks: u64,
    /// Blocks of junk in the cache when the reads began.
    junk_blocks: u64,
    reads: u64,
    compulsory_blocks: u64,
    origin_read_blocks: u64,
    origin_reads_per_compulsory: f64,
    flash_blocks_written: u64,
    hit_ratio: f64,
    hit_ratio_last_round: f64,
    static_optimum: f64,
    /// Reads until as many different blocks were asked for as the cache has; null if they never
    /// were.
    turnover_reads: Option<u64>,
    /// The hit ratio in the eighth of a round after the turnover.
    hit_ratio_after_turnover: Option<f64>,
    points_below_optimum_after_turnover: Option<f64>,
    unlimited_hit_ratio_after_turnover: Option<f64>,
    /// The round, from 1 on, with the fewest hits compared with LRU; null without an LRU.
    worst_round: Option<u64>,
    worst_round_points_below_lru: Option<f64>,
    /// The points below LRU in the worst turnover, from any point on; null if there is no whole
    /// turnover, or no LRU.
    worst_turnover_points_below_lru: Option<f64>,
    /// The hit ratio in each eighth of a round.
    hit_ratios: Vec<f64>,
    unlimited_hit_ratios: Vec<f64>,
}

impl Adapt {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let report = self.report.open()?;
        let experiment = Experiment { cache_blocks: self.cache_blocks, rounds: self.rounds, seed: self.seed };
        let outcomes = self.watched(&experiment)?;
        let printed = self.print(&outcomes, &experiment);
        if let Some(report) = report {
            report.write("How soon a cache adapts", &report::adapted(&outcomes, &experiment)?)?;
        }
        printed.map(|()| ExitCode::SUCCESS)
    }

    fn print(&self, outcomes: &[Findings], experiment: &Experiment) -> anyhow::Result<()> {
        if self.csv {
            return human::print(&csv(outcomes)?);
        }
        for outcome in outcomes {
            if self.json {
                outcome.rows.iter().try_for_each(|row| human::print_json(&line(outcome, row)))?;
            } else {
                human::tell(&table(outcome, experiment)?)?;
                human::print("\n")?;
            }
        }
        if self.json { Ok(()) } else { human::print(text::MEANING) }
    }

    /// Runs all cases, while a bar shows how far they are.
    fn watched(&self, experiment: &Experiment) -> anyhow::Result<Vec<Findings>> {
        let (policies, cases) = (policies(&self.policy), cases(&self.load));
        let all = experiment.reads() * (policies.len() * cases.len()) as u64;
        let bar = progress::of_share("simulating", all);
        let (progress, (done, ended)) = (AtomicU64::new(0), channel::<()>());
        Ok(thread::scope(|scope| {
            let progress_here = &progress;
            scope.spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                    bar.set_position(progress_here.load(Ordering::Relaxed));
                }
                bar.finish_and_clear();
            });
            let outcomes = cases.into_iter().map(|case| experiment.run(case, &policies, &progress)).collect();
            drop(done);
            outcomes
        }))
    }
}

fn line<'a>(outcome: &'a Findings, row: &'a Adapted) -> Line<'a> {
    let (last, round) = (outcome.points(), outcome.end_of_round(1));
    let totals = &row.points[last];
    let (after, worst) = (outcome.after_turnover(), outcome.worst_round(row));
    let hit_ratio_after_turnover = after.map(|(from, to)| outcome.hit_ratio(row, from, to));
    Line {
        case: outcome.case.name,
        policy: row.policy,
        cache_blocks: row.cache_blocks,
        data_blocks: outcome.reads.data_blocks,
        junk_blocks: row.junk_blocks,
        reads: totals.reads,
        compulsory_blocks: outcome.reads.compulsory_blocks[last],
        origin_read_blocks: totals.origin_read_blocks,
        origin_reads_per_compulsory: outcome.origin_reads_per_compulsory(row, last),
        flash_blocks_written: totals.flash_blocks_written(),
        hit_ratio: totals.hit_ratio(),
        hit_ratio_last_round: outcome.hit_ratio(row, last - round, last),
        static_optimum: outcome.reads.static_optimum,
        turnover_reads: outcome.reads.turnover().map(|at| at as u64 * outcome.step),
        hit_ratio_after_turnover,
        points_below_optimum_after_turnover: hit_ratio_after_turnover
            .map(|hits| (outcome.reads.static_optimum - hits) * 100.0),
        unlimited_hit_ratio_after_turnover: after.map(|(from, to)| outcome.unlimited_hit_ratio(from, to)),
        worst_round: worst.map(|worst| worst.0),
        worst_round_points_below_lru: worst.map(|worst| worst.1 * 100.0),
        worst_turnover_points_below_lru: outcome.worst_turnover(row).map(|below| below * 100.0),
        hit_ratios: (0..last).map(|at| outcome.hit_ratio(row, at, at + 1)).collect(),
        unlimited_hit_ratios: (0..last).map(|at| outcome.unlimited_hit_ratio(at, at + 1)).collect(),
    }
}

/// A point of a curve: the outcome, the policy's row in it, and the number of the point. Figures of
/// the whole curve stand in each of its lines.
type Point<'a> = (&'a Findings, &'a Adapted, usize);

fn columns<'a>() -> [Column<Point<'a>>; 17] {
    [
        ("case", |it| it.0.case.name.to_owned()),
        ("policy", |it| it.1.policy.to_owned()),
        ("cache_blocks", |it| it.1.cache_blocks.to_string()),
        ("data_blocks", |it| it.0.reads.data_blocks.to_string()),
        ("junk_blocks", |it| it.1.junk_blocks.to_string()),
        ("static_optimum", |it| format!("{:.6}", it.0.reads.static_optimum)),
        ("reads", |it| it.1.points[it.2].reads.to_string()),
        ("compulsory_blocks", |it| it.0.reads.compulsory_blocks[it.2].to_string()),
        ("origin_read_blocks", |it| it.1.points[it.2].origin_read_blocks.to_string()),
        ("flash_blocks_written", |it| it.1.points[it.2].flash_blocks_written().to_string()),
        ("hit_ratio", |it| format!("{:.6}", it.0.hit_ratio(it.1, it.2 - 1, it.2))),
        ("unlimited_hit_ratio", |it| format!("{:.6}", it.0.unlimited_hit_ratio(it.2 - 1, it.2))),
        ("turnover_reads", |it| optional(line(it.0, it.1).turnover_reads)),
        ("points_below_optimum_after_turnover", |it| points(line(it.0, it.1).points_below_optimum_after_turnover)),
        ("worst_round", |it| optional(line(it.0, it.1).worst_round)),
        ("worst_round_points_below_lru", |it| points(line(it.0, it.1).worst_round_points_below_lru)),
        ("worst_turnover_points_below_lru", |it| points(line(it.0, it.1).worst_turnover_points_below_lru)),
    ]
}

fn points(value: Option<f64>) -> String {
    optional(value.map(|value| format!("{value:.4}")))
}

fn csv(outcomes: &[Findings]) -> anyhow::Result<String> {
    let curves = outcomes.iter().flat_map(|outcome| outcome.rows.iter().map(move |row| (outcome, row)));
    let points = curves.flat_map(|(outcome, row)| (1..row.points.len()).map(move |nth| (outcome, row, nth)));
    csv::text(&columns(), points)
}

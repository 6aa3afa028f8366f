// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a replay as scripts read it: a line of JSON or CSV for each trace, size and policy.
//!
//! The names are a contract: fields are added, never renamed or removed. How the trace was read is
//! part of each line, so that runs that read it differently can be told apart.

use std::collections::BTreeMap;

use flashfront_sim::replay::{Replayed, Row, Source};
use serde::Serialize;

use crate::csv::{self, Column, optional};

/// The result of a policy at a size on a trace, as scripts read it.
#[derive(Debug, Serialize)]
pub(in crate::sim) struct Line<'a> {
    trace: &'a str,
    format: &'a str,
    policy: &'a str,
    requests: u64,
    accesses: u64,
    unique_blocks: u64,
    cache_blocks: u64,
    hits: u64,
    hit_ratio: f64,
    read_hit_ratio: f64,
    flash_blocks_written: u64,
    fill_blocks: u64,
    absorbed_blocks: u64,
    reinserted_blocks: u64,
    origin_read_blocks: u64,
    /// Each 64 KiB of which a request missed something is one.
    origin_reads: u64,
    origin_write_blocks: u64,
    bad_lines: u64,
    /// The compressed data is cut or fails its checksum: what was unpacked may be wrong too.
    damaged: bool,
    /// What was left out on purpose, by kind.
    skipped: BTreeMap<&'static str, u64>,
    discards: u64,
    flushes: u64,
    /// Requests that repeat one within this time are dropped; null if they aren't.
    drop_echoes_ms: Option<u64>,
    echoes_dropped: u64,
    /// How often times stepped back by more than 10 s or on by more than a year. They were taken to
    /// go on from where they were.
    times_back: u64,
    /// Which events of blktrace and blkparse are requests.
    action: &'static str,
    /// At which sectors modulo 8 blocks begin.
    grid_phases: Vec<u8>,
    page_cache_blocks: u64,
    /// Reads of blocks that the page cache answered; they are no accesses.
    page_cache_hits: u64,
    /// Null if that wasn't bounded, or the policy knows no bound.
    flash_writes_per_day_bytes: Option<u64>,
    #[serde(flatten)]
    occupancy: Option<Held>,
}

/// What a cache holds at the end of the trace, if that is asked for.
#[derive(Debug, Serialize)]
struct Held {
    live_blocks: u64,
    dead_blocks: u64,
    live_unread_blocks: u64,
    cleaned_blocks: u64,
}

pub(in crate::sim) fn line<'a>(source: &Source, trace: &'a str, replayed: &'a Replayed, row: &'a Row) -> Line<'a> {
    let totals = &row.totals;
    Line {
        trace,
        format: replayed.reading.format.name,
        policy: row.policy,
        requests: replayed.reading.requests,
        accesses: totals.accesses,
        unique_blocks: replayed.reading.unique_blocks,
        cache_blocks: row.cache_blocks,
        hits: totals.hits,
        hit_ratio: totals.hit_ratio(),
        read_hit_ratio: totals.read_hit_ratio(),
        flash_blocks_written: totals.flash_blocks_written(),
        fill_blocks: totals.fill_blocks,
        absorbed_blocks: totals.absorbed_blocks,
        reinserted_blocks: totals.reinserted_blocks,
        origin_read_blocks: totals.origin_read_blocks,
        origin_reads: row.origin_reads,
        origin_write_blocks: totals.origin_write_blocks,
        bad_lines: replayed.reading.report.bad,
        damaged: replayed.reading.report.damage.is_some(),
        skipped: replayed.reading.report.skipped.iter().copied().collect(),
        discards: replayed.reading.discards,
        flushes: replayed.reading.flushes,
        drop_echoes_ms: source.echoes_ns.map(|ns| ns / 1_000_000),
        echoes_dropped: replayed.reading.echoes_dropped,
        times_back: replayed.reading.times_back,
        action: source.options.action.name(),
        grid_phases: replayed.reading.phases(),
        page_cache_blocks: source.page_cache_blocks,
        page_cache_hits: replayed.reading.page_cache_hits,
        flash_writes_per_day_bytes: row.flash_writes_per_day_bytes,
        occupancy: row.occupancy.map(|(held, live_unread_blocks)| Held {
            live_blocks: held.live_blocks,
            dead_blocks: held.dead_blocks,
            live_unread_blocks,
            cleaned_blocks: held.cleaned_blocks,
        }),
    }
}

/// The columns. A list is joined by blanks; of what was left out the sum is told.
fn columns<'a>() -> Vec<Column<Line<'a>>> {
    vec![
        ("trace", |it| it.trace.to_owned()),
        ("format", |it| it.format.to_owned()),
        ("policy", |it| it.policy.to_owned()),
        ("requests", |it| it.requests.to_string()),
        ("accesses", |it| it.accesses.to_string()),
        ("unique_blocks", |it| it.unique_blocks.to_string()),
        ("cache_blocks", |it| it.cache_blocks.to_string()),
        ("hit_ratio", |it| format!("{:.6}", it.hit_ratio)),
        ("read_hit_ratio", |it| format!("{:.6}", it.read_hit_ratio)),
        ("flash_blocks_written", |it| it.flash_blocks_written.to_string()),
        ("fill_blocks", |it| it.fill_blocks.to_string()),
        ("absorbed_blocks", |it| it.absorbed_blocks.to_string()),
        ("reinserted_blocks", |it| it.reinserted_blocks.to_string()),
        ("origin_read_blocks", |it| it.origin_read_blocks.to_string()),
        ("origin_write_blocks", |it| it.origin_write_blocks.to_string()),
        ("bad_lines", |it| it.bad_lines.to_string()),
        ("damaged", |it| it.damaged.to_string()),
        ("skipped", |it| it.skipped.values().sum::<u64>().to_string()),
        ("discards", |it| it.discards.to_string()),
        ("flushes", |it| it.flushes.to_string()),
        ("drop_echoes_ms", |it| optional(it.drop_echoes_ms)),
        ("echoes_dropped", |it| it.echoes_dropped.to_string()),
        ("times_back", |it| it.times_back.to_string()),
        ("action", |it| it.action.to_owned()),
        ("grid_phases", |it| it.grid_phases.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")),
        ("page_cache_blocks", |it| it.page_cache_blocks.to_string()),
        ("page_cache_hits", |it| it.page_cache_hits.to_string()),
        ("flash_writes_per_day_bytes", |it| optional(it.flash_writes_per_day_bytes)),
        ("origin_reads", |it| it.origin_reads.to_string()),
    ]
}

/// Columns of what a cache holds, behind the others.
fn held<'a>() -> Vec<Column<Line<'a>>> {
    vec![
        ("live_blocks", |it| optional(it.occupancy.as_ref().map(|held| held.live_blocks))),
        ("dead_blocks", |it| optional(it.occupancy.as_ref().map(|held| held.dead_blocks))),
        ("live_unread_blocks", |it| optional(it.occupancy.as_ref().map(|held| held.live_unread_blocks))),
        ("cleaned_blocks", |it| optional(it.occupancy.as_ref().map(|held| held.cleaned_blocks))),
    ]
}

/// The lines of a trace as CSV. `head`: the names of the columns come first. `occupancy`: what the
/// caches hold is told, too.
pub(super) fn csv<'a>(lines: impl Iterator<Item = Line<'a>>, head: bool, occupancy: bool) -> anyhow::Result<String> {
    let mut columns = columns();
    if occupancy {
        columns.extend(held());
    }
    if head { csv::text(&columns, lines) } else { csv::lines(&columns, lines) }
}

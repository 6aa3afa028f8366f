// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says whether an SSD is needed, and why. The reasons are what RAM alone would do, which blocks
//! come again, and whether the disk can take the writes in the long run.

use flashfront_engine::Mode;

use super::choose::{Choice, ENOUGH};
use super::growth::Growth;
use super::survey::Survey;
use super::trial::{Ram, Trial};

/// If less than this part of the blocks read were asked for before, the data is asked for once.
const ONCE: f64 = 0.1;
/// If more than this part of the requests follow another request, the load is a scan.
const SCAN: f64 = 0.5;
/// A cache that has more hits than this part, and saves no time, stands before a fast disk.
const HITS: f64 = 0.5;

/// Why a cache is needed, or isn't. The words are a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// A cache on an SSD saves time that RAM would not.
    SavesTime,
    /// Reading around misses is what saves time, and RAM can hold the blocks that it brings.
    ReadAround,
    /// The blocks that come again fit in the RAM that could be given.
    FitsRam,
    /// Requests follow one another, over data that doesn't come again.
    Scan,
    /// Data that lies anywhere is read, and doesn't come again.
    AskedOnce,
    /// Blocks that are read come again, but later than any cache that was tried keeps them.
    TooFarApart,
    /// The disk answers as fast as the cache would.
    DiskIsFast,
    /// More is written than the disk takes in the long run, whatever the cache.
    WritesOutrun,
}

impl Because {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::SavesTime,
        Self::ReadAround,
        Self::FitsRam,
        Self::Scan,
        Self::AskedOnce,
        Self::TooFarApart,
        Self::DiskIsFast,
        Self::WritesOutrun,
    ];

    /// The word for scripts.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SavesTime => "saves_time",
            Self::ReadAround => "read_around",
            Self::FitsRam => "fits_ram",
            Self::Scan => "scan",
            Self::AskedOnce => "asked_once",
            Self::TooFarApart => "too_far_apart",
            Self::DiskIsFast => "disk_is_fast",
            Self::WritesOutrun => "writes_outrun",
        }
    }

    /// Whether a cache is needed.
    #[must_use]
    pub const fn needs_cache(self) -> bool {
        matches!(self, Self::SavesTime)
    }
}

/// The facts that the decision is made from.
pub(super) struct Found<'a> {
    /// The time that the cache device takes for a random read.
    pub(super) device_ns: u64,
    pub(super) survey: &'a Survey,
    pub(super) growth: &'a Growth,
    pub(super) alone: &'a Trial,
    /// The trials in writeback mode, in ascending order of size.
    pub(super) sizes: &'a [Trial],
    pub(super) choice: Option<&'a Choice>,
    pub(super) ram: Option<&'a Ram>,
}

/// A disk is fast if its requests take at most as long as this many random reads of the cache
/// device. The rest of the gain is that writes are answered from RAM. Clients that flush don't have
/// that gain.
const FAST: u64 = 2;

/// Decides which reason holds.
pub(super) fn because(found: &Found<'_>) -> Because {
    let &Found { device_ns, survey, growth, alone, sizes, choice, ram } = found;
    let alone_of = &alone.played;
    let writes_dominate = alone_of.writes.sum_ns > alone_of.reads.sum_ns;
    // In a trace without times, the speed of the cache decides how fast writes come.
    let outrun = survey.span_ns.is_some() && !sizes.is_empty() && sizes.iter().all(is_outrun);
    let once = growth.again_share().is_some_and(|share| share < ONCE);
    let follow = growth.sequential_requests as f64 > survey.requests() as f64 * SCAN;
    let Some(choice) = choice else {
        let hits = sizes.iter().filter_map(|it| it.played.read_hit_ratio()).fold(0.0, f64::max);
        return match () {
            () if outrun && writes_dominate => Because::WritesOutrun,
            () if writes_dominate => Because::DiskIsFast,
            () if once && follow => Because::Scan,
            () if once => Because::AskedOnce,
            () if hits > HITS => Because::DiskIsFast,
            () => Because::TooFarApart,
        };
    };
    if alone_of.mean_ns() <= device_ns * FAST {
        return Because::DiskIsFast;
    }
    if outrun && choice.mode == Mode::Writeback {
        return Because::WritesOutrun;
    }
    let best = sizes.iter().map(|it| it.played.mean_ns()).min().unwrap_or(u64::MAX).min(choice.mean_ns);
    let alone_ns = alone_of.mean_ns();
    let saved = |trial: &Trial| alone_ns as f64 - trial.played.mean_ns() as f64;
    let is_enough = |trial: &Trial| saved(trial) >= alone_ns.saturating_sub(best) as f64 * ENOUGH;
    let Some(ram) = ram.filter(|it| is_enough(&it.alone) || is_enough(&it.around)) else {
        return Because::SavesTime;
    };
    match () {
        () if once && follow => Because::Scan,
        () if saved(&ram.alone) * 2.0 >= saved(&ram.around) => Because::FitsRam,
        () => Because::ReadAround,
    }
}

/// Whether the disk can't take in the long run what becomes dirty with that cache. Then the dirty
/// limit stays full, or fills faster than the disk could drain it with nothing else to do.
fn is_outrun(trial: &Trial) -> bool {
    let (backlog, took_ns) = (&trial.played.backlog, trial.played.took_ns.max(1));
    let dirtied_per_s = backlog.dirtied_bytes as f64 * 1e9 / took_ns as f64;
    backlog.full_ns * 2 > took_ns || backlog.drain_bytes_per_s().is_some_and(|drained| dirtied_per_s > drained)
}

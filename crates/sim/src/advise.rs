// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advises whether a cache would help the machine that a trace was made on, how large it has to be,
//! and in which mode.
//!
//! The trace is played in virtual time. It goes to a model of the disk alone, and to the production
//! engine on models of both devices, with caches of several sizes. The time that requests take is
//! what counts.
//!
//! Requests come when they came in the trace, but at most a hundred and twenty-eight are in flight
//! (`play`). The first half of the requests fills the cache, the second half is measured. `choose`
//! decides from the measured figures alone.
//!
//! Some things are left out: payload and discards; the processor's work; clients that would have
//! asked faster of a faster disk.

mod choose;
mod converged;
mod growth;
mod play;
mod played;
mod ram;
mod survey;
mod trial;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use flashfront_device::sim::{HddSpec, Known, ModelIo, ModelSpec};
use flashfront_engine::{BLOCK_BYTES, Mode, Op, Options, Time};

pub use choose::{Choice, ENOUGH};
pub use converged::{Converged, GAIN_MAX, UNSEEN_MAX};
pub use growth::{Growth, POINTS};
pub use play::IN_FLIGHT_MAX;
pub use played::{Backlog, Played, Times};
pub use survey::Survey;
pub use trial::{Ram, Trial};
pub use verdict::Because;

use crate::replay::{self, Reading, Source, SourceError};
use crate::rival::{self, Geometry};
use crate::system::{Bare, Flashfront, FlashfrontSpec, System};

/// The default for the RAM that could be given. It is little beside the RAM of servers.
pub const RAM_BYTES: u64 = 1 << 30;
/// The smallest cache that is tried.
pub const CACHE_BYTES_MIN: u64 = 64 << 20;
/// The most sizes that are tried if no sizes are given.
const SIZES_MAX: usize = 8;

/// The question that is to be answered.
#[derive(Clone, Debug)]
pub struct Question {
    /// The trace.
    pub source: Source,
    /// The disk that the trace is to be played to.
    pub origin: Known,
    /// The cache device.
    pub cache: Known,
    /// Sizes of the cache in bytes, ascending. If there are none, powers of two up to the size of
    /// the touched data are tried.
    pub sizes: Vec<u64>,
    /// The most trials that are played at the same time.
    pub threads: usize,
    /// RAM that could be given instead of a cache device; 0 for none.
    pub ram_bytes: u64,
    /// Caches to compare with.
    pub rivals: Vec<&'static rival::Spec>,
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The way in which the trace was read.
    pub reading: Reading,
    /// The figures of the trace.
    pub survey: Survey,
    /// The trial of the disk alone.
    pub alone: Trial,
    /// The trials of all cache sizes, in writeback mode.
    pub sizes: Vec<Trial>,
    /// The trials of the chosen size in the other modes that were tried.
    pub modes: Vec<Trial>,
    /// The size and the mode; none if no cache is worth it.
    pub choice: Option<Choice>,
    /// The effect of RAM alone. None if no cache is worth it, or no RAM can be given.
    pub ram: Option<Ram>,
    /// The rivals that were asked for, with a cache of the chosen size. If no size was chosen, they
    /// have the best size.
    pub rivals: Vec<(&'static rival::Spec, Trial)>,
    /// Why an SSD is needed, or isn't.
    pub because: Because,
    /// The growth of the trace's working set.
    pub growth: Growth,
    /// Whether the trace is long enough for this answer.
    pub converged: Converged,
}

/// The progress of an answer, which another thread shows.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The progress of the first reading, and whether to go on.
    pub reading: replay::Progress,
    /// Requests that were played so far, in all runs.
    pub played: Arc<AtomicU64>,
    /// The most requests that will be played; 0 until the trace has been read once.
    pub to_play: Arc<AtomicU64>,
}

/// Answers a question.
///
/// # Errors
/// The trace can't be read to its end, twice and more. Or it has no reads and writes, reaches
/// further than any disk, or is to be stopped.
pub fn advise(question: &Question, progress: &Progress) -> Result<Advice, SourceError> {
    let (reading, survey) = survey::survey(&question.source, &progress.reading)?;
    let sizes = match &*question.sizes {
        [] => sizes(survey.touched_bytes, question.cache.size_bytes),
        given => given.to_vec(),
    };
    let again = replay::Progress { stop: Arc::clone(&progress.reading.stop), ..replay::Progress::default() };
    let growth = growth::growth(&question.source, reading.requests, &again)?;
    let other_modes: &[Mode] = if survey.writes > 0 { &[Mode::Writethrough, Mode::Writearound] } else { &[] };
    let ram_trials = if question.ram_bytes >= CACHE_BYTES_MIN { 2 } else { 0 };
    let runs = 1 + sizes.len() + other_modes.len() + ram_trials + question.rivals.len();
    progress.to_play.store(runs as u64 * reading.requests, Ordering::Relaxed);
    let mut setups = vec![Setup::Alone];
    setups.extend(sizes.iter().map(|&bytes| Setup::Cache(bytes, Mode::Writeback)));
    let mut trials = run(question, &survey, setups, progress)?;
    let alone = trials.remove(0);
    let (mut choice, mut modes, mut ram) = (choose::size(&alone, &trials), Vec::new(), None);
    let best = trials.iter().min_by_key(|trial| trial.played.mean_ns()).and_then(|it| it.cache);
    let bytes = choice.map(|it| it.cache_bytes).or(best.map(|it| it.0)).unwrap_or(CACHE_BYTES_MIN);
    let mut setups: Vec<Setup> = question.rivals.iter().map(|&it| Setup::Rival(it, it.cache_bytes(bytes))).collect();
    if choice.is_some() {
        setups.extend(other_modes.iter().map(|&mode| Setup::Cache(bytes, mode)));
    }
    let mut more = run(question, &survey, setups, progress)?.into_iter();
    let rivals = question.rivals.iter().copied().zip(more.by_ref()).collect();
    if let Some(choice) = &mut choice {
        modes.extend(more);
        *choice = choose::mode(&alone, *choice, &modes, survey.writes);
        let safe = modes.iter().min_by_key(|trial| trial.played.mean_ns());
        let mode = safe.and_then(|trial| trial.cache).map_or(Mode::Writethrough, |it| it.1);
        let bytes = choice.cache_bytes.min(question.ram_bytes);
        let setups = [false, true].iter().take(ram_trials).map(|&around| Setup::Ram { bytes, mode, around });
        let mut rams = run(question, &survey, setups.collect(), progress)?.into_iter();
        ram = rams.next().zip(rams.next()).map(|(alone, around)| Ram { alone, around });
    }
    let found = verdict::Found {
        device_ns: device_ns(question),
        survey: &survey,
        growth: &growth,
        alone: &alone,
        sizes: &trials,
        choice: choice.as_ref(),
        ram: ram.as_ref(),
    };
    let because = verdict::because(&found);
    let converged = converged::converged(&growth, &alone, &trials, choice.as_ref(), question.cache.size_bytes);
    Ok(Advice { reading, survey, alone, sizes: trials, modes, choice, ram, rivals, because, growth, converged })
}

/// The time that the cache device takes for a random read, with no other I/O in flight.
fn device_ns(question: &Question) -> u64 {
    let mut device = question.cache.model.build(question.cache.size_bytes);
    let offset = question.cache.size_bytes / 2 / BLOCK_BYTES * BLOCK_BYTES;
    device.submit(Time(0), ModelIo { number: 0, op: Op::Read, offset, len: BLOCK_BYTES });
    device.next_event().map_or(0, |end| end.0)
}

/// The system that the trace is played to.
#[derive(Clone, Copy)]
enum Setup {
    /// The disk.
    Alone,
    /// A cache of this many bytes, in this mode.
    Cache(u64, Mode),
    /// RAM in the place of the cache device, in a mode in which nothing is dirty. `around` is
    /// whether it reads around misses.
    Ram { bytes: u64, mode: Mode, around: bool },
    /// A rival cache of this many bytes.
    Rival(&'static rival::Spec, u64),
}

impl Setup {
    const fn cache(self) -> Option<(u64, Mode)> {
        match self {
            Self::Alone => None,
            Self::Cache(bytes, mode) => Some((bytes, mode)),
            Self::Ram { bytes, mode, .. } => Some((bytes, mode)),
            Self::Rival(_, bytes) => Some((bytes, Mode::Writeback)),
        }
    }
}

/// The sizes that are tried for a trace that touches `touched_bytes` bytes. They are powers of two
/// up to the first that holds all of it. They are eight at most, and none is larger than the
/// device.
fn sizes(touched_bytes: u64, most: u64) -> Vec<u64> {
    // The log gets a tenth more room.
    let all = (touched_bytes + touched_bytes / 10).max(CACHE_BYTES_MIN).next_power_of_two();
    let first = (all >> (SIZES_MAX - 1)).max(CACHE_BYTES_MIN);
    let mut sizes: Vec<u64> = (0..SIZES_MAX).map(|nth| first << nth).filter(|size| *size <= all.min(most)).collect();
    if all > most && sizes.last().is_none_or(|last| *last < most) {
        sizes.truncate(SIZES_MAX - 1);
        sizes.push(most);
    }
    sizes
}

/// Plays the trace to each of these systems.
fn run(
    question: &Question,
    survey: &Survey,
    setups: Vec<Setup>,
    progress: &Progress,
) -> Result<Vec<Trial>, SourceError> {
    let next = AtomicUsize::new(0);
    let threads = question.threads.clamp(1, setups.len().max(1));
    let one = |setup: Setup| -> Result<Trial, SourceError> {
        // The trace's bytes were counted when it was first read.
        let progress_of = replay::Progress { stop: Arc::clone(&progress.reading.stop), ..replay::Progress::default() };
        let blocks = question.source.open(&progress_of)?;
        let played = play::play(&mut *system(question, survey, setup), blocks, survey, &progress.played)?;
        Ok(Trial { cache: setup.cache(), played })
    };
    let mut done: Vec<(usize, Result<Trial, SourceError>)> = thread::scope(|scope| {
        let work = || {
            let turns = std::iter::from_fn(|| {
                // The largest cache is played first: no thread works on it alone at the end.
                let nth = setups.len().checked_sub(1 + next.fetch_add(1, Ordering::Relaxed))?;
                Some((nth, one(setups[nth])))
            });
            turns.collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|it| std::panic::resume_unwind(it)));
        joined.flatten().collect()
    });
    done.sort_by_key(|it| it.0);
    done.into_iter().map(|it| it.1).collect()
}

/// Builds the disk, with or without a cache in front.
fn system(question: &Question, survey: &Survey, setup: Setup) -> Box<dyn System> {
    let origin_bytes = survey.origin_bytes;
    let origin = match question.origin.model {
        // The model is the beginning of the disk, with the short seeks of such a part. A trace that
        // needs more than the disk gets a larger disk.
        ModelSpec::Hdd(spec) => {
            ModelSpec::Hdd(HddSpec { whole_bytes: question.origin.size_bytes.max(origin_bytes), ..spec })
        }
        model @ (ModelSpec::Ssd(_) | ModelSpec::Volume(_)) => model,
    };
    let flashfront = |cache, cache_bytes, mode, options| -> Box<dyn System> {
        Box::new(Flashfront::new(&FlashfrontSpec { origin, origin_bytes, cache, cache_bytes, mode, options }))
    };
    match setup {
        Setup::Alone => Box::new(Bare::new(origin, origin_bytes)),
        Setup::Cache(bytes, mode) => flashfront(question.cache.model, bytes, mode, Options::default()),
        Setup::Ram { bytes, mode, around } => {
            let options = Options::default();
            let read_around_blocks = if around { options.read_around_blocks } else { 0 };
            flashfront(ram::model(), bytes, mode, Options { read_around_blocks, ..options })
        }
        Setup::Rival(rival, cache_bytes) => {
            (rival.build)(&Geometry { origin, origin_bytes, cache: question.cache.model, cache_bytes })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn sizes_are_powers_of_two_up_to_all_that_is_touched() {
        assert_eq!(sizes(1, 1 << 40), [64 * MIB]);
        assert_eq!(sizes(100 * MIB, 1 << 40), [64 * MIB, 128 * MIB]);
        assert_eq!(sizes(120 * MIB, 1 << 40), [64, 128, 256].map(|it| it * MIB), "with a tenth for the log");
        let large = sizes(1 << 40, 1 << 50);
        assert_eq!((large.len(), large[0], large[7]), (8, 1 << 34, 1 << 41));
        assert_eq!(sizes(300 * MIB, 200 * MIB), [64, 128, 200].map(|it| it * MIB), "no more than the device has");
        assert_eq!(sizes(1 << 40, 1 << 36), [1 << 34, 1 << 35, 1 << 36]);
        assert_eq!(sizes(1 << 40, 1 << 30), [1 << 30]);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loads of [`adapt`](super) ask for other blocks once the cache is full of junk.
//!
//! `zipf` is the experiment on lvmcache. The other loads are made to hurt a policy that declines
//! blocks that it sees for the first time. They are a loop, data that changes as a whole, a scan
//! beside hot data, and junk that was hot itself. Each load is a line in [`ALL`].

use flashfront_device::Rng;

use super::{Experiment, SKEW};
use crate::zipf::{Scatter, Zipf};

/// A load, which may have more than one case.
#[derive(Debug)]
pub struct Load {
    /// The name on the command line.
    pub name: &'static str,
    /// A sentence on its reads.
    pub summary: &'static str,
    /// The cases of the load.
    pub cases: &'static [&'static Case],
}

/// A case of a load.
#[derive(Debug)]
pub struct Case {
    /// The name, for people and scripts.
    pub name: &'static str,
    /// A line on its reads.
    pub about: &'static str,
    /// The junk in the cache at the beginning.
    pub(super) junk: Junk,
    /// Makes the reads.
    pub(super) draw: fn(&Experiment) -> Drawn,
}

/// The contents of the cache before the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Junk {
    /// Blocks that were read twice at once.
    Cold,
    /// Blocks of 0.9 caches that were read in turn, [`HOT_PASSES`] times.
    Hot,
}

/// The number of times that hot junk was read.
pub(super) const HOT_PASSES: u64 = 12;

/// The reads of a case.
pub(super) struct Drawn {
    /// Block numbers below `data_blocks`, in the order of reading.
    pub(super) blocks: Vec<u32>,
    pub(super) data_blocks: u64,
    /// The optimum by the law that the reads were drawn by. `None`: it has to be counted.
    pub(super) static_optimum: Option<f64>,
}

/// As much data as the cache holds, after Zipf's law.
pub static FITS: Case = Case {
    name: "fits",
    about: "the data would fit",
    junk: Junk::Cold,
    draw: |experiment| zipf(experiment, experiment.cache_blocks),
};

/// Twelve times as much data as the cache holds, after Zipf's law.
pub static LARGER: Case = Case {
    name: "larger",
    about: "the data is twelve times as large",
    junk: Junk::Cold,
    draw: |experiment| zipf(experiment, 12 * experiment.cache_blocks),
};

/// A loop that fits.
pub static LOOP_FITS: Case = Case {
    name: "loop_0.9",
    about: "blocks of 0.9 caches are read in turn, again and again",
    junk: Junk::Cold,
    draw: |experiment| looped(experiment, experiment.cache_blocks * 9 / 10),
};

/// A loop that is a little too large for the cache. An LRU has no hits.
pub static LOOP_LARGER: Case = Case {
    name: "loop_1.1",
    about: "blocks of 1.1 caches are read in turn, again and again",
    junk: Junk::Cold,
    draw: |experiment| looped(experiment, experiment.cache_blocks * 11 / 10),
};

/// Data that changes as a whole every six rounds.
pub static PHASES: Case = Case {
    name: "phases",
    about: "random reads of data of 0.8 caches (Zipf, exponent 0.3), which is other data every six rounds",
    junk: Junk::Cold,
    draw: phases,
};

/// A scan that never comes back beside data that fits.
pub static SCAN_AND_HOT: Case = Case {
    name: "scan_and_hot",
    about: "every second read is the next of a scan, the others are of data of half a cache (Zipf, exponent 0.8)",
    junk: Junk::Cold,
    draw: scan_and_hot,
};

/// The cache is full of blocks that were hot.
pub static HOT_JUNK: Case = Case {
    name: "hot_junk",
    about: "what is in the cache was asked for twelve times; then random reads of data of twelve caches (Zipf, exponent 1.2)",
    junk: Junk::Hot,
    draw: |experiment| zipf(experiment, 12 * experiment.cache_blocks),
};

/// All loads. The first is the default.
pub static ALL: &[Load] = &[
    Load {
        name: "zipf",
        summary: "random reads after Zipf's law, exponent 1.2, of data that fits and of twelve times as much",
        cases: &[&FITS, &LARGER],
    },
    Load { name: "loop", summary: "loops over 0.9 and over 1.1 caches", cases: &[&LOOP_FITS, &LOOP_LARGER] },
    Load { name: "phases", summary: "all that is asked for changes every six rounds", cases: &[&PHASES] },
    Load { name: "scan-and-hot", summary: "an endless scan beside half a cache of hot data", cases: &[&SCAN_AND_HOT] },
    Load { name: "hot-junk", summary: "zipf, but the junk was read twelve times before", cases: &[&HOT_JUNK] },
];

/// The load of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Load> {
    ALL.iter().find(|load| load.name == name)
}

fn zipf(experiment: &Experiment, data_blocks: u64) -> Drawn {
    let (zipf, scatter) = (Zipf::new(data_blocks, SKEW), Scatter::new(data_blocks));
    let mut rng = Rng::new(experiment.seed);
    let blocks = (0..experiment.reads()).map(|_| scatter.place(zipf.sample(&mut rng)) as u32).collect();
    Drawn { blocks, data_blocks, static_optimum: Some(zipf.share_of(experiment.cache_blocks)) }
}

fn looped(experiment: &Experiment, data_blocks: u64) -> Drawn {
    let blocks = (0..experiment.reads()).map(|nth| (nth % data_blocks) as u32).collect();
    Drawn { blocks, data_blocks, static_optimum: None }
}

fn phases(experiment: &Experiment) -> Drawn {
    const PHASE_ROUNDS: u64 = 6;
    let set_blocks = experiment.cache_blocks * 8 / 10;
    let (zipf, scatter, mut rng) = (Zipf::new(set_blocks, 0.3), Scatter::new(set_blocks), Rng::new(experiment.seed));
    let phase = PHASE_ROUNDS * experiment.reads() / experiment.rounds;
    let draw = |nth| (nth / phase * set_blocks + scatter.place(zipf.sample(&mut rng))) as u32;
    let data_blocks = experiment.rounds.div_ceil(PHASE_ROUNDS) * set_blocks;
    Drawn { blocks: (0..experiment.reads()).map(draw).collect(), data_blocks, static_optimum: None }
}

fn scan_and_hot(experiment: &Experiment) -> Drawn {
    let hot_blocks = experiment.cache_blocks / 2;
    let (zipf, scatter, mut rng) = (Zipf::new(hot_blocks, 0.8), Scatter::new(hot_blocks), Rng::new(experiment.seed));
    let draw = |nth: u64| match nth % 2 {
        0 => scatter.place(zipf.sample(&mut rng)) as u32,
        _ => (hot_blocks + nth / 2) as u32,
    };
    let data_blocks = hot_blocks + experiment.reads() / 2;
    Drawn { blocks: (0..experiment.reads()).map(draw).collect(), data_blocks, static_optimum: None }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows how a trace's working set grows, and which of its blocks are asked for again.
//!
//! The trace is read a second time, now that its length is known. Of large traces a sample of the
//! blocks is followed, each with all of its accesses. (C. Waldspurger et al., "Efficient MRC
//! construction with SHARDS", FAST 2015.) Ages are counted in requests, as the halves of a trace
//! are.

use flashfront_engine::BLOCK_BYTES;
use hashbrown::HashMap;

use crate::policy::table::hash;
use crate::replay::{Progress, Source, SourceError};

/// Points of the curve.
pub const POINTS: u64 = 32;
/// The most blocks that are followed: 40 MiB of table.
const FOLLOWED_MAX: usize = 1 << 20;
/// The number of ends of requests that are remembered, to see which streams go on. bcache looks at
/// as many.
const STREAMS: usize = 128;

/// The growth of the working set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Bytes of the blocks that were asked for so far, after each 32nd part of the requests.
    pub touched_bytes: Vec<u64>,
    /// Blocks that are read, in the whole trace.
    pub read_blocks: u64,
    /// The part of `read_blocks` that had been asked for before.
    pub read_again_blocks: u64,
    /// Requests that begin where one of the last 128 requests ended, or with its last block.
    pub sequential_requests: u64,
    /// Blocks that are read in the second half.
    pub half_blocks: u64,
    /// The part of `half_blocks` that had been asked for lately: within an eighth, a quarter and a
    /// half of the trace. All of these reads have that much of the trace before them.
    pub within_blocks: [u64; 3],
    /// Blocks that are read in the last quarter.
    pub quarter_blocks: u64,
    /// The part of `quarter_blocks` that had never been asked for.
    pub unseen_blocks: u64,
}

/// Reads the trace again. It has `requests` requests.
pub(super) fn growth(source: &Source, requests: u64, progress: &Progress) -> Result<Growth, SourceError> {
    let mut blocks = source.open(progress)?;
    let mut following = Following { requests, ..Following::default() };
    loop {
        let batch = blocks.batch()?;
        if batch.is_empty() {
            break;
        }
        for access in batch {
            following.access(access.key, access.write, access.first);
        }
    }
    following.end_request();
    Ok(following.growth)
}

#[derive(Default)]
struct Following {
    requests: u64,
    /// Number of the request, from 1.
    request: u64,
    /// The last request of each followed block. Blocks are followed if their hash ends in this many
    /// zeroes.
    last: HashMap<u64, u64>,
    zeroes: u32,
    /// The ends of the last requests, and the place of the oldest.
    ends: Vec<u64>,
    oldest: usize,
    /// The request so far.
    begin: u64,
    end: u64,
    growth: Growth,
}

impl Following {
    fn access(&mut self, key: u64, write: bool, first: bool) {
        if first {
            self.next_request(key);
        }
        self.end = key + 1;
        if hash(key).trailing_zeros() < self.zeroes {
            return;
        }
        let weight = 1 << self.zeroes;
        let before = self.last.insert(key, self.request);
        if !write {
            self.read(before, weight);
        }
        if self.last.len() > FOLLOWED_MAX {
            self.zeroes += 1;
            let zeroes = self.zeroes;
            self.last.retain(|key, _| hash(*key).trailing_zeros() >= zeroes);
        }
    }

    fn next_request(&mut self, key: u64) {
        self.end_request();
        self.begin = key;
        self.request += 1;
    }

    fn end_request(&mut self) {
        self.end_points(self.request);
        if self.request == 0 {
            return;
        }
        // Where requests begin within blocks, a request begins with the last block of the one
        // before.
        let from = if self.end > self.begin + 1 { self.begin + 1 } else { self.begin };
        let follows = self.ends.iter().any(|end| (self.begin..=from).contains(end));
        self.growth.sequential_requests += u64::from(follows);
        if self.ends.len() < STREAMS {
            self.ends.push(self.end);
        } else {
            self.ends[self.oldest] = self.end;
            self.oldest = (self.oldest + 1) % STREAMS;
        }
    }

    /// Ends the points that lie before `over` requests.
    fn end_points(&mut self, over: u64) {
        while (self.growth.touched_bytes.len() as u64 + 1) * self.requests <= over * POINTS
            && (self.growth.touched_bytes.len() as u64) < POINTS
        {
            self.growth.touched_bytes.push((self.last.len() as u64) << self.zeroes << BLOCK_BYTES.ilog2());
        }
    }

    fn read(&mut self, before: Option<u64>, weight: u64) {
        let growth = &mut self.growth;
        growth.read_blocks += weight;
        growth.read_again_blocks += before.map_or(0, |_| weight);
        if self.request * 2 > self.requests {
            growth.half_blocks += weight;
            let age = before.map(|before| self.request - before);
            for (within, part) in growth.within_blocks.iter_mut().zip([8, 4, 2]) {
                *within += age.filter(|age| age * part <= self.requests).map_or(0, |_| weight);
            }
        }
        if self.request * 4 > self.requests * 3 {
            growth.quarter_blocks += weight;
            growth.unseen_blocks += before.map_or(weight, |_| 0);
        }
    }
}

impl Growth {
    /// The share of the blocks read that had been asked for before. None without reads.
    #[must_use]
    pub fn again_share(&self) -> Option<f64> {
        share(self.read_again_blocks, self.read_blocks)
    }

    /// The share of the last quarter's reads that had never been asked for.
    #[must_use]
    pub fn unseen_share(&self) -> Option<f64> {
        share(self.unseen_blocks, self.quarter_blocks)
    }

    /// The shares of the second half's reads that come again only within a history twice as long.
    /// The first is for half of the trace instead of a quarter. The second is for a quarter instead
    /// of an eighth.
    #[must_use]
    pub fn gains(&self) -> Option<[f64; 2]> {
        let [eighth, quarter, half] = self.within_blocks;
        Some([share(half - quarter, self.half_blocks)?, share(quarter - eighth, self.half_blocks)?])
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The growth of a trace whose requests have one block each.
    fn of(requests: &[(u64, bool)]) -> Growth {
        let mut following = Following { requests: requests.len() as u64, ..Following::default() };
        requests.iter().for_each(|(key, write)| following.access(*key, *write, true));
        following.end_request();
        following.growth
    }

    #[test]
    fn what_comes_again_is_told_from_what_is_new() {
        // A loop of 300 blocks, then 600 reads of 100 of these blocks.
        let keys = (0..300).map(|nth| nth * 7).chain((0..600).map(|nth| nth % 100 * 7));
        let growth = of(&keys.map(|key| (key, false)).collect::<Vec<_>>());
        assert_eq!((growth.read_blocks, growth.read_again_blocks), (900, 600));
        assert_eq!((growth.half_blocks, growth.within_blocks), (450, [450, 450, 450]), "each hundred requests");
        assert_eq!((growth.quarter_blocks, growth.unseen_blocks), (225, 0));
        assert_eq!(growth.touched_bytes.len() as u64, POINTS);
        assert_eq!((growth.touched_bytes[7], growth.touched_bytes[31]), (225 * 4096, 300 * 4096));
        assert_eq!(growth.sequential_requests, 0);
    }

    #[test]
    fn only_a_longer_history_shows_what_comes_again_late() {
        let growth = of(&(0..800).map(|nth| (nth % 300, false)).collect::<Vec<_>>());
        assert_eq!(growth.within_blocks, [0, 0, 400], "300 of 800 requests are more than a quarter");
        assert_eq!(growth.gains(), Some([1.0, 0.0]));
        assert_eq!(growth.sequential_requests, 799 - 2, "but for the two returns to the beginning");
        let fresh = of(&(0..800).map(|nth| (nth * 2, nth % 2 == 1)).collect::<Vec<_>>());
        assert_eq!((fresh.unseen_share(), fresh.again_share(), fresh.gains()), (Some(1.0), Some(0.0), Some([0.0; 2])));
        assert_eq!(of(&[(1, true), (1, true)]).unseen_share(), None, "nothing is read");
    }

    #[test]
    fn of_many_blocks_a_sample_tells_as_much() {
        // These are four times as many blocks as are followed, and half of them come again.
        let blocks = 4 * FOLLOWED_MAX as u64;
        let mut following = Following { requests: blocks * 3 / 2, ..Following::default() };
        (0..blocks).chain(0..blocks / 2).for_each(|key| following.access(key, false, true));
        following.end_request();
        let growth = following.growth;
        assert!(following.last.len() <= FOLLOWED_MAX);
        let near = |found: u64, right: u64| (found as f64 / right as f64 - 1.0).abs() < 0.02;
        assert!(near(growth.touched_bytes[31], blocks * 4096), "{growth:?}");
        assert!(near(growth.read_blocks, blocks * 3 / 2) && near(growth.read_again_blocks, blocks / 2), "{growth:?}");
    }
}

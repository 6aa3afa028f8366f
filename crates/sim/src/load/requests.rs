// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of a job, one after the other.

use flashfront_device::Rng;

use super::zipf::Popular;
use super::{Job, Pattern};
use crate::zipf::Scatter;

/// What a job asks for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Read { offset: u64, len: u64 },
    Write { offset: u64, len: u64 },
    Flush,
}

/// One stream of a job.
struct Stream {
    first: u64,
    next: u64,
    round: u64,
}

/// The requests of a job.
pub(super) struct Requests {
    pub(super) job: Job,
    rng: Rng,
    popular: Option<Popular>,
    /// Places of one stream.
    places: u64,
    scatter: Scatter,
    streams: Vec<Stream>,
    turn: usize,
    asked_bytes: u64,
    /// Of each worker.
    writes_since_flush: Vec<u32>,
    arrived: u64,
}

impl Requests {
    pub(super) fn new(job: &Job) -> Self {
        let streams = u64::from(job.streams.max(1));
        let places = (job.span_bytes / streams / job.block_bytes).max(1);
        let stream = |nth| Stream { first: job.offset_bytes + nth * places * job.block_bytes, next: 0, round: 0 };
        let popular = match job.pattern {
            Pattern::Zipf(exponent) => Some(Popular::new(places, exponent, job.seed)),
            _ => None,
        };
        Self {
            rng: (0..job.sequence).fold(Rng::new(job.seed), |mut rng, _| Rng::new(rng.next_u64())),
            popular,
            places,
            scatter: Scatter::new(places),
            streams: (0..streams).map(stream).collect(),
            turn: 0,
            asked_bytes: 0,
            writes_since_flush: vec![0; job.depth.max(1) as usize],
            arrived: 0,
            job: job.clone(),
        }
    }

    /// Whether nothing more will be asked at `ns` after its beginning.
    pub(super) fn over(&self, ns: u64) -> bool {
        let job = &self.job;
        (job.total_bytes > 0 && self.asked_bytes >= job.total_bytes) || (job.time_ns > 0 && ns >= job.time_ns)
    }

    /// When the next request arrives, in nanoseconds after the beginning; `None`: the job is closed.
    pub(super) fn arrival_ns(&self) -> Option<u64> {
        let job = &self.job;
        if job.rate_per_s <= 0.0 {
            return None;
        }
        let on = (self.arrived as f64 * 1e9 / job.rate_per_s) as u64;
        Some(if job.off_ns == 0 { on } else { on / job.on_ns * (job.on_ns + job.off_ns) + on % job.on_ns })
    }

    pub(super) fn note_arrival(&mut self) {
        self.arrived += 1;
    }

    /// The next request of a worker.
    pub(super) fn next(&mut self, worker: usize) -> Ask {
        let job = &self.job;
        let since = &mut self.writes_since_flush[worker];
        if job.writes_per_flush > 0 && *since >= job.writes_per_flush {
            *since = 0;
            return Ask::Flush;
        }
        let at = self.turn % self.streams.len();
        self.turn += 1;
        let stream = &mut self.streams[at];
        let place = match job.pattern {
            Pattern::Sequential => stream.next,
            // Each round goes through the same permutation from another place on.
            Pattern::Random => {
                let from = (job.seed + stream.round * 0x9e37_79b9).wrapping_mul(0x2545_f491_4f6c_dd1d);
                self.scatter.place((stream.next + from % self.places) % self.places)
            }
            Pattern::Ascending(mean) => {
                // Geometric gaps: each place is taken or not on its own.
                let uniform = ((self.rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
                let gap = (uniform.ln() / (1.0 - 1.0 / mean.max(1.000_001)).ln()) as u64;
                stream.next = (stream.next + gap) % self.places;
                stream.next
            }
            Pattern::Uniform => self.rng.below(self.places),
            Pattern::Pareto(part) => {
                // A place is below a share h^n of them with probability (1-h)^n.
                let uniform = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                let share = uniform.powf(part.ln() / (1.0 - part).ln());
                self.scatter.place((share * self.places as f64) as u64)
            }
            Pattern::Zipf(_) => self.popular.as_ref().map_or(0, |popular| popular.place(&mut self.rng)),
        };
        let offset = stream.first + place * job.block_bytes;
        stream.next += 1;
        if stream.next == self.places {
            (stream.next, stream.round) = (0, stream.round + 1);
        }
        self.asked_bytes += job.block_bytes;
        let reads = job.read_percent;
        if reads >= 100 || (reads > 0 && self.rng.below(100) < u64::from(reads)) {
            Ask::Read { offset, len: job.block_bytes }
        } else {
            self.writes_since_flush[worker] += 1;
            Ask::Write { offset, len: job.block_bytes }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PLACES: u64 = 1 << 12;

    /// The places of so many requests.
    fn places(job: Job, count: usize) -> Vec<u64> {
        let mut requests = Requests::new(&Job { span_bytes: PLACES * 4096, ..job });
        let place = |ask| if let Ask::Read { offset, .. } = ask { offset / 4096 } else { panic!("a read") };
        (0..count).map(|_| place(requests.next(0))).collect()
    }

    #[test]
    fn without_a_map_places_come_again_and_others_don_t() {
        let of =
            |pattern| places(Job { pattern, ..Job::default() }, PLACES as usize).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(of(Pattern::Random).len(), PLACES as usize);
        // 1 - 1/e of them; three standard deviations are 80.
        let uniform = of(Pattern::Uniform).len() as f64 / PLACES as f64;
        assert!((uniform - 0.632).abs() < 0.02, "{uniform}");
    }

    #[test]
    fn of_pareto_a_fifth_of_the_places_takes_four_fifths_of_the_requests() {
        let mut counts = vec![0_u32; PLACES as usize];
        for place in places(Job { pattern: Pattern::Pareto(0.2), ..Job::default() }, 200_000) {
            counts[place as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let most: u32 = counts[..counts.len() / 5].iter().sum();
        assert!((f64::from(most) / 200_000.0 - 0.8).abs() < 0.01, "{most}");
    }

    #[test]
    fn clones_meet_as_often_as_chance_has_it() {
        let job = Job { pattern: Pattern::Random, ..Job::default() };
        // 32 clones, each at a 64th of the places: 1 - (1 - 1/64)^32 = 0.396 of them are met.
        let mut met = BTreeSet::new();
        for nth in 0..32 {
            met.extend(places(Job { seed: job.clone_seed(nth), ..job.clone() }, PLACES as usize / 64));
        }
        let share = met.len() as f64 / PLACES as f64;
        assert!((0.33..0.46).contains(&share), "{share}");
    }
}

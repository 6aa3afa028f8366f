// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the requests of a job, one after the other.

use flashfront_device::Rng;

use super::job::{Job, Pattern};
use super::zipf::Popular;
use crate::zipf::Scatter;

/// The next thing that a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Read { offset: u64, len: u64 },
    Write { offset: u64, len: u64 },
    Flush,
}

/// A stream of a job.
struct Stream {
    first: u64,
    /// The next place of a sequential job; of a random one how many requests this round has had.
    next: u64,
    round: u64,
    /// The place behind the last request.
    behind: u64,
    /// Requests that still follow the last one.
    follow: u32,
}

/// The requests until now.
#[derive(Clone, Copy, Default)]
struct Asked {
    bytes: u64,
    requests: u64,
    written_bytes: u64,
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
    asked: Asked,
    /// The bytes that are to be read back; `None` while the job writes.
    reread_bytes: Option<u64>,
    /// The writes of each worker since its last FLUSH.
    writes_since_flush: Vec<u32>,
    arrivals: Arrivals,
}

/// When the requests of an open job arrive.
struct Arrivals {
    arrived: u64,
    /// The next arrival of a Poisson process, in nanoseconds after the beginning.
    random_ns: f64,
    rng: Rng,
}

impl Requests {
    pub(super) fn new(job: &Job) -> Self {
        let streams = u64::from(job.streams.max(1));
        let places = (job.span_bytes / streams / job.block_bytes).max(1);
        let popular = match job.pattern {
            Pattern::Zipf(exponent) => Some(Popular::new(places, exponent, job.seed)),
            _ => None,
        };
        Self {
            rng: random_numbers(job),
            popular,
            places,
            scatter: Scatter::new(places),
            streams: streams_of(job, places),
            turn: 0,
            asked: Asked::default(),
            reread_bytes: None,
            writes_since_flush: vec![0; job.depth.max(1) as usize],
            arrivals: Arrivals { arrived: 0, random_ns: 0.0, rng: Rng::new(job.seed ^ 0x0061_7272_6976_616c) },
            job: job.clone(),
        }
    }

    /// Whether nothing more will be asked at `ns` after its beginning.
    pub(super) fn over(&self, ns: u64) -> bool {
        let job = &self.job;
        (job.time_ns > 0 && ns >= job.start_ns.saturating_add(job.time_ns))
            || match self.reread_bytes {
                Some(bytes) => self.asked.bytes >= bytes,
                None => self.asked_all() && !(job.rereads && self.asked.written_bytes > 0),
            }
    }

    /// Whether all was asked for that the job asks for by itself.
    fn asked_all(&self) -> bool {
        let (job, asked) = (&self.job, &self.asked);
        (job.total_bytes > 0 && asked.bytes >= job.total_bytes)
            || (job.total_requests > 0 && asked.requests >= job.total_requests)
    }

    /// When the next request arrives, in nanoseconds after the beginning; `None`: the job is
    /// closed.
    pub(super) fn arrival_ns(&self) -> Option<u64> {
        let (job, arrivals) = (&self.job, &self.arrivals);
        if job.rate_per_s <= 0.0 {
            return None;
        }
        let on = if job.poisson { arrivals.random_ns } else { arrivals.arrived as f64 * 1e9 / job.rate_per_s } as u64;
        let ns = if job.off_ns == 0 { on } else { on / job.on_ns * (job.on_ns + job.off_ns) + on % job.on_ns };
        Some(job.start_ns.saturating_add(ns))
    }

    pub(super) fn note_arrival(&mut self) {
        let arrivals = &mut self.arrivals;
        arrivals.arrived += 1;
        if self.job.poisson {
            arrivals.random_ns -= uniform(&mut arrivals.rng).ln() * 1e9 / self.job.rate_per_s;
        }
    }

    /// Forgets what was asked for until now: the first part of a job that no figure counts is over.
    pub(super) fn end_ramp(&mut self) {
        self.asked = Asked { written_bytes: self.asked.written_bytes, ..Asked::default() };
    }

    /// The next request of a worker.
    pub(super) fn next(&mut self, worker: usize) -> Ask {
        let since = &mut self.writes_since_flush[worker];
        if self.job.writes_per_flush > 0 && *since >= self.job.writes_per_flush {
            *since = 0;
            return Ask::Flush;
        }
        if self.reread_bytes.is_none() && self.job.rereads && self.asked_all() {
            self.begin_rereading();
        }
        loop {
            let (offset, len, is_read) = self.draw();
            if self.reread_bytes.is_some() {
                // What was read in the first pass is not read again.
                if is_read {
                    continue;
                }
                self.asked.bytes += len;
                return Ask::Read { offset, len };
            }
            self.asked.bytes += len;
            self.asked.requests += 1;
            if is_read {
                return Ask::Read { offset, len };
            }
            self.asked.written_bytes += len;
            self.writes_since_flush[worker] += 1;
            return Ask::Write { offset, len };
        }
    }

    /// Goes back to the first request, to read what was written.
    fn begin_rereading(&mut self) {
        self.reread_bytes = Some(self.asked.written_bytes);
        self.asked = Asked::default();
        (self.rng, self.turn) = (random_numbers(&self.job), 0);
        self.streams = streams_of(&self.job, self.places);
    }

    /// Where the next request goes, how long it is, and whether it is a read.
    fn draw(&mut self) -> (u64, u64, bool) {
        let at = self.turn % self.streams.len();
        self.turn += 1;
        let place = self.place(at);
        let (job, stream) = (&self.job, &mut self.streams[at]);
        let is_read =
            job.read_percent >= 100 || (job.read_percent > 0 && self.rng.below(100) < u64::from(job.read_percent));
        let lengths = if is_read { &job.read_lengths } else { &job.write_lengths };
        let len = lengths.next(job.block_bytes, &mut self.rng).min((self.places - place) * job.block_bytes);
        let blocks = len.div_ceil(job.block_bytes);
        stream.behind = place + blocks;
        if job.pattern == Pattern::Sequential {
            let gap = job.gap_bytes / job.block_bytes as i64;
            let next = (stream.next + blocks) as i64 + gap;
            stream.round += u64::from(next < 0 || next >= self.places as i64);
            stream.next = match gap {
                0 if next >= self.places as i64 => 0,
                _ => next.rem_euclid(self.places as i64) as u64,
            };
        } else {
            stream.next += 1;
            if stream.next == self.places {
                (stream.next, stream.round) = (0, stream.round + 1);
            }
        }
        (stream.first + place * job.block_bytes, len, is_read)
    }

    /// The place of the next request of a stream.
    fn place(&mut self, at: usize) -> u64 {
        let job = &self.job;
        let stream = &mut self.streams[at];
        if job.pattern != Pattern::Sequential {
            let follows =
                stream.follow > 0 || (job.random_percent < 100 && self.rng.below(100) >= u64::from(job.random_percent));
            stream.follow = if stream.follow > 0 { stream.follow - 1 } else { job.run_requests.saturating_sub(1) };
            if follows && stream.behind < self.places {
                return stream.behind;
            }
        }
        match job.pattern {
            Pattern::Sequential => stream.next,
            // Each round goes through the same permutation from another place on.
            Pattern::Random => {
                let from = (job.seed + stream.round * 0x9e37_79b9).wrapping_mul(0x2545_f491_4f6c_dd1d);
                self.scatter.place((stream.next + from % self.places) % self.places)
            }
            Pattern::Ascending(mean) => {
                // Geometric gaps: each place is taken or not on its own.
                let gap = (uniform(&mut self.rng).ln() / (1.0 - 1.0 / mean.max(1.000_001)).ln()) as u64;
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
            Pattern::Normal(percent) => {
                // G. E. P. Box, M. E. Muller,
                // A Note on the Generation of Random Normal Deviates, 1958.
                let (radius, angle) = (uniform(&mut self.rng), uniform(&mut self.rng) * std::f64::consts::TAU);
                let deviate = (-2.0 * radius.ln()).sqrt() * angle.cos();
                let share = (0.5 + deviate * percent / 100.0).rem_euclid(1.0);
                self.scatter.place(((share * self.places as f64) as u64).min(self.places - 1))
            }
            Pattern::Zoned => self.place_in_zone(),
        }
    }

    /// A place in one of the zones.
    fn place_in_zone(&mut self) -> u64 {
        let all: f64 = self.job.zones.iter().map(|zone| zone.requests_percent).sum();
        let (mut left, mut begin) = (uniform(&mut self.rng) * all, 0.0);
        let of = |percent: f64| (percent / 100.0 * self.places as f64) as u64;
        for zone in &self.job.zones {
            if left < zone.requests_percent {
                let (first, end) = (of(begin), of(begin + zone.span_percent));
                return (first + self.rng.below((end - first).max(1))).min(self.places - 1);
            }
            left -= zone.requests_percent;
            begin += zone.span_percent;
        }
        self.rng.below(self.places)
    }
}

/// The random numbers of a job.
fn random_numbers(job: &Job) -> Rng {
    (0..job.sequence).fold(Rng::new(job.seed), |mut rng, _| Rng::new(rng.next_u64()))
}

/// The streams of a job at their beginning.
fn streams_of(job: &Job, places: u64) -> Vec<Stream> {
    let begin = |nth| job.offset_bytes + nth * places * job.block_bytes;
    let stream = |nth| Stream { first: begin(nth), next: 0, round: 0, behind: places, follow: 0 };
    (0..u64::from(job.streams.max(1))).map(stream).collect()
}

/// A number between 0 and 1, neither of them.
fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::load::{Lengths, Zone};

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

    /// All that a job asks for.
    fn all(job: Job) -> Vec<Ask> {
        let mut requests = Requests::new(&job);
        std::iter::from_fn(|| (!requests.over(0)).then(|| requests.next(0))).collect()
    }

    #[test]
    fn what_was_written_is_read_once_in_the_same_order() {
        let job = Job {
            pattern: Pattern::Random,
            read_percent: 30,
            write_lengths: Lengths::Range { least: 4096, most: 16384, step: 4096 },
            span_bytes: 1 << 20,
            total_bytes: 1 << 20,
            rereads: true,
            ..Job::default()
        };
        let asked = all(job.clone());
        let first = all(Job { rereads: false, ..job });
        let written = first.iter().filter_map(|ask| match *ask {
            Ask::Write { offset, len } => Some(Ask::Read { offset, len }),
            _ => None,
        });
        assert_eq!(asked[..first.len()], first);
        assert_eq!(asked[first.len()..], written.collect::<Vec<_>>());
        assert!(asked.len() > first.len());
    }

    #[test]
    fn sequential_requests_leave_gaps_or_go_backwards() {
        let places = |gap_bytes, count| places(Job { gap_bytes, ..Job::default() }, count);
        assert_eq!(places(0, 3), [0, 1, 2]);
        assert_eq!(places(8192, 3), [0, 3, 6]);
        assert_eq!(places(-8192, 3), [0, PLACES - 1, PLACES - 2]);
    }

    #[test]
    fn random_requests_come_in_a_row_or_follow_by_chance() {
        let follows = |job: Job| {
            let places = places(Job { pattern: Pattern::Uniform, ..job }, 4000);
            places.windows(2).filter(|two| two[1] == two[0] + 1).count()
        };
        assert_eq!(follows(Job::default()) / 10, 0);
        let eight = follows(Job { run_requests: 8, ..Job::default() });
        assert!((3480..3520).contains(&eight), "seven of eight follow: {eight}");
        let most = follows(Job { random_percent: 25, ..Job::default() });
        assert!((2850..3150).contains(&most), "three of four follow: {most}");
    }

    #[test]
    fn zones_have_their_share_of_the_requests() {
        let zone = |requests_percent, span_percent| Zone { requests_percent, span_percent };
        let zones = vec![zone(50.0, 5.0), zone(30.0, 15.0), zone(20.0, 80.0)];
        let places = places(Job { pattern: Pattern::Zoned, zones, ..Job::default() }, 20_000);
        let below = |percent: u64| places.iter().filter(|place| **place < PLACES * percent / 100).count();
        assert!((9_700..10_300).contains(&below(5)), "{}", below(5));
        assert!((15_700..16_300).contains(&below(20)), "{}", below(20));
    }
}

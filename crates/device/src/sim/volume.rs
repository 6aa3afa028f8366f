// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network volume: a round trip, a bandwidth, and so many I/Os a second, as clouds sell them.
//!
//! Places don't matter, and neither does order: whoever serves the volume has flash, and many
//! disks. An I/O waits until the bound on I/Os lets it begin, is carried at the bandwidth, and is
//! answered a round trip later. Any number are on their way at a time. Some volumes save up I/Os
//! that nobody asked for, and lend them later: a burst. A write is durable when it is answered, so
//! a flush is a round trip and no more.
//!
//! Not modelled: the spread of latencies, bounds of the machine, and noise of other tenants.

use flashfront_engine::{Op, Time};

use super::kind::{longer, slower};
use super::model::{Model, ModelIo};

/// A network volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VolumeSpec {
    /// The time of an I/O beside its bytes, if nothing else is asked for.
    pub round_trip_ns: u64,
    /// The bytes a second that are carried.
    pub bytes_per_s: u64,
    /// The I/Os a second that begin, in the long run.
    pub ios_per_s: u64,
    /// A longer I/O counts as several.
    pub io_bytes: u64,
    /// What the volume does while it has credits, if it knows any.
    pub burst: Option<Burst>,
}

/// What a volume does for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// The I/Os a second that begin then.
    pub ios_per_s: u64,
    /// The bytes a second that are carried then.
    pub bytes_per_s: u64,
    /// I/Os that are saved up at most, and at the start. Each I/O takes one; the bound in the long
    /// run brings them back.
    pub credits: u64,
}

impl VolumeSpec {
    /// A volume that carries 250 MB/s, without bursts.
    #[must_use]
    pub const fn plain(round_trip_ns: u64, ios_per_s: u64) -> Self {
        Self { round_trip_ns, bytes_per_s: 250_000_000, ios_per_s, io_bytes: 256 << 10, burst: None }
    }

    /// A volume that takes so many times as long for everything.
    #[must_use]
    pub(super) fn scaled(self, times: f64) -> Self {
        let burst = self.burst.map(|it| Burst {
            ios_per_s: slower(it.ios_per_s, times),
            bytes_per_s: slower(it.bytes_per_s, times),
            credits: it.credits,
        });
        Self {
            round_trip_ns: longer(self.round_trip_ns, times),
            bytes_per_s: slower(self.bytes_per_s, times),
            ios_per_s: slower(self.ios_per_s, times),
            burst,
            ..self
        }
    }
}

#[derive(Debug)]
pub(super) struct Volume {
    spec: VolumeSpec,
    /// The next I/O may begin then.
    begins_at: Time,
    /// All bytes so far are carried by then.
    carried_at: Time,
    /// I/Os that are saved up, and when that was.
    credits: f64,
    credits_at: Time,
    running: Vec<(Time, u64)>,
}

impl Volume {
    pub(super) fn new(spec: VolumeSpec) -> Self {
        let credits = spec.burst.map_or(0.0, |burst| burst.credits as f64);
        let (begins_at, carried_at, credits_at) = (Time(0), Time(0), Time(0));
        Self { spec, begins_at, carried_at, credits, credits_at, running: Vec::new() }
    }

    /// Takes the credits of so many I/Os. Returns when they may begin at the earliest, and what the
    /// volume does then: I/Os and bytes a second. Without credits an I/O waits until it has earned
    /// its own.
    fn pace(&mut self, ios: f64, now: Time) -> (Time, u64, u64) {
        let Some(burst) = self.spec.burst else { return (now, self.spec.ios_per_s, self.spec.bytes_per_s) };
        let earned = now.since_ns(self.credits_at.min(now)) as f64 / 1e9 * self.spec.ios_per_s as f64;
        self.credits = (self.credits + earned).min(burst.credits as f64);
        self.credits_at = self.credits_at.max(now);
        if self.credits >= ios {
            self.credits -= ios;
            return (now, burst.ios_per_s, burst.bytes_per_s);
        }
        let lacking_ns = (ios - self.credits) * 1e9 / self.spec.ios_per_s as f64;
        self.credits = 0.0;
        self.credits_at = self.credits_at.plus_ns(lacking_ns as u64);
        (self.credits_at, self.spec.ios_per_s, self.spec.bytes_per_s)
    }

    /// An I/O that carries so many bytes; when it is answered.
    fn carry(&mut self, now: Time, len: u64) -> Time {
        let ios = len.div_ceil(self.spec.io_bytes).max(1);
        let (earliest, ios_per_s, bytes_per_s) = self.pace(ios as f64, now);
        let begins = self.begins_at.max(earliest);
        // An I/O that waited for its credit has kept its distance already.
        let behind = if earliest > now { 0 } else { ios * 1_000_000_000 / ios_per_s };
        self.begins_at = begins.plus_ns(behind);
        let carry_ns = len.saturating_mul(1_000_000_000) / bytes_per_s;
        self.carried_at = self.carried_at.max(begins).plus_ns(carry_ns);
        self.carried_at.plus_ns(self.spec.round_trip_ns)
    }
}

impl Model for Volume {
    fn submit(&mut self, now: Time, io: ModelIo) {
        let end = match io.op {
            Op::Read | Op::Write => self.carry(now, io.len),
            Op::Flush | Op::Discard | Op::Zero | Op::Punch | Op::Map => now.plus_ns(self.spec.round_trip_ns),
        };
        self.running.push((end, io.number));
    }

    fn next_event(&self) -> Option<Time> {
        self.running.iter().map(|(end, _)| *end).min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<(Time, u64)>) {
        done.extend(self.running.extract_if(.., |(end, _)| *end <= now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I/Os of `len` bytes in `seconds`, with `depth` in flight, after so much was idle.
    fn ios(volume: &mut Volume, from_s: u64, seconds: u64, depth: u64, len: u64) -> u64 {
        let (start, end) = (Time(from_s * 1_000_000_000), Time((from_s + seconds) * 1_000_000_000));
        let submit = |volume: &mut Volume, at: Time, number| {
            volume.submit(at, ModelIo { number, op: Op::Read, offset: 0, len });
        };
        (0..depth).for_each(|number| submit(volume, start, number));
        let (mut count, mut done) = (0, Vec::new());
        while let Some(at) = volume.next_event().filter(|at| *at < end) {
            volume.advance(at, &mut done);
            for (at, number) in done.drain(..) {
                count += 1;
                submit(volume, at, number);
            }
        }
        volume.running.clear();
        count
    }

    #[test]
    fn a_volume_does_what_it_is_sold_for() {
        let spec = VolumeSpec::plain(5_000_000, 3000);
        let run = |depth, len| ios(&mut Volume::new(spec), 0, 10, depth, len);
        // An I/O alone takes the round trip, and 16 us to carry 4 KiB.
        assert_eq!(run(1, 4096), 10_000_000_000 / 5_016_384);
        let many = run(64, 4096);
        assert!((29_900..=30_100).contains(&many), "{many}");
        // 1 MiB counts as four, and takes 4.2 ms at 250 MB/s.
        let long = run(16, 1 << 20);
        assert!((2370..=2400).contains(&long), "{long}");
    }

    #[test]
    fn credits_last_for_a_while_and_come_back() {
        let burst = Burst { ios_per_s: 3000, bytes_per_s: 250_000_000, credits: 27_000 };
        let spec = VolumeSpec { burst: Some(burst), ..VolumeSpec::plain(1_000_000, 300) };
        let mut volume = Volume::new(spec);
        // 3000 a second take 2700 credits a second more than come back: 10 s of them.
        let first = ios(&mut volume, 0, 10, 32, 4096);
        assert!((29_800..=30_100).contains(&first), "{first}");
        let empty = ios(&mut volume, 10, 10, 32, 4096);
        assert!((2900..=3200).contains(&empty), "{empty}");
        // 50 s of nothing bring 15,000 back: more than 5 s of them.
        let again = ios(&mut volume, 70, 5, 32, 4096);
        assert!((14_800..=15_100).contains(&again), "{again}");
    }
}

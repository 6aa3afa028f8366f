// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gauges tell when the cache device is slower at this moment than the origin would be. Then what
//! is clean is read from the origin, nothing more is promoted, and writes of what is not cached go
//! past the cache.
//!
//! bcache has fixed thresholds for this (2 ms for reads, 20 ms for writes); here both devices are
//! measured. A gauge measures the time between two answers of a device while it has something to
//! do. By Little's law that time, times the I/Os in flight, is how long the next one waits. A
//! device that stalls answers nothing; then it is as slow as its silence is long.
//!
//! That it pays is tested by `congested.rs` of the simulation. That no old data comes of it is
//! tested by torture, and by the canary `congested-dirty`.

use crate::fact::types::Time;
use crate::format::COMMIT_ENTRIES_MAX;
use crate::organ::reach::Reach;

/// The cache device has to be so many times slower: the origin has other things to do, and what it
/// is asked delays them.
const MARGIN: u64 = 2;
/// What an origin is taken for before it has answered anything: a disk, 10 ms for a random read.
const UNKNOWN_NS: u64 = 10_000_000;
/// While a cache device is busy, one read is sent to its origin after such pauses, to know. A pause
/// is doubled each time that the read brings nothing, so that a disk that nobody else needs is left
/// asleep.
const PROBE_FIRST_NS: u64 = 10_000_000_000;
const PROBE_LAST_NS: u64 = 3_600_000_000_000;
/// What the cache device has to take for that: below it there is little to gain.
const PROBE_WORTH_NS: u64 = 500_000;
/// After an error of an origin it has so long no reads, or writes, that the cache device could have
/// done.
const REFUSED_NS: u64 = 600_000_000_000;
/// An origin whose flush takes longer has writes only from destage: a FLUSH of a client after a
/// direct write waits for it.
const FLUSH_CHEAP_NS: u64 = 5_000_000;
/// An origin is away that answers nothing of what it was asked for so long. So is one that ends
/// neither a run of destage nor a flush. That is ten times what a whole batch is meant to take.
pub(crate) const AWAY_NS: u64 = 3_000_000_000;
/// An origin that takes longer to get to what is read is worth reading more from, all that it does
/// at once considered. 64 KiB take 0.4 ms of a disk's 8. Carrying counts for itself. So an origin
/// that is only narrow (125 MB/s: 0.5 ms for 64 KiB) isn't taken for such a one.
const DEAR_NS: u64 = 500_000;
const CARRIED_BLOCKS: u64 = 16;
/// The time that counts: the last quarter to half of a second in which a device had something to
/// do. That is longer than the bursts in which a disk with a cache answers.
const WINDOW_NS: u64 = 500_000_000;
/// Units are counted in such parts, so that halving them loses nothing.
const PARTS: u64 = 1 << 10;

/// How fast a device answers one kind of I/O.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gauge {
    in_flight: u64,
    /// While it was busy, lately.
    busy_ns: u64,
    /// What it did in that time, in parts of a unit; 0 = never seen.
    parts: u64,
    /// When it last answered, or began after a pause.
    since: Time,
}

impl Gauge {
    /// An I/O begins.
    pub(crate) const fn began(&mut self, now: Time) {
        if self.in_flight == 0 {
            self.since = now;
        }
        self.in_flight += 1;
    }

    /// An I/O of so many units has ended; of none, if it failed: that says nothing about speed.
    pub(crate) fn ended(&mut self, now: Time, units: u64) {
        self.in_flight -= 1;
        if units == 0 {
            self.since = now;
            return;
        }
        self.busy_ns += now.since_ns(self.since).max(1);
        self.parts += units * PARTS;
        self.since = now;
        while self.busy_ns > WINDOW_NS {
            self.busy_ns /= 2;
            self.parts = (self.parts / 2).max(1);
        }
    }

    /// Whether any I/O is.
    pub(crate) const fn are_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// So long it takes for so many units.
    const fn ns_for(&self, units: u64) -> Option<u64> {
        // Half a second at most, times I/Os in flight: 64 bits are enough.
        self.busy_ns.saturating_mul(units * PARTS).checked_div(self.parts)
    }

    /// For how long it has answered nothing of what it was asked.
    const fn silent_ns(&self, now: Time) -> u64 {
        if self.in_flight > 0 { now.since_ns(self.since) } else { 0 }
    }

    /// How long an I/O that begins now will take.
    fn expected_ns(&self, now: Time) -> Option<u64> {
        Some(self.ns_for(self.in_flight + 1)?.max(self.silent_ns(now)))
    }
}

/// How long reads take that an origin answers in the cache device's stead. Only such reads are
/// measured: those of a stream, which a disk answers from what it has read ahead, say nothing about
/// a scattered one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Detour {
    in_flight: u64,
    /// When it last answered, or began after a pause.
    since: Time,
    /// Moving averages: what a read took, and how many others were in flight; in 16ths. 0 = nothing
    /// is known.
    took_16th_ns: u64,
    others_16th: u64,
    /// A detour failed: nothing is sent there before.
    refused_until: Time,
    /// Not to be asked again before, only to know.
    probe_at: Time,
    /// Grows while asking brings nothing.
    probe_pause_ns: u64,
}

/// A read that took the detour, as it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    since: Time,
    others: u64,
    /// What the cache device was expected to take.
    instead_of_ns: u64,
}

impl Taken {
    /// When the cache device would have answered.
    pub(crate) const fn due(self) -> Time {
        self.since.plus_ns(self.instead_of_ns)
    }
}

impl Detour {
    /// How long a read took lately: the least that one that begins now will take.
    const fn took_ns(&self) -> u64 {
        if self.took_16th_ns == 0 { UNKNOWN_NS } else { self.took_16th_ns / 16 }
    }

    /// How long a read that begins now will take.
    fn expected_ns(&self, now: Time) -> u64 {
        let silent_ns = if self.in_flight > 0 { now.since_ns(self.since) } else { 0 };
        let took_ns = self.took_ns();
        // More in flight than when that was measured take longer, as on a device that does one
        // after the other.
        let longer = took_ns.saturating_mul((self.in_flight + 1) * 16) / (self.others_16th + 16);
        longer.max(took_ns).max(silent_ns)
    }

    /// A read begins.
    pub(crate) fn began(&mut self, instead_of_ns: u64, now: Time) -> Taken {
        if self.in_flight == 0 {
            self.since = now;
        }
        let taken = Taken { since: now, others: self.in_flight, instead_of_ns };
        self.in_flight += 1;
        // Several at a time, as of lanes that work apart, are one question; the first after one
        // that paid is a new one.
        if self.probe_pause_ns == 0 || now >= self.probe_at {
            self.probe_pause_ns = (self.probe_pause_ns * 2).clamp(PROBE_FIRST_NS, PROBE_LAST_NS);
            self.probe_at = now.plus_ns(self.probe_pause_ns);
        }
        taken
    }

    /// A detour has ended.
    pub(crate) fn ended(&mut self, taken: Taken, sound: bool, now: Time) {
        self.in_flight -= 1;
        self.since = now;
        if !sound {
            self.refused_until = now.plus_ns(REFUSED_NS);
            return;
        }
        let took_ns = now.since_ns(taken.since).max(1);
        if took_ns < taken.instead_of_ns {
            self.probe_pause_ns = 0;
        }
        if self.took_16th_ns == 0 {
            (self.took_16th_ns, self.others_16th) = (took_ns * 16, taken.others * 16);
            return;
        }
        // It is soon known that it became slower, and only after several answers that it is faster.
        let weight = if took_ns * 16 > self.took_16th_ns { 4 } else { 1 };
        let mean = |old: u64, new: u64| (old * (16 - weight) + new * 16 * weight) / 16;
        self.took_16th_ns = mean(self.took_16th_ns, took_ns).max(1);
        self.others_16th = mean(self.others_16th, taken.others);
    }

    /// Whether one read should be sent there, only to know.
    fn unknown(&self, now: Time) -> bool {
        self.in_flight == 0 && now >= self.probe_at
    }
}

/// How fast an origin takes writes: destage's and direct ones.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriteGauge {
    writes: Gauge,
    flush_began: Time,
    writes_since_flush: u64,
    /// What the last flush took, and what that was for each write before it.
    flush_ns: Option<(u64, u64)>,
    /// A write failed: nothing is sent there for congestion's sake before.
    refused_until: Time,
}

impl WriteGauge {
    /// A write begins.
    pub(crate) const fn began(&mut self, now: Time) {
        self.writes.began(now);
    }

    /// A write has ended.
    pub(crate) fn ended(&mut self, sound: bool, now: Time) {
        self.writes.ended(now, u64::from(sound));
        self.writes_since_flush += u64::from(sound);
        self.failed(!sound, now);
    }

    /// A flush begins.
    pub(crate) const fn flush_began(&mut self, now: Time) {
        self.flush_began = now;
    }

    /// A flush has ended.
    pub(crate) fn flush_ended(&mut self, sound: bool, now: Time) {
        self.failed(!sound, now);
        if sound {
            let ns = now.since_ns(self.flush_began);
            let writes = core::mem::take(&mut self.writes_since_flush);
            // A flush of nothing says nothing of writes.
            self.flush_ns = ns.checked_div(writes).map(|each| (ns, each)).or(self.flush_ns);
        }
    }

    fn failed(&mut self, failed: bool, now: Time) {
        if failed {
            self.refused_until = now.plus_ns(REFUSED_NS);
        }
    }

    /// What a write costs the origin, with its part of the next flush. `None`: that is not known,
    /// or the origin is not to be used.
    fn cost_ns(&self, now: Time) -> Option<u64> {
        let (flush_ns, each_ns) = self.flush_ns?;
        let usable = flush_ns <= FLUSH_CHEAP_NS && now >= self.refused_until;
        usable.then_some(self.writes.ns_for(1)? + each_ns)
    }
}

/// What is measured of an origin.
#[derive(Clone, Copy, Default)]
pub(crate) struct OriginGauge {
    /// Clients' reads; a unit is getting there, or carrying 64 KiB.
    reads: Gauge,
    /// The block behind the last read that began (0: none has), and whether that read followed the
    /// one before it.
    behind: u64,
    follows: bool,
    /// No wide reads before: one failed.
    narrow_until: Time,
    pub(crate) detour: Detour,
    /// Reads that complete blocks: only whether they are answered.
    pub(crate) merges: Gauge,
    pub(crate) writes: WriteGauge,
    pub(crate) reach: Reach,
}

impl OriginGauge {
    /// A client's read begins, of the places from `first` to `end`.
    pub(crate) const fn read_began(&mut self, first: u64, end: u64, now: Time) {
        self.follows = self.behind > 0 && first == self.behind;
        self.behind = end;
        self.reads.began(now);
    }

    /// A client's read of so many blocks has ended; `None`: the read failed. What follows the read
    /// before it says nothing about getting to another place: a disk answers that from what it has
    /// read ahead.
    pub(crate) fn read_ended(&mut self, blocks: Option<u32>, now: Time) {
        let units = blocks.filter(|_| !self.follows).map_or(0, |blocks| 1 + u64::from(blocks) / CARRIED_BLOCKS);
        self.reads.ended(now, units);
    }

    /// A read of more than was asked for has failed.
    pub(crate) const fn wide_read_failed(&mut self, now: Time) {
        self.narrow_until = now.plus_ns(REFUSED_NS);
    }

    /// For how long it has answered nothing of what it was asked.
    fn silent_ns(&self, now: Time) -> u64 {
        self.reads.silent_ns(now).max(self.merges.silent_ns(now)).max(self.writes.writes.silent_ns(now))
    }

    /// Whether it is away, as far as its silence tells: a queue of a disk ends sooner.
    pub(crate) fn is_silent(&self, now: Time) -> bool {
        self.silent_ns(now) >= AWAY_NS
    }

    /// Whether a read that begins now will be answered well before that. An origin that answers
    /// nobody won't answer this read.
    fn answers_sooner_than(&self, cache_ns: u64, now: Time) -> bool {
        // What is nearly always false is asked first.
        let expected_ns = || self.detour.expected_ns(now).max(self.silent_ns(now));
        cache_ns > MARGIN * self.detour.took_ns()
            && now >= self.detour.refused_until
            && cache_ns > MARGIN.saturating_mul(expected_ns())
    }

    /// Whether a read should find out how soon it is answered, where the cache device takes so
    /// long.
    fn is_to_be_probed(&self, cache_ns: u64, now: Time) -> bool {
        let answers = || now >= self.detour.refused_until && cache_ns > self.silent_ns(now);
        cache_ns >= PROBE_WORTH_NS && self.detour.unknown(now) && answers()
    }

    /// Whether it does so few reads a second that longer ones cost it little.
    pub(crate) fn reads_are_dear(&self, now: Time) -> bool {
        now >= self.narrow_until && self.reads.ns_for(1).is_some_and(|ns| ns >= DEAR_NS)
    }
}

/// How fast the cache device is.
#[derive(Clone, Copy, Default)]
pub(crate) struct CacheGauge {
    /// Clients' reads.
    pub(crate) reads: Gauge,
    /// Commits; a unit is a block.
    commits: Gauge,
}

impl CacheGauge {
    /// A commit begins.
    pub(crate) const fn commit_began(&mut self, now: Time) {
        self.commits.began(now);
    }

    /// A commit has ended. A small one takes nearly as long as a full one, and says nothing about
    /// the log's speed: it counts as one.
    pub(crate) fn commit_ended(&mut self, sound: bool, now: Time) {
        self.commits.ended(now, if sound { COMMIT_ENTRIES_MAX as u64 } else { 0 });
    }

    /// Whether the origin would answer reads sooner: then what the cache device is expected to
    /// take.
    pub(crate) fn reads_congested(&self, origin: &OriginGauge, now: Time) -> Option<u64> {
        let cache_ns = self.busy_ns(now)?;
        origin.answers_sooner_than(cache_ns, now).then_some(cache_ns)
    }

    /// What the cache device is expected to take, if the origin would answer sooner, or if a read
    /// should find out whether it would.
    pub(crate) fn read_past(&self, origin: &OriginGauge, now: Time) -> Option<u64> {
        let cache_ns = self.busy_ns(now)?;
        (origin.answers_sooner_than(cache_ns, now) || origin.is_to_be_probed(cache_ns, now)).then_some(cache_ns)
    }

    fn busy_ns(&self, now: Time) -> Option<u64> {
        if self.reads.are_in_flight() { self.reads.expected_ns(now) } else { None }
    }

    /// Whether a write of so many blocks costs the origin less than the log, when the log takes no
    /// more at once. The origin must also have taken the write before the log has room again.
    pub(crate) fn writes_congested(&self, origin: &OriginGauge, blocks: u64, now: Time) -> bool {
        let commit_ns = self.commits.ns_for(COMMIT_ENTRIES_MAX as u64).unwrap_or(0).max(self.commits.silent_ns(now));
        let log_ns = commit_ns / COMMIT_ENTRIES_MAX as u64 * blocks;
        let writes = &origin.writes;
        writes.cost_ns(now).is_some_and(|ns| log_ns > MARGIN * ns)
            && writes.writes.expected_ns(now).is_some_and(|ns| ns < commit_ns)
    }
}

#[cfg(test)]
mod tests;

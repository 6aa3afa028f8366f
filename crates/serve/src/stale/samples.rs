// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps what an origin may hold at sampled places, at every moment of a daemon's life.
//!
//! After a crash an origin holds what it held, but for the daemon's writes. So before a write
//! touches a sampled place, its data is added durably to what the place may hold. When the origin
//! has flushed the write, the place may hold nothing else. Where superblocks are (`vital`), this
//! goes on for ever. Elsewhere the first write ends it: the place may hold anything from then on,
//! so that busy blocks cost nothing.
//!
//! Vital places are sectors. A power cut may tear a write between two sectors, and leave the old or
//! the new content in each. This file knows neither files nor devices (test:
//! `what_a_crash_leaves_is_never_refused`).

use super::record::Sample;

/// A vital place that is written so often without a flush may hold anything.
const VERSIONS_MAX: usize = 8;

/// The effect of an I/O on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The range gets this content; its hashes are asked for by range.
    Content,
    /// The place may hold anything afterwards.
    Undefined,
}

/// A sampled place.
#[derive(Clone, Debug)]
struct SampleState {
    offset: u64,
    len: u32,
    vital: bool,
    /// Hashes of the content that it may hold; `None`: anything.
    now: Option<Vec<u64>>,
    /// The hashes in the record, and those in a record that is being written.
    saved: Option<Vec<u64>>,
    saving: Option<Vec<u64>>,
    /// Writes in flight.
    in_flight: u32,
    /// The hash that the last write has left, if that is certain, and the flush before which it
    /// ended.
    left: Option<(u64, u64)>,
}

/// The sampled places of an origin, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    places: Vec<SampleState>,
    is_saving: bool,
    /// Flushes begun.
    flushes: u64,
    /// Places of which a flush may end an older version.
    unsettled: Vec<usize>,
}

impl Samples {
    /// Begins with the content of a device: sorted places, with their hashes, and whether each is
    /// vital.
    pub(super) fn new(found: Vec<(Sample, bool)>) -> Self {
        let place = |(it, vital): (Sample, bool)| SampleState {
            offset: it.offset,
            len: it.len,
            vital,
            now: Some(it.hashes.clone()),
            saved: Some(it.hashes),
            saving: None,
            in_flight: 0,
            left: None,
        };
        Self { places: found.into_iter().map(place).collect(), ..Self::default() }
    }

    /// The places that a range touches.
    pub(super) fn touched(&self, offset: u64, len: u64) -> std::ops::Range<usize> {
        let from = self.places.partition_point(|it| it.offset + u64::from(it.len) <= offset);
        let to = self.places.partition_point(|it| it.offset < offset.saturating_add(len));
        from..to.max(from)
    }

    /// A write is to begin; `hash` tells what it brings to a range. Says whether a record must be
    /// durable first.
    pub(super) fn begin(
        &mut self,
        range: (u64, u64),
        change: Change,
        mut hash: impl FnMut(u64, u32) -> u64,
    ) -> (bool, Vec<(usize, Option<u64>)>) {
        let (mut must_save, mut brought) = (false, Vec::new());
        for at in self.touched(range.0, range.1) {
            let is_saving = self.is_saving;
            let place = &mut self.places[at];
            let whole = range.0 <= place.offset && place.offset + u64::from(place.len) <= range.0 + range.1;
            let new = (place.vital && whole && change == Change::Content).then(|| hash(place.offset, place.len));
            place.in_flight += 1;
            place.left = None;
            place.now = match (place.now.take(), new) {
                (Some(mut now), Some(new)) => {
                    if !now.contains(&new) {
                        now.push(new);
                    }
                    (now.len() <= VERSIONS_MAX).then_some(now)
                }
                _ => None,
            };
            must_save |= !allows(&place.saved, &place.now) || (is_saving && !allows(&place.saving, &place.now));
            brought.push((at, new));
        }
        (must_save, brought)
    }

    /// Whether the record allows for a write that has not begun on the device.
    pub(super) fn allows(&self, brought: &[(usize, Option<u64>)]) -> bool {
        brought.iter().all(|(at, _)| allows(&self.places[*at].saved, &self.places[*at].now))
    }

    /// A write has ended.
    pub(super) fn end(&mut self, brought: &[(usize, Option<u64>)], ok: bool) {
        for &(at, new) in brought {
            let flushes = self.flushes;
            let place = &mut self.places[at];
            place.in_flight -= 1;
            place.left = new.filter(|_| ok && place.in_flight == 0).map(|new| (new, flushes));
            if place.left.is_some() && !self.unsettled.contains(&at) {
                self.unsettled.push(at);
            }
        }
    }

    /// A flush begins; returns its number.
    pub(super) fn flush_began(&mut self) -> u64 {
        self.flushes += 1;
        self.flushes
    }

    /// A flush has ended. Says whether a record is worth writing, as a place is known that was not.
    pub(super) fn flush_ended(&mut self, number: u64, ok: bool) -> bool {
        let mut is_news = false;
        let places = &mut self.places;
        self.unsettled.retain(|&at| {
            let place = &mut places[at];
            match place.left {
                None => false,
                // The origin may have dropped it, and the next flush say nothing of that (ADR
                // 0022).
                Some(_) if !ok => {
                    place.left = None;
                    false
                }
                Some((left, before)) if before < number => {
                    is_news |= place.now.is_none();
                    (place.now, place.left) = (Some(vec![left]), None);
                    false
                }
                Some(_) => true,
            }
        });
        is_news
    }

    /// Returns a record of what all places may hold, to be made durable: only one at a time.
    pub(super) fn save(&mut self) -> Vec<Sample> {
        self.is_saving = true;
        for place in &mut self.places {
            place.saving.clone_from(&place.now);
        }
        let known = self.places.iter();
        let known = known.filter_map(|it| Some(Sample { offset: it.offset, len: it.len, hashes: it.now.clone()? }));
        known.collect()
    }

    /// Notes that the record is durable.
    pub(super) fn saved(&mut self) {
        self.is_saving = false;
        for place in &mut self.places {
            place.saved = place.saving.take();
        }
    }

    /// Bytes of the largest record that there may be.
    pub(super) fn record_bytes_max(&self) -> usize {
        let hashes = |place: &SampleState| if place.vital { VERSIONS_MAX } else { 1 };
        self.places.iter().map(|place| Sample::bytes(hashes(place))).sum()
    }
}

/// Whether a record allows for whatever a place may hold.
fn allows(record: &Option<Vec<u64>>, now: &Option<Vec<u64>>) -> bool {
    match (record, now) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(record), Some(now)) => now.iter().all(|it| record.contains(it)),
    }
}

#[cfg(test)]
mod tests;

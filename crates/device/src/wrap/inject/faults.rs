// SPDX-License-Identifier: MIT OR Apache-2.0
//! The faults ordered for a device: rules that say which I/O meets which fault, and what is rotten.
//!
//! All chance comes from one seeded source, drawn in the order of the I/Os: the same rules, seed
//! and I/Os give the same faults.

use std::collections::BTreeMap;
use std::ops::Range;

use flashfront_engine::{DeviceError, Op, Time};

use crate::{DeviceIo, Rng};

/// A million: [`Rule::chance_ppm`] of an I/O that certainly meets its fault.
pub const ALWAYS_PPM: u32 = 1_000_000;

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done; the I/O ends with this error.
    Error(DeviceError),
    /// The device is gone, with all that is in flight, for this time or for good.
    Gone {
        /// How long.
        for_ns: Option<u64>,
    },
    /// An error after this time; a write may have happened all the same.
    Timeout {
        /// How long.
        hold_ns: u64,
    },
    /// Done rightly, but the news of it comes only after this time.
    Stall {
        /// How long.
        hold_ns: u64,
    },
    /// Nothing is done before this time is over.
    ///
    /// Then it is done rightly, with the memory that it was given. If it is given up meanwhile
    /// ([`crate::wrap::Patience`]), a write lands late.
    Hang {
        /// How long.
        hold_ns: u64,
    },
    /// The first part is done, perhaps nothing; then comes an error.
    Short,
    /// A bit flips on the way of a read or a write.
    Flip,
    /// A bit has flipped on the medium when it is read, and stays so until it is written over.
    ///
    /// The device behind is not changed: the rot ends with this wrapper.
    Rot,
    /// Another place of the device is read or written.
    Misdirect,
    /// Acknowledged and not done; with [`Op::Flush`]: a device that lies about its cache.
    Lost,
}

impl Fault {
    /// The fault's name in a spec.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error(DeviceError::Io) => "eio",
            Self::Error(DeviceError::NoSpace) => "nospace",
            Self::Error(DeviceError::ReadOnly) => "readonly",
            Self::Error(DeviceError::Unsupported) => "unsupported",
            Self::Gone { .. } | Self::Error(DeviceError::Gone) => "gone",
            Self::Timeout { .. } | Self::Error(DeviceError::TimedOut) => "timeout",
            Self::Stall { .. } => "stall",
            Self::Hang { .. } => "hang",
            Self::Short => "short",
            Self::Flip => "flip",
            Self::Rot => "rot",
            Self::Misdirect => "misdirect",
            Self::Lost => "lost",
        }
    }

    /// Whether it can happen to this kind of I/O.
    #[must_use]
    pub const fn can_hit(self, op: Op) -> bool {
        match self {
            Self::Error(_) | Self::Gone { .. } | Self::Timeout { .. } | Self::Stall { .. } | Self::Hang { .. } => true,
            Self::Short => !matches!(op, Op::Flush | Op::Map),
            Self::Flip | Self::Misdirect => matches!(op, Op::Read | Op::Write),
            Self::Rot => matches!(op, Op::Read),
            Self::Lost => !matches!(op, Op::Read | Op::Map),
        }
    }

    /// Whether the device lies: no error tells that something is wrong.
    #[must_use]
    pub const fn silent(self) -> bool {
        matches!(self, Self::Flip | Self::Rot | Self::Misdirect | Self::Lost)
    }
}

/// A rule says which I/O meets a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// The kind of I/O that is hit. `None`: any that the fault can happen to; of lost ones only
    /// writes.
    pub op: Option<Op>,
    /// I/O that touches these bytes is hit. `None`: any, and flushes.
    pub bytes: Option<Range<u64>>,
    /// How many matching I/Os pass before the first that may be hit.
    pub after: u64,
    /// The number of matching I/Os that are hit, of a million.
    pub chance_ppm: u32,
    /// How often it hits at most.
    pub times: u64,
    /// The rule ends this long after it has hit first; `None`: it doesn't end by time.
    pub for_ns: Option<u64>,
}

impl Rule {
    /// This fault for every I/O that it can happen to.
    #[must_use]
    pub const fn always(fault: Fault) -> Self {
        Self { fault, op: None, bytes: None, after: 0, chance_ppm: ALWAYS_PPM, times: u64::MAX, for_ns: None }
    }

    fn matches(&self, io: &DeviceIo) -> bool {
        let op = match (self.op, self.fault) {
            // Zeroes are zeroes, with or without their space.
            (Some(Op::Zero), _) => io.op.zeroes(),
            (Some(op), _) => op == io.op,
            (None, Fault::Lost) => io.op == Op::Write,
            (None, _) => true,
        };
        let touches = |bytes: &Range<u64>| io.offset < bytes.end && bytes.start < io.offset + io.len;
        op && self.fault.can_hit(io.op) && self.bytes.as_ref().is_none_or(touches)
    }
}

/// A rule, and when it ends.
#[derive(Clone, Debug)]
struct Ordered {
    rule: Rule,
    /// Known once it has hit.
    until: Option<Time>,
}

/// The faults ordered for a device.
#[derive(Clone, Debug)]
pub struct Faults {
    rules: Vec<Ordered>,
    rng: Rng,
    /// Byte -> the bits of it that are flipped at rest.
    rotten: BTreeMap<u64, u8>,
    gone: bool,
    hits: BTreeMap<&'static str, u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self::seeded(0)
    }
}

impl Faults {
    /// Begins without rules; chance is this seed's.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let (rules, hits) = (Vec::new(), BTreeMap::new());
        Self { rules, rng: Rng::new(seed), rotten: BTreeMap::new(), gone: false, hits }
    }

    /// Orders a fault. If several match an I/O, the one that was ordered first hits.
    pub fn order(&mut self, rule: Rule) {
        self.rules.push(Ordered { rule, until: None });
    }

    /// The `nth` I/O submitted from now on (0 = the next one) fails once; with an `op`, only I/Os
    /// of that kind count.
    pub fn fail_nth(&mut self, nth: u64, op: Option<Op>, error: DeviceError) {
        self.order(Rule { op, after: nth, times: 1, ..Rule::always(Fault::Error(error)) });
    }

    /// Every I/O that touches these bytes fails, until [`Faults::heal`]; with an `op`, only I/Os of
    /// that kind.
    pub fn fail_range(&mut self, bytes: Range<u64>, op: Option<Op>, error: DeviceError) {
        self.order(Rule { op, bytes: Some(bytes), ..Rule::always(Fault::Error(error)) });
    }

    /// The device is gone: every I/O fails with [`DeviceError::Gone`], also those in flight.
    pub fn lose_device(&mut self) {
        self.gone = true;
    }

    /// The device is back.
    pub fn return_device(&mut self) {
        self.gone = false;
    }

    /// Takes all orders back, and the device is there. What is rotten stays so.
    pub fn heal(&mut self) {
        self.rules.clear();
        self.gone = false;
    }

    /// Whether any fault is ordered.
    #[must_use]
    pub fn ordered(&self) -> bool {
        self.gone || !self.rules.is_empty()
    }

    /// How many faults have hit so far, by name.
    #[must_use]
    pub const fn hits(&self) -> &BTreeMap<&'static str, u64> {
        &self.hits
    }

    pub(super) const fn gone(&self) -> bool {
        self.gone
    }

    pub(super) const fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Returns the fault that a submitted I/O meets, and the bytes that the order spoke of. Every
    /// rule that matches counts it.
    pub(super) fn next(&mut self, now: Time, io: &DeviceIo) -> Option<(Fault, Range<u64>)> {
        self.rules.retain(|ordered| ordered.until.is_none_or(|until| now < until));
        let (rng, mut hit) = (&mut self.rng, None);
        for Ordered { rule, until } in self.rules.iter_mut().filter(|ordered| ordered.rule.matches(io)) {
            if rule.after > 0 {
                rule.after -= 1;
            } else if hit.is_none()
                && rule.times > 0
                && (rule.chance_ppm >= ALWAYS_PPM || rng.below(u64::from(ALWAYS_PPM)) < u64::from(rule.chance_ppm))
            {
                rule.times -= 1;
                *until = until.or(rule.for_ns.map(|ns| now.plus_ns(ns)));
                let whole = io.offset..io.offset + io.len;
                let bytes = rule
                    .bytes
                    .as_ref()
                    .map_or(whole.clone(), |bytes| bytes.start.max(whole.start)..bytes.end.min(whole.end));
                hit = Some((rule.fault, bytes));
            }
        }
        self.rules.retain(|ordered| ordered.rule.times > 0);
        if let Some((fault, _)) = &hit {
            *self.hits.entry(fault.name()).or_default() += 1;
        }
        hit
    }

    /// A byte and a bit of this range, at random.
    pub(super) fn any_bit(&mut self, bytes: &Range<u64>) -> (u64, u8) {
        (bytes.start + self.rng.below(bytes.end - bytes.start), 1 << self.rng.below(8))
    }

    pub(super) fn rot(&mut self, byte: u64, bit: u8) {
        *self.rotten.entry(byte).or_default() ^= bit;
    }

    /// Whether anything is rotten yet. What is written anew no longer is.
    #[must_use]
    pub fn any_rotten(&self) -> bool {
        !self.rotten.is_empty()
    }

    /// Returns the rotten bits in this range.
    pub(super) fn rotten_in(&self, bytes: Range<u64>) -> impl Iterator<Item = (u64, u8)> {
        self.rotten.range(bytes).map(|(byte, bits)| (*byte, *bits))
    }

    /// The range is written anew.
    pub(super) fn renewed(&mut self, bytes: Range<u64>) {
        if !self.rotten.is_empty() {
            self.rotten.retain(|byte, _| !bytes.contains(byte));
        }
    }
}

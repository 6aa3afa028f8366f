// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `status` about how long requests took in the last minute.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::latency::Summary;

/// A duration in microseconds, with one digit behind the point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros {
    tenths: u64,
}

impl Micros {
    /// Rounded.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self { tenths: ns.saturating_add(50) / 100 }
    }

    /// The time in nanoseconds.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.tenths.saturating_mul(100)
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // The nearest number of 64 bits is written with no more digits than it needs.
        to.serialize_f64(self.tenths as f64 / 10.0)
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let micros = f64::deserialize(from)?;
        Ok(Self { tenths: (micros * 10.0).round() as u64 })
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindReport {
    /// Half of them took this long at most; 0 if there were none.
    pub p50: Micros,
    /// The time that 99 of 100 took at most.
    pub p99: Micros,
    /// The longest one.
    pub max: Micros,
    /// How many there were.
    pub count: u64,
}

impl From<Summary> for KindReport {
    fn from(it: Summary) -> Self {
        let [p50, p99, max] = [it.p50_ns, it.p99_ns, it.max_ns].map(Micros::from_ns);
        Self { p50, p99, max, count: it.count }
    }
}

/// Requests of all kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Reads that the cache answered alone.
    pub hit: KindReport,
    /// Reads that needed the origin for some part.
    pub miss: KindReport,
    /// Writes and write-zeroes.
    pub write: KindReport,
    /// FLUSHes.
    pub flush: KindReport,
}

impl LatencyReport {
    pub(super) fn new(kinds: &[Summary; 4]) -> Self {
        let [hit, miss, write, flush] = kinds.each_ref().map(|it| (*it).into());
        Self { hit, miss, write, flush }
    }

    /// Name and figures of each kind.
    #[must_use]
    pub fn each(&self) -> [(&'static str, &KindReport); 4] {
        [("hit", &self.hit), ("miss", &self.miss), ("write", &self.write), ("flush", &self.flush)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_have_one_digit_and_come_back_as_they_were() {
        for (ns, text) in [(0, "0.0"), (3249, "3.2"), (3250, "3.3"), (550_000_000_123, "550000000.1")] {
            let micros = Micros::from_ns(ns);
            assert_eq!(serde_json::to_string(&micros).unwrap(), text);
            assert_eq!(serde_json::from_str::<Micros>(text).unwrap(), micros);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `status` about the requests to the object store of a volume.

use flashfront_device::real::Tally;
use serde::{Deserialize, Serialize};

use super::{KindReport, Micros};

/// Requests of one kind to the store of a volume, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedReport {
    /// The requests that have ended, also those that failed.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The errors by which the store asked for fewer requests (429, 503).
    pub throttled: u64,
    /// Requests that were sent again after an error.
    pub retries: u64,
    /// GETs that were sent a second time as the first one was slow; they are requests, too.
    pub hedged: u64,
    /// Bytes of objects that were sent or received.
    pub bytes: u64,
    /// How long the newest ones took, 512 at most.
    pub latency_us: KindReport,
}

impl From<&Tally> for AskedReport {
    fn from(it: &Tally) -> Self {
        let [p50, p99, max] =
            [it.recent.p50_us, it.recent.p99_us, it.recent.max_us].map(|us| Micros::from_ns(us.saturating_mul(1_000)));
        Self {
            requests: it.requests,
            errors: it.errors,
            throttled: it.throttled,
            retries: it.retries,
            hedged: it.hedged,
            bytes: it.bytes,
            latency_us: KindReport { p50, p99, max, count: it.recent.count },
        }
    }
}

/// The requests to the store of a volume, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Reads of objects or of parts of them.
    pub get: AskedReport,
    /// Objects that were stored.
    pub put: AskedReport,
    /// Lists of names.
    pub list: AskedReport,
    /// Objects that were deleted.
    pub delete: AskedReport,
    /// All of it with histograms, in the order of these fields: for the metrics, in this process
    /// alone.
    #[serde(skip)]
    pub tallies: [Tally; 4],
}

impl StoreReport {
    /// The report of these requests.
    #[must_use]
    pub fn new(tallies: [Tally; 4]) -> Self {
        let [get, put, list, delete] = tallies.each_ref().map(AskedReport::from);
        Self { get, put, list, delete, tallies }
    }

    /// Name and figures of each kind.
    #[must_use]
    pub fn each(&self) -> [(&'static str, &AskedReport); 4] {
        [("get", &self.get), ("put", &self.put), ("list", &self.list), ("delete", &self.delete)]
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients of a life, drawn at random.

use flashfront_device::Rng;

use super::pick::pick;

/// A client, described by its requests.
#[derive(Clone, Copy, Debug)]
pub struct ClientPlan {
    /// The most requests in flight.
    pub depth: usize,
    /// The percentage of requests that are reads.
    pub reads: u64,
    /// The longest request, in sectors.
    pub sectors_max: u64,
    /// The size of the hot part at the start of each origin, in sectors. Most requests go there.
    pub hot_sectors: u64,
    /// The number of requests for each FLUSH.
    pub flush_every: u64,
    /// The number of writes for each with FUA; 0 = none.
    pub fua_every: u64,
    /// The number of requests for each discard or write-zeroes; 0 = none.
    pub special_every: u64,
    /// Whether each request begins where the last one ended.
    pub sequential: bool,
}

/// A client before an origin of so many sectors.
pub(super) fn client(rng: &mut Rng, small: u64) -> ClientPlan {
    ClientPlan {
        depth: pick(rng, &[1, 4, 16, 32]),
        reads: pick(rng, &[10, 40, 80]),
        sectors_max: pick(rng, &[8, 64, 256, 2048]),
        hot_sectors: pick(rng, &[64, 4096, small, small]).min(small),
        flush_every: pick(rng, &[4, 20, 1000]),
        fua_every: pick(rng, &[0, 10, 2]),
        special_every: pick(rng, &[0, 20, 5]),
        sequential: rng.below(5) == 0,
    }
}

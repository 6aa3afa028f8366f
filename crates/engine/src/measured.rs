// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens at the devices, for the gauges that all lanes share.
//!
//! A lane that works beside others ([`crate::apart`]) has gauges of its own for that time, and a list of what happened, for the
//! gauges of all.

use crate::congestion::Taken;
use crate::shared::Shared;
use crate::types::Time;

/// One thing that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measured {
    /// A client's read of so many blocks of the cache device began.
    CacheReadBegan { blocks: u64 },
    /// One ended.
    CacheReadEnded { sound: bool },
    /// A commit began.
    CommitBegan,
    /// So much is written to the cache device that leads.
    CacheWritten { bytes: u64 },
    /// A client's read of an origin began, of the places from `first` to `end`.
    OriginReadBegan { origin: usize, first: u64, end: u64 },
    /// One of so many blocks ended; `None`: it failed.
    OriginReadEnded { origin: usize, blocks: Option<u32> },
    /// A read of an origin began that completes a block that is written in part.
    OriginMergeBegan { origin: usize },
    /// A read of what is cached was sent to an origin, where the cache device was expected to take so long.
    DetourBegan { origin: usize, instead_of_ns: u64 },
}

impl Shared {
    /// Something happened. (Inlined: each caller knows what, and only that is left.)
    #[inline(always)]
    pub(crate) fn measure(&mut self, what: Measured, now: Time) {
        self.note_measured(what);
        match what {
            Measured::CacheReadBegan { blocks } => {
                self.gauge.reads.began(now);
                self.cache_reads.read(blocks, now);
            }
            Measured::CacheReadEnded { sound } => {
                self.gauge.reads.ended(now, u64::from(sound));
                self.cache_reads.ended(now);
            }
            Measured::CommitBegan => self.gauge.commit_began(now),
            Measured::CacheWritten { bytes } => {
                if let Some(budget) = &mut self.budget {
                    budget.spend(bytes, now);
                }
            }
            Measured::OriginReadBegan { origin, first, end } => {
                self.origins[origin].client_read_began(first, end, now);
            }
            Measured::OriginReadEnded { origin, blocks } => self.origins[origin].client_read_ended(blocks, now),
            Measured::OriginMergeBegan { origin } => self.origins[origin].gauge.merges.began(now),
            Measured::DetourBegan { origin, instead_of_ns } => {
                self.origins[origin].gauge.detour.began(instead_of_ns, now);
            }
        }
    }

    /// A detour begins.
    pub(crate) fn detour_began(&mut self, origin: usize, instead_of_ns: u64, now: Time) -> Taken {
        self.note_measured(Measured::DetourBegan { origin, instead_of_ns });
        self.origins[origin].gauge.detour.began(instead_of_ns, now)
    }

    fn note_measured(&mut self, what: Measured) {
        if let Some(list) = &mut self.measured {
            list.push(what);
        }
    }
}

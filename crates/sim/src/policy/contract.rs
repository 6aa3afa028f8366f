// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract says what a policy is asked, and what it answers.
//!
//! A policy sees keys, directions and times of a trace, never data. It answers whether a block was
//! there, and says what it did ([`Changes`]). What that costs in flash and origin I/O is counted
//! outside, for all policies alike.

use flashfront_engine::shadow::Occupancy;

/// Blocks of 4 KiB in a unit, the most that a policy may have.
pub const UNIT_BLOCKS_MAX: u64 = 16;

/// An access: a unit of the cache is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The unit: a block of 4 KiB, or whatever the policy's unit is.
    pub key: u64,
    /// Whether the unit is written.
    pub write: bool,
    /// The time, from any start on; never backwards.
    pub time_ns: u64,
    /// Whether the access is the first of its request.
    pub first: bool,
    /// The number of the access that asks for it next, counted from 0 over the whole trace;
    /// `u64::MAX` for never. Only for a policy that needs it.
    pub next: u64,
}

/// What a policy did at one access.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The unit was not there and now is.
    pub admitted: bool,
    /// The unit was not there but in RAM, which counts as a hit.
    pub waited: bool,
    /// The units that are no longer there. The one asked for is among them if it was thrown out at
    /// once.
    pub evicted: Vec<u64>,
    /// The units that were read from the origin beside what was missed. Those that weren't there
    /// wait in RAM.
    pub brought: u64,
    /// The units that go to the end of a queue once more. Only policies whose queues are logs tell
    /// this.
    pub reinserted: u64,
}

/// A cache of some units, as a policy runs it.
pub trait Policy: Send {
    /// A unit is asked for. Adds to `changes`, which come empty; returns whether the unit was
    /// there. Never more units are there than the capacity it was built for.
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool;

    /// No more bytes may be written to flash in a day, as far as reads can be declined; whether it
    /// knows how to keep that.
    fn limit_flash_writes(&mut self, _bytes_per_day: u64) -> bool {
        false
    }

    /// What the policy's log holds, if the policy knows. A policy whose queues are taken for logs
    /// without holes doesn't. For others the log beside them is asked.
    fn occupancy(&self) -> Option<Occupancy> {
        None
    }
}

/// How a policy is made, and what it must be told.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Makes one for that many units, at least 1.
    pub new: fn(capacity: usize) -> Box<dyn Policy>,
    /// Blocks of 4 KiB in a unit: what is filled and written back at once. A power of two.
    pub unit_blocks: u64,
    /// Whether the policy must know the future.
    pub foresees: bool,
    /// Its queues are logs: what it writes once more is what it puts at their ends again. For
    /// others that is counted in a log beside it.
    pub is_log: bool,
}

impl Build {
    /// Whether the policy keeps a budget of flash writes. A small one is asked, so no list of such
    /// policies can be wrong.
    #[must_use]
    pub fn keeps_budget(&self) -> bool {
        (self.new)(1).limit_flash_writes(u64::MAX)
    }
}

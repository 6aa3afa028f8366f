// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what a policy's decisions cost: hits, origin I/O and flash writes, alike for all
//! policies.
//!
//! Costs are counted in blocks of 4 KiB, in writeback mode:
//!
//! - A write that the policy takes is absorbed. It costs one block of flash now, and one of origin
//!   I/O when it leaves the cache or the trace ends.
//! - A write that the policy declines goes to the origin.
//! - A read that misses costs one origin read, and one flash write if the policy takes it.
//! - Blocks that a policy brings along unasked cost origin reads at once. Each costs a flash write
//!   if it is taken when it is asked for.
//!
//! A policy with larger units is asked once for the blocks of a request that are in one unit. The
//! origin answers a miss. The unit is copied in beside that, and so starts clean. It is written
//! back and moved in the log as a whole. Blocks rewritten in it take no new place there (dm-cache).
//!
//! The number of reads that the origin is asked for is counted beside the blocks. It is one for
//! each 64 KiB of which a request misses something. Blocks that are brought along unasked come with
//! such a read.

use flashfront_engine::shadow::{Occupancy, Totals};
use hashbrown::HashSet;

use super::log::Log;
use crate::policy::{Access, Build, Changes, Policy};

/// Blocks that one read of the origin brings at most: 64 KiB.
const READ_PART_BLOCKS: u64 = 16;

/// A policy at work.
pub(crate) struct Ledger {
    policy: Box<dyn Policy>,
    cache_blocks: u64,
    /// Units in the cache.
    cached: u64,
    unit_bits: u32,
    changes: Changes,
    /// Dirty units, for a policy that is the log. For other policies `log` knows them.
    dirty: HashSet<u64>,
    /// The log beside the policy. `None` for a policy that is the log.
    log: Option<Log>,
    totals: Totals,
    origin_reads: u64,
    /// The part of the origin that was read last for the request under way.
    read_part: Option<u64>,
    /// Units in the cache that nobody has read since they came. `None` unless that is asked for.
    unread: Option<HashSet<u64>>,
}

impl Ledger {
    /// Builds the ledger for a cache of that many blocks.
    pub(crate) fn new(build: &Build, cache_blocks: u64) -> Self {
        let units = (cache_blocks / build.unit_blocks).max(1) as usize;
        Self {
            policy: (build.new)(units),
            cache_blocks: units as u64 * build.unit_blocks,
            cached: 0,
            unit_bits: build.unit_blocks.trailing_zeros(),
            changes: Changes::default(),
            dirty: HashSet::new(),
            log: (!build.is_log).then(|| Log::new(units)),
            totals: Totals::default(),
            origin_reads: 0,
            read_part: None,
            unread: None,
        }
    }

    /// Bounds the bytes that may be written to flash in a day. Returns whether the policy can keep
    /// that.
    pub(crate) fn limit_flash_writes(&mut self, bytes_per_day: u64) -> bool {
        self.policy.limit_flash_writes(bytes_per_day)
    }

    /// Notes from now on which units are read.
    pub(crate) fn watch_unread(&mut self) {
        self.unread = Some(HashSet::new());
    }

    /// What the log holds, and how many blocks of it nobody has read since they came. `None` unless
    /// [`Self::watch_unread`] was called.
    pub(crate) fn occupancy(&self) -> Option<(Occupancy, u64)> {
        let unit = 1 << self.unit_bits;
        let unread = self.unread.as_ref()?.len() as u64 * unit;
        let beside = self.log.as_ref().map_or((0, 0), |log| (log.dead(), log.copied));
        let (dead_blocks, cleaned_blocks) = (beside.0 * unit, beside.1 * unit);
        let counted = Occupancy { live_blocks: self.cached_blocks(), dead_blocks, cleaned_blocks };
        Some((self.policy.occupancy().unwrap_or(counted), unread))
    }

    /// The blocks that the cache has room for, in whole units.
    pub(crate) fn cache_blocks(&self) -> u64 {
        self.cache_blocks
    }

    /// The blocks that are in the cache.
    pub(crate) fn cached_blocks(&self) -> u64 {
        self.cached << self.unit_bits
    }

    /// The unit that a block is in.
    pub(crate) fn unit(&self, key: u64) -> u64 {
        key >> self.unit_bits
    }

    /// Counts a request for this many blocks of a unit.
    pub(crate) fn access(&mut self, access: &Access, blocks: u64) {
        let unit = 1 << self.unit_bits;
        (self.changes.admitted, self.changes.waited) = (false, false);
        self.changes.evicted.clear();
        (self.changes.reinserted, self.changes.brought) = (0, 0);
        let hit = self.policy.access(access, &mut self.changes);
        if access.first {
            self.read_part = None;
        }
        if !hit && !access.write {
            let part = (access.key << self.unit_bits) / READ_PART_BLOCKS;
            self.origin_reads += u64::from(self.read_part.replace(part) != Some(part));
        }

        self.cached = self.cached + u64::from(self.changes.admitted) - self.changes.evicted.len() as u64;
        let totals = &mut self.totals;
        let (found, missed) = if hit { (blocks, 0) } else { (0, blocks) };
        totals.accesses += blocks;
        totals.hits += found;
        totals.reinserted_blocks += self.changes.reinserted * unit;
        totals.origin_read_blocks += self.changes.brought * unit;
        // A unit that was thrown out at once was never there. But a policy that is the log has
        // written it.
        let was_there = self.log.is_none() || !self.changes.evicted.contains(&access.key);
        let taken = (hit && !self.changes.waited || self.changes.admitted) && was_there;
        if let Some(unread) = &mut self.unread {
            if self.changes.admitted && (access.write || !self.changes.waited) {
                unread.insert(access.key);
            } else if hit && !access.write {
                unread.remove(&access.key);
            }
            self.changes.evicted.iter().for_each(|gone| _ = unread.remove(gone));
        }
        let copied = taken && !hit && unit > 1;
        let soiled = access.write && taken && !copied;
        if soiled && self.log.is_none() {
            self.dirty.insert(access.key);
        }
        for gone in &self.changes.evicted {
            let dirty = self.log.as_mut().map_or_else(|| self.dirty.remove(gone), |log| log.remove(*gone));
            totals.origin_write_blocks += if dirty { unit } else { 0 };
        }
        if copied {
            totals.origin_read_blocks += unit;
            totals.fill_blocks += unit;
            self.origin_reads += u64::from(access.write);
        }
        if access.write {
            if taken && !copied {
                totals.absorbed_blocks += blocks;
                totals.write_hits += if self.changes.waited { 0 } else { found };
            } else {
                totals.origin_write_blocks += blocks;
            }
        } else {
            totals.reads += blocks;
            totals.read_hits += found;
            totals.origin_read_blocks += missed;
            // A block that came along and waited in RAM is filled when it is asked for.
            let filled = if self.changes.waited && self.changes.admitted { found } else { missed };
            totals.fill_blocks += if taken && !copied { filled } else { 0 };
        }
        if let Some(log) = &mut self.log
            && taken
        {
            if !hit || access.write && unit == 1 {
                let before = log.copied;
                log.write(access.key, soiled);
                self.totals.reinserted_blocks += (log.copied - before) * unit;
            } else if soiled {
                log.soil(access.key);
            }
        }
    }

    /// The number of reads that the origin was asked for.
    pub(crate) const fn origin_reads(&self) -> u64 {
        self.origin_reads
    }

    /// The counts, as if all units that are still dirty were written to the origin now.
    pub(crate) fn totals(&self) -> Totals {
        let dirty = self.log.as_ref().map_or(self.dirty.len() as u64, |log| log.dirty) << self.unit_bits;
        Totals { origin_write_blocks: self.totals.origin_write_blocks + dirty, ..self.totals }
    }
}

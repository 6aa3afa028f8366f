// SPDX-License-Identifier: MIT OR Apache-2.0
//! Beside clients that read the cache device, while nobody writes, destage reads little of it: what is dirty can wait, who reads can't.
//!
//! Destage of long runs takes what an origin takes, 170 MB/s of a disk, from an SSD whose cable carries 550: reads of cached data
//! were a third slower for minutes after a burst of writes (gflash, which destages from RAM, is the one that showed it). So clients' reads
//! earn what destage may read, and it is spent in batches, because each batch costs the origin a flush. Data that gets old doesn't wait for
//! that alone: it has a share of the origin's time, too (see `rate`), and all of it in the readers' gaps.

use crate::types::Time;

/// So many blocks of clients' reads earn destage one.
const EARNED_BY: i64 = 40;
/// What is earned before any of it is spent, in blocks of destage: 4 MiB, 8 ms of an SSD's cable.
const BATCH_BLOCKS: i64 = 1024;
/// No write for so long, and nobody is taken to wait for room.
const WRITERS_GONE_NS: u64 = 1_000_000_000;
/// No read for so long, and nobody is taken to read.
const READERS_GONE_NS: u64 = 100_000_000;
/// The same for old data: any gap will do.
const GAP_NS: u64 = 5_000_000;

/// What clients and destage read from the cache device.
#[derive(Clone, Copy, Default)]
pub(crate) struct CacheReads {
    pub(crate) clients_blocks: u64,
    pub(crate) destage_blocks: u64,
    /// Reads of clients.
    in_flight: u64,
    /// When one of them last began or ended.
    last: Option<Time>,
    /// When a client wrote last.
    pub(crate) last_write: Option<Time>,
}

impl CacheReads {
    /// A client reads so many blocks.
    pub(crate) const fn read(&mut self, blocks: u64, now: Time) {
        self.clients_blocks += blocks;
        self.in_flight += 1;
        self.last = Some(now);
    }

    /// A read of a client has ended.
    pub(crate) const fn ended(&mut self, now: Time) {
        self.in_flight -= 1;
        self.last = Some(now);
    }

    /// Until when readers come first; `None` if they don't.
    pub(crate) fn until(&self, aged: bool, now: Time) -> Option<Time> {
        let written = self.last_write.is_some_and(|at| now.since_ns(at) < WRITERS_GONE_NS);
        let last = if self.in_flight > 0 { now } else { self.last? };
        let until = last.plus_ns(if aged { GAP_NS } else { READERS_GONE_NS });
        (!written && until > now).then_some(until)
    }
}

/// What destage may read.
pub(crate) struct Credit {
    /// In blocks of clients' reads.
    blocks: i64,
    spending: bool,
    seen: CacheReads,
}

impl Default for Credit {
    fn default() -> Self {
        Self { blocks: BATCH_BLOCKS * EARNED_BY, spending: true, seen: CacheReads::default() }
    }
}

impl Credit {
    /// Whether a run may be read now; else until when it has to wait at most, if nothing else happens.
    pub(crate) fn allows(&mut self, reads: &CacheReads, now: Time) -> Result<(), Time> {
        let Some(until) = reads.until(false, now) else {
            *self = Self { seen: *reads, ..Self::default() };
            return Ok(());
        };
        let earned = (reads.clients_blocks - self.seen.clients_blocks) as i64;
        let spent = (reads.destage_blocks - self.seen.destage_blocks) as i64 * EARNED_BY;
        self.seen = *reads;
        let full = BATCH_BLOCKS * EARNED_BY;
        self.blocks = ((self.blocks + earned).min(full) - spent).max(-full);
        self.spending = if self.spending { self.blocks > 0 } else { self.blocks >= full };
        if self.spending { Ok(()) } else { Err(until) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn destage_reads_a_fortieth_of_what_clients_read_and_in_batches() {
        let (mut credit, mut reads, mut batches) = (Credit::default(), CacheReads::default(), 0);
        let mut allowed = true;
        for ms in 0..10_000 {
            let now = Time(ms * MS);
            // 100,000 blocks a second.
            reads.read(100, now);
            reads.ended(now);
            let allows = credit.allows(&reads, now).is_ok();
            batches += u32::from(allows && !allowed);
            allowed = allows;
            if allows {
                reads.destage_blocks += 256;
            }
        }
        let part = reads.destage_blocks as f64 / reads.clients_blocks as f64;
        assert!((0.024..0.027).contains(&part), "{part}");
        assert!((15..28).contains(&batches), "{batches}");
    }

    #[test]
    fn who_writes_needs_room_and_who_is_gone_needs_nothing() {
        let (mut credit, mut reads) = (Credit::default(), CacheReads::default());
        let spend = |credit: &mut Credit, reads: &mut CacheReads, now| {
            reads.read(1, now);
            reads.ended(now);
            reads.destage_blocks += 5000;
            credit.allows(reads, now)
        };
        assert_eq!(credit.allows(&reads, Time(0)), Ok(()), "nobody reads");
        assert_eq!(spend(&mut credit, &mut reads, Time(MS)), Err(Time(101 * MS)));
        assert_eq!(credit.allows(&reads, Time(101 * MS)), Ok(()), "nobody reads any more");
        assert_eq!(spend(&mut credit, &mut reads, Time(200 * MS)), Err(Time(300 * MS)));
        reads.last_write = Some(Time(201 * MS));
        assert_eq!(credit.allows(&reads, Time(202 * MS)), Ok(()));
    }
}

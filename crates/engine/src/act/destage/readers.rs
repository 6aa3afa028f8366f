// SPDX-License-Identifier: MIT OR Apache-2.0
//! Beside clients that read the cache device destage reads little of it: what is dirty can wait,
//! readers can't.
//!
//! Destage of long runs takes from an SSD what an origin takes: 170 MB/s of a disk, where the SSD's
//! cable carries 550. Reads of cached data were a third slower for minutes after a burst of writes.
//! (gflash, which destages from RAM, is the one that showed it.) So clients' reads earn what
//! destage may read. That is spent in batches, because each batch costs the origin a flush.
//!
//! What becomes dirty beside readers is owed. More than a tenth of the limit is paid over some
//! seconds, the sooner the more is dirty. So a burst is spread, and no more gathers from one burst
//! to the next. Less than that can wait, as there is room for it. Data that gets old doesn't wait
//! for that alone. It has a share of the origin's time, too (see `rate`), and all of it in the
//! readers' gaps. Writers that find little room don't wait for readers (see `throttle`).

use super::rate::{BACKGROUND_PERCENT, PRESSED_PERCENT};
use crate::fact::types::Time;
use crate::organ::cache_reads::CacheReads;

/// Destage earns one block for so many blocks of clients' reads.
const EARNED_BY: i64 = 40;
/// What is earned before any of it is spent, in blocks of destage: 4 MiB, 8 ms of an SSD's cable.
const BATCH_BLOCKS: i64 = 1024;
/// What may be earned in advance by what is owed, in batches.
const PAID_BATCHES_MAX: i64 = 4;
/// What is owed is paid over so long, if little is dirty ...
const PAID_OVER_NS: u64 = 10_000_000_000;
/// ... and so much longer, the smaller a part of this much of the limit it is. That is as much as
/// writers have until they are stopped (see `throttle`).
const LITTLE_OWED_PERCENT: u64 = 10;

/// What destage may read.
pub(crate) struct Credit {
    /// In blocks of clients' reads.
    blocks: i64,
    spending: bool,
    seen: CacheReads,
    /// Blocks that became dirty beside readers, and were not paid for yet; when it was paid last.
    owed: u64,
    paid: Time,
}

impl Default for Credit {
    fn default() -> Self {
        Self { blocks: BATCH_BLOCKS * EARNED_BY, spending: true, seen: CacheReads::default(), owed: 0, paid: Time(0) }
    }
}

impl Credit {
    /// Whether a run may be read now; else until when it has to wait at most, if nothing else
    /// happens. So many blocks are `dirty`, of which `limit` may be.
    pub(crate) fn allows(&mut self, reads: &CacheReads, (dirty, limit): (u64, u64), now: Time) -> Result<(), Time> {
        if self.owed == 0 {
            self.paid = now;
        }
        let earned = (reads.clients_blocks - self.seen.clients_blocks) as i64;
        let spent = reads.destage_blocks - self.seen.destage_blocks;
        self.owed = (self.owed + reads.dirtied_blocks - self.seen.dirtied_blocks).min(dirty);
        self.seen = *reads;
        let Some(until) = reads.until(false, now) else {
            // Readers that stay away owe nothing when they come again; a burst of writes may keep
            // them away for a moment.
            let stay_away = reads.last.is_none_or(|last| now.since_ns(last) >= PAID_OVER_NS);
            let owed = if stay_away { 0 } else { self.owed.saturating_sub(spent) };
            *self = Self { seen: *reads, owed, paid: now, ..Self::default() };
            return Ok(());
        };
        let full = BATCH_BLOCKS * EARNED_BY;
        self.blocks = (self.blocks + earned).min(self.blocks.max(full));
        self.pay(dirty, limit, full * PAID_BATCHES_MAX, now);
        self.blocks = (self.blocks - spent as i64 * EARNED_BY).max(-full);
        self.spending = if self.spending { self.blocks > 0 } else { self.blocks >= full };
        if self.spending { Ok(()) } else { Err(until) }
    }

    /// Pays a part of what is owed; what doesn't fit stays owed.
    fn pay(&mut self, dirty: u64, limit: u64, blocks_max: i64, now: Time) {
        let over_ns = paid_over_ns(self.owed, dirty, limit);
        let part = u128::from(self.owed) * u128::from(now.since_ns(self.paid).min(over_ns)) / u128::from(over_ns);
        let room = ((blocks_max - self.blocks) / EARNED_BY).max(0) as u64;
        let due = room.min(part as u64);
        if due > 0 {
            self.owed -= due;
            self.paid = now;
            self.blocks += due as i64 * EARNED_BY;
        }
    }
}

/// Over how long what is owed is paid: if it is much, at once from three quarters of the limit on.
fn paid_over_ns(owed: u64, dirty: u64, limit: u64) -> u64 {
    let (from, to) = (limit * BACKGROUND_PERCENT / 100, limit * PRESSED_PERCENT / 100);
    let much = limit * LITTLE_OWED_PERCENT / 100;
    let scaled = |part: u64, whole: u64| u128::from(PAID_OVER_NS) * u128::from(part) / u128::from(whole.max(1));
    let ns = scaled(to - dirty.clamp(from, to), to - from) + scaled(much.saturating_sub(owed), owed);
    u64::try_from(ns).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MS: u64 = 1_000_000;
    const DIRTY: (u64, u64) = (500, 1000);

    #[test]
    fn destage_reads_a_fortieth_of_what_clients_read_and_in_batches() {
        let (mut credit, mut reads, mut batches) = (Credit::default(), CacheReads::default(), 0);
        let mut allowed = true;
        for ms in 0..10_000 {
            let now = Time(ms * MS);
            // 100,000 blocks a second.
            reads.read(100, now);
            reads.ended(now);
            let allows = credit.allows(&reads, DIRTY, now).is_ok();
            batches += u32::from(allows && !allowed);
            allowed = allows;
            if allows {
                reads.destage_reads(256);
            }
        }
        let part = reads.destage_blocks as f64 / reads.clients_blocks as f64;
        assert!((0.024..0.027).contains(&part), "{part}");
        assert!((15..28).contains(&batches), "{batches}");
    }

    /// A burst of so many blocks beside readers, where a million may be dirty, and what is destaged
    /// in each second after it.
    fn after_a_burst(blocks: u64, dirty: u64) -> Vec<u64> {
        let (mut credit, mut reads) = (Credit::default(), CacheReads::default());
        let _ = credit.allows(&reads, (dirty, 1_000_000), Time(0));
        let mut seconds = Vec::new();
        reads.read(0, Time(0));
        reads.ended(Time(0));
        (0..blocks).for_each(|_| reads.dirtied());
        for second in 0..60 {
            let before = reads.destage_blocks;
            for ms in 0..1000 {
                let now = Time((second * 1000 + ms) * MS);
                reads.read(0, now);
                reads.ended(now);
                if credit.allows(&reads, (dirty - reads.destage_blocks, 1_000_000), now).is_ok() {
                    reads.destage_reads(40);
                }
            }
            seconds.push(reads.destage_blocks - before);
        }
        seconds
    }

    #[test]
    fn what_becomes_dirty_is_destaged_bit_by_bit_and_nearly_all_of_it_if_it_is_much() {
        let seconds = after_a_burst(200_000, 400_000);
        assert!(seconds[1] > seconds[20] && seconds[1] < 40_000, "it is spread: {seconds:?}");
        let sum: u64 = seconds.iter().sum();
        assert!(sum > 180_000 && sum <= 200_000 + 2 * BATCH_BLOCKS as u64, "{sum}: {seconds:?}");
        let pressed = after_a_burst(200_000, 900_000);
        assert!(pressed[..3].iter().sum::<u64>() > 80_000, "as fast as it goes: {pressed:?}");
    }

    #[test]
    fn a_little_that_became_dirty_can_wait_however_much_is() {
        for dirty in [400_000, 900_000] {
            // A hundredth of the limit, a tenth of what counts as much: 100 s instead of 10; one
            // batch is earned beforehand.
            let sum: u64 = after_a_burst(10_000, dirty)[..20].iter().sum();
            assert!(sum < 4 * BATCH_BLOCKS as u64, "{sum} at {dirty}");
        }
    }

    #[test]
    fn who_is_slowed_needs_room_and_who_is_gone_needs_nothing() {
        let (mut credit, mut reads) = (Credit::default(), CacheReads::default());
        let spend = |credit: &mut Credit, reads: &mut CacheReads, now| {
            reads.read(1, now);
            reads.ended(now);
            reads.destage_reads(5000);
            credit.allows(reads, DIRTY, now)
        };
        assert_eq!(credit.allows(&reads, DIRTY, Time(0)), Ok(()), "nobody reads");
        assert_eq!(spend(&mut credit, &mut reads, Time(MS)), Err(Time(101 * MS)));
        assert_eq!(credit.allows(&reads, DIRTY, Time(101 * MS)), Ok(()), "nobody reads any more");
        assert_eq!(spend(&mut credit, &mut reads, Time(200 * MS)), Err(Time(300 * MS)));
        reads.written(Time(201 * MS));
        assert!(credit.allows(&reads, DIRTY, Time(202 * MS)).is_err(), "there is room");
        assert_eq!(reads.until(true, Time(202 * MS)), Some(Time(205 * MS)), "old data waits for a gap, whoever writes");
        reads.set_room(true);
        assert_eq!(credit.allows(&reads, DIRTY, Time(203 * MS)), Ok(()));
    }
}

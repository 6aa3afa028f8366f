// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast destage may go: a pure function of what can be seen.
//!
//! Destage goes in batches: some runs, then a flush of the origin. While a disk flushes it serves
//! no other I/O. So the length of a batch bounds how long a client's I/O waits for destage. The
//! pause after a batch bounds destage's share of the disk's time.

use crate::organ::room::SOFT_PERCENT;

/// What the decision rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) dirty: u64,
    pub(crate) limit: u64,
    /// No request in flight, and none for a while.
    pub(crate) idle: bool,
    /// Something waits for destage: a drain, the end of writeback, reclaim, or a direct write.
    pub(crate) urgent: bool,
    /// The oldest dirty block is near its greatest age.
    pub(crate) aged: bool,
    /// Reclaim would rather give up blocks that are still dirty.
    pub(crate) behind: bool,
    /// Clients read from or write to an origin directly now, or did a moment ago.
    pub(crate) clients: bool,
    /// For how long clients haven't read from or written to an origin directly.
    pub(crate) quiet_ns: u64,
    /// Clients read from the cache device now, or did a moment ago, and come first (see `readers`).
    pub(crate) readers: bool,
}

/// How fast destage may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// How long a batch may take, its flush included. Time by which the flush is put off doesn't
    /// count.
    pub(crate) batch_ns: u64,
    /// The pause after a batch, in thousandths of the time that the batch took.
    pub(crate) pause_permille: u64,
    /// All dirty blocks are to be destaged, also blocks that are often rewritten.
    pub(crate) hurry: bool,
    /// Destage pauses for clients that read the cache device. It doesn't pause in gaps between
    /// reads, nor for the time that reads have earned it (see `readers`).
    pub(crate) patient: bool,
    /// A client waits for room, or soon will: the flush isn't put off.
    pub(crate) pressed: bool,
}

/// Below this part of the limit destage waits for idle moments. A block that is rewritten meanwhile
/// is written to the origin once.
pub(super) const BACKGROUND_PERCENT: u64 = 30;
/// Up to this part of the limit clients come first.
const CALM_PERCENT: u64 = 50;
/// From this part of the limit on, destage's share of the disk's time grows, however much clients
/// ask of the disk.
pub(super) const PRESSED_PERCENT: u64 = 75;
/// The length of a batch at full speed: a flush happens four times a second. At the end of a flush
/// a disk has no I/Os to choose from.
const FULL_BATCH_NS: u64 = 250_000_000;
/// If no client has used the origin for a while, a batch takes at most a quarter of that while. The
/// next client has to wait for the batch. (A trace of postmark, caches of 256 MiB and 1 GiB before
/// a model disk: reads take 4.9 and 4.3 ms in the mean. They take 11.5 and 10.6 ms where each batch
/// is as long as at full speed.)
const QUIET_PER_BATCH: u64 = 4;
/// The length of a batch beside clients at the origin: two or three random reads of a disk.
const BESIDE_BATCH_NS: u64 = 25_000_000;
/// The part of the disk's time, in thousandths, that destage has beside clients in the background.
/// It is very small: fewer than one in a hundred reads of a single reader meets a batch. So their
/// 99th percentile stays what it was.
const BACKGROUND_PERMILLE: u64 = 10;
/// The part of the disk's time, in thousandths, that destage has when it is pressed, or data gets
/// old.
const PRESSED_PERMILLE: u64 = 200;
/// The part of the disk's time, in thousandths, that destage has while reclaim waits. Dirty blocks
/// and the holes between them take the place of blocks that would be hits. Each hit less is one
/// more read of the disk. Batches are short all the same. (512 requests a second with 800, 441 with
/// 200, 449 with 500, 507 with 1,000. The load: 1.2 million blocks asked for, one in five written,
/// a cache of an eighth of the data, 16 in flight.)
const BEHIND_PERMILLE: u64 = 800;
/// The part of the disk's time, in thousandths, that destage of old data has beside clients that
/// read the cache device. Long runs then cost these clients a thirtieth of an SSD's cable.
const PATIENT_PERMILLE: u64 = 100;

/// The part of the disk's time, in thousandths, that destage has beside clients. It is piecewise
/// linear in the number of dirty blocks, and is the whole time at the limit.
fn share_permille(view: View) -> u64 {
    let percent = |percent: u64| view.limit * percent / 100;
    let between = |from: (u64, u64), to: (u64, u64)| {
        let part = view.dirty.clamp(from.0, to.0) - from.0;
        from.1 + (to.1 - from.1) * part / (to.0 - from.0).max(1)
    };
    let background = (percent(CALM_PERCENT), BACKGROUND_PERMILLE);
    let pressed = (percent(PRESSED_PERCENT), PRESSED_PERMILLE);
    if view.dirty >= pressed.0 {
        between(pressed, (view.limit, 1000))
    } else {
        between(background, pressed).max(if view.aged { PRESSED_PERMILLE } else { 0 })
    }
}

/// How fast destage may go; `None`: not at all.
pub(crate) fn pace(view: View) -> Option<Pace> {
    // More than the limit can be dirty after the limit was lowered.
    let hurry = view.urgent || view.idle || view.aged || view.dirty > view.limit;
    let (dirty, limit) = (view.dirty * 100, view.limit);
    // (If destage were never pressed, a database's trace would write 68 ms at the 99th percentile,
    // instead of 0.2. Its cache has 64 MiB. If it were pressed from 75 % on, reads of postmark
    // would take 5.2 ms instead of 4.4, with 256 MiB.)
    let pressed = view.urgent || view.behind || dirty >= limit * SOFT_PERCENT;
    let full = Pace { batch_ns: FULL_BATCH_NS, pause_permille: 0, hurry, patient: false, pressed };
    let over = share_permille(view).saturating_sub(PRESSED_PERMILLE);
    let beside_ns = BESIDE_BATCH_NS + (FULL_BATCH_NS - BESIDE_BATCH_NS) * over / (1000 - PRESSED_PERMILLE);
    let alone = Pace { batch_ns: (view.quiet_ns / QUIET_PER_BATCH).clamp(beside_ns, FULL_BATCH_NS), ..full };
    // Only age presses. Age presses less than a client that waits.
    let patient = view.aged && !view.behind && view.readers && !view.clients && view.dirty <= limit;
    if view.dirty == 0 {
        None
    } else if view.urgent {
        Some(full)
    } else if view.idle {
        Some(alone)
    } else if dirty < limit * BACKGROUND_PERCENT && !view.aged && !view.behind {
        None
    } else if !view.clients && !patient {
        Some(alone)
    } else {
        let (share, batch_ns) =
            if patient { (PATIENT_PERMILLE, BESIDE_BATCH_NS) } else { (share_permille(view), beside_ns) };
        let share = share.max(if view.behind { BEHIND_PERMILLE } else { 0 });
        Some(Pace { batch_ns, pause_permille: (1000 - share) * 1000 / share, hurry, patient, pressed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: View = View {
        dirty: 10,
        limit: 1000,
        idle: false,
        urgent: false,
        aged: false,
        behind: false,
        clients: false,
        quiet_ns: u64::MAX,
        readers: false,
    };

    #[test]
    fn busy_and_little_dirty_waits_and_idle_does_not() {
        assert_eq!(pace(CALM), None);
        assert_eq!(pace(View { idle: true, ..CALM }).unwrap().pause_permille, 0);
        assert_eq!(pace(View { dirty: 0, idle: true, urgent: true, ..CALM }), None);
        assert!(pace(View { aged: true, ..CALM }).is_some(), "age is no matter of amount");
    }

    #[test]
    fn who_comes_after_a_short_quiet_waits_for_a_short_batch() {
        let batch_ms = |quiet_ms: u64, view: View| {
            pace(View { quiet_ns: quiet_ms * 1_000_000, ..view }).unwrap().batch_ns / 1_000_000
        };
        let idle = View { idle: true, ..CALM };
        assert_eq!([100, 200, 600, 1000, 60_000].map(|ms| batch_ms(ms, idle)), [25, 50, 150, 250, 250]);
        let hits_only = View { dirty: 400, ..CALM };
        assert_eq!([100, 600, 60_000].map(|ms| batch_ms(ms, hits_only)), [25, 150, 250]);
        assert_eq!(batch_ms(100, View { urgent: true, ..idle }), 250, "somebody waits already");
        assert_eq!(batch_ms(100, View { dirty: 1000, ..hits_only }), 250, "writers do");
        assert_eq!(pace(View { quiet_ns: 0, ..idle }).unwrap().pause_permille, 0);
    }

    /// With more dirty blocks batches get longer and pauses shorter, without a step.
    #[test]
    fn pressure_never_lowers_the_rate() {
        let mut last: Option<Pace> = None;
        for dirty in 300..=1000 {
            let now = pace(View { dirty, clients: true, ..CALM }).unwrap();
            if let Some(last) = last {
                assert!(now.batch_ns >= last.batch_ns && now.pause_permille <= last.pause_permille, "at {dirty}");
                // The share of the time is compared, not the pause, which is its inverse.
                let share = |pace: Pace| 1_000_000 / (1000 + pace.pause_permille);
                assert!(share(now) - share(last) <= 6, "a step at {dirty}");
            }
            last = Some(now);
        }
        let full = Pace { batch_ns: FULL_BATCH_NS, pause_permille: 0, hurry: false, patient: false, pressed: false };
        assert_eq!(last, Some(Pace { pressed: true, ..full }), "at the limit clients don't slow it");
        assert_eq!(pace(View { dirty: 400, ..CALM }), Some(full), "nobody else is there");
        let share = |view| pace(view).map(|pace| 1_000_000 / (1000 + pace.pause_permille));
        assert_eq!(share(View { dirty: 300, clients: true, ..CALM }), Some(BACKGROUND_PERMILLE));
        assert_eq!(share(View { dirty: 500, clients: true, ..CALM }), Some(BACKGROUND_PERMILLE));
        assert_eq!(share(View { dirty: 300, clients: true, aged: true, ..CALM }), Some(PRESSED_PERMILLE));
        assert_eq!(share(View { dirty: 750, clients: true, ..CALM }), Some(PRESSED_PERMILLE));
        assert_eq!(share(View { dirty: 1000, aged: true, readers: true, ..CALM }), Some(PATIENT_PERMILLE));
        let both = View { dirty: 900, aged: true, clients: true, ..CALM };
        assert_eq!(pace(View { readers: true, ..both }), pace(both), "who needs the disk decides");
        assert_eq!(share(View { dirty: 1001, aged: true, readers: true, ..CALM }), Some(1000));
    }
}

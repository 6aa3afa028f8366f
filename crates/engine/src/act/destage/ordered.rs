// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ordered destage: which era may be destaged now, and what the log says of those that are over.
//!
//! Eras go to the origin in turn, with the origin's flush between two. Within an era runs
//! go in the usual order. A crash of the daemon forgets what of an era is on the origin already. So
//! after a crash eras are destaged again, from the first one that the log doesn't call sent. That
//! may be the era at hand and the one before, but no other (ADR 0053). Then a block may be older on
//! the origin for a moment, but not older than the era before the one at hand.
//!
//! An origin that takes what lies between two flushes as a whole gets many eras at a time, as one
//! group. It is flushed when the whole group is there, and not before (ADR 0066).

use alloc::collections::BTreeMap;

use crate::act::commit::log::Note;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::types::OriginId;
use crate::format::Entry;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::organ::cuts::{ErasNote, View};
use crate::organ::down::Down;
use crate::organ::waiter::{Wait, Waiter};

/// A group of two eras or more has so many blocks at most: 128 MiB, 1.3 s at 100 MB/s. Between two
/// groups the path to a store is empty for the time of two requests.
const GROUP_BLOCKS_MAX: u64 = 32_768;
/// And at most a part of the limit: writers wait until the whole group is there.
const GROUPS_PER_LIMIT: u64 = 4;

/// What the coordinator knows of an origin when it chooses eras.
pub(super) struct Now {
    /// Nothing of it is under way.
    pub(super) idle: bool,
    /// Its destage may go on now.
    pub(super) may_begin: bool,
    /// Somebody waits for that.
    pub(super) hurry: bool,
}

/// Follows what has become of the eras of an origin.
pub(super) fn order_step(origin: usize, it: &Now, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let id = cx.facts.origins[origin].id;
    let oldest = lanes.looks().filter_map(|lane| lane.first_era(origin, cx)).min();
    let log_counts = !cx.cache_failed();
    let stopping = cx.facts.stopping;
    let news = cx.delta.origins[origin].cuts.advance(oldest);
    if cx.facts.origins[origin].whole_flushes {
        choose_group(origin, oldest, it, lanes, cx);
    } else {
        let early = cx.facts.planted(Canary::EraEarly);
        cx.delta.origins[origin].cuts.choose(oldest, log_counts && !early);
    }
    if log_counts
        && !stopping
        && let Some(note) = cx.delta.origins[origin].cuts.take_note()
    {
        lanes.send(0, Down::NoteSent { origin: id, note }, cx);
    }
    if news && !log_counts {
        lanes.send_all(|| Down::ErasSent, cx);
    }
}

/// Chooses the eras that an origin may get now, which takes a group of them as a whole.
fn choose_group(origin: usize, oldest: Option<u64>, it: &Now, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let id = cx.facts.origins[origin].id;
    let blocks_max = GROUP_BLOCKS_MAX.min(cx.facts.origins[origin].dirty_limit / GROUPS_PER_LIMIT);
    let unnoted = cx.facts.planted(Canary::GroupUnnoted);
    let view = View {
        oldest,
        log_counts: !cx.cache_failed() && !unnoted,
        idle: it.idle,
        may_begin: it.may_begin,
        hurry: it.hurry,
        blocks_max,
        now: cx.now,
    };
    // Nothing comes to a group that has begun.
    let below = lanes.looks().map(|lane| lane.era_now(origin, cx)).min().unwrap_or_default();
    let cuts = &mut cx.delta.origins[origin].cuts;
    if let Some(last) = cuts.choose_group(&view, |first| last_era(id, (first, below), blocks_max, lanes)) {
        lanes.send_all(|| Down::PutTogether { origin: id, last }, cx);
    }
}

/// Where a group ends that begins with an era.
fn last_era(origin: OriginId, (first, below): (u64, u64), blocks_max: u64, lanes: &Lanes) -> u64 {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for lane in lanes.looks() {
        let mut sum = 0;
        for (era, blocks) in lane.era_sizes(origin, first, below) {
            *sizes.entry(era).or_default() += blocks;
            sum += blocks;
            if sum > blocks_max {
                break;
            }
        }
    }
    let (mut sum, mut last) = (0, first);
    for (era, blocks) in sizes {
        sum += blocks;
        if sum > blocks_max {
            break;
        }
        last = era;
    }
    last
}

/// The log is to say which eras are on the origin, and which may be.
pub(crate) fn note_sent(lane: &mut Lane, origin: OriginId, note: ErasNote, cx: &mut Cx<'_>) {
    let ErasNote { sent, group } = note;
    lane.log.note(Note::Entry(Entry::Sent { origin, era: sent }));
    if group > 0 {
        lane.log.note(Note::Entry(Entry::Group { origin, last: group }));
    }
    let wait = lane.await_durable(Waiter::Sent(origin), cx);
    debug_assert_ne!(wait, Wait::Durable, "a noted entry is not durable yet");
}

/// The log says durably which eras are on the origin: what waited for them goes on.
pub(crate) fn sent_recorded(id: OriginId, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let Some(origin) = cx.facts.place_of(id) else { return };
    cx.delta.origins[origin].cuts.note_recorded();
    lanes.send_all(|| Down::ErasSent, cx);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ordered destage: which era may be destaged now, and what the log says of those that are over.
//!
//! Eras go to the origin in turn, with the origin's flush between two. Within an era runs
//! go in the usual order. A crash of the daemon forgets what of an era is on the origin already. So
//! after a crash eras are destaged again, from the first one that the log doesn't call sent. That
//! may be the era at hand and the one before, but no other (ADR 0053). Then a block may be older on
//! the origin for a moment, but not older than the era before the one at hand.

use crate::act::commit::log::Note;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::types::OriginId;
use crate::format::Entry;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::organ::down::Down;
use crate::organ::waiter::{Wait, Waiter};

/// Follows what has become of the eras of an origin.
pub(super) fn order_step(origin: usize, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let id = cx.facts.origins[origin].id;
    let oldest = lanes.looks().filter_map(|lane| lane.first_era(id)).min();
    let log_counts = !cx.cache_failed();
    let stopping = cx.facts.stopping;
    let cuts = &mut cx.delta.origins[origin].cuts;
    let news = cuts.advance(oldest);
    if log_counts
        && !stopping
        && let Some(era) = cuts.take_note()
    {
        lanes.send(0, Down::NoteSent { origin: id, era }, cx);
    }
    let early = cx.facts.planted(Canary::EraEarly);
    cx.delta.origins[origin].cuts.choose(oldest, log_counts && !early);
    if news && !log_counts {
        lanes.send_all(|| Down::ErasSent, cx);
    }
}

/// The log is to say which eras are on the origin.
pub(crate) fn note_sent(lane: &mut Lane, origin: OriginId, era: u64, cx: &mut Cx<'_>) {
    lane.log.note(Note::Entry(Entry::Sent { origin, era }));
    let wait = lane.await_durable(Waiter::Sent(origin), cx);
    debug_assert_ne!(wait, Wait::Durable, "a noted entry is not durable yet");
}

/// The log says durably which eras are on the origin: what waited for them goes on.
pub(crate) fn sent_recorded(id: OriginId, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let Some(origin) = cx.facts.place_of(id) else { return };
    cx.delta.origins[origin].cuts.note_recorded();
    lanes.send_all(|| Down::ErasSent, cx);
}

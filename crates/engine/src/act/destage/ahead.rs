// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies ahead of destage in a lane: the next block that may go, and the next one that somebody
//! waits for.
//!
//! While messages are on their way, a lane shows what is at its cursor or behind it. That answers a
//! question about a later place, too, if the block shown is not before that place. Otherwise the
//! cursor has to be moved, and the answer is not known yet. A block that has become dirty meanwhile
//! may be passed over. The next sweep finds it.

use core::ops::Range;

use super::order::Next;
use super::run::run_end;
use crate::cx::Cx;
use crate::lane::Lane;
use crate::look::Look;
use crate::organ::cursor::Cursor;
use crate::organ::eras::Wanted;
use crate::organ::index::Flat;
use crate::organ::seen::AheadSeen;

/// The first block of an origin at a place or behind it that may be destaged now. `eras`: which
/// ones, where destage is ordered.
fn next_dirty(lane: &Lane, origin: usize, from: Flat, eras: Option<Wanted>, cx: &Cx<'_>) -> Option<Flat> {
    let places = cx.facts.origins[origin].places();
    let from = Flat(from.0.max(places.start));
    let next = match (&lane.eras, eras) {
        (None, _) => lane.store.next_dirty(from),
        (Some(eras), Some(wanted)) => eras.next(cx.facts.origins[origin].id, wanted, from),
        (Some(_), None) => None,
    };
    next.filter(|flat| flat.0 < places.end)
}

/// The first of these blocks that somebody waits for and no run covers.
fn next_urgent(lane: &Lane, mut places: Range<u64>) -> Option<Flat> {
    loop {
        let flat = lane.trouble.next_urgent(places.clone())?;
        let Some(end) = run_end(lane, flat) else { return Some(flat) };
        places.start = end.0.min(places.end);
    }
}

/// What the lane shows of an origin.
pub(crate) fn show_ahead(lane: &Lane, origin: usize, cx: &Cx<'_>) -> AheadSeen {
    let (cursor, places) = (lane.cursors.of(origin), cx.facts.origins[origin].places());
    let urgent_from = cursor.urgent_from.0.clamp(places.start, places.end);
    AheadSeen {
        cursor,
        next: next_dirty(lane, origin, cursor.from, cursor.eras, cx),
        next_urgent: next_urgent(lane, urgent_from..places.end),
        any_urgent: lane.trouble.next_urgent(places).is_some(),
    }
}

/// What is known of blocks at a place or behind it. `seen_from`: where the lane has looked from.
fn known(next: Option<Flat>, seen_from: Flat, from: Flat) -> Next {
    match next {
        _ if seen_from > from => Next::Unknown,
        Some(flat) if flat < from => Next::Unknown,
        Some(flat) => Next::At(flat.0),
        None => Next::Nothing,
    }
}

impl Look<'_> {
    /// The first block of an origin at a place or behind it that may be destaged now. `eras`: which
    /// ones, where destage is ordered.
    pub(super) fn next_dirty(self, origin: usize, from: Flat, eras: Option<Wanted>, cx: &Cx<'_>) -> Next {
        match self {
            Self::Now(lane) => next_dirty(lane, origin, from, eras, cx).into(),
            Self::Seen(seen, _) => match seen.ahead.get(origin) {
                Some(it) if it.cursor.eras == eras => known(it.next, it.cursor.from, from),
                _ => Next::Unknown,
            },
        }
    }

    /// The first block of an origin at a place or behind it that somebody waits for and no run
    /// covers.
    pub(super) fn next_urgent(self, origin: usize, from: Flat, cx: &Cx<'_>) -> Next {
        match self {
            Self::Now(lane) => next_urgent(lane, from.0..cx.facts.origins[origin].places().end).into(),
            Self::Seen(seen, _) => {
                seen.ahead.get(origin).map_or(Next::Unknown, |it| known(it.next_urgent, it.cursor.urgent_from, from))
            }
        }
    }

    /// Whether somebody waits for a block of an origin.
    pub(super) fn has_urgent(self, origin: usize, cx: &Cx<'_>) -> bool {
        match self {
            Self::Now(lane) => lane.trouble.next_urgent(cx.facts.origins[origin].places()).is_some(),
            Self::Seen(seen, _) => seen.ahead.get(origin).is_some_and(|it| it.any_urgent),
        }
    }

    /// Whether the lane has shown what it has at this cursor.
    pub(super) fn is_at(self, origin: usize, cursor: Cursor) -> bool {
        match self {
            Self::Now(_) => true,
            Self::Seen(seen, _) => seen.ahead.get(origin).is_some_and(|it| it.cursor == cursor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lane_has_ahead_answers_for_places_up_to_it_and_for_no_others() {
        let at = |place| Some(Flat(place));
        assert_eq!(known(at(9), Flat(5), Flat(5)), Next::At(9));
        assert_eq!(known(at(9), Flat(5), Flat(9)), Next::At(9), "nothing is between");
        assert_eq!(known(at(9), Flat(5), Flat(10)), Next::Unknown, "nobody has looked behind it");
        assert_eq!(known(at(9), Flat(5), Flat(4)), Next::Unknown, "nobody has looked before the cursor");
        assert_eq!((known(None, Flat(5), Flat(50)), known(None, Flat(5), Flat(4))), (Next::Nothing, Next::Unknown));
    }
}

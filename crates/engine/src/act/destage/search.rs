// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search for the block with which the next run of an origin starts, over all lanes.

use alloc::boxed::Box;
use core::cell::Cell;
use core::iter;

use super::order::{self, DirtyView, Next, Order};
use crate::cx::Cx;
use crate::fact::types::OriginId;
use crate::lanes::Lanes;
use crate::organ::cursor::{Cursor, Cursors};
use crate::organ::down::Down;
use crate::organ::eras::Wanted;
use crate::organ::grant::{Came, Grant, Takes, Used};
use crate::organ::index::Flat;

/// Where destage of one origin looks for blocks.
pub(super) struct Search {
    order: Box<dyn Order>,
    /// Where the next block is looked for that somebody waits for: lane, place.
    urgent_from: (usize, u64),
    /// The cursor of each lane, when it has done what it was asked.
    cursors: Cursors,
    /// Where a group of eras lacked a run when it was last looked at: lane, place.
    lacking_from: (usize, Flat),
}

impl Default for Search {
    fn default() -> Self {
        Self {
            order: (order::ALL[0].build)(),
            urgent_from: (0, 0),
            cursors: Cursors::default(),
            lacking_from: (0, Flat(0)),
        }
    }
}

/// The dirty blocks of one origin; where destage is ordered, those of these eras alone.
struct DirtyBlocks<'a, 'b> {
    lanes: &'a Lanes,
    origin: usize,
    eras: Option<Wanted>,
    cx: &'a Cx<'b>,
    /// From where the order wants to know what is next.
    asked: Cell<Flat>,
}

impl DirtyView for DirtyBlocks<'_, '_> {
    fn next(&self, from: u64) -> Next {
        self.asked.set(Flat(from));
        let mut first = Next::Nothing;
        for lane in self.lanes.looks() {
            first = match (first, lane.next_dirty(self.origin, Flat(from), self.eras, self.cx)) {
                (_, Next::Unknown) => return Next::Unknown,
                (Next::At(one), Next::At(other)) => Next::At(one.min(other)),
                (Next::At(one), _) => Next::At(one),
                (_, next) => next,
            };
        }
        first
    }
}

impl Search {
    /// Where the order wants the next run to start. Nothing: a sweep has come round.
    pub(super) fn next(&mut self, origin: usize, eras: Option<Wanted>, lanes: &mut Lanes, cx: &mut Cx<'_>) -> Next {
        let asked = Cell::default();
        let view = DirtyBlocks { lanes, origin, eras, cx, asked };
        let (next, from) = (self.order.next(&view), view.asked.get());
        match next {
            Next::At(_) => {}
            Next::Nothing => self.urgent_from = (0, 0),
            Next::Unknown => {
                for lane in 0..lanes.count() {
                    if lanes.look(lane).next_dirty(origin, from, eras, cx) == Next::Unknown {
                        self.seek(lane, origin, |it| (it.eras, it.from) = (eras, from), lanes, cx);
                    }
                }
            }
        }
        next
    }

    /// The next block that somebody waits for, and that no run covers.
    pub(super) fn next_urgent(&mut self, origin: usize, lanes: &mut Lanes, cx: &mut Cx<'_>) -> Next {
        let places = cx.facts.origins[origin].places();
        while self.urgent_from.0 < lanes.count() {
            let (lane, from) = (self.urgent_from.0, Flat(self.urgent_from.1.clamp(places.start, places.end)));
            match lanes.look(lane).next_urgent(origin, from, cx) {
                Next::At(place) => {
                    self.urgent_from.1 = place + 1;
                    return Next::At(place);
                }
                Next::Nothing => self.urgent_from = (lane + 1, 0),
                Next::Unknown => {
                    self.seek(lane, origin, |it| it.urgent_from = from, lanes, cx);
                    return Next::Unknown;
                }
            }
        }
        Next::Nothing
    }

    /// A lane has used a grant: the search goes on behind that.
    pub(super) fn used(&mut self, lane: usize, grant: &Grant, used: &Used) {
        self.cursors.of_mut(lane).go_on(grant, used);
        if grant.takes != Takes::Urgent {
            self.order.taken(used.end.0);
        }
        if grant.takes != Takes::Urgent || used.came == Came::Run {
            self.urgent_from = (0, 0);
        }
    }

    /// Whether a group of eras has a block that no run covers. The look begins where one was found
    /// last: most often it is still there.
    pub(super) fn lacks_run(&mut self, origin: OriginId, wanted: Wanted, lanes: &Lanes) -> bool {
        let (lane, from) = self.lacking_from;
        let others = (0..lanes.count()).filter(|it| *it != lane).map(|it| (it, Flat(0)));
        let places = iter::once((lane, from)).chain(others).chain(iter::once((lane, Flat(0))));
        let mut found = places.filter_map(|(it, from)| Some((it, lanes.look(it).lacking(origin, wanted, from)?)));
        let lacking = found.next();
        self.lacking_from = lacking.unwrap_or_default();
        lacking.is_some()
    }

    /// Moves the cursor of a lane, as soon as that lane has shown what is at the last one.
    fn seek(
        &mut self,
        lane: usize,
        origin: usize,
        goes_to: impl FnOnce(&mut Cursor),
        lanes: &mut Lanes,
        cx: &mut Cx<'_>,
    ) {
        let cursor = self.cursors.of_mut(lane);
        if lanes.look(lane).is_at(origin, *cursor) {
            goes_to(cursor);
            lanes.send(lane, Down::Seek { origin, cursor: *cursor }, cx);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows the coordinator what it wants to know of a lane.

use crate::act::destage::ahead::show_ahead;
use crate::cx::Cx;
use crate::look::Look;
use crate::organ::seen::{Counts, EraSeen, LaneSeen, Pressure};

impl Look<'_> {
    /// What the lane shows now.
    pub(crate) fn show(self, cx: &Cx<'_>) -> LaneSeen {
        let lane = self.lane();
        let origin_of = |piece: &usize| cx.facts.origin_of(lane.pieces[*piece].first);
        let pressure = Pressure {
            saturated: lane.log.saturated(),
            behind_until: lane.reclaim.behind_until(),
            room: lane.awaiting_room.iter().map(origin_of).collect(),
            versions: self.awaits_versions(cx),
            clean: lane.awaiting_clean.iter().map(origin_of).collect(),
        };
        let eras = lane.eras.iter().flat_map(|eras| {
            let origins = cx.facts.origins.iter().zip(&cx.delta.origins);
            origins.map(|(origin, it)| EraSeen { first: eras.first(origin.id), now: it.cuts.era() })
        });
        LaneSeen {
            wish: lane.flush_wish(),
            filled: lane.filled(),
            pressure,
            eras: eras.collect(),
            ahead: (0..cx.facts.origins.len()).map(|origin| show_ahead(lane, origin, cx)).collect(),
            rest: lane.rest(),
            counts: Counts::default(),
        }
    }
}

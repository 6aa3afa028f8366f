// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks: all that the coordinator wants to know of a lane before it decides something.
//!
//! A look changes nothing. Each question is a function of [`Look`], here or beside the act that it
//! is about. So a lane in a thread of its own has to tell these answers, and no others.

use core::ops::Range;

use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::types::{OriginId, Time};
use crate::lane::Lane;
use crate::organ::down::FlushWish;
use crate::organ::seen::{LaneSeen, Rest};

/// A look at a lane.
#[derive(Clone, Copy)]
pub(crate) enum Look<'a> {
    /// The lane as it is at this moment.
    Now(&'a Lane),
    /// What the lane has shown, while messages are on their way. What is not shown yet is looked at
    /// in the lane.
    Seen(&'a LaneSeen, &'a Lane),
}

impl<'a> Look<'a> {
    /// The lane. Acts that have a question of their own answer it by this.
    pub(crate) const fn lane(self) -> &'a Lane {
        let (Self::Now(lane) | Self::Seen(_, lane)) = self;
        lane
    }

    /// The lane's wish for a flush of the cache device.
    pub(crate) fn flush_wish(self) -> FlushWish {
        match self {
            Self::Now(lane) => lane.flush_wish(),
            Self::Seen(seen, _) => seen.wish,
        }
    }

    /// The number of the filling of a mirror of which the lane has done its part.
    pub(crate) fn filled(self) -> Option<u64> {
        match self {
            Self::Now(lane) => lane.filled(),
            Self::Seen(seen, _) => seen.filled,
        }
    }

    /// What of the lane is at rest.
    pub(crate) fn rest(self) -> Rest {
        match self {
            Self::Now(lane) => lane.rest(),
            Self::Seen(seen, _) => seen.rest,
        }
    }

    /// How many messages and ends of I/Os the lane has taken, where that is counted.
    pub(crate) fn taken(self) -> Option<u64> {
        match self {
            Self::Now(_) => None,
            Self::Seen(seen, _) => Some(seen.counts.heard + seen.counts.ended),
        }
    }

    /// Whether the log takes no more at this moment.
    pub(crate) fn is_saturated(self) -> bool {
        match self {
            Self::Now(lane) => lane.log.saturated(),
            Self::Seen(seen, _) => seen.pressure.saturated,
        }
    }

    /// Whether writes to this origin wait for room in the log.
    pub(crate) fn awaits_room(self, origin: usize, cx: &Cx<'_>) -> bool {
        match self {
            Self::Now(lane) => has_first_in(lane, lane.awaiting_room.iter(), &cx.facts.origins[origin].places()),
            Self::Seen(seen, _) => seen.pressure.room.contains(&origin),
        }
    }

    /// Whether pieces of this origin wait until their range is clean.
    pub(crate) fn awaits_clean(self, origin: usize, cx: &Cx<'_>) -> bool {
        match self {
            Self::Now(lane) => has_first_in(lane, lane.awaiting_clean.iter(), &cx.facts.origins[origin].places()),
            Self::Seen(seen, _) => seen.pressure.clean.contains(&origin),
        }
    }

    /// Whether the lane has a part in filling a new mirror, or in giving that up.
    pub(crate) const fn fills(self) -> bool {
        self.lane().sync.is_some()
    }

    /// Blocks of a new mirror that were copied, and how many there are.
    pub(crate) fn copied(self) -> (u64, u64) {
        self.lane().sync.as_ref().map_or((0, 0), |sync| (sync.copied(), sync.of().max(sync.copied())))
    }

    /// Whether the lane knows of blocks that only one member has.
    pub(crate) fn knows_copies(self) -> bool {
        self.lane().trouble.knows_copies()
    }

    /// How many dirty blocks only the lead of two members has, as far as is known.
    pub(crate) fn only_on_lead(self) -> u64 {
        self.lane().trouble.only_on_lead()
    }

    /// Whether the lead can't be read where a dirty block is.
    pub(crate) fn lead_lacks(self) -> bool {
        self.lane().trouble.reads_elsewhere()
    }

    /// Whether reclaim waits for destage.
    pub(crate) fn is_reclaim_behind(self, now: Time) -> bool {
        let until = match self {
            Self::Now(lane) => lane.reclaim.behind_until(),
            Self::Seen(seen, _) => seen.pressure.behind_until,
        };
        until.is_some_and(|until| now < until)
    }

    /// The first era of an origin that needs blocks of the lane, or may need some. The lane may
    /// have written in an era that has ended, and may not have shown that yet.
    pub(crate) fn first_era(self, origin: usize, cx: &Cx<'_>) -> Option<u64> {
        match self {
            Self::Now(lane) => lane.eras.as_ref()?.first(cx.facts.origins[origin].id),
            Self::Seen(seen, _) => {
                let it = seen.era(origin);
                let unseen = cx.facts.planted(Canary::EraUnseen);
                if unseen { it.first } else { it.oldest(cx.delta.origins[origin].cuts.era()) }
            }
        }
    }

    /// All that the lane writes from now on to an origin is in this era, or in a later one.
    pub(crate) fn era_now(self, origin: usize, cx: &Cx<'_>) -> u64 {
        match self {
            Self::Now(_) => cx.delta.origins[origin].cuts.era(),
            Self::Seen(seen, _) => seen.era(origin).now,
        }
    }

    /// How many blocks eras of an origin need here, from this era until before that one.
    pub(crate) fn era_sizes(self, origin: OriginId, from: u64, below: u64) -> impl Iterator<Item = (u64, u64)> {
        self.lane().eras.iter().flat_map(move |eras| eras.sizes(origin, from, below))
    }
}

/// Whether one of these pieces begins in these places.
fn has_first_in<'a>(lane: &Lane, mut pieces: impl Iterator<Item = &'a usize>, places: &Range<u64>) -> bool {
    pieces.any(|piece| places.contains(&lane.pieces[*piece].first.0))
}

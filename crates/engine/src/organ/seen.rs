// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the coordinator has seen of a lane, which may be late: the lane may be further by now.
//!
//! A lane shows this *before* the messages of the same step, if it has changed. So a message never
//! comes to a coordinator that knows less of the lane than the message presumes.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::fact::types::Time;
use crate::organ::cursor::Cursor;
use crate::organ::down::FlushWish;
use crate::organ::index::Flat;

/// What a lane shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneSeen {
    /// Its wish for a flush of the cache device.
    pub(crate) wish: FlushWish,
    /// The number of the filling of a mirror of which it has done its part.
    pub(crate) filled: Option<u64>,
    pub(crate) pressure: Pressure,
    /// The eras of each origin, where destage is ordered.
    pub(crate) eras: Vec<EraSeen>,
    /// What lies ahead of destage, for each origin.
    pub(crate) ahead: Vec<AheadSeen>,
    pub(crate) rest: Rest,
    pub(crate) counts: Counts,
}

impl LaneSeen {
    /// Whether this is more than an answer to a search of destage. Then something else has changed
    /// than cursors, what is at those that moved, and counts.
    pub(crate) fn is_news(&self, before: &Self) -> bool {
        let Self { wish, filled, pressure, eras, ahead, rest, counts: _ } = self;
        let same = (wish, filled, pressure, eras, rest)
            == (&before.wish, &before.filled, &before.pressure, &before.eras, &before.rest);
        let moved = |(now, then): (&AheadSeen, &AheadSeen)| now.cursor != then.cursor;
        let ahead_same = ahead.len() == before.ahead.len()
            && ahead.iter().zip(&before.ahead).all(|both| both.0 == both.1 || moved(both));
        !same || !ahead_same
    }

    /// Eras of an origin. What the lane has never shown may be in any era.
    pub(crate) fn era(&self, origin: usize) -> EraSeen {
        self.eras.get(origin).copied().unwrap_or_default()
    }
}

/// Eras of an origin in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EraSeen {
    /// The first one that needs blocks of the lane.
    pub(crate) first: Option<u64>,
    /// All that the lane writes after it has shown this is in this era, or in a later one.
    pub(crate) now: u64,
}

impl EraSeen {
    /// The oldest era that needs blocks of the lane, or may need some. `era`: the one of what is
    /// written now. A lane that has not heard of it when it shows this may write in earlier ones.
    pub(crate) fn oldest(self, era: u64) -> Option<u64> {
        self.first.into_iter().chain((self.now < era).then_some(self.now)).min()
    }
}

/// What a lane has ahead of destage of an origin, as seen from a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AheadSeen {
    pub(crate) cursor: Cursor,
    /// The next block that may be destaged.
    pub(crate) next: Option<Flat>,
    /// The next block that somebody waits for and no run covers.
    pub(crate) next_urgent: Option<Flat>,
    /// Somebody waits for a block, wherever that is.
    pub(crate) any_urgent: bool,
}

/// What of a lane is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Nothing of the lane is in flight.
    pub(crate) idle: bool,
    /// All that was appended to the log is durable.
    pub(crate) log_quiet: bool,
    /// No checkpoint is under way.
    pub(crate) no_checkpoint: bool,
}

/// How many messages a lane had to do with. If the coordinator counts the same, nothing is on its
/// way (F. Mattern, "Algorithms for distributed termination detection", 1987).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Messages of the coordinator that the lane has heard.
    pub(crate) heard: u64,
    /// Messages that it has told, with those of the step in which it shows this.
    pub(crate) told: u64,
    /// I/Os of its own that have ended.
    pub(crate) ended: u64,
}

/// What a lane lacks. Seen late this costs time, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// The log takes no more.
    pub(crate) saturated: bool,
    /// Reclaim waits for destage, until then at most.
    pub(crate) behind_until: Option<Time>,
    /// The origins of which writes wait for room in the log.
    pub(crate) room: BTreeSet<usize>,
    /// Writes wait until eras need fewer versions, of whatever origin.
    pub(crate) versions: bool,
    /// The origins of which pieces wait until their range is clean.
    pub(crate) clean: BTreeSet<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_a_cursor_that_moved_is_no_news() {
        let ahead = |from, next| AheadSeen {
            cursor: Cursor { from: Flat(from), ..Cursor::default() },
            next: Some(Flat(next)),
            next_urgent: None,
            any_urgent: false,
        };
        let seen = |ahead, heard| LaneSeen {
            ahead: alloc::vec![ahead],
            counts: Counts { heard, ..Counts::default() },
            ..LaneSeen::default()
        };
        let before = seen(ahead(3, 8), 1);
        assert!(!seen(ahead(9, 20), 2).is_news(&before), "the lane has moved its cursor, as it was asked");
        assert!(seen(ahead(3, 5), 1).is_news(&before), "a block has become dirty");
        assert!(LaneSeen { filled: Some(1), ..before.clone() }.is_news(&before));
    }

    #[test]
    fn an_era_that_has_ended_may_need_blocks_until_the_lane_shows_that_it_knows_of_the_end() {
        let seen = LaneSeen::default();
        assert_eq!(seen.era(0).oldest(7), Some(0), "the lane has shown nothing");
        let it = EraSeen { first: None, now: 6 };
        assert_eq!((it.oldest(6), it.oldest(7)), (None, Some(6)));
        let it = EraSeen { first: Some(4), now: 6 };
        assert_eq!((it.oldest(6), it.oldest(7)), (Some(4), Some(4)));
        let it = EraSeen { first: Some(7), now: 7 };
        assert_eq!(it.oldest(7), Some(7), "an era may need blocks before it ends");
    }
}

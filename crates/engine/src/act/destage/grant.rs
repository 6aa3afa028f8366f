// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lane's part of a grant: it starts the run, or tells why not.

use super::run::{run_end, start_run, to_destage};
use super::versions::put_together;
use crate::act::commit::seal::seal;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::format::Stream;
use crate::lane::Lane;
use crate::organ::eras::Wanted;
use crate::organ::grant::{Came, Grant, Takes, Used};
use crate::organ::index::Flat;

/// Starts the run that a grant allows, if it can start now.
pub(crate) fn use_grant(lane: &mut Lane, grant: &Grant, cx: &mut Cx<'_>) -> Used {
    let (came, end) = try_grant(lane, grant, cx);
    if came == Came::Run
        && cx.facts.planted(Canary::GrantTwice)
        && let Some(first) = lane.store.next_dirty(end).filter(|next| *next < grant.end)
    {
        try_grant(lane, &Grant { first, ..*grant }, cx);
    }
    let gives_back = came == Came::Run && cx.facts.planted(Canary::GrantLost);
    let came = if gives_back { Came::Nothing } else { came };
    let used = Used { number: grant.number, origin: grant.origin, came, end };
    lane.cursors.of_mut(grant.origin).go_on(grant, &used);
    used
}

fn try_grant(lane: &mut Lane, grant: &Grant, cx: &mut Cx<'_>) -> (Came, Flat) {
    let first = grant.first;
    // A version that was found again may be in an older era.
    if let Some(Wanted { last, is_group: true }) = grant.eras {
        put_together(lane, cx.facts.origins[grant.origin].id, last, cx);
    }
    if let Some(end) = run_end(lane, first) {
        return (Came::Covered, end);
    }
    if grant.takes == Takes::Rested && pass_over(lane, first) {
        return (Came::PassedOver, first.next());
    }
    let mut blocks = start_run(lane, grant, cx);
    if blocks == 0 && seal_for_destage(lane, grant, cx) && grant.takes != Takes::Urgent {
        blocks = start_run(lane, grant, cx);
    }
    let came = if blocks > 0 { Came::Run } else { Came::Nothing };
    (came, first + blocks.max(1))
}

/// Whether a dirty block was rewritten since the last sweep came by: then it may be again, and is
/// better left for the next one. (A recency bit as in B. Gill and D. Modha, "WOW: Wise Ordering for
/// Writes", FAST 2005, for a block instead of a stripe.)
fn pass_over(lane: &mut Lane, flat: Flat) -> bool {
    let rewritten = lane.store.is_rewritten(flat);
    if rewritten {
        lane.store.forget_rewritten(flat);
    }
    rewritten
}

/// A block that should be destaged is still in an open commit: seal that. Whether it was.
fn seal_for_destage(lane: &mut Lane, grant: &Grant, cx: &mut Cx<'_>) -> bool {
    let version = to_destage(lane, grant.first, grant.eras);
    let unsealed = version.is_some_and(|version| lane.log.unsealed(version.0));
    if unsealed {
        seal(lane, Stream::Writes, cx);
    }
    unsealed
}

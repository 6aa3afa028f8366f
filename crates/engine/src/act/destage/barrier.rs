// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes past the log waits for eras, where destage is ordered.

use crate::cx::Cx;
use crate::fact::io::DeviceError;
use crate::lane::Lane;

/// Eras before this one are on the origin, and no replay will destage them again.
fn surely_sent(origin: usize, cx: &Cx<'_>) -> u64 {
    let cuts = &cx.delta.origins[origin].cuts;
    if cx.cache_failed() { cuts.sent() } else { cuts.recorded() }
}

/// Lets a piece wait for eras, where destage is ordered. Returns whether it has to. What goes past
/// the log belongs to the era in which it came. Those before it have to be on the origin, for sure.
/// If the log knows the range, so does the era itself, which is cut for that.
pub(crate) fn awaits_eras(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) -> bool {
    let origin = cx.facts.origin_of(lane.pieces[piece].first);
    let after = lane.pieces[piece].rare.as_ref().and_then(|rare| rare.after_era);
    let after = after.unwrap_or_else(|| {
        let (first, end) = (lane.pieces[piece].first, lane.pieces[piece].end());
        let known = lane.eras.as_ref().and_then(|eras| eras.from((first, 0)).next());
        let cuts = &mut cx.delta.origins[origin].cuts;
        if known.is_some_and(|(flat, ..)| flat < end) {
            cuts.cut(cx.now);
        }
        lane.pieces[piece].rare().after_era = Some(cuts.era());
        cuts.era()
    });
    let waits = surely_sent(origin, cx) < after;
    if waits {
        lane.awaiting_clean.push(piece);
    }
    waits
}

/// Fails the pieces that wait for eras of an origin which refuses what it is given.
pub(crate) fn fail_awaiting_eras(lane: &mut Lane, origin: usize, error: DeviceError, cx: &mut Cx<'_>) {
    for piece in core::mem::take(&mut lane.awaiting_clean) {
        let it = &lane.pieces[piece];
        let after = it.rare.as_ref().and_then(|rare| rare.after_era);
        if cx.facts.origin_of(it.first) == origin && after.is_some_and(|after| surely_sent(origin, cx) < after) {
            lane.give_up(piece, error.into(), cx);
        } else {
            lane.awaiting_clean.push(piece);
        }
    }
}

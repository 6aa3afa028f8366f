// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foresight: what becomes of a request, told before it is accepted. Either it ends by itself, or
//! it may wait for an origin.
//!
//! Nothing is changed by looking. The answer holds for a request that is accepted next, with
//! nothing taken in between. "Ends by itself" is exact as long as the cache device answers and has
//! what it should have (test: `what_is_foreseen_to_end_ends`). "May wait" errs on the safe side: a
//! lock that is held for a moment counts.

use crate::act::request::always_durable;
use crate::act::request::check_request;
use crate::act::request::may_go_past;
use crate::act::request::none_cached;
use crate::act::request::writes_congested;
use crate::coordinator::Coordinator;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::fact::io::{Effects, Request, RequestOp};
use crate::fact::memory::Memory;
use crate::fact::types::{BLOCK_SECTORS, Mode, SECTOR_BYTES, Time};
use crate::lanes::Lanes;
use crate::organ::active::Range;
use crate::organ::index::Flat;
use crate::organ::piece::Instead;

impl Engine {
    /// Whether a request would be answered without an answer of an origin. Ask after
    /// [`Engine::settle`]. Requests without payload hold nothing while they wait; of those nothing
    /// is foreseen, and the answer is yes.
    #[must_use]
    pub fn ends_by_itself(&mut self, now: Time, request: &Request, mem: &mut dyn Memory) -> bool {
        let mut out = Effects::default();
        let cx = Cx { now, mem, out: &mut out, facts: &self.facts, delta: &mut self.delta };
        ends_by_itself(&self.coordinator, request, &self.lanes, &cx)
    }
}

fn ends_by_itself(coordinator: &Coordinator, request: &Request, lanes: &Lanes, cx: &Cx<'_>) -> bool {
    // What is refused is answered at once.
    let Some((origin, None)) = check_request(coordinator, request, cx) else { return true };
    let cut = if let RequestOp::WriteBytes { head, tail } = request.op { (head, tail) } else { (0, 0) };
    let (lba, sectors, buf) = (request.lba.0, request.sectors, request.buf);
    let range = Range { origin, lba, sectors, buf, cut, instead: Instead::Never, warm: None };
    match request.op {
        RequestOp::Read | RequestOp::Prefetch => is_hit(coordinator, range, lanes, cx),
        RequestOp::Write | RequestOp::WriteBytes { .. } => is_absorbed(coordinator, range, request.fua, lanes, cx),
        RequestOp::Map | RequestOp::Warm { .. } => false,
        RequestOp::Flush | RequestOp::Discard | RequestOp::WriteZeroes { .. } => true,
    }
}

/// Whether all that a read asks for is in the cache, and will be read from there.
fn is_hit(coordinator: &Coordinator, range: Range, lanes: &Lanes, cx: &Cx<'_>) -> bool {
    let origin = &cx.facts.origins[range.origin];
    let past = origin.mode == Mode::Passthrough;
    all_parts(coordinator, range, cx, |lane, first, end| {
        let lane = lanes.asked(lane);
        let here = |flat: Flat| match lane.store.get(flat) {
            Some(found) => found.dirty || !past,
            None => !past && lane.window.holds(flat),
        };
        first.to(end).all(here) && !lane.locks.would_wait(first, end, false)
    })
}

/// Whether the log takes a write at once, without anything that only the origin has.
fn is_absorbed(coordinator: &Coordinator, range: Range, fua: bool, lanes: &Lanes, cx: &Cx<'_>) -> bool {
    let origin = &cx.facts.origins[range.origin];
    if origin.mode != Mode::Writeback || cx.facts.draining || cx.cache_failed() {
        return false;
    }
    let cutoff = origin.bypass_bytes;
    let sequential = cutoff > 0 && coordinator.sequences[range.origin].length_with(range.lba, range.sectors) > cutoff;
    let congested = || !fua && !always_durable(range, cx) && writes_congested(coordinator, range, lanes, cx);
    if (sequential || congested())
        && may_go_past(coordinator, range.origin, cx)
        && none_cached(coordinator, range, lanes, cx)
    {
        return false;
    }
    let (first, end) = flats_of(range, cx);
    if coordinator.throttle.would_wait(range.origin, end.0 - first.0, &coordinator.destager, cx) {
        return false;
    }
    let end_sector = range.lba + range.sectors;
    let head = !range.lba.is_multiple_of(BLOCK_SECTORS) || range.cut.0 > 0;
    // A short last block of the origin counts as whole.
    let tail = range.cut.1 > 0
        || (!end_sector.is_multiple_of(BLOCK_SECTORS) && end_sector * SECTOR_BYTES != origin.size_bytes);
    let known = |flat: Flat| lanes.asked(coordinator.router.lane_of(flat)).store.get(flat).is_some();
    if (head && !known(first)) || (tail && !known(Flat(end.0 - 1))) {
        return false;
    }
    all_parts(coordinator, range, cx, |lane, first, end| {
        let lane = lanes.asked(lane);
        lane.awaiting_room.is_empty() && !lane.locks.would_wait(first, end, true)
    })
}

/// Whether it is so for the part of a range in each stripe.
fn all_parts(coordinator: &Coordinator, range: Range, cx: &Cx<'_>, is_so: impl Fn(usize, Flat, Flat) -> bool) -> bool {
    let (mut from, end) = flats_of(range, cx);
    while from < end {
        let to = end.min(coordinator.router.stripe_end(from));
        if !is_so(coordinator.router.lane_of(from), from, to) {
            return false;
        }
        from = to;
    }
    true
}
/// The blocks that a range touches.
fn flats_of(range: Range, cx: &Cx<'_>) -> (Flat, Flat) {
    let base = cx.facts.origins[range.origin].base.0;
    let end = (range.lba + range.sectors).div_ceil(BLOCK_SECTORS);
    (Flat(base + range.lba / BLOCK_SECTORS), Flat(base + end))
}

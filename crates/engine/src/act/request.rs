// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests: checked, classified, split at stripe borders into pieces, joined again for the reply.

use crate::act::answer::{part_done, refuse};
use crate::act::map::map;
use crate::act::prefetch::{prefetch, warm};
use crate::act::ranges::take_range;
use crate::act::zeroes::write_zeroes;
use crate::coordinator::Coordinator;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::io::{AnswerKind, Request, RequestError, RequestOp};
use crate::fact::types::{BLOCK_SECTORS, Durability, Mode, REQUEST_BYTES_MAX, SECTOR_BYTES};
use crate::lanes::Lanes;
use crate::organ::active::{Active, Range};
use crate::organ::down::Down;
use crate::organ::flush::FlushWaiter;
use crate::organ::index::Flat;
use crate::organ::origin::{Origin, Stage};
use crate::organ::piece::{Instead, PIECE_BLOCKS_MAX, Piece, PieceKind};
use crate::organ::room::Outlook as _;
use crate::organ::zeroes::Zeroed;
use crate::policy::Hold;
use crate::shadow::{Access, Live};

/// What a request of this kind is called if nothing is missed.
const fn kind_of(op: RequestOp) -> AnswerKind {
    match op {
        RequestOp::Read | RequestOp::Prefetch => AnswerKind::Hit,
        RequestOp::Write | RequestOp::WriteBytes { .. } | RequestOp::WriteZeroes { .. } => AnswerKind::Write,
        RequestOp::Flush => AnswerKind::Flush,
        RequestOp::Discard | RequestOp::Map | RequestOp::Warm { .. } => AnswerKind::Other,
    }
}

/// The blocks of its origin that a range touches.
fn blocks_of(range: Range) -> core::ops::Range<u64> {
    range.lba / BLOCK_SECTORS..(range.lba + range.sectors).div_ceil(BLOCK_SECTORS)
}

/// Whether writes of this range are promised to be durable when they are acknowledged.
pub(crate) fn always_durable(range: Range, cx: &Cx<'_>) -> bool {
    let writeback = cx.facts.origins[range.origin].mode == Mode::Writeback;
    writeback && cx.facts.options.durability == Durability::Always
}

/// Whether writes of this range go to the log.
pub(crate) fn writes_are_cached(range: Range, cx: &Cx<'_>) -> bool {
    cx.facts.origins[range.origin].mode == Mode::Writeback && !cx.facts.draining && !cx.cache_failed()
}

/// What the shadow is told of a piece. Nothing of what says little about the worth of a cache:
/// discards and long zeroes.
fn shadowed(kind: PieceKind, bypass: bool, mode: Mode) -> Option<Access> {
    match (kind, mode) {
        (PieceKind::Discard | PieceKind::Zero | PieceKind::Punch, _) | (_, Mode::Passthrough) => None,
        (PieceKind::Read, _) if bypass => Some(Access::ReadPast),
        (PieceKind::Read, _) => Some(Access::Read),
        (PieceKind::Write, _) => Some(Access::Write),
        (PieceKind::Direct, Mode::Writethrough) if !bypass => Some(Access::WriteThrough),
        (PieceKind::Direct, _) => Some(Access::WritePast),
    }
}

/// Takes a client's request.
pub(crate) fn accept(coordinator: &mut Coordinator, arrived: Request, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    coordinator.destager.request_seen(cx.now);
    let Some((origin, error)) = check_request(coordinator, &arrived, cx) else {
        return refuse(&arrived, RequestError::Invalid, cx);
    };
    if let Some(error) = error {
        return refuse(&arrived, error, cx);
    }
    let request = coordinator.requests.insert(Active::new(&arrived, origin, kind_of(arrived.op)));
    let counters = &mut cx.delta.counters;
    match arrived.op {
        RequestOp::Read | RequestOp::Prefetch => counters.reads += 1,
        RequestOp::Write | RequestOp::WriteBytes { .. } | RequestOp::WriteZeroes { .. } => {
            counters.writes += 1;
            cx.delta.cache_reads.written(cx.now);
        }
        RequestOp::Flush => counters.flushes += 1,
        RequestOp::Discard => counters.discards += 1,
        RequestOp::Map | RequestOp::Warm { .. } => {}
    }
    let cut = if let RequestOp::WriteBytes { head, tail } = arrived.op { (head, tail) } else { (0, 0) };
    let (lba, sectors, buf) = (arrived.lba.0, arrived.sectors, arrived.buf);
    let range = Range { origin, lba, sectors, buf, cut, instead: Instead::Never, warm: None };
    match arrived.op {
        RequestOp::Flush => flush(coordinator, request, origin, lanes, cx),
        RequestOp::Read => read(coordinator, request, range, lanes, cx),
        RequestOp::Prefetch => prefetch(coordinator, request, range, lanes, cx),
        RequestOp::Warm { replace } => warm(coordinator, request, range, replace, lanes, cx),
        RequestOp::Write | RequestOp::WriteBytes { .. } => write(coordinator, request, range, arrived.fua, lanes, cx),
        RequestOp::Discard => {
            split_whole(coordinator, request, range, PieceKind::Discard, arrived.fua, lanes, cx);
        }
        RequestOp::Map => map(coordinator, request, range, lanes, cx),
        RequestOp::WriteZeroes { may_discard } => {
            let kind = if may_discard { PieceKind::Punch } else { PieceKind::Zero };
            write_zeroes(coordinator, request, Zeroed { range, kind, fua: arrived.fua }, lanes, cx);
        }
    }
    part_done(coordinator, request, None, cx);
}

/// The origin of a request, and why it is refused if it is; `None` if there is no such origin.
pub(crate) fn check_request(
    coordinator: &Coordinator,
    request: &Request,
    cx: &Cx<'_>,
) -> Option<(usize, Option<RequestError>)> {
    let origin = cx.facts.place_of(request.origin)?;
    if !coordinator.serving() {
        return Some((origin, Some(RequestError::Stopping)));
    }
    let Origin { sectors, read_only, stage, .. } = cx.facts.origins[origin];
    if request.op == RequestOp::Flush {
        return Some((origin, (stage != Stage::Serving).then_some(RequestError::Invalid)));
    }
    let inside = request.lba.0.checked_add(request.sectors).is_some_and(|end| end <= sectors);
    let payload = request.op.has_payload();
    let fits = !payload || (request.sectors <= REQUEST_BYTES_MAX / SECTOR_BYTES && request.buf.is_some());
    let of_its_kind = match request.op {
        RequestOp::Map => {
            let end = request.lba.0.saturating_add(request.sectors);
            let whole =
                request.lba.0.is_multiple_of(BLOCK_SECTORS) && (end.is_multiple_of(BLOCK_SECTORS) || end == sectors);
            whole && request.buf.is_some()
        }
        RequestOp::WriteBytes { head, tail } => {
            let (head, tail) = (u64::from(head), u64::from(tail));
            head.max(tail) < SECTOR_BYTES && head + tail < request.sectors.saturating_mul(SECTOR_BYTES)
        }
        _ => true,
    };
    let sound = inside && request.sectors > 0 && fits && of_its_kind;
    let error = if !sound {
        Some(RequestError::Invalid)
    } else if read_only && request.op.changes() {
        Some(RequestError::ReadOnly)
    } else {
        None
    };
    Some((origin, error))
}

fn read(coordinator: &mut Coordinator, request: usize, range: Range, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let stream_bytes = coordinator.sequences[range.origin].note(range.lba, range.sectors);
    let cutoff = cx.facts.origins[range.origin].bypass_bytes;
    let sequential = cutoff > 0 && stream_bytes > cutoff;
    cx.delta.counters.bypassed_sequential += u64::from(sequential);
    let bypass = sequential || cx.facts.origins[range.origin].mode == Mode::Passthrough;
    split(coordinator, request, range, PieceKind::Read, false, bypass, lanes, cx);
}

pub(crate) fn write(
    coordinator: &mut Coordinator,
    request: usize,
    range: Range,
    fua: bool,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    let stream_bytes = coordinator.sequences[range.origin].note(range.lba, range.sectors);
    let cutoff = cx.facts.origins[range.origin].bypass_bytes;
    let sequential = cutoff > 0 && stream_bytes > cutoff;
    let cached = writes_are_cached(range, cx);
    let durable = fua || always_durable(range, cx);
    let congested = cached && !durable && writes_congested(coordinator, range, lanes, cx);
    let past = (sequential || congested) && may_go_past(coordinator, range.origin, cx);
    if cached && !(past && none_cached(coordinator, range, lanes, cx)) {
        split(coordinator, request, range, PieceKind::Write, durable, false, lanes, cx);
    } else {
        let counters = &mut cx.delta.counters;
        counters.bypassed_sequential += u64::from(sequential);
        if congested && !sequential {
            counters.bypassed_congested_blocks += blocks_of(range).count() as u64;
        }
        let instead = match (cached, congested) {
            (false, _) => Instead::Never,
            (true, false) => Instead::IfAway,
            (true, true) => Instead::IfBetter,
        };
        let range = Range { instead, ..range };
        split(coordinator, request, range, PieceKind::Direct, durable, sequential || congested, lanes, cx);
    }
}

/// Whether a write may go past the cache to this origin. Where destage is ordered, and behind, the
/// log is the shorter way. An origin that is away answers nothing, and the log does.
pub(crate) fn may_go_past(coordinator: &Coordinator, origin: usize, cx: &Cx<'_>) -> bool {
    let it = &cx.delta.origins[origin];
    !it.cuts.is_behind() && !it.gauge.is_silent(cx.now) && !coordinator.destager.is_away(origin, cx)
}

/// Whether the log takes no more at this moment, and the origin would take this write sooner.
pub(crate) fn writes_congested(coordinator: &Coordinator, range: Range, lanes: &Lanes, cx: &Cx<'_>) -> bool {
    let first = Flat(cx.facts.origins[range.origin].base.0 + range.lba / BLOCK_SECTORS);
    let lane = lanes.look(coordinator.router.lane_of(first));
    let blocks = blocks_of(range).count() as u64;
    lane.is_saturated() && cx.delta.gauge.writes_congested(&cx.delta.origins[range.origin].gauge, blocks, cx.now)
}

pub(crate) fn none_cached(coordinator: &Coordinator, range: Range, lanes: &Lanes, cx: &Cx<'_>) -> bool {
    let base = cx.facts.origins[range.origin].base.0;
    blocks_of(range)
        .map(|block| base + block)
        .all(|flat| lanes.asked(coordinator.router.lane_of(Flat(flat))).store.get(Flat(flat)).is_none())
}

/// The whole blocks of a range.
pub(crate) fn split_whole(
    coordinator: &mut Coordinator,
    request: usize,
    range: Range,
    kind: PieceKind,
    fua: bool,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    let lba = range.lba.next_multiple_of(BLOCK_SECTORS);
    let size = cx.facts.origins[range.origin].size_bytes / SECTOR_BYTES;
    let end = range.lba + range.sectors;
    // The last block of an origin may be short; then its end is the origin's.
    let end = if end == size { end } else { end / BLOCK_SECTORS * BLOCK_SECTORS };
    if lba < end {
        let whole = Range { lba, sectors: end - lba, buf: None, ..range };
        take_range(coordinator, request, whole, kind, fua, lanes, cx);
    }
}

/// Cuts a range at stripe borders and sends the pieces to their lanes.
#[expect(clippy::too_many_arguments, reason = "the parts of one request; called from four places above")]
pub(crate) fn split(
    coordinator: &mut Coordinator,
    request: usize,
    range: Range,
    kind: PieceKind,
    durable: bool,
    bypass: bool,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    let origin = &cx.facts.origins[range.origin];
    let end_sector = range.lba + range.sectors;
    let first = Flat(origin.base.0 + range.lba / BLOCK_SECTORS);
    let end = Flat(origin.base.0 + end_sector.div_ceil(BLOCK_SECTORS));
    let before = (range.lba % BLOCK_SECTORS * SECTOR_BYTES) as u16 + range.cut.0;
    // A short last block of the origin counts as whole.
    let last_is_whole = end_sector * SECTOR_BYTES == origin.size_bytes && range.cut.1 == 0;
    let missing = (BLOCK_SECTORS - end_sector % BLOCK_SECTORS) % BLOCK_SECTORS * SECTOR_BYTES;
    let behind = if last_is_whole { 0 } else { missing as u16 + range.cut.1 };
    let access = shadowed(kind, bypass, origin.mode).filter(|_| range.warm.is_none());
    if let Some(access) = access {
        let hold = coordinator.shadow.note(access, first.0..end.0, || Live {
            found: cx.delta.counters.found(),
            reads_around: cx.delta.origins[range.origin].gauge.reads_are_dear(cx.now),
        });
        if let Some(hold) = hold {
            // The duel knows no budget: an open gate would spend it on whatever comes first.
            let hold = if cx.delta.budget.is_none() { hold } else { Hold::No };
            lanes.send_all(|| Down::HoldGate(hold), cx);
        }
    }
    let mut from = first;
    while from < end {
        let to = end.min(coordinator.router.stripe_end(from)).min(Flat(from.0 + PIECE_BLOCKS_MAX));
        let head = if from == first { before } else { 0 };
        let tail = if to == end { behind } else { 0 };
        let piece = Piece {
            kind,
            request,
            first: from,
            blocks: (to.0 - from.0) as u32,
            buf: range.buf,
            buf_block: (from.0 - first.0) as u32,
            around: (head, tail),
            completed: false,
            durable,
            bypass,
            instead: range.instead,
            warm: range.warm,
            lock: None,
            pending: 0,
            error: None,
            from_origin: false,
            next: 0,
            reserved: 0,
            missed: (0, 0),
            rare: None,
        };
        coordinator.requests[request].hold();
        if kind.is_range() {
            coordinator.ranges.take(range.origin);
        }
        let lane = coordinator.router.lane_of(from);
        if kind == PieceKind::Write {
            coordinator.throttle.submit(range.origin, piece);
        } else {
            lanes.send_piece(lane, piece, cx);
        }
        from = to;
    }
}

/// A write that was to go past the log goes the way of any other. What it was completed with may be
/// old by now: it is completed once more.
pub(crate) fn past_congestion(coordinator: &mut Coordinator, taken: Piece, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let origin = cx.facts.origin_of(taken.first);
    let again = Piece { completed: false, instead: Instead::Never, ..taken };
    // Since it was accepted the mode may have been switched, or the cache have failed.
    if cx.facts.origins[origin].mode == Mode::Writeback && !cx.facts.draining && !cx.cache_failed() {
        coordinator.throttle.submit(origin, Piece { kind: PieceKind::Write, bypass: false, ..again });
    } else {
        lanes.send_piece(coordinator.router.lane_of(again.first), again, cx);
    }
}

/// FLUSH: everything acknowledged so far, in all lanes, and what went to the origin directly.
fn flush(coordinator: &mut Coordinator, request: usize, origin: usize, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let joined = if cx.facts.planted(Canary::OneLaneFlushed) { 1 } else { lanes.count() };
    for lane in 0..joined {
        coordinator.requests[request].hold();
        lanes.send(lane, Down::ClientFlush { request }, cx);
    }
    if cx.delta.origins[origin].flush.await_durable(FlushWaiter::Request(request)) {
        coordinator.requests[request].hold();
    }
}

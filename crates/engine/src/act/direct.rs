// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes that go to the origin: writethrough, writearound, passthrough, bypass; discard; zeroes.
//!
//! The order ensures that no crash brings old data back (invariant 3):
//! 1. Dirty blocks of the range are destaged first, so that the origin alone is whole whatever
//!    happens next. (A discard drops them instead: its range has no content to keep.)
//! 2. Destage of the range that is in flight ends, so that it can't land on the new data.
//! 3. Cached blocks are dropped, and the entry that says so becomes durable.
//! 4. Only then the origin is written. Lost blocks that the write replaces are dropped after the
//!    origin's flush, durably. Then the write is acknowledged; with FUA it is acknowledged after
//!    the origin's flush.

use alloc::vec::Vec;

use crate::act::commit::append_promoted;
use crate::act::commit::log::Note;
use crate::act::destage::barrier::awaits_eras;
use crate::act::destage::run::run_overlaps;
use crate::act::read::offer;
use crate::act::write::merge;
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::io::{DeviceError, Op, RequestError};
use crate::fact::memory::Span;
use crate::fact::types::Mode;
use crate::format::Entry;
use crate::lane::Lane;
use crate::organ::flush::FlushWaiter;
use crate::organ::flying::LaneIo;
use crate::organ::index::Flat;
use crate::organ::piece::{Instead, Piece, PieceKind};
use crate::organ::up::Up;
use crate::organ::waiter::{Wait, Waiter};

/// Starts a piece that goes to the origin, when it has its lock.
pub(crate) fn start_direct(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    let it = &lane.pieces[piece];
    let behind = cx.delta.origins[cx.facts.origin_of(it.first)].cuts.is_behind();
    if it.instead == Instead::IfBetter && (behind || !still_congested(lane, it, cx) || knows(lane, it.first, it.end()))
    {
        // Earlier writes have changed the state since this one was accepted. The origin has enough
        // to do now, or this write would have to wait for their destage.
        lane.give_back(piece, cx);
        return;
    }
    let origin = cx.facts.origin_of(it.first);
    let unit = cx.facts.origins[origin].block_bytes;
    // A sector of an origin, of 512 bytes or of 4 KiB, can't be written in part. The blocks are
    // completed first.
    let ragged = !it.head().is_multiple_of(unit) || !it.tail().is_multiple_of(unit);
    if ragged { merge(lane, piece, cx) } else { clear_way(lane, piece, cx) }
}

/// Whether the origin would still take a write sooner than the log: many may have been sent
/// there at once.
fn still_congested(lane: &Lane, piece: &Piece, cx: &Cx<'_>) -> bool {
    let gauge = &cx.delta.origins[cx.facts.origin_of(piece.first)].gauge;
    lane.log.saturated() && cx.delta.gauge.writes_congested(gauge, u64::from(piece.blocks), cx.now)
}

/// Whether a block of a range is in the cache, or durably still is, or is on its way to the origin.
fn knows(lane: &Lane, first: Flat, end: Flat) -> bool {
    let mut flats = first.to(end);
    run_overlaps(lane, first, end)
        || flats.any(|flat| lane.store.get(flat).is_some() || lane.trouble.is_unrecorded(flat))
}

/// Steps 1 to 3; called again whenever a run ends.
pub(crate) fn clear_way(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    if lane.eras.is_some() && awaits_eras(lane, piece, cx) {
        return;
    }
    let (first, end, kind) = (lane.pieces[piece].first, lane.pieces[piece].end(), lane.pieces[piece].kind);
    let hasty = cx.facts.planted(Canary::DirtyDropped);
    let mut wait = run_overlaps(lane, first, end) && !hasty;
    if kind != PieceKind::Discard {
        let mut from = first;
        while let Some(dirty) = lane.store.next_dirty(from).filter(|dirty| *dirty < end) {
            if lane.trouble.is_lost(dirty) {
                let it = &lane.pieces[piece];
                let in_part = (dirty == first && it.head() > 0) || (dirty.0 + 1 == end.0 && it.tail() > 0);
                if in_part {
                    // The content around the payload is lost. It must not be replaced by what the
                    // origin has there.
                    lane.fail(piece, RequestError::Io, cx);
                    return;
                }
            } else {
                lane.trouble.hurry(dirty);
                wait = !hasty;
            }
            from = dirty.next();
        }
    }
    if wait {
        lane.awaiting_clean.push(piece);
        return;
    }
    if !cx.facts.planted(Canary::StaleInWindow) {
        lane.window.forget(first, end);
    }
    // Lost blocks are dropped, and recorded as dropped, only after the origin has the new ones.
    let known = |flat: &Flat| {
        !lane.trouble.is_lost(*flat) && (lane.store.get(*flat).is_some() || lane.trouble.is_unrecorded(*flat))
    };
    let cached: Vec<Flat> = first.to(end).filter(known).collect();
    if cached.is_empty() {
        write_origin(lane, piece, cx);
        return;
    }
    for &flat in &cached {
        if let Some(found) = lane.store.get(flat) {
            let hits = lane.policy.rewritten(lane.log.zone_of(found.slot), found.hits);
            lane.pieces[piece].rare().were_cached.push(((flat.0 - first.0) as u32, hits));
            lane.unmap(flat, cx);
        }
    }
    if cx.facts.planted(Canary::NotInvalidated) {
        write_origin(lane, piece, cx);
        return;
    }
    for run in cached.chunk_by(|flat, next| flat.0 + 1 == next.0) {
        let (key, blocks) = (cx.facts.key(run[0]), run.len() as u32);
        lane.log.note(Note::Entry(Entry::Invalidate { key, blocks }));
    }
    let wait = lane.await_durable(Waiter::Invalidated(piece), cx);
    debug_assert_ne!(wait, Wait::Durable, "a noted entry is not durable yet");
    if let Wait::Over(result) = wait {
        invalidated(lane, piece, result, cx);
    }
}

/// The log says durably that the range is not in the cache, or it never will (`Err`).
pub(crate) fn invalidated(lane: &mut Lane, piece: usize, result: Result<(), RequestError>, cx: &mut Cx<'_>) {
    match result {
        Ok(()) => write_origin(lane, piece, cx),
        Err(error) => fail_unrecorded(lane, piece, error, cx),
    }
}

/// The log says durably that lost blocks were replaced, or it never will (`Err`).
pub(crate) fn replaced(lane: &mut Lane, piece: usize, result: Result<(), RequestError>, cx: &mut Cx<'_>) {
    match result {
        Ok(()) => direct_written(lane, piece, cx),
        Err(error) => fail_unrecorded(lane, piece, error, cx),
    }
}

/// Fails a piece, because the log may know of older blocks in its range for ever.
fn fail_unrecorded(lane: &mut Lane, piece: usize, error: RequestError, cx: &mut Cx<'_>) {
    let range = lane.pieces[piece].first.0..lane.pieces[piece].end().0;
    range.for_each(|flat| lane.trouble.drop_unrecorded(Flat(flat)));
    lane.fail(piece, error, cx);
}

/// Step 4: writes the origin.
fn write_origin(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    let it = &mut lane.pieces[piece];
    it.hold();
    let (device, start, len) = cx.origin_range(it.first, u64::from(it.blocks));
    let (head, tail) = (u64::from(it.head()), u64::from(it.tail()));
    let whole_len = u64::from(it.blocks) * crate::fact::types::BLOCK_BYTES;
    let (offset, len) = (start + head, len.min(whole_len - tail) - head);
    let span = it.buf.map(|buf| {
        let from = blocks_span(buf, it.buf_block, it.blocks).offset() + head as u32;
        Span::new(buf, from, len as u32)
    });
    let op = it.kind.op();
    cx.delta.counters.writes_direct_blocks += u64::from(it.blocks);
    let origin = cx.facts.origin_of(it.first);
    cx.delta.origins[origin].foreground_began(cx.now);
    if op == Op::Write {
        cx.delta.origins[origin].gauge.writes.began(cx.now);
    }
    let failed_flushes = cx.delta.origins[origin].flush.failures();
    let io = lane.ios.insert(LaneIo::Direct { piece, failed_flushes });
    cx.ranged_io(lane.id, io, device, op, offset, len, span);
}

/// A write to the origin is over. `failed_flushes`: how many flushes of the origin had failed when
/// the write began.
pub(crate) fn direct_done(
    lane: &mut Lane,
    piece: usize,
    failed_flushes: u32,
    result: Result<(), DeviceError>,
    cx: &mut Cx<'_>,
) {
    lane.pieces[piece].release();
    let kind = lane.pieces[piece].kind;
    let origin = cx.facts.origin_of(lane.pieces[piece].first);
    cx.delta.origins[origin].foreground_ended(cx.now);
    if let Err(error) = result
        && !(kind == PieceKind::Discard && error == DeviceError::Unsupported)
    {
        let it = &lane.pieces[piece];
        cx.origin_failed(kind.op(), it.first, u64::from(it.blocks), error);
    }
    // A flush that failed meanwhile may have dropped the write, and the next flush may not tell
    // (ADR 0022).
    let doubtful = failed_flushes != cx.delta.origins[origin].flush.failures();
    let result = if doubtful { result.and(Err(DeviceError::Io)) } else { result };
    if !kind.is_range() {
        cx.delta.origins[origin].gauge.writes.ended(result.is_ok(), cx.now);
    }
    let into_log = match lane.pieces[piece].instead {
        Instead::Never => false,
        Instead::IfAway => doubtful || result == Err(DeviceError::TimedOut),
        Instead::IfBetter => result.is_err(),
    };
    // Even a failed write may have changed something.
    if into_log {
        cx.delta.origins[origin].flush.changed();
    } else {
        cx.delta.origins[origin].flush.written();
    }
    // Discard is advice: it is no error if a device can't do it.
    if let Err(error) = result
        && !(kind == PieceKind::Discard && error == DeviceError::Unsupported)
    {
        if into_log {
            lane.give_back(piece, cx);
        } else {
            lane.fail(piece, error.into(), cx);
        }
        return;
    }
    let lost: Vec<Flat> = lane.trouble.lost_in(lane.pieces[piece].first, lane.pieces[piece].end()).collect();
    if lost.is_empty() {
        direct_written(lane, piece, cx);
        return;
    }
    // The lost blocks are kept until the new ones are durable. After a power cut the origin may
    // have something older than the lost blocks, which were durable.
    cx.delta.origins[origin].flush.join(FlushWaiter::Replacing(lane.id, piece));
}

/// The origin has flushed the blocks that replace lost ones: the log forgets the lost ones.
pub(crate) fn drop_replaced(lane: &mut Lane, piece: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    if let Err(error) = result {
        lane.fail(piece, error.into(), cx);
        return;
    }
    let lost: Vec<Flat> = lane.trouble.lost_in(lane.pieces[piece].first, lane.pieces[piece].end()).collect();
    lost.into_iter().for_each(|flat| lane.unmap(flat, cx));
    let (key, blocks) = (cx.facts.key(lane.pieces[piece].first), lane.pieces[piece].blocks);
    lane.log.note(Note::Entry(Entry::Invalidate { key, blocks }));
    let wait = lane.await_durable(Waiter::Replaced(piece), cx);
    debug_assert_ne!(wait, Wait::Durable, "a noted entry is not durable yet");
    if let Wait::Over(result) = wait {
        replaced(lane, piece, result, cx);
    }
}

/// The origin has the new content, and the log knows of nothing older.
fn direct_written(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    let origin = cx.facts.origin_of(lane.pieces[piece].first);
    let through = cx.facts.origins[origin].mode == Mode::Writethrough;
    if through && lane.pieces[piece].kind == PieceKind::Direct {
        keep_written(lane, piece, cx);
    }
    let waiter = FlushWaiter::Piece(lane.id, piece);
    let it = &lane.pieces[piece];
    if !it.durable && it.kind != PieceKind::Discard {
        let failed_flushes = cx.delta.origins[origin].flush.failures();
        cx.delta.tell(Up::OnOrigin { request: it.request, failed_flushes });
    }
    if !lane.pieces[piece].durable || !cx.delta.origins[origin].flush.await_durable(waiter) {
        lane.finish(piece, cx);
    }
}

/// Puts whole blocks that were written through into the cache, if they were there before or the
/// policy wants them. Replay takes them only if the origin has flushed them (see
/// `commit/unproven`).
fn keep_written(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    let it = &lane.pieces[piece];
    let origin = &cx.delta.origins[cx.facts.origin_of(it.first)];
    if it.bypass || cx.cache_failed() || origin.flush.is_overdue() {
        return;
    }
    let (first, buf, buf_block) = (it.first, it.buf.expect("a write has a buffer"), it.buf_block);
    let from = u32::from(it.head() > 0);
    let to = it.blocks - u32::from(it.tail() > 0);
    let were_cached = lane.pieces[piece].rare.take().map_or_else(Vec::new, |rare| rare.were_cached);
    for block in from..to {
        let flat = first + block;
        let span = blocks_span(buf, buf_block + block, 1);
        match were_cached.binary_search_by_key(&block, |cached| cached.0) {
            Ok(nth) => drop(append_promoted(lane, flat, were_cached[nth].1, span, cx)),
            Err(_) => offer(lane, flat, span, cx),
        }
    }
}

/// Lets pieces go on whose range may have become clean.
pub(crate) fn resume_awaiting_clean(lane: &mut Lane, cx: &mut Cx<'_>) {
    for piece in core::mem::take(&mut lane.awaiting_clean) {
        clear_way(lane, piece, cx);
    }
}

/// Fails the pieces that wait until blocks of this origin are destaged.
pub(crate) fn give_up_awaiting_clean(lane: &mut Lane, origin: usize, cx: &mut Cx<'_>) {
    for piece in core::mem::take(&mut lane.awaiting_clean) {
        if cx.facts.origin_of(lane.pieces[piece].first) == origin {
            lane.give_up(piece, RequestError::Stopping, cx);
        } else {
            lane.awaiting_clean.push(piece);
        }
    }
}

/// Fails the pieces that wait for a range that can't be destaged, with the origin's error.
pub(crate) fn fail_awaiting_clean(lane: &mut Lane, first: Flat, end: Flat, error: DeviceError, cx: &mut Cx<'_>) {
    for piece in core::mem::take(&mut lane.awaiting_clean) {
        let it = &lane.pieces[piece];
        // A piece that waits for clean blocks that were only bridged doesn't fail.
        let dirty = lane.store.next_dirty(first.max(it.first)).is_some_and(|dirty| dirty < end.min(it.end()));
        if dirty && it.first < end && first < it.end() {
            lane.give_up(piece, error.into(), cx);
        } else {
            lane.awaiting_clean.push(piece);
        }
    }
}

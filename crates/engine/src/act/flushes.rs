// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flushes of the devices: who waits for which, and what becomes of them when one ends.
//!
//! At most one flush of a device is in flight; all who ask meanwhile share the next.

use alloc::vec::Vec;

use crate::coordinator::{CACHE_FLUSH, Coordinator};
use crate::cx::COORDINATOR;
use crate::cx::Cx;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, DeviceId, Op};
use crate::fact::types::Lba;
use crate::lanes::Lanes;
use crate::organ::cuts::Hold;
use crate::organ::down::Down;
use crate::organ::flush::FlushWaiter;
use crate::organ::members::FailureRecord;

pub(crate) fn cache_flushed(
    coordinator: &mut Coordinator,
    result: Result<(), DeviceError>,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    coordinator.cache_flushing = false;
    if let Err(error) = result {
        // What the device dropped can't be known: it isn't trusted with anything new.
        cx.event(Event::DeviceFailed { device: cx.lead(), op: Op::Flush, offset: 0, error });
        cx.fail_member(cx.lead());
    }
    for (lane, covered) in core::mem::take(&mut coordinator.covered).into_iter().enumerate() {
        lanes.send(lane, Down::CacheFlushed { covered, result }, cx);
    }
}

pub(crate) fn origin_flushed(
    coordinator: &mut Coordinator,
    origin: usize,
    result: Result<(), DeviceError>,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    let it = &mut cx.delta.origins[origin];
    it.gauge.writes.flush_ended(result.is_ok(), cx.now);
    let ended = it.flush.end(result);
    if let Err(error) = result {
        let id = cx.facts.origins[origin].id;
        cx.event(Event::OriginFailed { origin: id, op: Op::Flush, lba: Lba(0), sectors: 0, error });
    }
    if ended.drops {
        lanes.send_all(|| Down::OriginDoubtful { origin }, cx);
    }
    if ended.runs() > 0 {
        if result.is_err() {
            cx.delta.origins[origin].cuts.flush_failed();
        }
        coordinator.destager.flush_ended(origin, ended.runs());
    }
    for (waiter, result) in ended.over {
        coordinator.flush_done(waiter, result, lanes, cx);
    }
}

/// Drops promoted blocks of origins whose flush is overdue, as if the flush had failed.
///
/// Commits are proven in the order of their numbers. Those with such blocks would keep back all
/// others, and soon nothing would be promoted.
pub(crate) fn give_up_proofs(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    for origin in 0..cx.facts.origins.len() {
        if cx.delta.proof_overdue_from(origin).is_none_or(|from| cx.now < from) {
            continue;
        }
        let promoted = cx.delta.origins[origin].flush.give_up_proofs();
        lanes.send_all(|| Down::OriginDoubtful { origin }, cx);
        for waiter in promoted {
            coordinator.flush_done(waiter, Err(DeviceError::Io), lanes, cx);
        }
    }
}

/// Goes on after a failure of the cache device: what should be durable is durable when three things
/// are done. Nothing is left to destage, the origin is flushed, and it is recorded that this cache
/// must not be replayed. A replay would put what is durable in its log over what the origin has.
///
/// Where that can't be recorded nothing is durable. What was lost without ever having been durable
/// is an error, once.
pub(crate) fn go_on_drained(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    if coordinator.until_drained.is_empty() || cx.delta.members.failure == FailureRecord::Unknown {
        return;
    }
    for origin in 0..cx.facts.origins.len() {
        if cx.delta.origins[origin].undrained() > 0 {
            continue;
        }
        let waiters = drained_waiters(coordinator, origin);
        let told = !waiters.is_empty() && cx.delta.origins[origin].flush.take_lost();
        let lost = told || cx.delta.members.failure == FailureRecord::Impossible;
        for waiter in waiters {
            if lost {
                coordinator.flush_done(waiter, Err(DeviceError::Io), lanes, cx);
            } else if !cx.delta.origins[origin].flush.await_durable(waiter) {
                coordinator.flush_done(waiter, Ok(()), lanes, cx);
            }
        }
    }
}

/// Takes out who waits until this origin has nothing left to destage.
pub(crate) fn drained_waiters(coordinator: &mut Coordinator, origin: usize) -> Vec<FlushWaiter> {
    coordinator.until_drained.extract_if(.., |(of, _)| *of == origin).map(|(_, waiter)| waiter).collect()
}

/// Issues the flushes that somebody waits for; one per device at a time.
pub(crate) fn flush_devices(coordinator: &mut Coordinator, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    if !coordinator.cache_flushing && !cx.cache_failed() && lanes.looks().any(|lane| lane.flush_wish().wanted) {
        coordinator.covered.extend(lanes.looks().map(|lane| lane.flush_wish().covers));
        coordinator.cache_flushing = true;
        cx.cache_flush(COORDINATOR, CACHE_FLUSH);
    }
    for origin in 0..cx.facts.origins.len() {
        let it = &mut cx.delta.origins[origin];
        if it.flush.due() && it.cuts.hold() != Hold::Yes {
            it.flush.begin(cx.now);
            it.gauge.writes.flush_began(cx.now);
            if it.cuts.hold() == Hold::Fails {
                // Only a part of a group of eras is there.
                origin_flushed(coordinator, origin, Err(DeviceError::Io), lanes, cx);
                continue;
            }
            let device = DeviceId::Origin(cx.facts.origins[origin].id);
            cx.io(COORDINATOR, origin, device, Op::Flush, 0, None);
        }
    }
}

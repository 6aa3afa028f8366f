// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers: the parts of a request are joined, and the last one is the reply.

use crate::coordinator::Coordinator;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::io::{AnswerKind, Answered, Effect, Request, RequestError};
use crate::fact::types::{Destage, Durability};
use crate::organ::active::Active;

/// A request is refused as it comes.
pub(crate) fn refuse(request: &Request, error: RequestError, cx: &mut Cx<'_>) {
    let answered = Answered { origin: request.origin, kind: AnswerKind::Other, since: request.since, bytes: 0 };
    cx.out.0.push(Effect::Reply { id: request.id, result: Err(error), answered });
}

/// A part of a request is done; with the last one the request is answered.
pub(crate) fn part_done(coordinator: &mut Coordinator, request: usize, error: Option<RequestError>, cx: &mut Cx<'_>) {
    if coordinator.requests[request].release(error) {
        answer(coordinator, request, cx);
    }
}

/// All parts of a request are done.
// By itself: most calls of `part_done` end there, and need none of what this needs.
#[inline(never)]
fn answer(coordinator: &mut Coordinator, request: usize, cx: &mut Cx<'_>) {
    let active = coordinator.requests.remove(request);
    let result = active.result(cx.delta.origins[active.origin].flush.failures());
    if result.is_ok() && (active.kind == AnswerKind::Flush || cx.delta.origins[active.origin].cuts.era() > 0) {
        cut(&active, cx);
    }
    if let Some(used) = active.zeroes {
        coordinator.zeroes.give_back(active.origin, *used, cx);
    }
    let origin = cx.facts.origins[active.origin].id;
    let answered = Answered { origin, kind: active.kind, since: active.since, bytes: active.bytes };
    cx.out.0.push(Effect::Reply { id: active.id, result, answered });
}

/// A request is done well: clients may build on what it has made durable.
fn cut(active: &Active, cx: &mut Cx<'_>) {
    let always = cx.facts.options.durability == Durability::Always;
    let durable = active.kind == AnswerKind::Flush || active.kind == AnswerKind::Write && (active.fua || always);
    let origin = &mut cx.delta.origins[active.origin];
    if cx.facts.options.destage == Destage::Free {
        if origin.dirty.get() > 0 {
            origin.cuts.note_flush(cx.now);
        }
    } else if durable && !cx.facts.planted(Canary::EraUncut) {
        origin.cuts.cut(cx.now);
    }
}

/// A piece of a request is done.
pub(crate) fn piece_done(
    coordinator: &mut Coordinator,
    request: usize,
    error: Option<RequestError>,
    from_origin: bool,
    cx: &mut Cx<'_>,
) {
    let active = &mut coordinator.requests[request];
    if from_origin && active.kind == AnswerKind::Hit {
        active.kind = AnswerKind::Miss;
    }
    part_done(coordinator, request, error, cx);
}

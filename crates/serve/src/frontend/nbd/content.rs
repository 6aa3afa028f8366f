// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues what was read: data, and holes where there is nothing but zeroes.
//!
//! A client that takes chunks is spared long runs of zeroes.

use flashfront_nbd_proto::server::Part as Told;
use flashfront_nbd_proto::wire::Replies;

use super::outbox::Data;
use super::requests::Requests;
use super::segments::{Segment, divide, span};
use crate::frontend::Core;

/// Queues what the engine has read for a request; `whole`: in one chunk.
pub(super) fn answer_read(requests: &mut Requests, place: u16, whole: bool, core: &mut dyn Core) {
    let reply = requests.reply_to(place);
    let mut segments = std::mem::take(&mut requests.segments);
    let pending = requests.table.get_mut(place);
    let offset = pending.offset;
    let start = offset + pending.done;
    let end = start + u64::from(pending.window);
    let (first, last) = (pending.done == 0, end == offset + pending.len);
    pending.done += u64::from(pending.window);
    if reply.replies == Replies::Simple || whole {
        segments.clear();
        segments.push(Segment { start, end, hole: false });
    } else {
        divide(pending.first_parts(), core.memory(), &mut segments);
    }
    for (nth, segment) in segments.iter().enumerate() {
        let done = last && nth + 1 == segments.len();
        let bytes = (segment.end - segment.start) as u32;
        let told = Told { start: segment.start, bytes, first: first && nth == 0, last: done };
        let answers = done.then_some(place);
        if segment.hole {
            requests.outbox.push(|out| reply.hole(told, out), None, None, answers);
            continue;
        }
        // A buffer is of no more use when its last data is sent.
        let next_data = segments.get(nth + 2).map_or(u64::MAX, |next| next.start);
        let pending = requests.table.get_mut(place);
        let mut told = Some(told);
        for slot in pending.first_parts() {
            let Some(part) = *slot else { continue };
            let (from, to) = (segment.start.max(part.at), segment.end.min(part.end()));
            if from >= to {
                continue;
            }
            let over = next_data >= part.end();
            let frees = over.then_some((part.buf, part.bytes));
            if over {
                *slot = None;
            }
            let told = told.take();
            let head = |out: &mut Vec<u8>| told.into_iter().for_each(|told| reply.data(told, out));
            let answers = answers.filter(|_| to == segment.end);
            let data = Data::here(place, from, span(&part, from, to));
            requests.outbox.push(head, Some(data), frees, answers);
        }
    }
    requests.segments = segments;
    // Those with nothing but zeroes.
    requests.free_bufs(place, core);
    if last {
        requests.end_long(place);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies to requests of which everything that was asked of the engine is done.
//!
//! A read's reply is queued as its buffers, which are freed when they are sent; all others give
//! theirs back here. Failures are told with a place and in words where the client takes chunks.

use flashfront_nbd_proto::server::Refusal;
use flashfront_nbd_proto::wire::Replies;
use flashfront_nbd_proto::{Ask, Request};

use super::requests::Requests;
use super::{content, status};
use crate::frontend::Core;

/// Answers a request that is not in order.
pub(super) fn refuse(requests: &mut Requests, cookie: u64, offset: u64, refusal: Refusal, core: &mut dyn Core) {
    // A FLUSH stands in for the refused request, whose own operation no longer matters.
    let place = requests.insert(&Request::new(cookie, Ask::Flush, offset, 0));
    requests.table.get_mut(place).fail(refusal, None);
    finish(requests, place, core);
}

/// Everything that was asked of the engine for a request is done: queues its reply.
pub(super) fn finish(requests: &mut Requests, place: u16, core: &mut dyn Core) {
    if requests.is_dead() {
        requests.free_bufs(place, core);
        return requests.table.leave(place);
    }
    let pending = requests.table.get_mut(place);
    if let Some((refusal, at)) = pending.failed {
        return failure(requests, place, refusal, at, core);
    }
    match pending.ask {
        Ask::Read { whole } => content::answer_read(requests, place, whole, core),
        Ask::Status { one } => status::answer(requests, place, one, core),
        Ask::Cache => {
            pending.done += u64::from(pending.window);
            let last = pending.done == pending.len;
            requests.free_bufs(place, core);
            if last {
                requests.end_long(place);
                done(requests, place);
            }
        }
        Ask::Write | Ask::Flush | Ask::Trim | Ask::Zeroes { .. } => done(requests, place),
    }
}

/// A reply that says only that all is well.
fn done(requests: &mut Requests, place: u16) {
    let reply = requests.reply_to(place);
    requests.outbox.push(|out| reply.done(out), None, None, Some(place));
}

fn failure(requests: &mut Requests, place: u16, refusal: Refusal, at: Option<u64>, core: &mut dyn Core) {
    requests.free_bufs(place, core);
    let reply = requests.reply_to(place);
    let pending = requests.table.get_mut(place);
    if reply.replies == Replies::Simple && pending.done > 0 && pending.ask != Ask::Cache {
        // A simple reply can't fail any more once its header is sent.
        return requests.cut_off(place, core);
    }
    requests.outbox.push(|out| reply.failed(refusal, at, out), None, None, Some(place));
    requests.end_long(place);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uploads, and the manifests that name them. A manifest is also the fence: it is created only if
//! its number is free.

use std::sync::Arc;

use super::load::{self, Missed};
use super::state::{For, Publishing, Stage, State, What};
use super::{checkpoint, remove};
use crate::canary::{Canary, planted};
use crate::effect::{Answer, Effect, Fault, Told};
use crate::manifest::{Manifest, ManifestFault, TailEntry};
use crate::name::{Key, Name};

/// Starts what may start.
pub(super) fn go_on(state: &mut State, fx: &mut Vec<Effect>) {
    if state.fenced.is_some() {
        return;
    }
    let mut under_way = state.queue.iter().filter(|it| it.stage == Stage::UnderWay).count();
    for nth in 0..state.queue.len() {
        if under_way >= state.options.uploads {
            break;
        }
        if state.queue[nth].stage == Stage::Waiting {
            state.queue[nth].stage = Stage::UnderWay;
            under_way += 1;
            upload(state, nth, fx);
        }
    }
    let there = |stage: Stage| stage == Stage::There || planted(Canary::ManifestEarly);
    let run = state.queue.iter().take_while(|it| there(it.stage)).count();
    let reach = state.popped + run as u64;
    let is_waited_for = state.flushes.iter().any(|it| it.upto <= reach);
    if state.publishing.is_some() {
        return;
    }
    if state.options.whole_flushes && !planted(Canary::FlushTorn) {
        // The last flush of which all is there.
        let border = state.flushes.iter().rev().find(|it| it.is_border && it.upto <= reach).map(|it| it.upto);
        if let Some(border) = border {
            create(state, border.saturating_sub(state.popped) as usize, fx);
        }
    } else if is_waited_for || run >= state.options.uploads {
        create(state, run, fx);
    }
}

fn upload(state: &mut State, nth: usize, fx: &mut Vec<Effect>) {
    let upload = &state.queue[nth];
    let name = match upload.what {
        What::Data => Name::Data(upload.stamp),
        What::Pages | What::Map(_) => Name::Map(upload.stamp),
    };
    let (body, position) = (Arc::clone(&upload.body), state.popped + nth as u64);
    let put = |token| Effect::Put { token, name, body, create: false, attempt: 0 };
    state.ask(For::Upload(position), put, fx);
}

pub(super) fn uploaded(state: &mut State, position: u64, fx: &mut Vec<Effect>) {
    if let Some(nth) = position.checked_sub(state.popped)
        && let Some(upload) = state.queue.get_mut(nth as usize)
    {
        upload.stage = Stage::There;
        upload.body = Arc::default();
    }
    checkpoint::go_on(state, &Missed::new(), fx);
    load::evict(state);
    go_on(state, fx);
}

fn create(state: &mut State, run: usize, fx: &mut Vec<Effect>) {
    let mut manifest = state.manifest.clone();
    manifest.number = state.next;
    let reach = state.popped + run as u64;
    manifest.is_open = !state.is_closing || state.flushes.iter().any(|it| it.upto > reach);
    manifest.owes = !manifest.is_open && state.owes && !planted(Canary::OweForgotten);
    manifest.kept = manifest.kept.max(state.next.saturating_sub(state.options.complete));
    for upload in state.queue.iter().take(run) {
        manifest.sequence = manifest.sequence.max(upload.stamp.sequence);
        match upload.what {
            What::Data => {
                let (stamp, head, bytes, born) = (upload.stamp, upload.head, upload.bytes, upload.born);
                manifest.tail.push(TailEntry { stamp, head, bytes, born });
            }
            What::Pages => {}
            What::Map(mut checkpoint) => {
                checkpoint.since = manifest.number;
                manifest.checkpoint = Some(checkpoint);
                manifest.tail.clear();
            }
        }
    }
    let body = Arc::new(manifest.encode());
    let name = Name::Manifest(manifest.number);
    state.publishing = Some(Publishing { manifest, body: Arc::clone(&body), covers: run });
    state.ask(For::Publish, |token| Effect::Put { token, name, body, create: true, attempt: 0 }, fx);
}

pub(super) fn published(state: &mut State, answer: Result<Answer, Fault>, fx: &mut Vec<Effect>) {
    if answer.is_ok() || planted(Canary::FenceIgnored) {
        adopt(state, fx);
        return;
    }
    // Taken: by this writer, if a reply was lost, or by another one.
    let key = Key::from(Name::Manifest(state.next));
    state.ask(For::Confirm, |token| Effect::Get { token, key, range: None, pages: Vec::new(), attempt: 0 }, fx);
}

pub(super) fn confirmed(state: &mut State, answer: Result<Answer, Fault>, fx: &mut Vec<Effect>) {
    let Some(publishing) = &state.publishing else { return };
    let Ok(Answer::Bytes(found)) = answer else {
        // It is taken and absent: asked for again, until the store makes up its mind.
        let (name, body) = (Name::Manifest(state.next), Arc::clone(&publishing.body));
        state.ask(For::Publish, |token| Effect::Put { token, name, body, create: true, attempt: 1 }, fx);
        return;
    };
    if found == *publishing.body {
        adopt(state, fx);
        return;
    }
    match Manifest::decode(&found) {
        Ok(other) => state.fence(other.by(), fx),
        Err(ManifestFault::Foreign(what)) => state.fence(format!("another version, with {what}"), fx),
        // A torn one is nobody's. Its number is used up.
        Err(ManifestFault::Torn(_)) => {
            let run = publishing.covers;
            state.next += 1;
            state.publishing = None;
            create(state, run, fx);
        }
    }
}

/// The manifest is there.
fn adopt(state: &mut State, fx: &mut Vec<Effect>) {
    let Some(Publishing { manifest, covers, .. }) = state.publishing.take() else { return };
    for upload in state.queue.drain(..covers) {
        if matches!(upload.what, What::Map(_)) {
            state.table.settle(manifest.number);
        }
    }
    state.popped += covers as u64;
    state.next = manifest.number + 1;
    state.own.push_back(manifest.number);
    // Wishes may have been granted meanwhile.
    let (wishes, snapshots) = (state.manifest.wishes, std::mem::take(&mut state.manifest.snapshots));
    state.manifest = Manifest { wishes, snapshots, ..manifest };
    tell_flushed(state, fx);
    checkpoint::go_on(state, &Missed::new(), fx);
    remove::remove(state, fx);
    go_on(state, fx);
}

/// Tells those whose flush is done.
pub(super) fn tell_flushed(state: &mut State, fx: &mut Vec<Effect>) {
    let number = state.manifest.number;
    let is_closed = !state.is_closing || !state.manifest.is_open;
    while let Some(flush) = state.flushes.front()
        && flush.upto <= state.popped
        && number > flush.after
        && (is_closed || flush.after == 0)
    {
        fx.push(Effect::Told { ticket: flush.ticket, result: Ok(Told::Flushed(number)) });
        state.flushes.pop_front();
    }
}

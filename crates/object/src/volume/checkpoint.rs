// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints: the changed pages of the map as objects, with a new root in the last of them.
//!
//! Of a page with few changes only these are stored, beside the page (ADR 0083). Other pages are
//! stored one after the other, and those that are in the store alone are fetched before.
//! That may take many objects. A page that changes meanwhile is stored once more. The root comes
//! when no page is left and the batch is empty. So it holds exactly what the objects before it in
//! the queue hold, and no manifest names it before them.

use std::sync::Arc;

use super::checkpointing::Checkpointing;
use super::load::{self, Missed};
use super::seal::seal_batch;
use super::state::{Stage, State, Upload, What};
use crate::canary::{Canary, planted};
use crate::effect::Effect;
use crate::manifest::CheckpointRef;
use crate::map::Due;
use crate::name::Stamp;
use crate::place::PagePlace;
use crate::root;
use crate::table::{Entry, Kind};
use crate::wire::{Put, crc};

const MAGIC: &[u8; 8] = b"FFMAP001";
/// Magic, the volume's number, epoch, sequence.
const HEAD_BYTES: usize = 36;
/// An object of which less than one part in so many is in use gives its pages up.
const WORN: u64 = 4;
/// Pages that are fetched at a time have so many bytes.
const FETCH_BYTES: u64 = 4 << 20;
/// How often pages are fetched anew that were harmed on their way.
const RETRIES_MAX: u32 = 3;

/// Goes on with the checkpoint under way, or begins the one that is wanted.
pub(super) fn go_on(state: &mut State, missed: &Missed, fx: &mut Vec<Effect>) {
    if state.fenced.is_some() || (state.checkpointing.is_none() && !begin(state)) {
        return;
    }
    let Some(mut work) = state.checkpointing.take() else { return };
    let lost: Vec<u64> = missed.iter().map(|(number, _)| *number).filter(|it| work.pages.contains(it)).collect();
    work.retries += u32::from(!lost.is_empty());
    if work.retries > RETRIES_MAX {
        // Their changes are stored beside them.
        work.damaged.extend(lost);
        work.retries = 0;
    }
    if store_pages(state, &mut work, fx) {
        finish(state, work);
    } else {
        state.checkpointing = Some(work);
    }
}

fn begin(state: &mut State) -> bool {
    let may = state.wants_checkpoint && state.open.is_none() && !has_root_queued(state);
    if may {
        state.wants_checkpoint = false;
        let is_worn = |it: &Entry| it.kind == Kind::Map && it.live * WORN < it.bytes;
        let worn = state.table.entries().filter(|(_, entry)| is_worn(entry)).map(|(number, _)| number).collect();
        let is_whole = std::mem::take(&mut state.is_checkpoint_whole);
        state.checkpointing = Some(Checkpointing { worn, is_whole, ..Checkpointing::default() });
    }
    may
}

/// Whether a checkpoint is on its way.
pub(super) fn has_root_queued(state: &State) -> bool {
    state.queue.iter().any(|it| matches!(it.what, What::Map(_)))
}

/// Stores pages; tells whether none is left.
fn store_pages(state: &mut State, work: &mut Checkpointing, fx: &mut Vec<Effect>) -> bool {
    loop {
        let waits = work.pages.iter().any(|number| state.fetching.contains(number));
        let is_full = work.has_queued && state.queue.iter().filter(|it| !it.is_there()).count() > state.options.uploads;
        if waits || is_full {
            return false;
        }
        work.pages.clear();
        match state.map.next_to_store(work.at, |number, page| work.wants_again(number, page)) {
            Some(due) if due.is_here || work.damaged.contains(&due.number) => {
                store_page(state, work, due);
                work.at = due.number + 1;
                if work.body.0.len() >= state.options.batch_bytes {
                    queue_pages(state, work);
                }
            }
            Some(due) => {
                work.pages = pages_from(state, work, due.number);
                load::fetch(state, &work.pages, fx);
            }
            // Pages before this place may have changed meanwhile.
            None if work.at > 0 && !planted(Canary::PageForgotten) => work.at = 0,
            None => return true,
        }
    }
}

/// The next pages to be fetched.
fn pages_from(state: &State, work: &Checkpointing, first: u64) -> Vec<u64> {
    let (mut pages, mut bytes, mut at) = (Vec::new(), 0, first);
    while let Some(due) = state.map.next_to_store(at, |number, page| work.wants_again(number, page))
        && bytes < FETCH_BYTES
    {
        if !due.is_here && !work.damaged.contains(&due.number) {
            pages.push(due.number);
            bytes += state.map.places_of(&[due.number]).iter().map(|(_, place)| u64::from(place.bytes)).sum::<u64>();
        }
        at = due.number + 1;
    }
    pages
}

fn store_page(state: &mut State, work: &mut Checkpointing, due: Due) {
    let object = object_of(state, work);
    let mut bytes_stored = 0;
    state.map.store(due, &mut state.table, |page| {
        let (at, bytes) = (work.body.0.len() as u64, page.len() as u32);
        work.body.bytes(&page);
        bytes_stored = bytes.into();
        PagePlace { object, at, bytes, crc: crc(&[&page]) }
    });
    state.table.use_of(object, bytes_stored);
}

/// The object that the next page goes to. Its number in the store comes when it is queued.
fn object_of(state: &mut State, work: &mut Checkpointing) -> u32 {
    *work.object.get_or_insert_with(|| {
        work.body.0.resize(HEAD_BYTES, 0);
        let (stamp, born) = (Stamp::default(), state.next);
        state.table.add(Entry {
            kind: Kind::Map,
            source: None,
            stamp,
            head: 0,
            bytes: 0,
            born,
            live: 0,
            covered: 0,
            content: 0,
        })
    })
}

/// Sends the pages off that were stored. More of them follow.
fn queue_pages(state: &mut State, work: &mut Checkpointing) {
    if let Some(object) = work.object.take() {
        let stamp = number(state, object, work.body.0.len());
        let body = std::mem::take(&mut work.body).0;
        queue(state, What::Pages, (object, stamp), body);
        work.has_queued = true;
    }
}

/// Sends the root off, behind the last pages.
fn finish(state: &mut State, mut work: Checkpointing) {
    seal_batch(state);
    let object = object_of(state, &mut work);
    let root_at = work.body.0.len();
    let stamp = number(state, object, root_at);
    state.table.retire(|number| number == object);
    let root = root::encode(&state.table, &state.map);
    let (root_at, root_bytes, root_crc) = (root_at as u64, root.len() as u32, crc(&[&root]));
    work.body.bytes(&root);
    let (bytes, born) = (work.body.0.len() as u64, state.table.get(object).born);
    let checkpoint = CheckpointRef { stamp, bytes, root_at, root_bytes, root_crc, since: 0, born };
    queue(state, What::Map(checkpoint), (object, stamp), work.body.0);
    state.is_checkpoint_awaited = false;
    state.moved.retain(|number| state.table.try_get(*number).is_some());
    state.put_off.clear();
    let upto = state.popped + state.queue.len() as u64;
    state.flushes.iter_mut().filter(|it| it.upto == u64::MAX).for_each(|it| it.upto = upto);
}

/// Gives an object its number in the store, and notes how many bytes of pages it has.
fn number(state: &mut State, object: u32, bytes: usize) -> Stamp {
    let stamp = state.next_stamp();
    let entry = state.table.get_mut(object);
    (entry.stamp, entry.bytes) = (stamp, bytes as u64);
    stamp
}

fn queue(state: &mut State, what: What, (object, stamp): (u32, Stamp), mut body: Vec<u8>) {
    let mut head = Put::default();
    head.bytes(MAGIC).bytes(&state.manifest.volume).u32(stamp.epoch).u64(stamp.sequence);
    body[..HEAD_BYTES].copy_from_slice(&head.0);
    let (bytes, born) = (body.len() as u64, state.table.get(object).born);
    let (body, stage) = (Arc::new(body), Stage::Waiting);
    state.queue.push_back(Upload { what, object, stamp, born, head: 0, body, bytes, stage });
}

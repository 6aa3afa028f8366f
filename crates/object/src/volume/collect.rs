// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collection: what is live of an object is written once more, so that the object can go.

use super::load::{self, Missed};
use super::state::{Collecting, For, State};
use super::write;
use crate::batch::{Head, Record};
use crate::effect::{Answer, Effect, Fault, Ticket, Told, Trouble};
use crate::name::Name;
use crate::table::{Entry, Kind};
use crate::wire::SECTOR_BYTES;

/// Pages of the map that are fetched at a time.
const PAGES_MAX: usize = 16;

/// Moves what is live of the object with the least, if that is less than so many percent of
/// it. Tells how many bytes were moved.
pub(super) fn collect(state: &mut State, ticket: Ticket, live_percent: u64, fx: &mut Vec<Effect>) {
    let is_free = |object: u32| {
        state.open.is_none_or(|(open, ..)| open != object) && state.queue.iter().all(|it| it.object != object)
    };
    let victim = state
        .table
        .entries()
        .filter(|(_, it)| it.kind == Kind::Data && it.source.is_none() && it.live > 0)
        .filter(|(number, _)| !state.moved.contains(number) && !state.put_off.contains(number))
        .filter(|(number, it)| it.live_bytes() * 100 < it.bytes * live_percent && is_free(*number))
        .min_by_key(|(_, it)| (it.live_bytes() * 1000).checked_div(it.bytes).unwrap_or(0));
    let may = state.writer.is_some() && state.fenced.is_none() && state.collecting.is_none();
    let Some((object, entry)) = victim.filter(|_| may) else {
        fx.push(Effect::Told { ticket, result: Ok(Told::Collected(None)) });
        return;
    };
    let key = entry.key();
    state.collecting = Some(Collecting { ticket, object, fetched: None, done: 0, moved: 0, pages: Vec::new() });
    state.ask(For::Collect, |token| Effect::Get { token, key, range: None, pages: Vec::new(), attempt: 0 }, fx);
}

/// Takes the object.
pub(super) fn collected(state: &mut State, answer: Result<Answer, Fault>, fx: &mut Vec<Effect>) {
    let Some(mut work) = state.collecting.take() else { return };
    match state.table.try_get(work.object).filter(|it| it.live > 0) {
        // The object was retired meanwhile.
        None => end(&work, Ok(()), fx),
        Some(entry) => match parse(entry, state.manifest.volume, answer) {
            Ok(fetched) => {
                work.fetched = Some(fetched);
                state.collecting = Some(work);
                go_on(state, &Missed::new(), fx);
            }
            Err(trouble) => {
                state.put_off.insert(work.object);
                end(&work, Err(trouble), fx);
            }
        },
    }
}

fn parse(entry: &Entry, volume: [u8; 16], answer: Result<Answer, Fault>) -> Result<(Head, Vec<u8>), Trouble> {
    let damaged = |what: &str| Trouble::Damaged { name: entry.key().name, what: what.to_owned() };
    let Ok(Answer::Bytes(body)) = answer else { return Err(damaged("it is absent")) };
    let head = Head::parse(&body).map_err(|what| damaged(&what))?;
    if head.stamp != entry.stamp || head.volume != volume {
        return Err(damaged("it is another object"));
    }
    Ok((head, body))
}

/// Moves more of the object, if its pages of the map are here.
pub(super) fn go_on(state: &mut State, missed: &Missed, fx: &mut Vec<Effect>) {
    let Some(mut work) = state.collecting.take() else { return };
    let Some((head, body)) = work.fetched.take() else {
        state.collecting = Some(work);
        return;
    };
    let lost = missed.iter().find(|(number, _)| work.pages.contains(number));
    if let Some(by) = &state.fenced {
        return end(&work, Err(Trouble::Fenced(by.clone())), fx);
    }
    if let Some((_, trouble)) = lost {
        // Others come before it is tried again.
        state.put_off.insert(work.object);
        return end(&work, Err(trouble.clone()), fx);
    }
    // All pages are waited for together: a page that is here stays only while this waits for it.
    if work.pages.iter().any(|number| state.fetching.contains(number)) {
        work.fetched = Some((head, body));
        state.collecting = Some(work);
        return;
    }
    while let Some(record) = head.records.get(work.done) {
        if record.stored > 0 {
            work.pages = missing(state, &head, work.done);
            if !work.pages.is_empty() {
                load::fetch(state, &work.pages, fx);
                work.fetched = Some((head, body));
                state.collecting = Some(work);
                return;
            }
            match move_live(state, &work, (&head, record), &body, fx) {
                Ok(bytes) => work.moved += bytes,
                Err(trouble) => {
                    state.put_off.insert(work.object);
                    return end(&work, Err(trouble), fx);
                }
            }
        }
        work.done += 1;
    }
    state.moved.insert(work.object);
    end(&work, Ok(()), fx);
}

/// Pages that must be fetched before this record can be moved, and those of some records after it.
fn missing(state: &mut State, head: &Head, at: usize) -> Vec<u64> {
    let mut pages = Vec::new();
    for record in head.records[at..].iter().filter(|it| it.stored > 0) {
        let more = state.map.missing(record.start, record.sectors);
        if pages.is_empty() && more.is_empty() {
            return pages;
        }
        pages.extend(more);
        if pages.len() >= PAGES_MAX {
            break;
        }
    }
    pages
}

fn end(work: &Collecting, result: Result<(), Trouble>, fx: &mut Vec<Effect>) {
    fx.push(Effect::Told { ticket: work.ticket, result: result.map(|()| Told::Collected(Some(work.moved))) });
}

/// Moves what is live of one extent; tells how many bytes that is.
fn move_live(
    state: &mut State,
    work: &Collecting,
    (head, record): (&Head, &Record),
    body: &[u8],
    fx: &mut Vec<Effect>,
) -> Result<u64, Trouble> {
    let live = state.map.live_parts(work.object, record);
    if live.is_empty() {
        return Ok(0);
    }
    let damaged = |what: &str| Trouble::Damaged { name: Name::Data(head.stamp), what: what.to_owned() };
    let stored = head.payload_of(record, body).ok_or_else(|| damaged("the checksum of an extent is wrong"))?;
    let place = (record.start, record.sectors);
    let content = state.former.content(head.is_framed, place, stored).map_err(|what| damaged(&what))?.into_owned();
    let mut moved = 0;
    for part in live {
        let from = ((part.start - record.start) * SECTOR_BYTES) as usize;
        let len = (part.sectors * SECTOR_BYTES) as usize;
        write::append(state, part.start, &content[from..from + len]);
        write::seal_if_full(state, fx);
        moved += len as u64;
    }
    Ok(moved)
}

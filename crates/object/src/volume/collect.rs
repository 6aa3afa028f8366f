// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collection: what is live of an object is written once more, so that the object can go.

use super::state::{For, State};
use super::write;
use crate::batch::Head;
use crate::effect::{Answer, Effect, Fault, Ticket, Told, Trouble};
use crate::table::Kind;
use crate::wire::SECTOR_BYTES;

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
        .filter(|(number, it)| it.live_bytes() * 100 < it.bytes * live_percent && is_free(*number))
        .min_by_key(|(_, it)| (it.live_bytes() * 1000).checked_div(it.bytes).unwrap_or(0));
    let may = state.writer.is_some() && state.fenced.is_none() && state.collecting.is_none();
    let Some((object, entry)) = victim.filter(|_| may) else {
        fx.push(Effect::Told { ticket, result: Ok(Told::Collected(None)) });
        return;
    };
    let key = entry.key();
    state.collecting = Some(object);
    let get = |token| Effect::Get { token, key, range: None, attempt: 0 };
    state.ask(For::Collect(ticket, object), get, fx);
}

pub(super) fn collected(
    state: &mut State,
    ticket: Ticket,
    object: u32,
    answer: Result<Answer, Fault>,
    fx: &mut Vec<Effect>,
) {
    state.collecting = None;
    let result = match &state.fenced {
        Some(by) => Err(Trouble::Fenced(by.clone())),
        None => move_live(state, object, answer, fx).map(|moved| Told::Collected(Some(moved))),
    };
    fx.push(Effect::Told { ticket, result });
}

fn move_live(
    state: &mut State,
    object: u32,
    answer: Result<Answer, Fault>,
    fx: &mut Vec<Effect>,
) -> Result<u64, Trouble> {
    // It may have been retired meanwhile.
    let Some(entry) = state.table.try_get(object).filter(|it| it.live > 0) else { return Ok(0) };
    let (name, stamp) = (entry.key().name, entry.stamp);
    let damaged = |what: &str| Trouble::Damaged { name, what: what.to_owned() };
    let Ok(Answer::Bytes(body)) = answer else { return Err(damaged("it is absent")) };
    let head = Head::parse(&body).map_err(|what| damaged(&what))?;
    if head.stamp != stamp || head.volume != state.manifest.volume {
        return Err(damaged("it is another object"));
    }
    let mut moved = 0;
    for record in head.records.iter().filter(|it| it.stored > 0) {
        let live = state.map.live_parts(object, record);
        if live.is_empty() {
            continue;
        }
        let stored = head.payload_of(record, &body).ok_or_else(|| damaged("the checksum of an extent is wrong"))?;
        let place = (record.start, record.sectors);
        let content = state.former.content(head.is_framed, place, stored).map_err(|what| damaged(&what))?.into_owned();
        for part in live {
            let from = ((part.start - record.start) * SECTOR_BYTES) as usize;
            let len = (part.sectors * SECTOR_BYTES) as usize;
            write::append(state, part.start, &content[from..from + len]);
            write::seal_if_full(state, fx);
            moved += len as u64;
        }
    }
    Ok(moved)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads: from the batch, from objects on their way, or from the store by whole extents, which are
//! verified.

use std::sync::Arc;

use super::load::{self, Missed};
use super::state::{For, Parked, Part, Reading, State};
use crate::canary::{Canary, planted};
use crate::effect::{Answer, Effect, Fault, Ticket, Told, Trouble};
use crate::name::Name;
use crate::near::{self, Placed};
use crate::table::Entry;
use crate::wire::SECTOR_BYTES;
use crate::wire::crc_at;

/// How often a read begins anew after objects have vanished or were damaged on their way.
const RETRIES_MAX: u32 = 3;
/// The longest request.
const REQUEST_BYTES_MAX: u64 = 4 << 20;

/// Reads ranges of whole sectors. What was never written is zeroes.
pub(super) fn read(state: &mut State, ticket: Ticket, ranges: Vec<(u64, u64)>, fx: &mut Vec<Effect>) {
    let sectors: u64 = ranges.iter().map(|it| it.1).sum();
    let bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
    let reading = Reading { ticket, ranges, bytes, left: 0, retries: 0, wrong: None };
    begin_read(state, reading, fx);
}

fn begin_read(state: &mut State, mut reading: Reading, fx: &mut Vec<Effect>) {
    let missing: Vec<u64> =
        reading.ranges.iter().flat_map(|(start, sectors)| state.map.missing(*start, *sectors)).collect();
    if !missing.is_empty() {
        load::fetch(state, &missing, fx);
        // Pages that are in RAM already must stay there, too. Else a read of more pages than RAM
        // may hold would fetch them in turns for ever.
        let pages = reading.ranges.iter().flat_map(|(start, sectors)| state.map.pages_of(*start, *sectors)).collect();
        state.parked.push(Parked { reading, pages });
        return;
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut to = 0;
    let pieces = reading.ranges.iter().flat_map(|(start, sectors)| state.map.pieces(*start, *sectors));
    for piece in pieces {
        if let Some(extent) = piece.extent {
            parts.push(Part { piece, extent, to });
        }
        to += (piece.sectors * SECTOR_BYTES) as usize;
    }
    parts.retain(|part| !copy_from_ram(state, part, &mut reading.bytes));
    let requests = near::requests(parts, REQUEST_BYTES_MAX);
    if requests.is_empty() {
        finish(reading, fx);
        return;
    }
    reading.left = requests.len();
    let number = state.tokens;
    state.readings.insert(number, reading);
    for parts in requests {
        let entry = state.table.get(parts[0].extent.object);
        let (from, to) = near::span(&parts);
        let (key, range) = (entry.key(), Some((u64::from(entry.head) + from, to - from)));
        state.ask(
            For::Read(number, parts),
            |token| Effect::Get { token, key, range, pages: Vec::new(), attempt: 0 },
            fx,
        );
    }
}

fn copy_from_ram(state: &State, part: &Part, bytes: &mut [u8]) -> bool {
    let Part { piece, extent, .. } = part;
    let at = extent.at as usize;
    let stored = if state.open.is_some_and(|(object, ..)| object == extent.object) {
        &state.batch.payload()[at..at + extent.stored as usize]
    } else if let Some(upload) = state.queue.iter().find(|it| it.object == extent.object && !it.is_there()) {
        let at = upload.head as usize + at;
        &upload.body[at..at + extent.stored as usize]
    } else if let Some(stored) = state.recent.get((extent.object, extent.at)) {
        put(part, stored, bytes);
        return true;
    } else {
        return false;
    };
    let is_framed = state.table.get(extent.object).is_framed();
    let place = (piece.stored_start(extent), extent.whole());
    // An extent that does not decode is read from the store, and that read reports the damage.
    let Ok(content) = state.former.content(is_framed, place, stored) else { return false };
    put(part, &content, bytes);
    true
}

pub(super) fn part_read(
    state: &mut State,
    number: u64,
    parts: Vec<Part>,
    answer: Result<Answer, Fault>,
    fx: &mut Vec<Effect>,
) {
    let Some(mut reading) = state.readings.remove(&number) else { return };
    if let Err(wrong) = take_parts(state, parts, answer, &mut reading) {
        reading.wrong = Some(wrong);
    }
    reading.left -= 1;
    if reading.left > 0 {
        state.readings.insert(number, reading);
    } else {
        end(state, reading, fx);
    }
}

/// Goes on with the reads that waited for pages.
pub(super) fn go_on(state: &mut State, missed: &Missed, fx: &mut Vec<Effect>) {
    for Parked { mut reading, pages } in std::mem::take(&mut state.parked) {
        if let Some((_, wrong)) = missed.iter().find(|(number, _)| pages.contains(number)) {
            reading.wrong = Some(wrong.clone());
            end(state, reading, fx);
        } else if pages.iter().any(|number| state.fetching.contains(number)) {
            state.parked.push(Parked { reading, pages });
        } else {
            begin_read(state, reading, fx);
        }
    }
}

/// Ends a read, or begins it anew if something was wrong.
fn end(state: &mut State, mut reading: Reading, fx: &mut Vec<Effect>) {
    if reading.wrong.is_some() && reading.retries < RETRIES_MAX && state.fenced.is_none() {
        // Its objects may have been moved meanwhile, or the bytes were harmed on their way.
        reading.retries += 1;
        reading.wrong = None;
        reading.bytes.fill(0);
        begin_read(state, reading, fx);
    } else {
        finish(reading, fx);
    }
}

fn take_parts(
    state: &mut State,
    parts: Vec<Part>,
    answer: Result<Answer, Fault>,
    reading: &mut Reading,
) -> Result<(), Trouble> {
    let (from, _) = near::span(&parts);
    let bytes = match answer {
        Ok(Answer::Bytes(bytes)) => Ok(bytes),
        _ => Err("it is absent"),
    };
    for part in parts {
        let Part { piece, extent, .. } = &part;
        let damaged = |what: &str| match (&state.fenced, state.table.try_get(extent.object)) {
            (Some(by), _) => Trouble::Fenced(by.clone()),
            (None, entry) => {
                let name = entry.map_or(Name::Manifest(state.manifest.number), |it| it.key().name);
                Trouble::Damaged { name, what: what.to_owned() }
            }
        };
        let bytes = bytes.as_ref().map_err(|what| damaged(what))?;
        let at = (u64::from(extent.at) - from) as usize;
        let stored = bytes.get(at..at + extent.stored as usize);
        let first = piece.stored_start(extent);
        let sound = |stored: &&[u8]| crc_at(first, stored) == extent.crc || planted(Canary::ChecksumIgnored);
        let what = "the checksum of an extent is wrong";
        let stored = stored.filter(sound).ok_or_else(|| damaged(what))?;
        let is_framed = state.table.try_get(extent.object).is_some_and(Entry::is_framed);
        let content =
            state.former.content(is_framed, (first, extent.whole()), stored).map_err(|what| damaged(&what))?;
        put(&part, &content, &mut reading.bytes);
        state.recent.add((extent.object, extent.at), Arc::new(content.into_owned()));
    }
    Ok(())
}

fn put(part: &Part, content: &[u8], bytes: &mut [u8]) {
    let from = (part.extent.skip() * SECTOR_BYTES) as usize;
    let len = (part.piece.sectors * SECTOR_BYTES) as usize;
    bytes[part.to..part.to + len].copy_from_slice(&content[from..from + len]);
}

fn finish(reading: Reading, fx: &mut Vec<Effect>) {
    let result = reading.wrong.map_or(Ok(Told::Read(reading.bytes)), Err);
    fx.push(Effect::Told { ticket: reading.ticket, result });
}

impl Placed for Part {
    fn object(&self) -> u32 {
        self.extent.object
    }

    fn span(&self) -> (u64, u64) {
        let at = u64::from(self.extent.at);
        (at, at + u64::from(self.extent.stored))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root of a checkpoint: the table of objects, and where the pages of the map are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::map::Map;
use crate::name::Stamp;
use crate::place::{PLACE_BYTES, PagePlace};
use crate::table::{Entry, Kind, Retired, Table};
use crate::wire::{Put, Take};

const OBJECT_BYTES: usize = 47;
/// An object with data whose extents are stored in frames. A length follows.
const FRAMED: u8 = 2;

/// A root as it was read.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) table: Table,
    pub(crate) pages: Vec<(u64, PagePlace)>,
    /// Changes beside pages that could not be had.
    pub(crate) changes: Vec<(u64, PagePlace)>,
}

/// Bytes of a root, about.
pub(crate) fn bytes(table: &Table, map: &Map) -> u64 {
    ((table.entries().count() + table.retired().len()) * OBJECT_BYTES + map.places_count() * PLACE_BYTES) as u64
}

/// Writes the root.
pub(crate) fn encode(table: &Table, map: &Map) -> Vec<u8> {
    let mut sources: Vec<Arc<str>> = Vec::new();
    let all = table.entries().map(|(_, entry)| entry).chain(table.retired().iter().map(|it| &it.entry));
    for source in all.filter_map(|it| it.source.as_ref()) {
        if !sources.contains(source) {
            sources.push(Arc::clone(source));
        }
    }
    let mut put = Put::default();
    put.count(sources.len());
    sources.iter().for_each(|source| _ = put.text(source));
    put.count(table.entries().count());
    for (number, entry) in table.entries() {
        put_entry(&mut put, number, entry, &sources);
    }
    put_places(&mut put, map.places().count(), map.places());
    put.count(table.retired().len());
    for retired in table.retired() {
        put_entry(&mut put, 0, &retired.entry, &sources);
        put.u64(retired.gone);
    }
    let changes = map.changes_places().count();
    if changes > 0 {
        put_places(&mut put, changes, map.changes_places());
    }
    put.0
}

fn put_places(put: &mut Put, count: usize, places: impl Iterator<Item = (u64, PagePlace)>) {
    put.count(count);
    for (number, place) in places {
        put.u64(number).u32(place.object).u64(place.at).u32(place.bytes).u32(place.crc);
    }
}

fn put_entry(put: &mut Put, number: u32, entry: &Entry, sources: &[Arc<str>]) {
    let place = entry.source.as_ref().and_then(|it| sources.iter().position(|source| source == it));
    let source = u16::try_from(place.map_or(0, |place| place + 1)).expect("bug: a clone of 65,535 volumes");
    let kind = match entry.kind {
        Kind::Data if entry.is_framed() => FRAMED,
        Kind::Data => 0,
        Kind::Map => 1,
    };
    put.u32(number).u8(kind).u16(source).u32(entry.stamp.epoch).u64(entry.stamp.sequence).u32(entry.head);
    put.u64(entry.bytes).u64(entry.born).u64(entry.live + entry.covered);
    if entry.is_framed() {
        put.u64(entry.content);
    }
}

impl Root {
    /// Reads a root. A retired object without `gone` went with the manifest `since`.
    pub(crate) fn decode(bytes: &[u8], since: u64) -> Option<Self> {
        let mut take = Take(bytes);
        let count = take.count(4)?;
        let sources: Vec<Arc<str>> = (0..count).map(|_| take.text().map(Arc::from)).collect::<Option<_>>()?;
        let count = take.count(OBJECT_BYTES)?;
        let entries: BTreeMap<_, _> = (0..count).map(|_| take_entry(&mut take, &sources)).collect::<Option<_>>()?;
        let pages = take_places(&mut take)?;
        let count = take.count(OBJECT_BYTES)?;
        let retired = |take: &mut Take<'_>| {
            let (_, entry) = take_entry(take, &sources)?;
            let gone = take.u64()?;
            Some(Retired { entry, gone: if gone == 0 { since } else { gone } })
        };
        let retired = (0..count).map(|_| retired(&mut take)).collect::<Option<_>>()?;
        let changes = if take.0.is_empty() { Vec::new() } else { take_places(&mut take)? };
        take.0.is_empty().then(|| Self { table: Table::new(entries, retired), pages, changes })
    }
}

fn take_places(take: &mut Take<'_>) -> Option<Vec<(u64, PagePlace)>> {
    let count = take.count(PLACE_BYTES)?;
    let mut place = || {
        let number = take.u64()?;
        let (object, at, bytes, crc) = (take.u32()?, take.u64()?, take.u32()?, take.u32()?);
        Some((number, PagePlace { object, at, bytes, crc }))
    };
    (0..count).map(|_| place()).collect()
}

fn take_entry(take: &mut Take<'_>, sources: &[Arc<str>]) -> Option<(u32, Entry)> {
    let (number, kind, source) = (take.u32()?, take.u8()?, take.u16()?);
    let is_framed = kind == FRAMED;
    let kind = match kind {
        0 | FRAMED => Kind::Data,
        1 => Kind::Map,
        _ => return None,
    };
    let source = match source {
        0 => None,
        nth => Some(Arc::clone(sources.get(usize::from(nth) - 1)?)),
    };
    let stamp = Stamp { epoch: take.u32()?, sequence: take.u64()? };
    let (head, bytes, born, live) = (take.u32()?, take.u64()?, take.u64()?, take.u64()?);
    let content = if is_framed { take.u64().filter(|content| *content > 0)? } else { 0 };
    Some((number, Entry { kind, source, stamp, head, bytes, born, live, covered: 0, content }))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root of a checkpoint: the table of objects, and where the pages of the map are.

mod older;

use std::collections::BTreeMap;
use std::sync::Arc;

use older::{FRAMED, kind_of, source_of};

use crate::map::Map;
use crate::name::Stamp;
use crate::place::{PLACE_BYTES, PagePlace};
use crate::table::{Entry, Kind, Retired, Table};
use crate::wire::{Put, Take};

/// The first bytes of a root in short numbers. An older root begins with how many sources it has.
const SHORT: u32 = u32::MAX;
/// Bytes of an object in a root, about.
const OBJECT_BYTES: usize = 14;
/// The fewest bytes of an object, and of a place, in a root.
const OBJECT_BYTES_MIN: usize = 9;
const PLACE_BYTES_MIN: usize = 8;

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
    put.u32(SHORT).count(sources.len());
    sources.iter().for_each(|source| _ = put.text(source));
    put.count(table.entries().count());
    let mut before = (0, first());
    for (number, entry) in table.entries() {
        put.step(before.0, number.into());
        put_entry(&mut put, &before.1, entry, &sources);
        before = (number.into(), entry.clone());
    }
    put_places(&mut put, map.places().count(), map.places());
    put.count(table.retired().len());
    let mut before = first();
    for retired in table.retired() {
        put_entry(&mut put, &before, &retired.entry, &sources);
        put.step(retired.entry.born, retired.gone);
        before = retired.entry.clone();
    }
    let changes = map.changes_places().count();
    if changes > 0 {
        put_places(&mut put, changes, map.changes_places());
    }
    put.0
}

/// What the first entry of a list is told apart from.
fn first() -> Entry {
    let (kind, stamp) = (Kind::Data, Stamp::default());
    Entry { kind, source: None, stamp, head: 0, bytes: 0, born: 0, live: 0, covered: 0, content: 0 }
}

fn put_places(put: &mut Put, count: usize, places: impl Iterator<Item = (u64, PagePlace)>) {
    put.count(count);
    let mut before = (0, 0);
    for (number, place) in places {
        put.step(before.0, number).step(before.1, place.object.into()).short(place.at).short(place.bytes.into());
        put.u32(place.crc);
        before = (number, place.object.into());
    }
}

fn put_entry(put: &mut Put, before: &Entry, entry: &Entry, sources: &[Arc<str>]) {
    let place = entry.source.as_ref().and_then(|it| sources.iter().position(|source| source == it));
    let source = u16::try_from(place.map_or(0, |place| place + 1)).expect("bug: a clone of 65,535 volumes");
    let kind = match entry.kind {
        Kind::Data if entry.is_framed() => FRAMED,
        Kind::Data => 0,
        Kind::Map => 1,
    };
    put.u8(kind).short(source.into());
    put.step(before.stamp.epoch.into(), entry.stamp.epoch.into()).step(before.stamp.sequence, entry.stamp.sequence);
    put.short(entry.head.into()).short(entry.bytes).step(before.born, entry.born).short(entry.live + entry.covered);
    if entry.is_framed() {
        put.short(entry.content);
    }
}

impl Root {
    /// Reads a root. A retired object without `gone` went with the manifest `since`.
    pub(crate) fn decode(bytes: &[u8], since: u64) -> Option<Self> {
        let mut take = Take(bytes);
        let Some(SHORT) = take.u32() else {
            return older::decode(bytes, since).map(|(table, pages, changes)| Self { table, pages, changes });
        };
        let count = take.count(4)?;
        let sources: Vec<Arc<str>> = (0..count).map(|_| take.text().map(Arc::from)).collect::<Option<_>>()?;
        let count = take.count(OBJECT_BYTES_MIN)?;
        let (mut entries, mut number, mut before) = (BTreeMap::new(), 0, first());
        for _ in 0..count {
            number = take.step_u32(number)?;
            before = take_entry(&mut take, &before, &sources)?;
            entries.insert(number, before.clone());
        }
        let pages = take_places(&mut take)?;
        let count = take.count(OBJECT_BYTES_MIN)?;
        let (mut retired, mut before) = (Vec::new(), first());
        for _ in 0..count {
            before = take_entry(&mut take, &before, &sources)?;
            let gone = take.step(before.born)?;
            retired.push(Retired { entry: before.clone(), gone: if gone == 0 { since } else { gone } });
        }
        let changes = if take.0.is_empty() { Vec::new() } else { take_places(&mut take)? };
        take.0.is_empty().then(|| Self { table: Table::new(entries, retired), pages, changes })
    }
}

fn take_places(take: &mut Take<'_>) -> Option<Vec<(u64, PagePlace)>> {
    let count = take.count(PLACE_BYTES_MIN)?;
    let (mut number, mut object) = (0, 0);
    let mut place = || {
        (number, object) = (take.step(number)?, take.step_u32(object)?);
        let (at, bytes, crc) = (take.short()?, take.short_u32()?, take.u32()?);
        Some((number, PagePlace { object, at, bytes, crc }))
    };
    (0..count).map(|_| place()).collect()
}

fn take_entry(take: &mut Take<'_>, before: &Entry, sources: &[Arc<str>]) -> Option<Entry> {
    let (framed, kind) = kind_of(take.u8()?)?;
    let source = source_of(take.short()?, sources)?;
    let stamp = Stamp { epoch: take.step_u32(before.stamp.epoch)?, sequence: take.step(before.stamp.sequence)? };
    let (head, bytes, born, live) = (take.short_u32()?, take.short()?, take.step(before.born)?, take.short()?);
    let content = if framed { take.short().filter(|content| *content > 0)? } else { 0 };
    Some(Entry { kind, source, stamp, head, bytes, born, live, covered: 0, content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Record;
    use crate::form::FRAME_BYTES_MAX;

    fn entry(kind: Kind, (epoch, sequence): (u32, u64), live: u64) -> Entry {
        let stamp = Stamp { epoch, sequence };
        Entry { kind, stamp, head: 80, bytes: 70_000 + sequence, born: sequence / 2, live, ..first() }
    }

    fn table() -> Table {
        let framed = Entry { content: 99, ..entry(Kind::Data, (7, 400), 9) };
        let of_other = Entry { source: Some("other".into()), ..entry(Kind::Data, (1, 1 << 60), 20) };
        let entries = [(3, entry(Kind::Data, (6, 1000), 16)), (4, framed), (9, entry(Kind::Map, (7, 399), 72))];
        let entries = entries.into_iter().chain([(u32::MAX - 2, of_other)]).collect();
        let retired = [(entry(Kind::Map, (2, 5), 0), 17), (entry(Kind::Data, (7, 6), 0), 0)];
        Table::new(entries, retired.map(|(entry, gone)| Retired { entry, gone }).into())
    }

    /// The root that `table` is written as, with one page. `since` is the first manifest with it.
    fn judge(root: &Root, since: u64) {
        let wanted = table();
        assert!(root.table.entries().eq(wanted.entries()), "{root:?}");
        let retired: Vec<_> = root.table.retired().iter().map(|it| (it.entry.clone(), it.gone)).collect();
        assert_eq!(retired, [(wanted.retired()[0].entry.clone(), 17), (wanted.retired()[1].entry.clone(), since)]);
        assert_eq!(root.pages, [(65_000, PagePlace { object: 9, at: 36, bytes: 24, crc: 0xfeed_beef })]);
        assert!(root.changes.is_empty());
    }

    #[test]
    fn a_root_is_read_as_it_was_written_and_is_never_read_cut_short() {
        let mut map = Map::new(usize::MAX);
        map.note_stored(65_000, PagePlace { object: 9, at: 36, bytes: 24, crc: 0xfeed_beef });
        let bytes = encode(&table(), &map);
        judge(&Root::decode(&bytes, 44).expect("it is whole"), 44);
        (0..bytes.len()).for_each(|len| assert!(Root::decode(&bytes[..len], 44).is_none(), "cut at {len}"));
        // Uses of what changes cover count here, and changes are a list of their own.
        map.put(
            3,
            &Record { start: 65_000 << 15, sectors: 8, at: 0, stored: 4096 + FRAME_BYTES_MAX as u32, crc: 1 },
            &mut (),
        );
        let due = map.next_to_store(0, |_, _| crate::map::Again::No).expect("it has changed");
        map.store(crate::map::Due { is_whole: false, ..due }, &mut (), |changes| PagePlace {
            object: 4,
            at: 1 << 33,
            bytes: changes.len() as u32,
            crc: 5,
        });
        let root = Root::decode(&encode(&table(), &map), 44).expect("it is whole");
        assert_eq!(root.changes, [(65_000, PagePlace { object: 4, at: 1 << 33, bytes: 24, crc: 5 })]);
    }

    /// As programs wrote it before numbers were short.
    #[test]
    fn an_older_root_is_read() {
        let mut put = Put::default();
        put.count(1).text("other").count(4);
        let put_entry = |put: &mut Put, number: u32, kind: u8, source: u16, entry: &Entry| {
            put.u32(number).u8(kind).u16(source).u32(entry.stamp.epoch).u64(entry.stamp.sequence).u32(entry.head);
            put.u64(entry.bytes).u64(entry.born).u64(entry.live);
        };
        let wanted = table();
        for ((number, entry), (kind, source)) in wanted.entries().zip([(0, 0), (2, 0), (1, 0), (0, 1)]) {
            put_entry(&mut put, number, kind, source, entry);
            if kind == FRAMED {
                put.u64(99);
            }
        }
        put.count(1).u64(65_000).u32(9).u64(36).u32(24).u32(0xfeed_beef).count(2);
        for (retired, kind) in wanted.retired().iter().zip([1, 0]) {
            put_entry(&mut put, 0, kind, 0, &retired.entry);
            put.u64(retired.gone);
        }
        judge(&Root::decode(&put.0, 44).expect("it is whole"), 44);
        (0..put.0.len()).for_each(|len| assert!(Root::decode(&put.0[..len], 44).is_none(), "cut at {len}"));
    }
}

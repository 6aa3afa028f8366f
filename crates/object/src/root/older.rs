// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roots as programs wrote them before numbers were short. They stay readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::name::Stamp;
use crate::place::PagePlace;
use crate::table::{Entry, Kind, Retired, Table};
use crate::wire::Take;

const OBJECT_BYTES: usize = 47;
const PLACE_BYTES: usize = 28;
/// An object with data whose extents are stored in frames. A length follows.
pub(super) const FRAMED: u8 = 2;

/// Where pages are stored: their numbers and places.
type Places = Vec<(u64, PagePlace)>;

pub(super) fn decode(bytes: &[u8], since: u64) -> Option<(Table, Places, Places)> {
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
    take.0.is_empty().then(|| (Table::new(entries, retired), pages, changes))
}

fn take_places(take: &mut Take<'_>) -> Option<Places> {
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
    let (framed, kind) = kind_of(kind)?;
    let source = source_of(source.into(), sources)?;
    let stamp = Stamp { epoch: take.u32()?, sequence: take.u64()? };
    let (head, bytes, born, live) = (take.u32()?, take.u64()?, take.u64()?, take.u64()?);
    let content = if framed { take.u64().filter(|content| *content > 0)? } else { 0 };
    Some((number, Entry { kind, source, stamp, head, bytes, born, live, covered: 0, content }))
}

/// Whether extents are in frames, and the kind.
pub(super) const fn kind_of(kind: u8) -> Option<(bool, Kind)> {
    match kind {
        0 | FRAMED => Some((kind == FRAMED, Kind::Data)),
        1 => Some((false, Kind::Map)),
        _ => None,
    }
}

pub(super) fn source_of(nth: u64, sources: &[Arc<str>]) -> Option<Option<Arc<str>>> {
    match usize::try_from(nth).ok()? {
        0 => Some(None),
        nth => Some(Some(Arc::clone(sources.get(nth - 1)?))),
    }
}

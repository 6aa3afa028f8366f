// SPDX-License-Identifier: MIT OR Apache-2.0
//! A walk over what has content. Each part has as many pages of the map as RAM may have, so the
//! whole map is never in RAM.

use super::load::{self, Missed};
use super::state::{State, Walking};
use crate::effect::{Content, Effect, Ticket, Told};
use crate::extent::{Extent, PAGE_SECTORS};

/// How often a part begins anew after its pages were damaged on their way.
const RETRIES_MAX: u32 = 3;

/// Tells what has content in the part that begins with the page of this sector.
pub(super) fn walk(state: &mut State, ticket: Ticket, from: u64, fx: &mut Vec<Effect>) {
    assert!(state.walking.is_none(), "bug: two walks over a volume at a time");
    let part = state.map.part_from(from / PAGE_SECTORS);
    begin(state, Walking { ticket, part, pages: Vec::new(), retries: 0 }, fx);
}

fn begin(state: &mut State, mut walking: Walking, fx: &mut Vec<Effect>) {
    let (start, end) = (walking.part.start * PAGE_SECTORS, walking.part.end * PAGE_SECTORS);
    let missing = state.map.missing(start, end - start);
    if missing.is_empty() {
        let told = Told::Content(content(state, &walking));
        fx.push(Effect::Told { ticket: walking.ticket, result: Ok(told) });
    } else {
        load::fetch(state, &missing, fx);
        walking.pages = state.map.pages_of(start, end - start).collect();
        state.walking = Some(walking);
    }
}

/// Goes on if all pages are here.
pub(super) fn go_on(state: &mut State, missed: &Missed, fx: &mut Vec<Effect>) {
    let Some(mut walking) = state.walking.take() else { return };
    let lost = missed.iter().find(|(number, _)| walking.pages.contains(number));
    walking.retries += u32::from(lost.is_some());
    if let Some((_, trouble)) = lost.filter(|_| walking.retries > RETRIES_MAX) {
        fx.push(Effect::Told { ticket: walking.ticket, result: Err(trouble.clone()) });
    } else if walking.pages.iter().any(|number| state.fetching.contains(number)) {
        state.walking = Some(walking);
    } else {
        begin(state, walking, fx);
    }
}

fn content(state: &State, walking: &Walking) -> Content {
    let place = |(start, it): (u64, Extent)| (it.object, it.at, start, it.sectors());
    let mut places: Vec<_> = state.map.extents_of(&walking.part).map(place).collect();
    places.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(places.len());
    for (_, _, start, sectors) in places {
        match ranges.last_mut() {
            Some(last) if last.0 + last.1 == start => last.1 += sectors,
            _ => ranges.push((start, sectors)),
        }
    }
    let is_more = !state.map.part_from(walking.part.end).is_empty();
    Content { ranges, next: is_more.then_some(walking.part.end * PAGE_SECTORS) }
}

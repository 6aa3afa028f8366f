// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of the map are fetched when somebody needs them, and leave RAM when nobody does.

use std::collections::BTreeSet;

use super::state::{For, State};
use crate::canary::{Canary, planted};
use crate::effect::{Answer, Effect, Fault, StoredPage, Trouble};
use crate::name::Name;
use crate::near;
use crate::pages;
use crate::place::PagePlace;
use crate::table::Counted;

/// Pages that could not be had, and why.
pub(super) type Missed = Vec<(u64, Trouble)>;

/// Fetches pages, unless they are on their way.
pub(super) fn fetch(state: &mut State, numbers: &[u64], fx: &mut Vec<Effect>) {
    let fresh: BTreeSet<u64> = numbers.iter().copied().filter(|number| !state.fetching.contains(number)).collect();
    state.fetching.extend(&fresh);
    let fresh: Vec<u64> = fresh.into_iter().collect();
    for pages in pages::requests(state.map.places_of(&fresh)) {
        let (from, to) = near::span(&pages);
        let (key, range) = (state.table.get(pages[0].1.object).key(), Some((from, to - from)));
        let stored = |(_, it): &(u64, PagePlace)| StoredPage { at: it.at, bytes: it.bytes, crc: it.crc };
        let stored: Vec<StoredPage> = pages.iter().map(stored).collect();
        state.ask(For::Pages(pages), |token| Effect::Get { token, key, range, pages: stored, attempt: 0 }, fx);
    }
}

/// Takes pages; tells which could not be had.
pub(super) fn fetched(state: &mut State, pages: &[(u64, PagePlace)], answer: &Result<Answer, Fault>) -> Missed {
    let mut missed = Missed::new();
    for page in pages {
        state.fetching.remove(&page.0);
        if let Err(trouble) = take(state, pages, *page, answer) {
            missed.push((page.0, trouble));
        }
    }
    missed
}

fn take(
    state: &mut State,
    pages: &[(u64, PagePlace)],
    (number, place): (u64, PagePlace),
    answer: &Result<Answer, Fault>,
) -> Result<(), Trouble> {
    // A page that was stored elsewhere meanwhile is here, or is fetched from there.
    if state.map.places_of(&[number]) != [(number, place)] {
        return Ok(());
    }
    let name = state.table.try_get(place.object).map_or(Name::Manifest(state.manifest.number), |it| it.key().name);
    let damaged = |what: String| match &state.fenced {
        Some(by) => Trouble::Fenced(by.clone()),
        None => Trouble::Damaged { name, what },
    };
    let Ok(Answer::Bytes(bytes)) = answer else { return Err(damaged("it is absent".to_owned())) };
    let page = pages::page_of(pages, (number, place), bytes).map_err(damaged)?;
    state.map.load(number, place, page, &mut Counted(&mut state.table)).map_err(damaged)
}

/// Leaves pages to the store, if there are too many. Those stay that somebody waits for, as more of
/// these may be on their way; and those that the store does not have yet.
pub(super) fn evict(state: &mut State) {
    let reads = state.parked.iter().flat_map(|it| &it.pages);
    let moved = state.collecting.iter().flat_map(|it| &it.pages);
    let stored = state.checkpointing.iter().flat_map(|it| &it.pages);
    let walked = state.walking.iter().flat_map(|it| &it.pages);
    let awaited: BTreeSet<u64> = reads.chain(moved).chain(stored).chain(walked).copied().collect();
    let queued = state.queue.iter().filter(|it| !it.is_there()).map(|it| it.object);
    let unsent: Vec<u32> = queued.chain(state.checkpointing.iter().filter_map(|it| it.object)).collect();
    let is_unsent = |object: u32| unsent.contains(&object) && !planted(Canary::PageUnsent);
    state.map.evict(&mut state.table, |number, place| awaited.contains(&number) || is_unsent(place.object));
}

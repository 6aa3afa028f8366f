// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deleting what nothing needs: no manifest that is promised to be complete, and no snapshot.
//!
//! Before anything is deleted, the next wish is looked for. A wish that comes later finds in the
//! newest manifest that its state is not promised any more.

use super::state::{For, State};
use crate::canary::{Canary, planted};
use crate::effect::{Answer, Effect, Fault};
use crate::name::{Key, Name};
use crate::table::{Entry, Kind, Retired};
use crate::wish::Wish;

/// Objects that are deleted at a time.
const DELETES: usize = 16;

/// Deletes what may be deleted, after a look for wishes.
pub(super) fn remove(state: &mut State, fx: &mut Vec<Effect>) {
    if state.is_probing || state.deleting > 0 || state.writer.is_none() || removable(state).is_empty() {
        return;
    }
    state.is_probing = true;
    let key = Key::from(Name::Wish(state.manifest.wishes + 1));
    state.ask(For::Wish, |token| Effect::Get { token, key, range: None, pages: Vec::new(), attempt: 0 }, fx);
}

pub(super) fn wish_read(state: &mut State, answer: Result<Answer, Fault>, fx: &mut Vec<Effect>) {
    state.is_probing = false;
    if let Ok(Answer::Bytes(bytes)) = answer {
        Wish::grant(&bytes, &mut state.manifest);
        remove(state, fx);
        return;
    }
    for key in removable(state) {
        state.deleting += 1;
        let name = key.name;
        state.ask(For::Delete(key), |token| Effect::Delete { token, name, attempt: 0 }, fx);
    }
}

pub(super) fn deleted(state: &mut State, key: &Key, fx: &mut Vec<Effect>) {
    state.deleting -= 1;
    state.table.forget(key);
    if let Name::Manifest(number) = key.name {
        state.own.retain(|own| *own != number);
    }
    remove(state, fx);
}

/// What may be deleted now: some of it.
fn removable(state: &State) -> Vec<Key> {
    let manifest = &state.manifest;
    let is_kept = |it: &Retired| {
        let in_snapshot = manifest.snapshots.iter().any(|snapshot| {
            (it.entry.born..it.gone).contains(&snapshot.manifest) && !planted(Canary::SnapshotForgotten)
        });
        it.entry.source.is_some() || it.gone == 0 || it.gone > manifest.kept || in_snapshot
    };
    let objects = state.table.retired().iter().filter(|it| !is_kept(it)).map(|it| it.entry.key());
    // The first and the last manifest of an opening stay. So a writer that was overtaken finds the
    // number after its last one taken, however late it wakes up. Torn ones stay, too.
    let is_old = |number: &u64| number + state.options.manifests < manifest.number;
    let is_snapshot = |number: &u64| manifest.snapshots.iter().any(|it| it.manifest == *number);
    let old = state.own.iter().copied().take_while(is_old).filter(|number| !is_snapshot(number));
    let manifests = old.map(|number| Key::from(Name::Manifest(number)));
    let mut keys: Vec<Key> = objects.chain(manifests).take(DELETES).collect();
    if planted(Canary::LiveDeleted) {
        let is_worn = |it: &Entry| it.kind == Kind::Data && it.live_bytes() * 2 < it.bytes;
        keys.extend(
            state
                .table
                .entries()
                .map(|(_, entry)| entry)
                .filter(|it| is_worn(it) && it.live > 0 && it.born < manifest.kept)
                .map(Entry::key),
        );
    }
    keys
}

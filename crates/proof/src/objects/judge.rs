// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oracle: what the bucket alone holds, and whether that is a state in which the volume was.

use std::collections::BTreeSet;

use flashfront_object::{Key, Manifest, Mode, Volume};

use super::store::Store;
use super::writers::{Base, Writer};

/// A writer's random number, which is its place in the list.
pub(super) fn id(number: usize) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(number as u64).to_le_bytes());
    id
}

fn parse(id: &[u8; 16]) -> usize {
    let (number, _) = id.split_at(8);
    number.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// The writer whose state a manifest has. One that has created its first manifest, and was
/// overtaken before it could open the volume, has left the state of the one before.
pub(super) fn owner(mut manifest: Manifest, store: &Store, writers: &[Writer]) -> usize {
    loop {
        let writer = parse(&manifest.writer);
        if writers[writer].epoch == Some(manifest.epoch) {
            return writer;
        }
        manifest = store.newest_below(manifest.number).expect("a writer takes over from somebody");
    }
}

/// The bucket alone must hold a state in which the volume was, and all that was acknowledged.
pub(super) fn look(store: &mut Store, writers: &[Writer]) -> Result<(), String> {
    let head = owner(store.newest(), store, writers);
    let content = store.content(Mode::Read)?;
    let moment = writers[head].moment_of(&content);
    moment.map(drop).map_err(|what| format!("the bucket alone, of writer {head}, holds {what}"))
}

/// A flush of this writer was acknowledged: nobody may have taken over from an older state.
pub(super) fn acknowledged(number: usize, writers: &[Writer]) -> Result<(), String> {
    let flushed = writers[number].flushed;
    for (other, writer) in writers.iter().enumerate() {
        if let Some(base) = &writer.base
            && base.parent == number
            && other != number
            && base.changes < flushed
        {
            let taken = base.changes;
            return Err(format!(
                "writer {number} acknowledged {flushed} changes after writer {other} took over with {taken}"
            ));
        }
    }
    Ok(())
}

/// A writer has opened the volume: what it has found must be a state of the one before. `None`: the
/// writer is overtaken.
pub(super) fn opened(
    number: usize,
    manifest: &Manifest,
    store: &mut Store,
    writers: &[Writer],
) -> Result<Option<Base>, String> {
    let Ok(content) = store.content(Mode::ReadAt(manifest.number)) else {
        let is_overtaken = store.newest().epoch > manifest.epoch;
        return if is_overtaken { Ok(None) } else { Err(format!("the manifest of writer {number} is not complete")) };
    };
    let before = store.newest_below(manifest.number).expect("a writer takes over from somebody");
    let parent = owner(before, store, writers);
    match writers[parent].moment_of(&content) {
        Ok(changes) => Ok(Some(Base { parent, changes, content })),
        Err(what) => Err(format!("writer {number} takes over from {parent} and finds {what}")),
    }
}

/// After the end of a writer its books tell of each object what the map tells: how much is in use.
pub(super) fn compare_books(volume: &Volume, store: &mut Store) -> Result<(), String> {
    let books = |volume: &Volume| -> BTreeSet<(Key, u64)> {
        volume.objects().map(|it| (it.key(), it.live + it.covered)).collect()
    };
    let alone = store.open(Mode::Read).map_err(|fault| format!("the bucket alone: {fault}"))?;
    let (kept, counted) = (books(volume), books(&alone));
    let differ: Vec<_> = kept.symmetric_difference(&counted).map(|it| (it, kept.contains(it))).collect();
    match differ.is_empty() {
        true => Ok(()),
        false => Err(format!("by the books of the last writer (true), and by the map (false): {differ:?}")),
    }
}

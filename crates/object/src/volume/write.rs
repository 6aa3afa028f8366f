// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes: into the batch, which becomes an object.

use super::load::Missed;
use super::seal::seal_batch;
use super::state::{State, What};
use super::{checkpoint, publish};
use crate::batch::EXTENT_SECTORS_MAX;
use crate::effect::Effect;
use crate::options::{Options, WriteFault};
use crate::root;
use crate::table::{Entry, Kind};
use crate::wire::SECTOR_BYTES;

/// A checkpoint has at most one part in so many of the bytes of the objects before it, unless these
/// are very many. Random writes change more bytes of pages than they write.
const CHECKPOINT_SHARE: u64 = 16;
/// Looks at the size of the next checkpoint while objects come to be as many as for the first one.
const LOOKS: usize = 4;
/// Longer zeroes are several extents.
const ZEROES_MAX: u64 = 1 << 31;

/// Writes whole sectors.
///
/// # Errors
/// [`WriteFault`]. Nothing was written then.
pub(super) fn write(state: &mut State, start: u64, bytes: &[u8], fx: &mut Vec<Effect>) -> Result<(), WriteFault> {
    may_write(state, start, bytes.len() as u64 / SECTOR_BYTES)?;
    append(state, start, bytes);
    seal_if_full(state, fx);
    Ok(())
}

/// Makes a range zeroes. It takes no space then.
///
/// # Errors
/// [`WriteFault`]. Nothing was written then.
pub(super) fn zero(state: &mut State, start: u64, sectors: u64, fx: &mut Vec<Effect>) -> Result<(), WriteFault> {
    may_write(state, start, sectors)?;
    let (mut at, end) = (start, start + sectors);
    while at < end {
        let sectors = (end - at).min(ZEROES_MAX);
        begin_batch(state);
        state.batch.push_zeroes(at, sectors);
        state.map.zero(at, sectors, &mut state.table);
        at += sectors;
    }
    seal_if_full(state, fx);
    Ok(())
}

fn may_write(state: &State, start: u64, sectors: u64) -> Result<(), WriteFault> {
    let end = start.checked_add(sectors);
    assert!(
        end.is_some_and(|end| end <= state.manifest.sectors),
        "bug: {sectors} sectors at {start} are outside the volume"
    );
    match &state.fenced {
        _ if state.writer.is_none() => Err(WriteFault::ReadOnly),
        Some(by) => Err(WriteFault::Fenced(by.clone())),
        None if !state.former.may_write() => Err(WriteFault::NoKey),
        None => Ok(()),
    }
}

/// Appends whole sectors, in extents that don't cross the borders of the largest ones.
pub(super) fn append(state: &mut State, start: u64, bytes: &[u8]) {
    let (mut at, mut rest) = (start, bytes);
    while !rest.is_empty() {
        let sectors = (EXTENT_SECTORS_MAX - at % EXTENT_SECTORS_MAX).min(rest.len() as u64 / SECTOR_BYTES);
        let (now, later) = rest.split_at((sectors * SECTOR_BYTES) as usize);
        let object = begin_batch(state);
        let record = state.batch.push(at, sectors, &state.former.store(at, now));
        state.table.use_of(object, sectors);
        if !state.former.is_plain() {
            state.table.get_mut(object).content += sectors;
        }
        state.map.put(object, &record, &mut state.table);
        (at, rest) = (at + sectors, later);
    }
}

/// Seals the batch between two writes: a write is in one object, so that no state has half of
/// it.
pub(super) fn seal_if_full(state: &mut State, fx: &mut Vec<Effect>) {
    if state.batch.bytes() >= state.options.batch_bytes {
        seal(state, fx);
    }
}

/// Returns the number of the object that the batch will be.
fn begin_batch(state: &mut State) -> u32 {
    if let Some((object, ..)) = state.open {
        return object;
    }
    let (stamp, born) = (state.next_stamp(), state.next);
    let entry =
        Entry { kind: Kind::Data, source: None, stamp, head: 0, bytes: 0, born, live: 0, covered: 0, content: 0 };
    let object = state.table.add(entry);
    state.open = Some((object, stamp, born));
    object
}

/// Makes the batch an object, and a checkpoint after it if one is due.
pub(super) fn seal(state: &mut State, fx: &mut Vec<Effect>) {
    seal_batch(state);
    state.wants_checkpoint |= is_checkpoint_due(state);
    checkpoint::go_on(state, &Missed::new(), fx);
    publish::go_on(state, fx);
}

/// Whether the objects after the last checkpoint are worth the next one.
fn is_checkpoint_due(state: &State) -> bool {
    // What a checkpoint on its way has is in the tail until a manifest names it.
    if state.checkpointing.is_some() || checkpoint::has_root_queued(state) {
        return false;
    }
    if state.map.unstored_bytes() > state.options.map_bytes {
        return true;
    }
    let data = state.queue.iter().filter(|it| it.what == What::Data).map(|it| it.bytes);
    let tail = state.manifest.tail.len() + data.clone().count();
    let Options { tail: few, tail_max: many, .. } = state.options;
    // A look goes over all pages.
    if tail < few || (tail < many && !tail.is_multiple_of((few / LOOKS).max(1))) {
        return false;
    }
    let bytes: u64 = state.manifest.tail.iter().map(|it| it.bytes).chain(data).sum();
    let checkpoint = || state.map.changed_bytes() + root::bytes(&state.table, &state.map);
    tail >= many || checkpoint() * CHECKPOINT_SHARE <= bytes
}

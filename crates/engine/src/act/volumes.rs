// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes that come, change and go while the cache serves.
//!
//! A change counts when the table that has it is durable, and is told of then. A volume that is
//! added takes no request before. A volume that is removed takes none from the moment on that this
//! is asked for. When nothing of it is under way any more, the table without it is written. From
//! then on no replay knows its id, so that its blocks in the log are dead. Only then they leave the
//! index (test: `a_removed_volume_never_comes_back`).

pub(crate) mod check;
mod grow;
pub(crate) mod index;
pub(crate) mod state;

use alloc::vec::Vec;

use crate::act::persist::Told;
use crate::coordinator::Coordinator;
use crate::cx::{Cx, Turn};
use crate::fact::canary::Canary;
use crate::fact::event::Event;
use crate::fact::types::{BLOCK_BYTES, OriginId};
use crate::fact::volume::{DirtyOnRemove, NewVolume, VolumeChange, VolumeError};
use crate::facts::Facts;
use crate::format::OriginRecord;
use crate::lanes::Lanes;
use crate::organ::down::Down;
use crate::organ::index::Flat;
use crate::organ::origin::{Origin, Stage};
use crate::organ::up::Up;

use check::{check_name, check_new, check_shares};
use grow::{begin_growing, go_on_growing, grown};
use state::{Leaving, Volumes, Widening};

/// An operator wants a change.
pub(crate) fn change(coordinator: &mut Coordinator, ticket: u64, change: VolumeChange, turn: &mut Turn<'_>) {
    let origin = change.origin();
    if let Err(error) = begin(coordinator, ticket, change, turn) {
        turn.cx().event(Event::VolumeRefused { ticket, origin, error });
    }
}

fn begin(
    coordinator: &mut Coordinator,
    ticket: u64,
    change: VolumeChange,
    turn: &mut Turn<'_>,
) -> Result<(), VolumeError> {
    if !coordinator.serving() {
        return Err(VolumeError::NotServing);
    }
    if turn.cx().cache_failed() {
        return Err(VolumeError::CacheFailed);
    }
    if turn.facts.superblock.table.is_none() {
        return Err(VolumeError::NeedsVersion2);
    }
    let Some(id) = change.origin() else {
        if let VolumeChange::Add(volume) = change {
            check_new(&coordinator.volumes, &volume, turn.facts)?;
            coordinator.volumes.coming.push((ticket, volume));
        }
        return Ok(());
    };
    let origin = turn.facts.place_of(id).filter(|origin| turn.facts.origins[*origin].is_listed());
    let origin = origin.ok_or(VolumeError::NoSuchVolume)?;
    if let VolumeChange::Remove { dirty, .. } = change {
        return leave(coordinator, ticket, origin, dirty, turn);
    }
    if turn.facts.origins[origin].stage != Stage::Serving {
        return Err(VolumeError::Busy);
    }
    if let VolumeChange::Grow { size_bytes, .. } = change {
        return begin_growing(&mut coordinator.volumes, ticket, origin, size_bytes, turn.facts);
    }
    if let VolumeChange::SetShares { shares, .. } = &change {
        check_shares(*shares, Some(id), &turn.facts.superblock)?;
    }
    if let VolumeChange::Rename { name, .. } = &change {
        check_name(&coordinator.volumes, name, Some(id), turn.facts)?;
    }
    let facts = turn.change();
    if let VolumeChange::SetReadOnly { read_only, .. } = change {
        facts.origins[origin].read_only = read_only;
    }
    let sets_shares = matches!(change, VolumeChange::SetShares { .. });
    if let Some(record) = facts.superblock.origin_mut(id) {
        match change {
            VolumeChange::Rename { name, .. } => record.name = name,
            VolumeChange::SetReadOnly { read_only, .. } => record.read_only = read_only,
            VolumeChange::SetShares { shares, .. } => record.shares = shares,
            VolumeChange::SetOriginPath { origin_path, .. } => record.origin_path = origin_path,
            VolumeChange::Add(_) | VolumeChange::Grow { .. } | VolumeChange::Remove { .. } => {}
        }
    }
    if sets_shares {
        facts.take_limits();
    }
    coordinator.persist.tell(Told::Volume { ticket, origin: id });
    Ok(())
}

/// A volume is to be removed.
fn leave(
    coordinator: &mut Coordinator,
    ticket: u64,
    origin: usize,
    dirty: DirtyOnRemove,
    turn: &mut Turn<'_>,
) -> Result<(), VolumeError> {
    if coordinator.volumes.is_growing(origin) {
        return Err(VolumeError::Busy);
    }
    let it = &turn.delta.origins[origin];
    let blocks = it.dirty.get() + it.reserved.get();
    if dirty == DirtyOnRemove::Refuse && blocks > 0 {
        return Err(VolumeError::Dirty { blocks });
    }
    let id = turn.facts.origins[origin].id;
    match turn.facts.origins[origin].stage {
        Stage::Serving => coordinator.volumes.leaving.push(Leaving { ticket, origin, lanes_left: None }),
        Stage::Leaving { .. } => {
            // The newer word counts, and who asked first is told so.
            let leaving = coordinator.volumes.leaving.iter_mut().find(|leaving| leaving.origin == origin);
            let leaving = leaving.ok_or(VolumeError::Busy)?;
            let ticket = core::mem::replace(&mut leaving.ticket, ticket);
            turn.cx().event(Event::VolumeRefused { ticket, origin: Some(id), error: VolumeError::Busy });
        }
        Stage::Coming | Stage::Unlisted | Stage::Gone => return Err(VolumeError::Busy),
    }
    // What is written right now is destaged, too.
    let destaged = dirty != DirtyOnRemove::Discard;
    turn.change().origins[origin].go_on_to(Stage::Leaving { destaged });
    Ok(())
}

/// The engine stops: what has not come to its last step is given up.
pub(crate) fn give_up(coordinator: &mut Coordinator, turn: &mut Turn<'_>) {
    let error = VolumeError::NotServing;
    for (ticket, _) in core::mem::take(&mut coordinator.volumes.coming) {
        turn.cx().event(Event::VolumeRefused { ticket, origin: None, error });
    }
    for growing in coordinator.volumes.take_waiting() {
        let origin = Some(turn.facts.origins[growing.origin].id);
        turn.cx().event(Event::VolumeRefused { ticket: growing.ticket, origin, error });
    }
    let is_left = |leaving: &Leaving| !matches!(turn.facts.origins[leaving.origin].stage, Stage::Leaving { .. });
    let (left, given_up): (_, Vec<_>) =
        core::mem::take(&mut coordinator.volumes.leaving).into_iter().partition(is_left);
    coordinator.volumes.leaving = left;
    for leaving in given_up {
        refuse_leaving(&leaving, error, turn);
    }
}

/// A volume stays after all.
fn refuse_leaving(leaving: &Leaving, error: VolumeError, turn: &mut Turn<'_>) {
    turn.change().origins[leaving.origin].go_on_to(Stage::Serving);
    let origin = Some(turn.facts.origins[leaving.origin].id);
    turn.cx().event(Event::VolumeRefused { ticket: leaving.ticket, origin, error });
}

/// Goes on with all that is under way.
pub(crate) fn volumes_step(coordinator: &mut Coordinator, lanes: &mut Lanes, turn: &mut Turn<'_>) {
    for (ticket, id, result) in coordinator.persist.take_ended() {
        written(coordinator, ticket, id, result, lanes, turn);
    }
    if coordinator.volumes.grows() {
        go_on_growing(coordinator, lanes, turn);
    }
    // A volume that grows may be the last one, behind which the next one begins.
    if !coordinator.volumes.coming.is_empty() && !coordinator.volumes.grows() {
        add(coordinator, lanes, turn);
    }
    // A message that is on its way may be about a volume that goes.
    if !lanes.know_all(&turn.cx()) {
        return;
    }
    for mut leaving in core::mem::take(&mut coordinator.volumes.leaving) {
        if go_on(coordinator, &mut leaving, turn) {
            coordinator.volumes.leaving.push(leaving);
        }
    }
}

/// A table is durable, or the cache device has failed.
fn written(
    coordinator: &mut Coordinator,
    ticket: u64,
    id: OriginId,
    result: Result<(), VolumeError>,
    lanes: &mut Lanes,
    turn: &mut Turn<'_>,
) {
    let Some(origin) = turn.facts.place_of(id) else { return };
    let stage = turn.facts.origins[origin].stage;
    let event = match result {
        Ok(()) => Event::VolumeChanged { ticket, origin: id },
        Err(error) => Event::VolumeRefused { ticket, origin: Some(id), error },
    };
    if let Some(growing) = coordinator.volumes.take_grown(ticket) {
        grown(&growing, result.is_ok(), turn);
    }
    let (volumes, mut cx) = (&mut coordinator.volumes, turn.cx());
    match (stage, result) {
        (Stage::Unlisted, Ok(())) => {
            volumes.forget_begins(origin, lanes.count());
            for lane in 0..lanes.count() {
                if let Some(Up::Forgotten { origin }) = lanes.ask(lane, Down::Forget { origin }, &mut cx) {
                    volumes.forgotten(origin);
                }
            }
            // The removal is told when no I/O of the volume is under way.
            return;
        }
        (Stage::Unlisted, Err(_)) => volumes.leaving.retain(|leaving| leaving.origin != origin),
        (Stage::Coming, Ok(())) => turn.change().origins[origin].go_on_to(Stage::Serving),
        (Stage::Coming, Err(_)) => turn.change().origins[origin].go_on_to(Stage::Gone),
        _ => {}
    }
    turn.cx().event(event);
}

/// Goes on with a volume that is being removed. Whether there is more to do.
fn go_on(coordinator: &mut Coordinator, leaving: &mut Leaving, turn: &mut Turn<'_>) -> bool {
    let origin = leaving.origin;
    let id = turn.facts.origins[origin].id;
    let asked = coordinator.requests.iter().any(|(_, request)| request.origin == origin);
    let it = &mut turn.delta.origins[origin];
    if asked || it.reserved.get() > 0 || it.foreground_ios > 0 || !coordinator.destager.is_idle_for(origin) {
        return true;
    }
    match turn.facts.origins[origin].stage {
        Stage::Leaving { destaged: true } if it.undrained() > 0 => return true,
        Stage::Leaving { destaged: true } if it.lost.get() > 0 => {
            refuse_leaving(leaving, VolumeError::Dirty { blocks: turn.delta.origins[origin].lost.get() }, turn);
            return false;
        }
        _ => {}
    }
    // The origin has what it was sent, and nobody waits for it any more.
    it.flush.want_if_written();
    it.flush.want_if_awaited();
    if !it.flush.is_quiet() {
        return true;
    }
    match turn.facts.origins[origin].stage {
        Stage::Leaving { .. } => {
            let facts = turn.change();
            facts.origins[origin].go_on_to(Stage::Unlisted);
            facts.superblock.origins.retain(|record| record.id != id);
            coordinator.persist.tell(Told::Volume { ticket: leaving.ticket, origin: id });
            true
        }
        Stage::Unlisted if leaving.lanes_left == Some(0) => {
            turn.change().origins[origin].go_on_to(Stage::Gone);
            turn.cx().event(Event::VolumeChanged { ticket: leaving.ticket, origin: id });
            false
        }
        _ => true,
    }
}

/// Has each lane's index get room for so many places. `false`: not yet. An error: there never is.
fn make_room(volumes: &mut Volumes, keys: u64, lanes: &mut Lanes, cx: &mut Cx<'_>) -> Result<bool, ()> {
    while keys > volumes.wide {
        if volumes.widening.is_none() {
            volumes.widening = Some(Widening { keys, lanes_left: lanes.count(), never: false });
            for lane in 0..lanes.count() {
                if let Some(Up::Widened { keys, room }) = lanes.ask(lane, Down::Widen { keys }, cx) {
                    volumes.widened(keys, room);
                }
            }
        }
        let Some(it) = volumes.widening.take_if(|it| it.lanes_left == 0) else { return Ok(false) };
        if !it.never {
            volumes.wide = it.keys;
        } else if it.keys <= keys {
            return Err(());
        }
    }
    Ok(true)
}

/// Where a new volume begins on the line of all blocks, and where the line ends then.
fn keys_with(coordinator: &Coordinator, volume: &NewVolume, facts: &Facts) -> (u64, u64) {
    let blocks = volume.size_bytes.div_ceil(BLOCK_BYTES);
    let first = facts.origins.last().map_or(0, |last| coordinator.router.next_base(last.base.0, last.blocks));
    (first, first.saturating_add(coordinator.router.span_of(blocks)))
}

/// Adds what waits for that, when the index of each lane has room for its places.
fn add(coordinator: &mut Coordinator, lanes: &mut Lanes, turn: &mut Turn<'_>) {
    while let Some((_, volume)) = coordinator.volumes.coming.first() {
        let (first, keys) = keys_with(coordinator, volume, turn.facts);
        match make_room(&mut coordinator.volumes, keys, lanes, &mut turn.cx()) {
            Ok(true) => {}
            Ok(false) => return,
            Err(()) => {
                let (ticket, _) = coordinator.volumes.coming.remove(0);
                let error = VolumeError::NoPlace;
                turn.cx().event(Event::VolumeRefused { ticket, origin: None, error });
                continue;
            }
        }
        let (ticket, volume) = coordinator.volumes.coming.remove(0);
        begin_volume(coordinator, ticket, volume, Flat(first), lanes, turn);
    }
}

fn begin_volume(
    coordinator: &mut Coordinator,
    ticket: u64,
    volume: NewVolume,
    base: Flat,
    lanes: &mut Lanes,
    turn: &mut Turn<'_>,
) {
    let reused = turn.facts.planted(Canary::IdReused);
    let reused = turn
        .facts
        .origins
        .iter()
        .position(|it| reused && it.stage == Stage::Gone && it.size_bytes == volume.size_bytes);
    let facts = turn.change();
    let Some(table) = &mut facts.superblock.table else { return };
    let id = reused.map_or(OriginId(table.next_id), |place| facts.origins[place].id);
    table.next_id += u32::from(reused.is_none());
    let device = (volume.block_bytes, volume.whole_flushes);
    let NewVolume { name, identity, origin_path, size_bytes, mode, read_only, shares, .. } = volume;
    let record = OriginRecord {
        id,
        mode,
        read_only,
        size_bytes,
        name,
        identity,
        fingerprint: volume.fingerprint,
        changed_ns: volume.changed_ns,
        dirty_blocks: 0,
        origin_path,
        shares,
    };
    let at = facts.superblock.origins.partition_point(|it| it.id < id);
    facts.superblock.origins.insert(at, record.clone());
    if let Some(place) = reused {
        let base = facts.origins[place].base;
        facts.origins[place] = Origin::new(&record, base, device, Stage::Coming);
        facts.take_limits();
        return coordinator.persist.tell(Told::Volume { ticket, origin: id });
    }
    facts.origins.push(Origin::new(&record, base, device, Stage::Coming));
    facts.take_limits();
    turn.delta.add_origin(turn.facts.options.destage, turn.now);
    coordinator.add_origin(turn.now);
    lanes.send_all(|| Down::AddOrigin, &mut turn.cx());
    coordinator.persist.tell(Told::Volume { ticket, origin: id });
}

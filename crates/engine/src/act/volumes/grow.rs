// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume grows, since its origin has.
//!
//! The order is: room on the line of all blocks and in the index, then the table with the new size.
//! Clients may use the new part when that table is durable. So no write is acknowledged that a
//! replay with the old size would skip (test: the sweep's `grow`, canary `grown-early`).

use super::make_room;
use super::state::{Growing, Volumes};
use crate::act::persist::Told;
use crate::coordinator::Coordinator;
use crate::cx::Turn;
use crate::fact::canary::Canary;
use crate::fact::event::Event;
use crate::fact::types::{BLOCK_BYTES, SECTOR_BYTES};
use crate::fact::volume::VolumeError;
use crate::facts::Facts;
use crate::lanes::Lanes;

/// An operator wants a volume to have this size.
pub(super) fn begin_growing(
    volumes: &mut Volumes,
    ticket: u64,
    origin: usize,
    size_bytes: u64,
    facts: &Facts,
) -> Result<(), VolumeError> {
    let now = facts.origins[origin].size_bytes;
    if volumes.is_growing(origin) {
        return Err(VolumeError::Busy);
    }
    if !size_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(VolumeError::BadSize);
    }
    if size_bytes <= now {
        return Err(VolumeError::NotLarger { size_bytes: now });
    }
    if !now.is_multiple_of(BLOCK_BYTES) {
        return Err(VolumeError::PartOfBlock { size_bytes: now });
    }
    volumes.growing.push(Growing { ticket, origin, size_bytes, is_told: false });
    Ok(())
}

/// Has the table written of each volume that there is room for.
pub(super) fn go_on_growing(coordinator: &mut Coordinator, lanes: &mut Lanes, turn: &mut Turn<'_>) {
    for mut growing in core::mem::take(&mut coordinator.volumes.growing) {
        let is_there = if growing.is_told { Ok(true) } else { has_room(coordinator, &growing, lanes, turn) };
        let id = turn.facts.origins[growing.origin].id;
        match is_there {
            Ok(true) if !growing.is_told => {
                growing.is_told = true;
                if let Some(record) = turn.change().superblock.origin_mut(id) {
                    record.size_bytes = growing.size_bytes;
                }
                coordinator.persist.tell(Told::Volume { ticket: growing.ticket, origin: id });
                if turn.facts.planted(Canary::GrownEarly) {
                    grown(&growing, true, turn);
                    turn.cx().event(Event::VolumeChanged { ticket: growing.ticket, origin: id });
                }
            }
            Ok(_) => {}
            Err(error) => {
                turn.cx().event(Event::VolumeRefused { ticket: growing.ticket, origin: Some(id), error });
                continue;
            }
        }
        coordinator.volumes.growing.push(growing);
    }
}

/// Whether there is room for a volume's new places. Else it is waited for, but for an error.
fn has_room(
    coordinator: &mut Coordinator,
    growing: &Growing,
    lanes: &mut Lanes,
    turn: &mut Turn<'_>,
) -> Result<bool, VolumeError> {
    let base = turn.facts.origins[growing.origin].base.0;
    let end = base.saturating_add(coordinator.router.span_of(growing.size_bytes.div_ceil(BLOCK_BYTES)));
    match turn.facts.origins.get(growing.origin + 1) {
        Some(next) if end > next.base.0 => Err(VolumeError::NoRoomBehind),
        Some(_) => Ok(true),
        None => make_room(&mut coordinator.volumes, end, lanes, &mut turn.cx()).map_err(|()| VolumeError::NoPlace),
    }
}

/// The table with the new size is durable, or never will be.
pub(super) fn grown(growing: &Growing, is_durable: bool, turn: &mut Turn<'_>) {
    let facts = turn.change();
    let it = &mut facts.origins[growing.origin];
    if is_durable {
        it.grow_to(growing.size_bytes);
        return;
    }
    let (id, size_bytes) = (it.id, it.size_bytes);
    if let Some(record) = facts.superblock.origin_mut(id) {
        record.size_bytes = size_bytes;
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The heads of a lane's two checkpoints: the newest counts, and either member of a mirrored cache
//! may have it.

use super::state::{Phase, Recovery, SecondLook};
use crate::cx::Cx;
use crate::format::CheckpointHeader;
use crate::lane::Lane;
use crate::open_error::OpenError;
use crate::recover::ahead::look_ahead;
use crate::recover::load::next_body_read;

/// Takes what is at the head of an area; with both, goes on with the newest.
pub(crate) fn take_head(
    lane: &mut Lane,
    it: &mut Recovery,
    area: u32,
    header: Option<CheckpointHeader>,
    lost: bool,
    cx: &mut Cx<'_>,
) -> Result<Option<(u64, u32)>, OpenError> {
    let number = lane.id as u32;
    let read = |area| Ok(Some((cx.shared.superblock.checkpoint_offset(number, area), 1)));
    let generation = header.map_or(0, |header| header.generation);
    match &mut it.second_look {
        Some(look) => (look.newest, look.lost) = (look.newest.max(generation), look.lost | lost),
        None => it.head_lost |= lost,
    }
    if let Some(header) = header
        && it.found[area as usize].is_none_or(|(known, _)| known.generation < header.generation)
    {
        it.found[area as usize] = Some((header, it.member));
    }
    if area == 0 {
        it.phase = Phase::Area(1);
        return read(1);
    }
    let newest = it.found.iter().flatten().map(|(header, _)| header.generation).max().unwrap_or(0);
    // What has decayed on one member, or was torn there, may be whole on the other.
    if it.head_lost && it.second_look.is_none() && it.turn_to_other(cx) {
        it.second_look = Some(SecondLook::default());
        it.phase = Phase::Area(0);
        return read(0);
    }
    if let Some(look) = it.second_look {
        it.head_lost = look.lost || look.newest < newest;
    }
    let generation = |area: usize| it.found[area].map(|(header, _)| header.generation);
    it.area = u32::from(generation(1) > generation(0));
    let (header, _) = it.found[it.area as usize].ok_or(OpenError::NoCheckpoint { lane: number })?;
    // The body was on both before the head was on either.
    it.turn_back(cx);
    it.header = Some(header);
    lane.checkpoint.generation = header.generation;
    if header.seq == 0 {
        return if it.head_lost { look_ahead(lane, it, cx) } else { Ok(None) };
    }
    lane.index.limit_checksum_bits(header.checksum_bits);
    (it.heads, it.next_segments) = (header.heads, header.next_segments);
    (it.next_seq, it.phase) = (header.seq, Phase::Body);
    Ok(next_body_read(lane, it, header, cx))
}

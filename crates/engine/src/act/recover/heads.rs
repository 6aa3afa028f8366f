// SPDX-License-Identifier: MIT OR Apache-2.0
//! The heads of a lane's two checkpoints: the newest counts, and either member of a mirrored cache
//! may have it.

use super::state::{Recovery, RecoveryPhase, SecondLook};
use crate::cx::Cx;
use crate::fact::open_error::OpenError;
use crate::format::CheckpointHeader;
use crate::lane::Lane;

impl Recovery {
    /// Takes what is at the head of an area; with both, goes on with the newest.
    pub(crate) fn take_head(
        &mut self,
        lane: &mut Lane,
        area: u32,
        header: Option<CheckpointHeader>,
        lost: bool,
        cx: &mut Cx<'_>,
    ) -> Result<Option<(u64, u32)>, OpenError> {
        let number = lane.id as u32;
        let read = |area| Ok(Some((cx.facts.superblock.checkpoint_offset(number, area), 1)));
        let generation = header.map_or(0, |header| header.generation);
        match &mut self.second_look {
            Some(look) => (look.newest, look.lost) = (look.newest.max(generation), look.lost | lost),
            None => self.head_lost |= lost,
        }
        if let Some(header) = header
            && self.found[area as usize].is_none_or(|(known, _)| known.generation < header.generation)
        {
            self.found[area as usize] = Some((header, self.member));
        }
        if area == 0 {
            self.phase = RecoveryPhase::Area(1);
            return read(1);
        }
        let newest = self.found.iter().flatten().map(|(header, _)| header.generation).max().unwrap_or(0);
        // What has decayed on one member, or was torn there, may be whole on the other.
        if self.head_lost && self.second_look.is_none() && self.turn_to_other(cx) {
            self.second_look = Some(SecondLook::default());
            self.phase = RecoveryPhase::Area(0);
            return read(0);
        }
        if let Some(look) = self.second_look {
            self.head_lost = look.lost || look.newest < newest;
        }
        let generation = |area: usize| self.found[area].map(|(header, _)| header.generation);
        self.area = u32::from(generation(1) > generation(0));
        let (header, _) = self.found[self.area as usize].ok_or(OpenError::NoCheckpoint { lane: number })?;
        // The body was on both before the head was on either.
        self.turn_back(cx);
        self.header = Some(header);
        lane.checkpoint.found(header.generation);
        if header.seq == 0 {
            return if self.head_lost { self.look_ahead(lane, cx) } else { Ok(None) };
        }
        lane.store.limit_checksum_bits(header.checksum_bits);
        (self.heads, self.next_segments) = (header.heads, header.next_segments);
        (self.next_seq, self.phase) = (header.seq, RecoveryPhase::Body);
        Ok(self.next_body_read(lane, header, cx))
    }
}

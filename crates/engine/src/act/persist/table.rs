// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which table of volumes is being written, which members have it, and which one the superblocks
//! name.
//!
//! There are two areas, and a table must never be overwritten that a superblock may name after a
//! power cut. So the next table goes to the area that no copy names. When one copy names it, it is
//! not given up for a newer table before all copies name it (tests: the sweep's `volumes`, and
//! `a_lead_that_fails_beside_a_new_mirror_is_known_as_failed`).

use alloc::vec::Vec;
use core::ops::Range;

use crate::cx::Turn;
use crate::fact::types::BLOCK_BYTES;
use crate::organ::members::MembersState;

/// What is known of the tables on the members.
#[derive(Default)]
pub(super) struct Tables {
    /// The table in RAM is not the last one that was encoded.
    changed: bool,
    /// The last one that was encoded.
    bytes: Vec<u8>,
    /// Not all copies of the superblock name it yet.
    is_new: bool,
    /// Some may.
    half_named: bool,
    /// Which members have it.
    on: [bool; 2],
}

impl Tables {
    /// The table in RAM has changed.
    pub(super) const fn change(&mut self) {
        self.changed = true;
    }

    /// Whether the table in RAM is not on its way.
    pub(super) const fn has_changed(&self) -> bool {
        self.changed
    }

    /// An update of the superblocks begins. Returns whether it brings the table in RAM, and not an
    /// older one that has to be named first.
    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) -> bool {
        let (state, lead) = (turn.delta.members.state, usize::from(turn.delta.members.lead));
        if self.bytes.is_empty() {
            // What the opening has written.
            self.on = [matches!(state, MembersState::Whole | MembersState::Promoting); 2];
            self.on[lead] = true;
        }
        match state {
            MembersState::Leaving { out } => self.on[usize::from(out)] = false,
            MembersState::Pairing => self.on[1 - lead] = false,
            _ => {}
        }
        if self.half_named {
            return !self.changed;
        }
        if self.changed {
            if !self.is_new {
                turn.change().superblock.begin_table();
            }
            (self.is_new, self.on) = (true, [false; 2]);
        }
        if (self.changed || self.bytes.is_empty())
            && let Some((_, bytes)) = turn.facts.superblock.encode_table()
        {
            self.bytes = bytes;
        }
        self.changed = false;
        true
    }

    /// The blocks of the table, if this member lacks it.
    pub(super) fn blocks_for(&self, member: u8) -> Range<usize> {
        let has = self.on[usize::from(member)];
        0..if has { 0 } else { self.bytes.len() / BLOCK_BYTES as usize }
    }

    /// A block of the table.
    pub(super) fn block(&self, nth: usize) -> &[u8] {
        &self.bytes[nth * BLOCK_BYTES as usize..(nth + 1) * BLOCK_BYTES as usize]
    }

    /// A member has the table, durably.
    pub(super) const fn is_on(&mut self, member: u8) {
        self.on[member as usize] = true;
    }

    /// A copy of the superblock that names it is about to be written.
    pub(super) const fn is_named(&mut self) {
        self.half_named = self.is_new;
    }

    /// All copies name it.
    pub(super) const fn all_name_it(&mut self) {
        (self.is_new, self.half_named) = (false, false);
    }

    /// The update is given up. If no copy names the table, the next update may bring a newer one in
    /// its place.
    pub(super) const fn give_up(&mut self) {
        self.changed |= self.is_new && !self.half_named;
    }
}

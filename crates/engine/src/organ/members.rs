// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one or two cache devices: which of them lead, count, are being filled, or have failed.
//!
//! The lead holds everything; the other member lacks the data of clean blocks.

use alloc::vec::Vec;

use slab::Slab;

use crate::fact::io::{DeviceError, DeviceId};
use crate::format::{Mirror, Pairing};

mod state;

pub(crate) use state::{Aim, FailureRecord, MembersState, Pair};

/// MembersState of the two members.
pub(crate) struct Members {
    /// What the superblocks will say of the two: newer than what they say on the devices.
    pairing: Pairing,
    /// The superblock in RAM does not have `pairing` yet.
    pairing_changed: bool,
    /// A write or a flush of the last member failed: nothing new is trusted to the cache.
    pub(crate) cache_failed: bool,
    pub(crate) failure: FailureRecord,
    pub(crate) lead: u8,
    pub(crate) lead_at_opening: u8,
    pub(crate) state: MembersState,
    /// Changed by `mirror` alone, as is `held`.
    pub(crate) pairs: Slab<Pair>,
    /// Done, but what they did doesn't count before the failure is recorded.
    pub(crate) held: Vec<(usize, usize)>,
    /// Ended, to be handed to their lanes.
    pub(crate) ended: Vec<(usize, usize, Result<(), DeviceError>)>,
    /// The superblock has to be written, because `state` demands it.
    pub(crate) to_record: bool,
    /// The lead is another one now: what only the old one has is gone.
    pub(crate) lead_changed: bool,
    /// Dirty blocks that a new member lacks: nobody could read them while it was filled.
    pub(crate) lacking: u64,
    /// The lead and the other member have changed places: what is known of blocks that only one of
    /// them has is void.
    promoted: bool,
    aim: Aim,
    /// The other member has all that it was filled with, so that the lead may leave.
    succeeds: bool,
    /// A member leaves because the operator said so. `true`: the other one has clean data too.
    ordered: Option<bool>,
}

impl Members {
    pub(crate) fn new(pairing: Pairing) -> Self {
        let whole = pairing.mirror == Mirror::Whole;
        Self {
            pairing,
            pairing_changed: false,
            cache_failed: false,
            failure: FailureRecord::Unknown,
            lead: pairing.lead,
            lead_at_opening: pairing.lead,
            state: if whole { MembersState::Whole } else { MembersState::Single },
            pairs: Slab::new(),
            held: Vec::new(),
            ended: Vec::new(),
            to_record: false,
            lead_changed: false,
            lacking: 0,
            promoted: false,
            aim: Aim::Mirror,
            succeeds: false,
            ordered: None,
        }
    }

    /// Whether the data of clean blocks goes to both members.
    pub(crate) fn share_all(&self) -> bool {
        self.aim != Aim::Mirror
    }

    /// Whether blocks are being copied from the lead to the other member.
    pub(crate) fn is_filling(&self) -> bool {
        self.state == MembersState::Syncing || self.state == MembersState::Whole && self.share_all()
    }

    /// Whether the lead is to leave, or leaves, with all it has copied.
    pub(crate) fn is_succeeding(&self) -> bool {
        self.aim == Aim::Succeed || self.is_leaving() && self.ordered == Some(true)
    }

    /// Whether the other member is to be the lead, and the lead stays.
    pub(crate) fn is_promoting(&self) -> bool {
        self.aim == Aim::Promote
    }

    /// Whether a member leaves, or has just left, because the operator said so.
    pub(crate) const fn left_by_order(&self) -> bool {
        self.ordered.is_some()
    }

    /// The other member is filled for this from now on.
    pub(crate) const fn aim_at(&mut self, aim: Aim) {
        (self.aim, self.succeeds) = (aim, false);
    }

    /// The other member has all that it was filled with.
    pub(crate) fn may_succeed(&mut self) {
        self.succeeds = self.share_all();
    }

    /// Whether the lead may leave, and nobody has seen to that.
    pub(crate) const fn has_successor(&self) -> bool {
        self.succeeds
    }

    /// Whether the lead may leave, as far as is known. That is told once.
    pub(crate) fn take_successor(&mut self) -> bool {
        core::mem::take(&mut self.succeeds) && self.state == MembersState::Whole
    }

    /// A member leaves by order of the operator, once the other one says so durably. `warm`: the
    /// other one has clean data too.
    pub(crate) fn leave(&mut self, out: u8, warm: bool) {
        self.forget_orders();
        (self.state, self.to_record, self.ordered) = (MembersState::Leaving { out }, true, Some(warm));
        let lead = self.lead;
        let pairing = self.change_pairing();
        (pairing.mirror, pairing.lead) = (Mirror::None, 1 - out);
        pairing.clean_lost |= pairing.lead != lead && !warm;
    }

    /// The other member leads once the superblocks say so durably.
    pub(crate) const fn promote(&mut self) {
        (self.state, self.to_record) = (MembersState::Promoting, true);
        let lead = 1 - self.lead;
        self.change_pairing().lead = lead;
    }

    /// The superblocks say that the other member leads. From now on the old lead gets no clean
    /// data.
    pub(crate) const fn is_promoted(&mut self) {
        self.forget_orders();
        self.promoted = true;
        (self.state, self.lead) = (MembersState::Whole, self.pairing.lead);
    }

    /// Whether the members have changed places since the last time.
    pub(crate) const fn take_promoted(&mut self) -> bool {
        core::mem::replace(&mut self.promoted, false)
    }

    /// A member failed: nothing is left of what the operator wanted.
    pub(crate) const fn forget_orders(&mut self) {
        (self.aim, self.succeeds, self.ordered) = (Aim::Mirror, false, None);
    }

    /// What leaves is out, and the other member leads.
    pub(crate) fn is_gone(&mut self, out: u8) {
        self.lead_changed |= self.lead == out && self.ordered != Some(true);
        (self.state, self.lead) = (MembersState::Single, 1 - out);
    }

    /// What the superblocks will say of the two.
    pub(crate) const fn pairing(&self) -> Pairing {
        self.pairing
    }

    /// The pairing, to change it.
    pub(crate) const fn change_pairing(&mut self) -> &mut Pairing {
        self.pairing_changed = true;
        &mut self.pairing
    }

    /// Whether the superblock in RAM lacks the newest pairing.
    pub(crate) const fn has_new_pairing(&self) -> bool {
        self.pairing_changed
    }

    /// The pairing, if the superblock in RAM lacks it.
    pub(crate) fn take_pairing(&mut self) -> Option<Pairing> {
        core::mem::take(&mut self.pairing_changed).then_some(self.pairing)
    }

    /// Shows a lane that works beside others what is so now.
    pub(crate) const fn show(&mut self, all: &Self) {
        (self.pairing, self.lead, self.state) = (all.pairing, all.lead, all.state);
    }

    /// What is known of the record of the cache's failure.
    pub(crate) const fn note_failure(&mut self, record: FailureRecord) {
        self.failure = record;
    }

    /// The superblock that `state` demands is being written.
    pub(crate) const fn is_recorded(&mut self) {
        self.to_record = false;
    }

    /// Whether the lead is another one since the last time.
    pub(crate) const fn take_lead_changed(&mut self) -> bool {
        core::mem::replace(&mut self.lead_changed, false)
    }

    /// Whether I/Os of both members have ended that no lane has heard of.
    pub(crate) const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes out those I/Os: lane, number, result.
    pub(crate) fn take_ended(&mut self) -> Vec<(usize, usize, Result<(), DeviceError>)> {
        core::mem::take(&mut self.ended)
    }

    /// A new member came, and is to be filled.
    pub(crate) const fn new_one_came(&mut self) {
        (self.state, self.ordered) = (MembersState::Syncing, None);
    }

    /// The new member has all that it must have, but for so many dirty blocks: the superblocks are
    /// to say so.
    pub(crate) const fn new_one_is_full(&mut self, lacking: u64) {
        (self.lacking, self.state, self.to_record) = (lacking, MembersState::Pairing, true);
        self.change_pairing().mirror = Mirror::Whole;
    }

    /// Whether what this member holds counts.
    pub(crate) const fn counts(&self, member: u8) -> bool {
        match self.state {
            MembersState::Single | MembersState::Syncing | MembersState::Pairing => member == self.lead,
            MembersState::Whole | MembersState::Promoting => true,
            MembersState::Leaving { out } => member != out,
            MembersState::Broken => false,
        }
    }

    /// The other member, if reading from it makes sense.
    pub(crate) const fn other(&self) -> Option<u8> {
        match self.state {
            MembersState::Whole
            | MembersState::Pairing
            | MembersState::Promoting
            | MembersState::Leaving { .. }
            | MembersState::Broken => Some(1 - self.lead),
            MembersState::Single | MembersState::Syncing => None,
        }
    }

    /// Whether one is out, and that is not recorded yet.
    pub(crate) const fn is_leaving(&self) -> bool {
        matches!(self.state, MembersState::Leaving { .. })
    }

    /// Whether this member is out, and the other one is left.
    pub(crate) fn is_out(&self, member: u8) -> bool {
        !self.counts(member) && self.counts(1 - member)
    }

    /// The member beside this one that counts: of two the other one, or the one that is left.
    pub(crate) fn beside(&self, member: u8) -> Option<u8> {
        Some(1 - member).filter(|other| self.counts(*other))
    }

    /// The number that a new member would have.
    pub(crate) const fn free(&self) -> Option<u8> {
        if matches!(self.state, MembersState::Single) { Some(1 - self.lead) } else { None }
    }

    /// The members whose superblocks are to be written, in this order, with which number of update.
    ///
    /// A new member first gets one that shows where it belongs, but never counts as the newest.
    /// Then the lead can say that there are two, and whenever it says so, there are.
    pub(crate) fn to_write(&self, update: u64) -> Vec<(u8, u64)> {
        let lead = self.lead;
        match self.state {
            MembersState::Single | MembersState::Syncing => Vec::from([(lead, update)]),
            MembersState::Whole | MembersState::Promoting => Vec::from([(lead, update), (1 - lead, update)]),
            MembersState::Leaving { out } => Vec::from([(1 - out, update)]),
            MembersState::Pairing => Vec::from([(1 - lead, 0), (lead, update), (1 - lead, update)]),
            MembersState::Broken => Vec::from([(self.pairing.lead, update)]),
        }
    }

    /// Whether nothing is in flight or held.
    pub(crate) fn idle(&self) -> bool {
        self.pairs.is_empty() && self.held.is_empty() && self.ended.is_empty() && !self.to_record
    }
}

/// The device of a member.
pub(crate) const fn device(member: u8) -> DeviceId {
    if member == 0 { DeviceId::Cache } else { DeviceId::Mirror }
}

/// The member on a device.
pub(crate) const fn member(device: DeviceId) -> u8 {
    matches!(device, DeviceId::Mirror) as u8
}

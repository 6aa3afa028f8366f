// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache on two devices: writes and flushes go to both, and count when both have them.
//!
//! The lead holds everything; the other member lacks the data of clean blocks. When a member fails,
//! that is recorded on the other one before any write or flush made since counts
//! ([`MembersState::Leaving`]). Else a power cut could bring the failed member back as if it were
//! complete. Then the cache goes on, on the other member alone. [`crate::act::sync`] brings a new
//! member in. A cache without a mirror pays one comparison for this.

use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, DeviceId, Op};
use crate::fact::memory::Span;
use crate::fact::types::BLOCK_BYTES;
use crate::format::Mirror;
use crate::organ::members::{MembersState, Pair, device, member};

/// The lane number of I/Os that go to both members.
pub(crate) const MIRRORED: usize = 0xfffe;

/// How much of a write the mirror needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    All,
    /// Only the first block: the data of clean blocks is on the origin.
    Header,
}

impl Cx<'_> {
    pub(crate) fn cache_read(&mut self, lane: usize, io: usize, offset: u64, span: Span) {
        self.io(lane, io, self.lead(), Op::Read, offset, Some(span));
    }

    pub(crate) fn cache_write(&mut self, lane: usize, io: usize, offset: u64, span: Span, copied: Copied) {
        let short = Span::new(span.buf(), span.offset(), span.len.min(BLOCK_BYTES as u32));
        let copy = if copied == Copied::Header { short } else { span };
        self.both(lane, io, Op::Write, offset, |lead| Some(if lead { span } else { copy }));
    }

    pub(crate) fn cache_flush(&mut self, lane: usize, io: usize) {
        self.both(lane, io, Op::Flush, 0, |_| None);
    }

    fn both(&mut self, lane: usize, io: usize, op: Op, offset: u64, span: impl Fn(bool) -> Option<Span>) {
        let members = &mut self.delta.members;
        let (lead, state, share_all) = (members.lead, members.state, members.share_all());
        if state == MembersState::Single {
            self.io(lane, io, device(lead), op, offset, span(true));
            return;
        }
        let targets = [0, 1].map(|member| state != MembersState::Leaving { out: member });
        let pending = targets.iter().map(|to| u32::from(*to)).sum();
        let pair = members.pairs.insert(Pair { lane, io, op, offset, pending, failed: [None, None] });
        // On the way to one member the data of clean blocks has nowhere else to go.
        let alone = pending == 1;
        for member in (0..2).filter(|member| targets[usize::from(*member)]) {
            let to = pair << 1 | usize::from(member);
            self.io(MIRRORED, to, device(member), op, offset, span(alone || share_all || member == lead));
        }
    }

    /// A member has done its part of an I/O.
    pub(crate) fn member_done(&mut self, io: usize, result: Result<(), DeviceError>) {
        let (pair, member) = (io >> 1, (io & 1) as u8);
        if let Err(error) = result {
            let pair = &mut self.delta.members.pairs[pair];
            pair.failed[usize::from(member)] = Some(error);
            let (op, offset) = (pair.op, pair.offset);
            self.event(Event::DeviceFailed { device: device(member), op, offset, error });
            self.fail_member(device(member));
        }
        let members = &mut self.delta.members;
        members.pairs[pair].pending -= 1;
        if members.pairs[pair].pending > 0 {
            return;
        }
        let Pair { lane, io, failed, .. } = members.pairs.remove(pair);
        // Of two that failed neither counts, nor does what one of them may have done: nobody could
        // tell later which to believe.
        let broken = (members.state == MembersState::Broken).then_some(DeviceError::Gone);
        let error = (0..2).filter(|it| members.counts(*it)).find_map(|it| failed[usize::from(it)]).or(broken);
        let held = matches!(members.state, MembersState::Leaving { .. });
        match error {
            None if held && !self.facts.planted(Canary::MirrorUnrecorded) => {
                self.delta.members.held.push((lane, io));
            }
            None => self.delta.members.ended.push((lane, io, Ok(()))),
            Some(error) => self.delta.members.ended.push((lane, io, Err(error))),
        }
    }

    /// A member can't be trusted with anything new. The cache fails with the last one.
    pub(crate) fn fail_member(&mut self, failed: DeviceId) {
        let members = &mut self.delta.members;
        let out = member(failed);
        match members.state {
            // It is out already: this is what was still on its way to it.
            MembersState::Leaving { out: known } if known == out => {}
            MembersState::Single if out != members.lead => {}
            MembersState::Leaving { .. } => {
                members.state = MembersState::Broken;
                members.to_record = false;
                let held = core::mem::take(&mut members.held);
                members.ended.extend(held.into_iter().map(|(lane, io)| (lane, io, Err(DeviceError::Gone))));
                self.fail_cache();
            }
            MembersState::Whole | MembersState::Promoting => self.leave_out(out),
            MembersState::Syncing | MembersState::Pairing if out != members.lead => self.leave_out(out),
            MembersState::Single | MembersState::Syncing | MembersState::Pairing | MembersState::Broken => {
                if members.state == MembersState::Pairing {
                    // The new member was to count, and doesn't (test:
                    // `a_lead_that_fails_beside_a_new_mirror_is_known_as_failed`).
                    members.change_pairing().mirror = Mirror::Alone;
                }
                if members.state != MembersState::Broken {
                    members.forget_orders();
                    (members.state, members.to_record) = (MembersState::Single, false);
                }
                self.fail_cache();
            }
        }
    }

    /// Goes on without a member, once that is recorded.
    fn leave_out(&mut self, out: u8) {
        let members = &mut self.delta.members;
        // A member that was only being filled is in no superblock yet.
        let filling = members.state == MembersState::Syncing;
        members.forget_orders();
        members.state = if filling { MembersState::Single } else { MembersState::Leaving { out } };
        members.to_record = !filling;
        let lead = members.lead;
        let pairing = members.change_pairing();
        pairing.mirror = Mirror::Alone;
        pairing.lead = 1 - out;
        pairing.clean_lost |= pairing.lead != lead;
        self.event(Event::MemberFailed { device: device(out) });
    }

    /// What the superblocks say now is durable, and `begun` was the state when it was put down.
    pub(crate) fn recorded(&mut self, begun: MembersState) {
        let members = &mut self.delta.members;
        if members.state != begun {
            return;
        }
        match begun {
            MembersState::Leaving { out } => {
                members.is_gone(out);
                if self.facts.planted(Canary::RemovedAcknowledges) && members.left_by_order() {
                    members.lead = out;
                }
                let held = core::mem::take(&mut members.held);
                members.ended.extend(held.into_iter().map(|(lane, io)| (lane, io, Ok(()))));
                self.event(Event::MemberLeft { device: device(out) });
            }
            MembersState::Pairing => {
                members.state = MembersState::Whole;
                members.may_succeed();
                if !members.has_successor() {
                    let lacking = members.lacking;
                    self.event(Event::MirrorWhole { lacking });
                }
            }
            MembersState::Promoting => {
                members.is_promoted();
                let lead = device(members.lead);
                self.event(Event::MemberLeads { device: lead });
            }
            MembersState::Single | MembersState::Whole | MembersState::Syncing | MembersState::Broken => {}
        }
    }

    /// The other member has all that it was filled with, and counts. The lead hands over to it, but
    /// not while the lead alone has dirty blocks (`lacking`), which may be readable again.
    pub(crate) fn succeed(&mut self, lacking: u64) {
        let members = &mut self.delta.members;
        if !members.take_successor() {
            return;
        }
        if lacking == 0 && members.is_promoting() {
            members.promote();
        } else if lacking == 0 {
            members.leave(members.lead, true);
        } else {
            members.forget_orders();
            self.event(Event::MirrorWhole { lacking });
        }
    }
}

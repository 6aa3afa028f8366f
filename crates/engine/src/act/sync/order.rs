// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders of the operator about the cache devices: that one comes, goes or leads, that the
//! copying ends. The coordinator begins a filling, and ends it when all lanes have done their part.

use super::state::{Fill, Filling};
use crate::cx::Cx;
use crate::fact::event::Event;
use crate::fact::status::MirrorStatus;
use crate::format::Mirror;
use crate::lanes::Lanes;
use crate::look::Look;
use crate::organ::down::Down;
use crate::organ::members::{Aim, Members, MembersState, device};
use crate::organ::up::Up;

/// Begins, if there is no mirror yet.
pub(crate) fn begin(filling: &mut Filling, aim: Aim, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    if cx.delta.members.state != MembersState::Single || is_busy(lanes, cx) {
        return;
    }
    cx.delta.members.new_one_came();
    cx.delta.members.aim_at(aim);
    let what = if aim == Aim::Mirror { Fill::Dirty } else { Fill::All };
    let number = filling.begin();
    lanes.send_all(|| Down::FillMirror { number, what }, cx);
}

/// Lets one of two members go, if the other one has all dirty blocks. The lead goes when the other
/// one has the clean ones, too.
pub(crate) fn remove(filling: &mut Filling, member: u8, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    if cx.delta.members.state != MembersState::Whole || cx.delta.members.is_filling() || is_busy(lanes, cx) {
        return;
    }
    if member != cx.delta.members.lead {
        if !lanes.looks().any(Look::lead_lacks) {
            cx.delta.members.leave(member, false);
        }
        return;
    }
    cx.delta.members.aim_at(Aim::Succeed);
    let number = filling.begin();
    lanes.send_all(|| Down::FillMirror { number, what: Fill::Clean }, cx);
}

/// Lets the other member lead, if it has all dirty blocks. It gets the clean ones first.
pub(crate) fn promote(filling: &mut Filling, member: u8, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let members = &cx.delta.members;
    if members.state != MembersState::Whole || members.is_filling() || member == members.lead || is_busy(lanes, cx) {
        return;
    }
    cx.delta.members.aim_at(Aim::Promote);
    let number = filling.begin();
    lanes.send_all(|| Down::FillMirror { number, what: Fill::Clean }, cx);
}

fn is_busy(lanes: &Lanes, cx: &Cx<'_>) -> bool {
    cx.cache_failed() || lanes.looks().any(Look::fills)
}

/// The operator wants no more copying. A device that has all of it stays, or goes on to lead.
pub(crate) fn end_copying(cx: &mut Cx<'_>) {
    let members = &mut cx.delta.members;
    if !members.is_filling() {
        return;
    }
    members.forget_orders();
    if members.state == MembersState::Syncing {
        let left = device(1 - members.lead);
        members.state = MembersState::Single;
        cx.event(Event::MemberLeft { device: left });
    }
}

/// Blocks copied so far, and blocks to copy.
pub(crate) fn copied(lanes: &Lanes) -> (u64, u64) {
    lanes.looks().map(Look::copied).fold((0, 0), |all, lane| (all.0 + lane.0, all.1 + lane.1))
}

/// Ends the sync when all lanes are done: then the superblocks may say so.
pub(crate) fn end(filling: &mut Filling, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let number = filling.number();
    let filled = lanes.looks().all(|lane| lane.filled() == Some(number));
    if !cx.delta.members.is_filling() || !filled || !filling.ends() {
        return;
    }
    for lane in 0..lanes.count() {
        if let Some(Up::Filled { number, lacking }) = lanes.ask(lane, Down::EndFilling { number }, cx) {
            filling.filled(number, lacking, lanes.count(), cx);
        }
    }
}

/// The state of the mirror, for people.
pub(crate) fn status(lanes: &Lanes, members: &Members) -> MirrorStatus {
    match members.state {
        // A user who hears that a member is left out may take it away. If that isn't recorded yet,
        // a power cut leaves a cache that wants both. So it is told only when it is recorded (test:
        // `nobody_is_left_out_before_that_is_recorded`).
        MembersState::Whole | MembersState::Promoting | MembersState::Leaving { .. } => MirrorStatus::Whole,
        MembersState::Syncing | MembersState::Pairing => {
            let (copied, of) = copied(lanes);
            MirrorStatus::Syncing { copied, of }
        }
        MembersState::Single if members.pairing().mirror == Mirror::None => MirrorStatus::None,
        MembersState::Single => MirrorStatus::Alone { member: members.lead },
        MembersState::Broken => MirrorStatus::Alone { member: members.pairing().lead },
    }
}

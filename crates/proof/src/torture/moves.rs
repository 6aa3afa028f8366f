// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator orders of a life's cache devices. The cache moves to another one, a member
//! leaves or leads, the copying ends.

use flashfront_device::{Device, Rng};
use flashfront_engine::{Control, MirrorStatus};

use crate::world::World;

/// Gives an order that makes sense now. Its end is not waited for: the power may be cut before.
pub(super) fn order(rng: &mut Rng, world: &mut World) {
    let status = world.engine().status();
    match status.mirror {
        MirrorStatus::None if !status.cache_failed => {
            let control = if rng.below(4) == 0 { Control::AddMirror } else { Control::Replace };
            let lead = world.engine().superblock().pairing.lead;
            if world.mirror.is_none() {
                world.put_beside();
            } else if world.member_mut(1 - lead).is_some_and(|disk| disk.next_event().is_none()) {
                world.take_away(1 - lead);
            } else {
                return;
            }
            world.control(control);
        }
        MirrorStatus::Whole if status.succeeding.is_none() && status.promoting.is_none() && rng.below(3) > 0 => {
            let member = rng.below(2) as u8;
            let stays = rng.below(2) == 0;
            world.control(if stays { Control::PromoteMember { member } } else { Control::RemoveMember { member } });
        }
        MirrorStatus::Whole | MirrorStatus::Syncing { .. } if rng.below(4) == 0 => world.control(Control::EndCopying),
        _ => {}
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator orders of a life's cache devices. The cache moves to another one, a member
//! leaves or leads, the copying ends. Or the end of the cache is emptied, as before it shrinks.

use flashfront_device::{Device, Rng};
use flashfront_engine::format::SEGMENTS_MIN;
use flashfront_engine::{Control, MirrorStatus};

use super::extra::Extra;
use super::plan::{Plan, Trouble};
use crate::world::World;

/// Gives an order now and then, if the life has such. Its end is not waited for: the power may be
/// cut before.
pub(super) fn order(rng: &mut Rng, world: &mut World, plan: &Plan) {
    if plan.has(Extra::Vacate) && rng.below(15) == 0 {
        // With so few the cache would hardly work.
        let segments = plan.spec.segments_per_lane;
        let kept = rng.below(u64::from(segments - SEGMENTS_MIN / 2)) as u32 + SEGMENTS_MIN / 2;
        let keep_segments = (rng.below(3) > 0).then_some(kept);
        // Half of what would be possible, in half of all cases.
        let most = u64::from(kept * plan.spec.lanes * plan.spec.segment_blocks);
        let dirty_limit_blocks = (rng.below(2) > 0).then_some(most / 2);
        world.control(Control::Vacate { keep_segments, dirty_limit_blocks });
    }
    if plan.has(Extra::Moves) && plan.trouble == Trouble::None && rng.below(25) == 0 {
        order_move(rng, world);
    }
}

/// Orders what makes sense now.
fn order_move(rng: &mut Rng, world: &mut World) {
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

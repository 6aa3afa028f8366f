// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads of a cache on two devices, of one that moves to another device, and of one that is
//! about to shrink.

use flashfront_engine::{Control, Mode};

use super::stage::Stage;

/// A block in sectors.
const B: u64 = 8;

pub(super) fn mirror(on: &mut Stage<'_>, dies: u8) {
    on.write(0, 0, 12 * B, true);
    on.read(0, 60 * B, 10 * B);
    on.wait_down_to(0);
    on.fail_member(dies);
    for round in 0..6 {
        on.write(0, round * 2 * B, 3 * B, round % 2 == 0);
        on.read(0, 56 * B + round, 8 * B);
        on.wait_down_to(1);
        on.flush(0);
    }
    on.mode(0, Mode::Writearound);
    on.write(0, 60 * B, 6 * B, false);
    on.mode(0, Mode::Writeback);
    on.wait_down_to(0);
    on.write(0, 90 * B, 4 * B, false);
    on.replace_member(dies);
    on.write(0, 92 * B, 4 * B, true);
    on.wait_down_to(0);
    on.write(0, 20 * B, 4 * B, true);
    on.wait_down_to(0);
}

/// Moves to another device and back. Each time some blocks are dirty and some clean, others are
/// written and read meanwhile, and the old device is taken away.
pub(super) fn replace(on: &mut Stage<'_>) {
    on.write(0, 0, 8 * B, true);
    on.read(0, 60 * B, 12 * B);
    on.wait_down_to(0);
    on.put_beside();
    for (round, new) in [(0, 1), (3, 0)] {
        on.write(0, (20 + round) * B, 3 * B, false);
        on.control(Control::Replace);
        on.write(0, (2 + round) * B, 3 * B, true);
        on.read(0, (80 + round) * B, 4 * B);
        on.flush(0);
        on.wait_down_to(0);
        on.write(0, (62 + round) * B, B, false);
        on.until_left(1 - new);
        on.expect_warm(&[60, 70, 82 + round]);
        on.write(0, (30 + round) * B, 3 * B, true);
        on.read(0, 0, 12 * B);
        on.wait_down_to(0);
        on.take_away(1 - new);
        on.write(0, round * B, 3 * B, true);
        on.wait_down_to(0);
    }
}

/// A member of two leaves by order. The other one has all that it had.
pub(super) fn remove(on: &mut Stage<'_>, member: u8) {
    on.write(0, 0, 12 * B, true);
    on.read(0, 60 * B, 10 * B);
    on.wait_down_to(0);
    on.write(0, 20 * B, 3 * B, false);
    on.control(Control::RemoveMember { member });
    on.write(0, 2 * B, 3 * B, true);
    on.read(0, 80 * B, 4 * B);
    on.flush(0);
    on.until_left(member);
    on.expect_warm(&[60, 69]);
    on.write(0, 30 * B, 3 * B, true);
    on.wait_down_to(0);
    on.take_away(member);
    on.read(0, 0, 12 * B);
    on.write(0, 0, 3 * B, true);
    on.wait_down_to(0);
}

/// The other member of two becomes the lead, which dies in the end.
pub(super) fn promote(on: &mut Stage<'_>) {
    on.write(0, 0, 12 * B, true);
    on.read(0, 60 * B, 10 * B);
    on.wait_down_to(0);
    on.write(0, 20 * B, 3 * B, false);
    on.control(Control::PromoteMember { member: 1 });
    on.write(0, 2 * B, 3 * B, true);
    on.read(0, 80 * B, 4 * B);
    on.flush(0);
    on.write(0, 62 * B, B, false);
    on.until_leads(1);
    on.wait_down_to(0);
    on.expect_warm(&[60, 69, 80]);
    on.read(0, 90 * B, 4 * B);
    on.write(0, 30 * B, 3 * B, true);
    on.read(0, 0, 12 * B);
    on.wait_down_to(0);
    on.expect_warm(&[60, 69, 82, 92]);
    on.fail_member(1);
    on.write(0, 0, 3 * B, true);
    on.read(0, 60 * B, 34 * B);
    on.wait_down_to(0);
}

/// Fills three quarters of the cache, half of it dirty, and empties the last two fifths. They stay
/// empty while clients write as much as six segments. Then they are used again.
pub(super) fn vacate(on: &mut Stage<'_>) {
    for part in 0..15 {
        on.write(0, part * 32 * B, 16 * B, part % 5 == 4);
        on.read(0, (part * 32 + 16) * B, 8 * B);
        on.wait_down_to(1);
    }
    on.wait_down_to(0);
    on.write(0, 3 * B, 4 * B, false);
    on.vacate(24);
    on.write(0, 70 * B, 6 * B, true);
    on.read(0, 0, 12 * B);
    on.wait_down_to(0);
    for part in 0..6 {
        on.write(0, part * 32 * B, 16 * B, false);
    }
    on.wait_down_to(0);
    on.use_end();
    on.write(0, 100 * B, 16 * B, true);
    on.wait_down_to(0);
}

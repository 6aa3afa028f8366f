// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads of ordered destage. The bare origins are judged at every power cut
//! ([`crate::order`]), as well as what replay brings back.

use flashfront_engine::{Control, Destage, Mode, RequestOp};

use super::stage::Stage;
use super::workload::{Workload, small};
use crate::spec::WorldSpec;

/// A block in sectors.
const B: u64 = 8;

fn world(lanes: u32) -> WorldSpec {
    let mut spec = WorldSpec { lanes, stripe_blocks: 4, ..small(Mode::Writeback, 96) };
    spec.options.destage = Destage::Ordered;
    spec
}

pub(super) const ORDERED: Workload = Workload {
    name: "ordered",
    summary: "ordered destage: rewrites across FLUSHes, what goes past the log, a daemon killed between two eras",
    world: || world(1),
    run: ordered,
    again: false,
};

pub(super) const ORDERED_LANES: Workload = Workload {
    name: "ordered-lanes",
    summary: "the same with four lanes",
    world: || world(4),
    run: ordered,
    again: false,
};

pub(super) const ORDERED_MAIL: Workload = Workload {
    name: "ordered-mail",
    summary: "ordered destage with four lanes whose messages are on their way for a while",
    world: || WorldSpec { by_mail: true, ..world(4) },
    run: ordered,
    again: false,
};

pub(super) const ORDERED_NOTES: Workload = Workload {
    name: "ordered-notes",
    summary: "ordered destage: the log is slow to say which eras are on the origin, and the daemon is killed",
    world: || world(1),
    run: late_notes,
    again: false,
};

/// A volume in an object store, which gets groups of eras.
fn store(lanes: u32) -> WorldSpec {
    let mut spec = WorldSpec { whole_flushes: true, ..world(lanes) };
    // A group has a quarter of it at most.
    spec.options.dirty_limit_blocks = Some(256);
    spec
}

pub(super) const ORDERED_GROUPS: Workload = Workload {
    name: "ordered-groups",
    summary: "groups of eras: rewrites while a group is on its way, what goes past the log, a daemon killed, a stop",
    world: || store(1),
    run: groups,
    again: false,
};

pub(super) const ORDERED_GROUPS_LANES: Workload = Workload {
    name: "ordered-groups-lanes",
    summary: "the same with four lanes",
    world: || store(4),
    run: groups,
    again: false,
};

pub(super) const ORDERED_GROUPS_NOTES: Workload = Workload {
    name: "ordered-groups-notes",
    summary: "groups of eras: the log is slow to say which are on the origin, and the daemon is killed",
    world: || store(1),
    run: late_group_notes,
    again: false,
};

/// Writes single blocks here and there, which are as many runs.
fn scattered(on: &mut Stage<'_>, from: u64) {
    for nth in 0..14 {
        on.write(0, (from + nth * 6) % 90 * B, B, false);
    }
    on.wait_down_to(0);
    on.flush(0);
    on.wait_down_to(0);
}

fn groups(on: &mut Stage<'_>) {
    for round in 0..3 {
        scattered(on, round);
        rewrites(on, 2);
        scattered(on, round + 1);
        // A group has begun, and is on its way.
        on.pass(1_000_000_000 + round * 3_000_000);
        rewrites(on, 1);
        on.pass(2_000_000);
        if round == 1 {
            on.kill();
        }
    }
    on.change(RequestOp::Discard, 0, 2 * B, 12 * B, false);
    on.wait_down_to(0);
    scattered(on, 3);
    scattered(on, 4);
    on.control(Control::Drain(true));
    on.pass(8_000_000);
    on.kill();
    on.pass(5_000_000);
    rewrites(on, 2);
    on.pass(50_000_000);
}

/// Eras that are too large for one group all together. They go to the origin faster than the log
/// can say so, and the next daemon begins with the first of them again.
fn late_group_notes(on: &mut Stage<'_>) {
    for nth in 0..5 {
        on.write(0, 0, 20 * B, false);
        on.write(0, (20 + nth * 8) * B, 8 * B, false);
        on.wait_down_to(0);
        on.flush(0);
        on.wait_down_to(0);
    }
    on.hold_log(1_000_000_000);
    on.control(Control::Drain(true));
    on.pass(100_000_000);
    on.kill();
    on.pass(60_000_000);
}

/// Writes the same blocks again and again, each time after a FLUSH.
fn rewrites(on: &mut Stage<'_>, rounds: u64) {
    for nth in 0..rounds {
        on.write(0, (nth * 5 % 40) * B, 6 * B, false);
        on.write(0, 60 * B + nth, 2 * B, nth == 2);
        on.wait_down_to(0);
        on.flush(0);
        on.wait_down_to(0);
        on.write(0, (nth * 3 % 30) * B + 3, 9, false);
    }
}

fn ordered(on: &mut Stage<'_>) {
    rewrites(on, 4);
    // Some eras are on the origin, and one in part.
    on.pass(110_000_000);
    on.kill();
    rewrites(on, 2);
    on.pass(3_000_000);
    on.kill();
    on.pass(5_000_000);
    rewrites(on, 1);
    on.change(RequestOp::Discard, 0, 2 * B, 12 * B, false);
    on.change(RequestOp::WriteZeroes { may_discard: true }, 0, 60 * B, 20 * B, false);
    on.wait_down_to(0);
    on.flush(0);
    on.write(0, 4 * B, 3 * B, false);
    on.wait_down_to(0);
    on.mode(0, Mode::Writearound);
    on.write(0, 5 * B, 3 * B, false);
    on.write(0, 80 * B, 3 * B, true);
    on.wait_down_to(0);
    on.mode(0, Mode::Writeback);
    rewrites(on, 1);
    on.control(Control::Drain(true));
    on.write(0, 6 * B, B, false);
    on.wait_down_to(0);
    on.flush(0);
    on.wait_down_to(0);
    on.pass(50_000_000);
}

/// Several eras wait, each with a version of the same blocks. They go to the origin faster than the
/// log can say so, and the next daemon begins with the first of them again.
fn late_notes(on: &mut Stage<'_>) {
    for nth in 0..4 {
        on.write(0, 0, 4 * B, false);
        on.write(0, (10 + nth * 3) * B, 2 * B, false);
        on.wait_down_to(0);
        on.flush(0);
        on.wait_down_to(0);
    }
    on.hold_log(1_000_000_000);
    on.control(Control::Drain(true));
    on.pass(100_000_000);
    on.kill();
    on.pass(50_000_000);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads of modes that are switched, and of a daemon that is killed.

use flashfront_engine::Mode;

use super::stage::Stage;

/// A block in sectors.
const B: u64 = 8;

pub(super) fn passthrough(on: &mut Stage<'_>) {
    on.write(0, 0, 30 * B, true);
    on.read(0, 60 * B, 20 * B);
    on.wait_down_to(0);
    on.write(0, 10 * B, 4 * B, false);
    on.mode(0, Mode::Passthrough);
    on.write(0, 12 * B, 8 * B, false);
    on.write(0, 62 * B + 2, 12, false);
    on.read(0, 0, 30 * B);
    on.wait_down_to(0);
    on.flush(0);
    on.wait_down_to(0);
    on.pass(50_000_000);
}

pub(super) fn modes(on: &mut Stage<'_>) {
    let order = [0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0];
    for (nth, mode) in (0..).zip(order) {
        on.write(0, nth % 5 * 4 * B, 6 * B + nth, false);
        on.mode(0, Mode::ALL[mode]);
        on.write(0, nth % 3 * 8 * B + 2, 4 * B, nth % 4 == 0);
        on.read(0, 0, 24 * B);
        on.wait_down_to(1);
    }
    on.flush(0);
    on.wait_down_to(0);
    on.pass(20_000_000);
}

/// A daemon is killed twice; what its devices have not flushed is the next one's.
pub(super) fn killed(on: &mut Stage<'_>) {
    on.write(0, 0, 12 * B, true);
    on.write(0, 40 * B, 8 * B, false);
    on.wait_down_to(0);
    on.kill();
    // Commits of clean blocks are written after 5 ms.
    on.read(0, 36 * B, 10 * B);
    on.pass(20_000_000);
    on.flush(0);
    on.wait_down_to(0);
    on.mode(0, Mode::Writeback);
    on.write(0, 60 * B, 6 * B, false);
    on.write(0, 2 * B, 3 * B, true);
    on.read(0, 80 * B, 8 * B);
    on.kill();
    on.read(0, 56 * B, 12 * B);
    on.read(0, 0, 12 * B);
    on.wait_down_to(0);
    on.flush(0);
    on.wait_down_to(0);
    on.pass(20_000_000);
}

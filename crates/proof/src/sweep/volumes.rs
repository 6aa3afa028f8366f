// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads of volumes that come and go, and of those that grow.

use flashfront_engine::format::Shares;
use flashfront_engine::{DirtyOnRemove, Mode, OriginId, VolumeChange};

use super::stage::Stage;
use super::workload::{Workload, small};
use crate::spec::{OriginSpec, WorldSpec};

/// A block in sectors.
const B: u64 = 8;

/// Volumes come and go. The third has the size of those that are gone.
pub(super) fn volumes(stage: &mut Stage<'_>) {
    let spec = OriginSpec { size_bytes: 64 * B * 512, logical_block_bytes: 512, mode: Mode::Writeback };
    stage.write(0, 0, 4 * B, false);
    let first = stage.add_volume(spec);
    stage.write(first, 0, 6 * B, true);
    stage.write(0, 4 * B, 2 * B, false);
    let origin = OriginId(first as u32);
    stage.change_volume(VolumeChange::Rename { origin, name: "other".into() });
    let second = stage.add_volume(spec);
    stage.write(second, 0, 8 * B, false);
    stage.flush(second);
    stage.read(second, 16 * B, 4 * B);
    stage.wait_down_to(0);
    stage.remove_volume(second, DirtyOnRemove::Discard);
    let third = stage.add_volume(spec);
    stage.write(third, 2 * B, 2 * B, true);
    stage.wait_down_to(0);
    stage.remove_volume(first, DirtyOnRemove::Destage);
    stage.flush(0);
    stage.wait_down_to(0);
    stage.expect_volumes(&[0, third]);
}

/// Volumes grow: the last one on the line of all blocks, and one before it. Their new parts are
/// written at once, durably.
pub(super) fn grow(stage: &mut Stage<'_>) {
    let bytes = |blocks: u64| blocks * B * 512;
    stage.write(0, 94 * B, 2 * B, true);
    stage.wait_down_to(0);
    stage.grow_volume(0, bytes(100));
    stage.write(0, 95 * B, 5 * B, true);
    stage.read(0, 90 * B, 8 * B);
    stage.wait_down_to(0);
    let second =
        stage.add_volume(OriginSpec { size_bytes: bytes(64), logical_block_bytes: 512, mode: Mode::Writethrough });
    stage.write(second, 60 * B, 4 * B, true);
    stage.wait_down_to(0);
    stage.grow_volume(second, bytes(300));
    stage.write(second, 290 * B, 8 * B, true);
    // The volume behind it has not come too close.
    stage.grow_volume(0, bytes(130));
    stage.write(0, 120 * B, 10 * B, false);
    stage.flush(0);
    stage.wait_down_to(0);
}

/// Noise beside parts of volumes.
pub(super) const SHARES: Workload = Workload {
    name: "shares",
    summary: "noise beside a volume that has a smallest part",
    world: || {
        let mut spec = WorldSpec { origin_ns: 200_000, ..small(Mode::Writearound, 416) };
        spec.origins = vec![spec.origins[0]; 3];
        spec
    },
    run: shares,
    again: false,
};

/// A largest part.
pub(super) const LARGEST_PART: Workload = Workload {
    name: "largest-part",
    summary: "reads and writes of a volume that has its largest part",
    world: || {
        let mut spec = WorldSpec { origin_ns: 200_000, ..small(Mode::Writeback, 600) };
        spec.segments_per_lane = 40;
        spec
    },
    run: largest_part,
    again: false,
};

/// Parts by weight.
pub(super) const WEIGHTS: Workload = Workload {
    name: "weights",
    summary: "noise beside a volume that has the same weight",
    world: SHARES.world,
    run: weights,
    again: false,
};

/// A volume reads what it has now and then, and keeps it, whatever another one with the same weight
/// reads.
fn weights(stage: &mut Stage<'_>) {
    for origin in [0, 1] {
        let shares = Shares { weight: 100, ..Shares::default() };
        stage.change_volume(VolumeChange::SetShares { origin: OriginId(origin), shares });
    }
    let quiet = |stage: &mut Stage<'_>| {
        for first in (0..64).step_by(16) {
            stage.read(0, first * B, 16 * B);
        }
        stage.wait_down_to(0);
    };
    quiet(stage);
    quiet(stage);
    for nth in 0..40 {
        stage.read(1, nth * 37 % 25 * 16 * B, 15 * B);
        stage.wait_down_to(1);
        if nth % 6 == 5 {
            stage.write(1, nth * 5 % 300 * B, 2 * B, nth % 12 == 5);
        }
    }
    stage.wait_down_to(0);
    let before = stage.origin_reads();
    quiet(stage);
    stage.expect(stage.evicted() > 64, "eviction");
    stage.expect(stage.origin_reads() == before, "a volume that keeps what it is due");
}

/// A volume reads twice its largest part, and writes what was dropped, and what was not.
fn largest_part(stage: &mut Stage<'_>) {
    let shares = Shares { max_bytes: 257 * B * 512, ..Shares::default() };
    stage.change_volume(VolumeChange::SetShares { origin: OriginId(0), shares });
    for nth in 0..48 {
        stage.read(0, nth * 29 % 37 * 16 * B, 15 * B);
        stage.wait_down_to(0);
        if nth % 6 == 5 {
            stage.write(0, nth * 5 % 500 * B, 2 * B, nth % 12 == 5);
        }
        if nth == 24 {
            stage.mode(0, Mode::Writearound);
        }
    }
    stage.wait_down_to(0);
    stage.expect(stage.evicted() > 100, "blocks that leave");
    stage.expect(stage.cached(0) <= 257, "a volume with its largest part at most");
}

/// A volume keeps what it has read, whatever others read.
fn shares(stage: &mut Stage<'_>) {
    let min = Shares { min_bytes: 64 * B * 512, ..Shares::default() };
    stage.change_volume(VolumeChange::SetShares { origin: OriginId(0), shares: min });
    for first in (0..64).step_by(16) {
        stage.read(0, first * B, 16 * B);
    }
    stage.wait_down_to(0);
    for nth in 0..40 {
        stage.read(1 + nth as usize % 2, nth * 37 % 25 * 16 * B, 15 * B);
        stage.wait_down_to(1);
        if nth % 6 == 5 {
            stage.write(1, nth * 5 % 300 * B, 2 * B, nth % 12 == 5);
        }
    }
    stage.wait_down_to(0);
    let before = stage.origin_reads();
    for first in (0..64).step_by(16) {
        stage.read(0, first * B, 16 * B);
    }
    stage.wait_down_to(0);
    stage.expect(stage.evicted() > 64, "eviction");
    stage.expect(stage.origin_reads() == before, "a volume that keeps its smallest part");
}

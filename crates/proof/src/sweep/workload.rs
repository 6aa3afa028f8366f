// SPDX-License-Identifier: MIT OR Apache-2.0
//! A workload is something short that a cache does. It plays on a stage.

use flashfront_engine::{Mode, policy};

use super::stage::{Stage, Watch};
use crate::client::Client;
use crate::spec::{OriginSpec, WorldSpec};

/// Something short that a cache does.
pub struct Workload {
    /// The name, by which a point is repeated.
    pub name: &'static str,
    /// A line on the path that it is there for.
    pub summary: &'static str,
    /// The world that it begins in.
    pub world: fn() -> WorldSpec,
    /// The acts of the workload.
    pub run: fn(&mut Stage<'_>),
    /// Whether each replay is cut, too.
    pub again: bool,
}

/// Plays a workload, from a fresh cache to its end, or until the watcher has seen enough.
pub(super) fn play<'a>(workload: &Workload, watch: &'a mut Watch<'a>) {
    let mut stage = Stage::new(Client::fresh((workload.world)()), watch);
    (workload.run)(&mut stage);
    stage.wait_down_to(0);
}

/// A cache of 384 blocks before an origin of so many.
pub(super) fn small(mode: Mode, origin_blocks: u64) -> WorldSpec {
    let origin = OriginSpec { size_bytes: origin_blocks << 12, logical_block_bytes: 512, mode };
    let mut spec = WorldSpec { segments_per_lane: 24, origins: vec![origin], ..WorldSpec::default() };
    spec.options.policy = policy::by_name("reinsert").expect("a policy of that name");
    spec.options.commit_age_max_ns = 5_000_000;
    spec
}

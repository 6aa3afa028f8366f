// SPDX-License-Identifier: MIT OR Apache-2.0
//! A workload is something short that a cache does. It plays on a stage.

use super::stage::{Stage, Watch};
use crate::client::Client;
use crate::spec::WorldSpec;

/// Something short that a cache does.
pub struct Workload {
    /// Its name, for a repetition.
    pub name: &'static str,
    /// What it is about.
    pub summary: &'static str,
    /// The world that it begins in.
    pub world: fn() -> WorldSpec,
    /// What is done.
    pub run: fn(&mut Stage<'_>),
    /// Cut each replay too.
    pub again: bool,
}

/// Plays a workload, from a fresh cache to its end, or until the watcher has seen enough.
pub(super) fn play<'a>(workload: &Workload, watch: &'a mut Watch<'a>) {
    let mut stage = Stage::new(Client::fresh((workload.world)()), watch);
    (workload.run)(&mut stage);
    stage.wait_down_to(0);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that hung answers again: what waited for it is tried.
//!
//! A member of the cache fails with its first read that got no answer ([`crate::turn`]).
//!
//! Commits, checkpoints, flushes and superblocks fail their member by themselves. An origin that
//! hangs is an origin that refuses: its clients are told, and what is dirty stays so (tests: `hang`
//! of the simulation).

use alloc::vec::Vec;

use crate::act::damage::take_for_found;
use crate::act::destage::Destager;
use crate::cx::Cx;
use crate::fact::io::DeviceId;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::organ::down::Down;
use crate::organ::index::Flat;

/// A device answers again.
pub(crate) fn answers(device: DeviceId, lanes: &mut Lanes, destager: &mut Destager, cx: &mut Cx<'_>) {
    match device {
        DeviceId::Origin(id) => {
            if let Some(origin) = cx.facts.place_of(id) {
                destager.try_at_once(origin);
            }
        }
        DeviceId::Cache | DeviceId::Mirror if device == cx.lead() => {
            lanes.send_all(|| Down::LookForLost, cx);
            (0..cx.facts.origins.len()).for_each(|origin| destager.try_at_once(origin));
        }
        DeviceId::Cache | DeviceId::Mirror => {}
    }
}

/// Looks for blocks that could not be read while the device hung, and may be readable now. Destage
/// tries each, and blocks that are really lost are so again.
pub(crate) fn look_for_lost(lane: &mut Lane, cx: &mut Cx<'_>) {
    let may_be_there = |flat: &Flat| lane.store.get(*flat).is_some() && !lane.is_changing(*flat);
    let found: Vec<Flat> = lane.trouble.lost().filter(may_be_there).collect();
    for flat in found {
        take_for_found(lane, flat, cx);
        lane.trouble.must_be_alone(flat);
    }
}

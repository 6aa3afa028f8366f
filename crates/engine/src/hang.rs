// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that hung answers again: what waited for it is tried.
//!
//! A member of the cache fails with its first read that got no answer ([`crate::turn`]).
//!
//! Commits, checkpoints, flushes and superblocks fail their member by themselves. An origin that
//! hangs is an origin that refuses: its clients are told, and what is dirty stays so (tests: `hang`
//! of the simulation).

use alloc::vec::Vec;

use crate::cx::Cx;
use crate::index::Flat;
use crate::io::DeviceId;
use crate::lane::{Lane, Lanes};

/// A device answers again.
pub(crate) fn answers(device: DeviceId, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    match device {
        DeviceId::Origin(id) => {
            let at = cx.shared.superblock.origins.iter().position(|record| record.id == id);
            if let Some(at) = at {
                cx.shared.origins[at].retry = None;
            }
        }
        DeviceId::Cache | DeviceId::Mirror if device == cx.lead() => {
            lanes.iter_mut().for_each(|lane| lane.look_for_lost(cx));
            cx.shared.origins.iter_mut().for_each(|origin| origin.retry = None);
        }
        DeviceId::Cache | DeviceId::Mirror => {}
    }
}

impl Lane {
    /// Blocks that could not be read while the device hung may be readable now: destage tries each,
    /// and those that are really lost are so again.
    fn look_for_lost(&mut self, cx: &mut Cx<'_>) {
        let may_be_there = |flat: &&Flat| self.index.get(**flat).is_some() && !self.is_changing(**flat);
        let found: Vec<Flat> = cx.shared.lost.iter().filter(may_be_there).copied().collect();
        for flat in found {
            cx.shared.lost.remove(&flat);
            self.suspect.insert(flat);
            self.urgent.insert(flat);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that hang: a member of the cache fails with its first read that got no answer, and what
//! waited for a device is tried again when it answers.
//!
//! Commits, checkpoints, flushes and superblocks fail their member by themselves. An origin that hangs is
//! an origin that refuses: its clients are told, and what is dirty stays so (tests: `hang` of the simulation).

use alloc::vec::Vec;

use crate::cx::Cx;
use crate::index::Flat;
use crate::io::DeviceId;
use crate::lane::{Lane, LaneIo, Lanes};

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
    /// A read of the cache got no answer in time: nothing new is trusted to that device.
    pub(crate) fn give_up_hung(&self, what: &LaneIo, cx: &mut Cx<'_>) {
        let device = match what {
            LaneIo::ReadCache(read) => read.device,
            LaneIo::Merge { from: Some((_, device)), .. } => *device,
            LaneIo::RunRead { run } => self.runs[*run].device,
            LaneIo::ReclaimHeader { .. } | LaneIo::Survivor { .. } | LaneIo::SyncRead { .. } => cx.lead(),
            _ => return,
        };
        cx.fail_member(device);
    }

    /// Blocks that could not be read while the device hung may be readable now: destage tries each, and
    /// those that are really lost are so again.
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

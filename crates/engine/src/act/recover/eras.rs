// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replay of eras: which versions of blocks ordered destage still needs after a restart.
//!
//! The checkpoint lists the versions that eras needed. Replay adds what was written since, and
//! takes out what was destaged, dropped, or freed. Each version is in one era, and each era has one
//! version of a block. So replay may see a version twice: the checkpoint is fuzzy.
//!
//! Where the log before was not kept in order, all that is dirty is one era, the oldest. The
//! promise begins when that era is on the origin.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::act::destage::versions::{is_held, version_over};
use crate::cx::Cx;
use crate::fact::types::{Key, OriginId};
use crate::format::EraEntry;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::organ::down::Down;
use crate::organ::eras::{Eras, Version};
use crate::organ::index::Flat;

/// The era whose number has this low half, and that is near to `near`.
fn era_near(low: u32, near: u64) -> u64 {
    match low {
        0 => 0,
        _ => near.saturating_add_signed(i64::from(low.wrapping_sub(near as u32) as i32)),
    }
}

/// What a lane's log tells of eras.
#[derive(Default)]
pub(crate) struct ErasFound {
    /// The checkpoint tells which versions eras need: destage was ordered.
    pub(super) has_any: bool,
    /// Eras before these are on their origins.
    sent: BTreeMap<OriginId, u64>,
    /// Groups of eras up to these may be on their origins.
    groups: BTreeMap<OriginId, u64>,
}

impl ErasFound {
    /// The eras of a lane, if the log tells of them.
    fn eras<'a>(&self, lane: &'a mut Lane) -> Option<&'a mut Eras> {
        lane.eras.as_deref_mut().filter(|_| self.has_any)
    }

    /// A checkpoint has this entry.
    pub(super) fn take_era(&mut self, lane: &mut Lane, entry: EraEntry, cx: &Cx<'_>) {
        match entry {
            EraEntry::Sent { origin, era } => self.note_sent(origin, era),
            EraEntry::Group { origin, last } => self.note_group(origin, last),
            EraEntry::Version { key, slot, checksum, era } => {
                let checksum = lane.store.kept(checksum);
                if let (Some(flat), Some(eras)) = (cx.facts.flat(key), self.eras(lane)) {
                    eras.put(key.origin, era, flat, Version { slot, checksum });
                }
            }
        }
    }

    /// The log says that an origin has all eras before this one.
    pub(super) fn note_sent(&mut self, origin: OriginId, era: u64) {
        let sent = self.sent.entry(origin).or_default();
        *sent = era.max(*sent);
    }

    /// The log says that a group up to this era may be on an origin.
    pub(super) fn note_group(&mut self, origin: OriginId, last: u64) {
        let group = self.groups.entry(origin).or_default();
        *group = last.max(*group);
    }

    /// A dirty block was written in this era.
    pub(super) fn note_written(&self, lane: &mut Lane, key: Key, flat: Flat, low: u32, version: Version) {
        let near = self.sent.get(&key.origin).copied().unwrap_or(0);
        if let Some(eras) = self.eras(lane) {
            eras.put(key.origin, era_near(low, near), flat, version);
        }
    }

    /// The version in this slot is on the origin.
    pub(super) fn note_cleaned(&self, lane: &mut Lane, key: Key, flat: Flat, slot: u32) {
        if let Some(eras) = self.eras(lane)
            && let Some(era) = eras.era_of(flat, slot)
        {
            eras.remove(key.origin, era, flat);
        }
    }

    /// No era needs these versions any more.
    pub(super) fn forget_eras(&self, lane: &mut Lane, cx: &Cx<'_>, gone: impl Fn(Flat, u32) -> bool) {
        let Some(eras) = self.eras(lane) else { return };
        let all: Vec<_> = eras.all().filter(|(flat, _, version)| gone(*flat, version.slot)).collect();
        for (flat, era, _) in all {
            eras.remove(cx.facts.key(flat).origin, era, flat);
        }
    }
}

/// Ends the replay of eras: brings them in step with the index. Older versions count as dirty from
/// now on, and their slots as live.
pub(super) fn settle_eras(lane: &mut Lane, it: &ErasFound, cx: &mut Cx<'_>) {
    let Some(mut eras) = lane.eras.take() else { return };
    let dirty = |lane: &Lane, flat| lane.store.get(flat).filter(|found| found.dirty);
    // The index is right. A block that is not dirty has all its versions on the origin, or was
    // dropped.
    let all: Vec<_> = eras.all().collect();
    for (flat, era, version) in all {
        let origin = cx.facts.key(flat).origin;
        let sent = it.sent.get(&origin).copied().unwrap_or(0);
        match dirty(lane, flat) {
            Some(found) if found.slot == version.slot || era >= sent => {}
            _ => drop(eras.remove(origin, era, flat)),
        }
    }
    let mut from = Flat(0);
    while let Some(flat) = lane.store.next_dirty(from) {
        from = flat.next();
        let Some(found) = dirty(lane, flat) else { continue };
        let newest = eras.newest(flat);
        if newest.is_none_or(|(_, version)| version.slot != found.slot) {
            let origin = cx.facts.key(flat).origin;
            // The version may be known in an older era: it is in none but the newest.
            if let Some(era) = eras.era_of(flat, found.slot) {
                eras.remove(origin, era, flat);
            }
            let era = newest.map_or(0, |(era, _)| era + 1);
            eras.put(origin, era, flat, Version { slot: found.slot, checksum: found.checksum });
        }
    }
    lane.eras = Some(eras);
    let all: Vec<_> = lane.eras.iter().flat_map(|eras| eras.all()).collect();
    for (flat, _, version) in all {
        if is_held(lane, flat, version.slot) {
            lane.log.block_came(version.slot, true, false);
            lane.count_dirty(flat, 1, cx);
        }
    }
    for (origin, record) in cx.facts.origins.iter().enumerate() {
        let newest = lane.eras.as_ref().and_then(|eras| eras.last(record.id));
        let sent = it.sent.get(&record.id).copied().unwrap_or(0);
        let group = it.groups.get(&record.id).copied().unwrap_or(0);
        cx.delta.origins[origin].cuts.replayed(newest, sent, group);
    }
}

/// All lanes are open: what one says of an origin counts for the others.
pub(crate) fn open_eras(lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let mut sent = BTreeMap::new();
    for (origin, record) in cx.facts.origins.iter().enumerate() {
        cx.delta.origins[origin].cuts.open(cx.now);
        sent.insert(record.id, cx.delta.origins[origin].cuts.sent());
    }
    let sent = Arc::new(sent);
    lanes.send_all(|| Down::OpenEras { sent: Arc::clone(&sent) }, cx);
}

/// Forgets versions of eras that are on their origins.
pub(crate) fn forget_sent(lane: &mut Lane, sent: &BTreeMap<OriginId, u64>, cx: &mut Cx<'_>) {
    let all: Vec<_> = lane.eras.iter().flat_map(|eras| eras.all()).collect();
    for (flat, era, version) in all {
        let over = sent.get(&cx.facts.key(flat).origin).is_some_and(|sent| era < *sent);
        if over && is_held(lane, flat, version.slot) {
            version_over(lane, flat, version.slot, cx);
        }
    }
}

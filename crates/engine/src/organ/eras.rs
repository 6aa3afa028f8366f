// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eras: the versions of a lane's blocks that ordered destage still needs, by the era in which they
//! were written.
//!
//! The index knows the newest version of a block. An older version is *held* if an era before still
//! needs it on the origin. Its slot counts as live and dirty, so reclaim leaves it alone. Each era
//! has one version of a block at most. Nothing of this is there in the default order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::fact::types::OriginId;
use crate::organ::dirty::DirtySet;
use crate::organ::index::Flat;

/// A version of a block: its slot, and what the index would keep of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) slot: u32,
    pub(crate) checksum: u32,
}

/// The eras of an origin that are destaged now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The last of them.
    pub(crate) last: u64,
    /// Earlier eras go with it, as a group.
    pub(crate) is_group: bool,
}

impl Wanted {
    const fn first(self) -> u64 {
        if self.is_group { 0 } else { self.last }
    }
}

/// The versions that eras of a lane need.
#[derive(Default)]
pub(crate) struct Eras {
    versions: BTreeMap<(Flat, u64), Version>,
    /// The blocks of each era, in the order of their places.
    sets: BTreeMap<(OriginId, u64), DirtySet>,
}

impl Eras {
    /// Versions in all eras.
    pub(crate) fn len(&self) -> u64 {
        self.versions.len() as u64
    }

    /// Memory of the tables.
    pub(crate) fn bytes(&self) -> u64 {
        // A tree's nodes are two thirds full.
        let entry = (size_of::<((Flat, u64), Version)>() * 3 / 2) as u64;
        self.len() * entry + self.sets.values().map(DirtySet::bytes).sum::<u64>()
    }

    /// The oldest era of an origin that needs anything.
    pub(crate) fn first(&self, origin: OriginId) -> Option<u64> {
        self.sets.range((origin, 0)..=(origin, u64::MAX)).next().map(|((_, era), _)| *era)
    }

    /// The newest era of an origin that needs anything.
    pub(crate) fn last(&self, origin: OriginId) -> Option<u64> {
        self.sets.range((origin, 0)..=(origin, u64::MAX)).next_back().map(|((_, era), _)| *era)
    }

    fn sets_of(&self, origin: OriginId, wanted: Wanted) -> impl Iterator<Item = &DirtySet> {
        self.sets.range((origin, wanted.first())..=(origin, wanted.last)).map(|(_, set)| set)
    }

    /// The first block of these eras at this place or behind it.
    pub(crate) fn next(&self, origin: OriginId, wanted: Wanted, from: Flat) -> Option<Flat> {
        self.sets_of(origin, wanted).filter_map(|set| set.next(from)).min()
    }

    /// A block at this place or behind it that these eras need and no run covers. `run_end`: where
    /// the run over a block ends.
    pub(crate) fn lacking(
        &self,
        origin: OriginId,
        wanted: Wanted,
        from: Flat,
        run_end: impl Fn(Flat) -> Option<Flat>,
    ) -> Option<Flat> {
        self.sets_of(origin, wanted).find_map(|set| {
            let mut next = set.next(from);
            while let Some(flat) = next {
                let Some(end) = run_end(flat) else { break };
                next = set.next(end);
            }
            next
        })
    }

    /// How many blocks eras of an origin need, from this era until before that one.
    pub(crate) fn sizes(&self, origin: OriginId, from: u64, below: u64) -> impl Iterator<Item = (u64, u64)> {
        self.sets.range((origin, from)..(origin, below)).map(|((_, era), set)| (*era, set.len()))
    }

    /// Puts all eras up to this one together: it needs the newest version of each block. Returns
    /// the versions that nothing needs any more.
    pub(crate) fn put_together(&mut self, origin: OriginId, last: u64) -> Vec<(Flat, Version)> {
        let mut gone = Vec::new();
        while let Some(((_, era), set)) =
            self.sets.range((origin, 0)..(origin, last)).next().map(|(key, set)| (*key, set))
        {
            let flats: Vec<Flat> = core::iter::successors(set.next(Flat(0)), |flat| set.next(flat.next())).collect();
            for flat in flats {
                let Some(version) = self.remove(origin, era, flat) else { continue };
                if self.versions.range((flat, era)..=(flat, last)).next().is_some() {
                    gone.push((flat, version));
                } else {
                    self.put(origin, last, flat, version);
                }
            }
        }
        gone
    }

    /// The version of a block that an era needs.
    pub(crate) fn get(&self, flat: Flat, era: u64) -> Option<Version> {
        self.versions.get(&(flat, era)).copied()
    }

    fn of(&self, flat: Flat) -> impl DoubleEndedIterator<Item = (u64, Version)> + '_ {
        self.versions.range((flat, 0)..=(flat, u64::MAX)).map(|((_, era), version)| (*era, *version))
    }

    /// The newest version of a block that any era needs, and that era.
    pub(crate) fn newest(&self, flat: Flat) -> Option<(u64, Version)> {
        self.of(flat).next_back()
    }

    /// The era that needs the version in this slot.
    pub(crate) fn era_of(&self, flat: Flat, slot: u32) -> Option<u64> {
        self.of(flat).find(|(_, version)| version.slot == slot).map(|(era, _)| era)
    }

    /// An era needs this version from now on, and no other one of the block.
    pub(crate) fn put(&mut self, origin: OriginId, era: u64, flat: Flat, version: Version) {
        if self.versions.insert((flat, era), version).is_none() {
            self.sets.entry((origin, era)).or_default().insert(flat);
        }
    }

    /// An era needs no version of a block any more.
    pub(crate) fn remove(&mut self, origin: OriginId, era: u64, flat: Flat) -> Option<Version> {
        let version = self.versions.remove(&(flat, era))?;
        if let Some(set) = self.sets.get_mut(&(origin, era)) {
            set.remove(flat);
            if set.len() == 0 {
                self.sets.remove(&(origin, era));
            }
        }
        Some(version)
    }

    /// No era needs a block any more. Returns its versions.
    pub(crate) fn forget(&mut self, origin: OriginId, flat: Flat) -> Vec<Version> {
        let eras: Vec<u64> = self.of(flat).map(|(era, _)| era).collect();
        eras.into_iter().filter_map(|era| self.remove(origin, era, flat)).collect()
    }

    /// All versions from this one on: block, era, version.
    pub(crate) fn from(&self, from: (Flat, u64)) -> impl Iterator<Item = (Flat, u64, Version)> + '_ {
        self.versions.range(from..).map(|((flat, era), version)| (*flat, *era, *version))
    }

    /// All versions.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Flat, u64, Version)> + '_ {
        self.from((Flat(0), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: OriginId = OriginId(3);

    fn version(slot: u32) -> Version {
        Version { slot, checksum: 0 }
    }

    #[test]
    fn each_era_keeps_its_own_version_of_a_block() {
        let mut eras = Eras::default();
        let flat = Flat(7);
        eras.put(ORIGIN, 1, flat, version(10));
        eras.put(ORIGIN, 2, flat, version(20));
        eras.put(ORIGIN, 2, flat, version(21));
        assert_eq!((eras.len(), eras.newest(flat)), (2, Some((2, version(21)))));
        assert_eq!((eras.era_of(flat, 10), eras.era_of(flat, 20)), (Some(1), None));
        assert_eq!((eras.first(ORIGIN), eras.last(ORIGIN), eras.first(OriginId(2))), (Some(1), Some(2), None));
        assert_eq!(eras.remove(ORIGIN, 1, flat), Some(version(10)));
        let alone = Wanted { last: 1, is_group: false };
        assert_eq!((eras.first(ORIGIN), eras.next(ORIGIN, alone, Flat(0))), (Some(2), None));
        assert_eq!(eras.forget(ORIGIN, flat), [version(21)]);
        assert_eq!((eras.len(), eras.first(ORIGIN)), (0, None));
    }

    #[test]
    fn a_group_has_the_newest_version_of_each_block_and_nothing_newer() {
        let mut eras = Eras::default();
        for (era, flat, slot) in [(1, 7, 10), (1, 8, 11), (2, 7, 20), (3, 9, 30), (4, 7, 40), (4, 9, 41)] {
            eras.put(ORIGIN, era, Flat(flat), version(slot));
        }
        eras.put(OriginId(2), 1, Flat(100), version(50));
        let group = Wanted { last: 3, is_group: true };
        let ends = |end: u64| move |flat: Flat| (flat.0 < end).then_some(Flat(end));
        assert_eq!(
            (eras.next(ORIGIN, group, Flat(0)), eras.next(ORIGIN, group, Flat(9))),
            (Some(Flat(7)), Some(Flat(9)))
        );
        assert_eq!(eras.sizes(ORIGIN, 1, 4).collect::<Vec<_>>(), [(1, 2), (2, 1), (3, 1)]);
        assert_eq!(eras.put_together(ORIGIN, 3), [(Flat(7), version(10))]);
        let of_three = [7, 8, 9].map(|flat| eras.get(Flat(flat), 3).map(|it| it.slot));
        assert_eq!((of_three, eras.first(ORIGIN)), ([Some(20), Some(11), Some(30)], Some(3)));
        assert_eq!((eras.get(Flat(7), 4), eras.first(OriginId(2))), (Some(version(40)), Some(1)));
        let lacking = |from, end| eras.lacking(ORIGIN, group, Flat(from), ends(end)).map(|flat| flat.0);
        assert_eq!((lacking(0, 9), lacking(9, 0), lacking(0, 10), lacking(10, 0)), (Some(9), Some(9), None, None));
        assert_eq!(eras.put_together(ORIGIN, 3), []);
    }
}

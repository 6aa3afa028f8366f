// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways of dying: what becomes of the requests that are under way and would change something.

use flashfront_object::Effect;

/// Which requests of a dead writer still reach the store. They are numbered as they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// None.
    Lost,
    /// All.
    Arrive,
    /// This one.
    Only(usize),
    /// All but this one.
    AllBut(usize),
    /// All; of this one a part is stored.
    Torn(usize),
    /// All, after another writer has opened the volume.
    LateAtOpening,
    /// All, after that writer has closed the volume.
    LateAtEnd,
}

impl Rest {
    /// Whether a request reaches the store at the death, and whether as a part.
    pub(super) fn of(self, nth: usize) -> Option<bool> {
        match self {
            Self::Lost | Self::LateAtOpening | Self::LateAtEnd => None,
            Self::Arrive => Some(false),
            Self::Only(only) => (only == nth).then_some(false),
            Self::AllBut(but) => (but != nth).then_some(false),
            Self::Torn(torn) => Some(torn == nth),
        }
    }

    pub(super) const fn is_late(self) -> bool {
        matches!(self, Self::LateAtOpening | Self::LateAtEnd)
    }
}

/// The ways of dying that make a difference while these changes are under way.
pub(super) fn rests<'a>(under_way: impl Iterator<Item = &'a Effect>) -> Vec<Rest> {
    let under_way: Vec<&Effect> = under_way.collect();
    let mut rests = vec![Rest::Lost];
    if under_way.is_empty() {
        return rests;
    }
    rests.extend([Rest::Arrive, Rest::LateAtOpening, Rest::LateAtEnd]);
    if under_way.len() > 1 {
        rests.extend((0..under_way.len()).map(Rest::Only));
    }
    if under_way.len() > 2 {
        rests.extend((0..under_way.len()).map(Rest::AllBut));
    }
    let puts = under_way.iter().enumerate().filter(|(_, it)| matches!(it, Effect::Put { .. }));
    rests.extend(puts.map(|(nth, _)| Rest::Torn(nth)));
    rests
}

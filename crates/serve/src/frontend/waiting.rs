// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts each origin's buffers for requests that may wait, and notes for which origins such
//! requests wait.
//!
//! An origin that answers nothing leaves buffers for the others. It leaves them their first one
//! always, and an eighth of all buffers for all others together. An origin that is alone has all.
//! (A larger part would be too much for the longest read, which takes five sixths of the smallest
//! share.)

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use flashfront_engine::{Buf, OriginId};

/// Bits for origins. Origins that share a bit may wait for each other for a turn.
const ORIGIN_BITS: u32 = 64;

/// The buffers of each origin, and the origins that lack some.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    bytes: HashMap<OriginId, u64>,
    owners: HashMap<Buf, (OriginId, u32)>,
    /// Origins, as bits, for which a request was refused since the end of the last turn began, and
    /// before.
    refused: u64,
    was: u64,
}

const fn bit(origin: OriginId) -> u64 {
    1 << (origin.0 % ORIGIN_BITS)
}

impl Waiting {
    pub(super) fn turn_end(&mut self) {
        self.was = std::mem::take(&mut self.refused);
    }

    /// A request that has to wait found no buffer.
    pub(super) fn refuse(&mut self, origin: OriginId) {
        self.refused |= bit(origin);
    }

    /// Whether requests of this origin wait already.
    pub(super) fn is_wanted(&self, origin: OriginId) -> bool {
        (self.refused | self.was) & bit(origin) != 0
    }

    /// Whether an origin may have this many bytes more. All origins together may have `most`, and
    /// there are `others` beside this one.
    pub(super) fn is_left(&self, origin: OriginId, bytes: u32, most: u64, others: u64) -> bool {
        let own = self.bytes.get(&origin).copied().unwrap_or(0);
        let kept = most / 8 / others.max(1);
        let of_others = self.bytes.iter().filter(|(other, _)| **other != origin);
        let (mut taken, mut unused) = (own + u64::from(bytes), others * kept);
        for (_, held) in of_others {
            taken += held;
            unused = unused.saturating_sub(kept.min(*held));
        }
        own == 0 || taken + unused <= most
    }

    pub(super) fn took(&mut self, buf: Buf, bytes: u32, origin: OriginId) {
        *self.bytes.entry(origin).or_default() += u64::from(bytes);
        self.owners.insert(buf, (origin, bytes));
    }

    /// A buffer is free again, of whatever share.
    pub(super) fn gave_back(&mut self, buf: Buf) {
        if self.owners.is_empty() {
            return;
        }
        if let Some((origin, bytes)) = self.owners.remove(&buf)
            && let Entry::Occupied(mut held) = self.bytes.entry(origin)
        {
            *held.get_mut() -= u64::from(bytes);
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_that_answers_nothing_leaves_buffers_for_the_others() {
        let (mut waiting, most, bytes) = (Waiting::default(), 40 << 20, 1 << 20);
        let mut next = 0;
        let mut take_all = |waiting: &mut Waiting, origin| {
            let before = next;
            while waiting.is_left(origin, bytes, most, 2) {
                waiting.took(Buf(next), bytes, origin);
                next += 1;
            }
            next - before
        };
        let [first, second, third] = [0, 1, 2].map(OriginId);
        let taken = [first, second, third].map(|origin| take_all(&mut waiting, origin));
        assert!(taken[0] >= 33 && taken[1] >= 2 && taken[2] >= 2, "{taken:?}");
        assert!(taken.iter().sum::<u32>() <= 40);
        (0..taken[0]).for_each(|nth| waiting.gave_back(Buf(nth)));
        assert_eq!(take_all(&mut waiting, first), taken[0], "what is given back is there again");
    }

    #[test]
    fn who_waits_is_known_until_a_turn_ends_without_it() {
        let mut waiting = Waiting::default();
        waiting.refuse(OriginId(1));
        waiting.turn_end();
        assert!(waiting.is_wanted(OriginId(1)) && !waiting.is_wanted(OriginId(0)));
        waiting.turn_end();
        assert!(!waiting.is_wanted(OriginId(1)));
    }
}

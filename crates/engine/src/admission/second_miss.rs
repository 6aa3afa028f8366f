// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admits everything while there is room, and then what misses twice within the window.
//!
//! The window is a ghost of fingerprints, one per block of the cache: sets of eight 16-bit numbers,
//! oldest out first. 2 bytes a block; a wrong match about once in 8,000 lookups of a full ghost,
//! which only admits a block early. A block that was evicted counts as seen.

use alloc::boxed::Box;
use alloc::vec;

use super::{Admission, Build, View};
use crate::policy::Spec;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "second_miss",
    summary: "everything while the cache has free space, then blocks that miss twice within one cache size of misses",
    source: "LARC (Huang et al., MSST 2013); gflash promotes on the second read",
    build: |capacity| Box::new(SecondMiss::new(capacity)),
};

const WAYS: usize = 8;

struct SecondMiss {
    sets: Box<[[u16; WAYS]]>,
}

impl SecondMiss {
    fn new(capacity_blocks: u64) -> Self {
        let sets = capacity_blocks.div_ceil(WAYS as u64).max(1) as usize;
        Self { sets: vec![[0; WAYS]; sets].into_boxed_slice() }
    }

    fn place(&self, key: u64) -> (usize, u16) {
        // SplitMix64's finalizer: high bits choose the set, low bits are the fingerprint.
        let x = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let x = x ^ (x >> 31);
        let set = ((u128::from(x) * self.sets.len() as u128) >> 64) as usize;
        // 0 means empty.
        (set, (x as u16).max(1))
    }

    fn remember(&mut self, set: usize, fingerprint: u16) {
        self.sets[set].copy_within(0..WAYS - 1, 1);
        self.sets[set][0] = fingerprint;
    }
}

impl Admission for SecondMiss {
    fn admit(&mut self, key: u64, view: View) -> bool {
        if view.room {
            return true;
        }
        let (set, fingerprint) = self.place(key);
        let ways = &mut self.sets[set];
        if let Some(at) = ways.iter().position(|&it| it == fingerprint) {
            ways.copy_within(at + 1.., at);
            ways[WAYS - 1] = 0;
            return true;
        }
        self.remember(set, fingerprint);
        false
    }

    fn evicted(&mut self, key: u64) {
        let (set, fingerprint) = self.place(key);
        self.remember(set, fingerprint);
    }

    fn bytes(&self) -> u64 {
        (self.sets.len() * WAYS * 2) as u64
    }
}

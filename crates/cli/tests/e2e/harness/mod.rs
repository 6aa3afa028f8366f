// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all end-to-end tests share: places for files, daemons, volumes, other programs.

mod browser;
mod daemon;
mod disk;
mod http;
mod place;
mod program;
mod proxy;
mod store;
mod volume;

pub(crate) use browser::{Browser, LEFT, RIGHT, TAB};
pub(crate) use daemon::Daemon;
pub(crate) use disk::{
    BLOCK, Disk, Form, SIZE, first, key, key_file, payload, place, prefix, wait_for, write, write_by,
};
pub(crate) use http::{answer, free_port, get};
pub(crate) use place::Place;
pub(crate) use program::{flashfront, is_root, must, output, show, skip, skip_without, tool};
pub(crate) use proxy::{Proxy, Weather};
pub(crate) use store::{Maker, Store};
pub(crate) use volume::{Volume, assert_same};

/// Bytes of a mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// A small generator of test data (SplitMix64): the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// That many bytes of noise.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
        bytes
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The makers of made traces share a way to put out requests, and a seed.

use std::collections::VecDeque;

use flashfront_device::Rng;

/// A request of a made trace, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) time_us: u64,
    pub(super) write: bool,
    pub(super) block: u64,
    pub(super) blocks: u64,
}

/// What the requests of an activity are put into.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) time_us: u64,
    pub(super) requests: VecDeque<Made>,
}

impl Asked {
    pub(super) fn read(&mut self, block: u64, blocks: u64) {
        self.requests.push_back(Made { time_us: self.time_us, write: false, block, blocks });
    }

    pub(super) fn write(&mut self, block: u64, blocks: u64) {
        self.requests.push_back(Made { time_us: self.time_us, write: true, block, blocks });
    }

    /// Adds a block to the last request where it follows it, or asks for it alone.
    pub(super) fn join(&mut self, write: bool, block: u64) {
        match self.requests.back_mut() {
            Some(last) if last.write == write && last.block + last.blocks == block && last.blocks < 128 => {
                last.blocks += 1;
            }
            _ => self.requests.push_back(Made { time_us: self.time_us, write, block, blocks: 1 }),
        }
    }
}

/// A machine that asks its disk for blocks.
pub(super) trait Maker: Send {
    /// Does what it does next, and adds what that asks of the disk, possibly nothing; false if its
    /// time is over.
    fn act(&mut self, asked: &mut Asked) -> bool;
}

/// Which machine of a kind is made: number 0 is as its maker describes it.
pub(super) struct Seed {
    number: u64,
    sizes: Rng,
}

impl Seed {
    pub(super) fn new(number: u64) -> Self {
        Self { number, sizes: Rng::new(number) }
    }

    /// The choices of a maker whose own number is this.
    pub(super) fn rng(&self, own: u64) -> Rng {
        Rng::new(own ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The size of a part: as it is described, or between half and twice that.
    pub(super) fn about(&mut self, described: u64) -> u64 {
        if self.number == 0 {
            return described;
        }
        let share = self.sizes.below(1 << 20) as f64 / f64::from(1 << 20);
        (described as f64 * (2.0 * share - 1.0).exp2()).ceil() as u64
    }
}

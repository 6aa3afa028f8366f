// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a device reads, and which of our models is nearest to it.
//!
//! Seven short phases of reads, the same for a real device ([`measure`]) and for a model in virtual
//! time ([`Times::of`]). What a phase finds is the time for a read: its length divided by its
//! reads. [`nearest`] compares these times. Nothing here writes: how a device writes is taken from
//! the model.

mod nearest;
mod real;
mod virtually;

use crate::Rng;

pub use nearest::{Nearest, nearest};
pub use real::{Hints, Measured, PaceError, Progress, measure};

/// How many phases there are.
pub const COUNT: usize = 7;

/// Reads of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// The name in results.
    pub name: &'static str,
    /// The reads of the phase, for people.
    pub about: &'static str,
    /// Bytes of a read.
    pub len: u64,
    /// Reads at the same time.
    pub depth: usize,
    /// The part of the time that it takes on a real device, out of [`PARTS`].
    pub parts: u32,
    place: Region,
}

/// The region of a phase's reads.
#[derive(Clone, Copy, Debug)]
enum Region {
    /// The whole device, at random.
    Anywhere,
    /// A thousandth of the device, in its middle, at random.
    Near,
    /// A hundredth at the device's beginning and at its end, in turns, at random.
    Ends,
    /// Each read after the one before, from this thousandth of the device on.
    From(u64),
}

/// The sum of the phases' parts. A disk makes 100 random reads a second, so that 20 s leave 300 to
/// the shortest phase of random reads.
pub const PARTS: u32 = 20;

/// All phases.
pub const PHASES: [Phase; COUNT] = [
    phase("random", "4 KiB anywhere", 1, 4, Region::Anywhere),
    phase("near", "4 KiB nearby", 1, 3, Region::Near),
    phase("ends", "4 KiB from end to end", 1, 3, Region::Ends),
    phase("deep", "4 KiB anywhere, 32 at once", 32, 4, Region::Anywhere),
    in_a_row("begin", "1 MiB in a row, at the beginning", Region::From(0)),
    in_a_row("middle", "1 MiB in a row, in the middle", Region::From(500)),
    in_a_row("end", "1 MiB in a row, at the end", Region::From(950)),
];

const fn phase(name: &'static str, about: &'static str, depth: usize, parts: u32, place: Region) -> Phase {
    Phase { name, about, len: 4 << 10, depth, parts, place }
}

const fn in_a_row(name: &'static str, about: &'static str, place: Region) -> Phase {
    Phase { name, about, len: 1 << 20, depth: 1, parts: 2, place }
}

/// The least device that can be measured: each phase has places for several reads there.
pub const DEVICE_BYTES_MIN: u64 = 64 << 20;
/// The least part that random reads go to.
const PART_BYTES_MIN: u64 = 16 << 20;

impl Phase {
    /// The place where read number `nth` begins, on a device of `device_bytes`.
    fn offset(&self, nth: u64, device_bytes: u64, rng: &mut Rng) -> u64 {
        let part = |share: u64| (device_bytes / share).max(PART_BYTES_MIN).min(device_bytes);
        let (from, bytes) = match self.place {
            Region::Anywhere => (0, device_bytes),
            Region::Near => (device_bytes / 2 - part(1000) / 2, part(1000)),
            Region::Ends if nth.is_multiple_of(2) => (0, part(100)),
            Region::Ends => (device_bytes - part(100), part(100)),
            Region::From(thousandth) => {
                // Round in the last twentieth, which a fast device reads more than once.
                let from = device_bytes / 1000 * thousandth;
                let places = ((device_bytes - from) / self.len).max(1);
                return from / self.len * self.len + nth % places * self.len;
            }
        };
        (from + rng.below(bytes / self.len) * self.len) / self.len * self.len
    }
}

/// The time of a read in each phase, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times(pub [f64; COUNT]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_are_on_the_device() {
        for device_bytes in [DEVICE_BYTES_MIN, DEVICE_BYTES_MIN + 4096, 1 << 30, 4_000_787_030_016] {
            let mut rng = Rng::new(1);
            for phase in PHASES {
                for nth in 0..1000 {
                    let offset = phase.offset(nth, device_bytes, &mut rng);
                    assert!(offset.is_multiple_of(phase.len), "{}: {offset}", phase.name);
                    assert!(offset + phase.len <= device_bytes, "{}: {offset} of {device_bytes}", phase.name);
                }
            }
        }
        assert_eq!(PHASES.iter().map(|it| it.parts).sum::<u32>(), PARTS);
    }
}

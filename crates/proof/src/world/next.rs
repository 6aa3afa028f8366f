// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens next in a world, and when.

use flashfront_device::{Device, Rng};
use flashfront_engine::Time;

use super::disk::Disk;

/// The moment at which the next I/O of these disks ends.
pub(super) fn next_io<'a>(disks: impl Iterator<Item = &'a Disk>) -> Option<Time> {
    disks.filter_map(Device::next_event).min()
}

/// Whether messages that are on their way in the engine after this step are slower than the next
/// I/O.
pub(super) fn is_mail_late(seed: u64, step: u64) -> bool {
    Rng::new(seed ^ step << 24).below(3) == 0
}

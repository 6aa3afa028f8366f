// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verbs on a cache while no daemon runs: make it, check it, repair it, show it, take it off.
//!
//! All of them lock the devices first, so that none runs beside a daemon. `walk` reads the media
//! structures the way replay does, but goes on behind damage and writes nothing. `blocks` holds
//! what it finds. `scan`, `salvage`, `unspoken` and `chain` are the steps of `repair`. One lane is
//! read after the other, since all of a large cache would take too much RAM.

mod blocks;
mod chain;
mod check;
mod damage;
mod detach;
mod dump;
mod format;
mod grow;
#[cfg(test)]
mod harm;
mod layout;
mod reader;
mod repair;
mod salvage;
mod scan;
mod shown;
mod shrink;
mod unspoken;
mod volumes;
mod walk;

#[cfg(test)]
mod tests;

pub use crate::uuid::uuid_text;
pub use check::{CheckError, CheckReport, check};
pub use damage::{Damage, DamageKind};
pub(crate) use detach::dirty;
pub use detach::{DetachError, DetachReport, detach};
pub use dump::{DumpReport, dump};
pub use format::{FormatError, FormatOptions, FormatReport, format};
pub(crate) use format::{contents, format_for, is_fit, make_void, occupants, superblock_in_ram, wipe};
pub(crate) use grow::grown;
pub use grow::{CacheGrowError, CacheGrown, grow};
pub use layout::{LANES_MAX, LayoutError, SEGMENT_BYTES_DEFAULT};
pub use repair::{Older, Repair, RepairError, RepairReport, UnknownLoss};
pub use shrink::{CacheShrinkError, CacheShrunk, shrink};
pub(crate) use shrink::{shrink_closed, shrunk};
pub use volumes::{AddOptions, SetOptions, Volumes, VolumesError};

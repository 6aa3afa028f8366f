// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done to a cache while no daemon runs: make it, check it, repair it, show it, take it
//! off.
//!
//! All of them lock the devices first, so that none runs beside a daemon. `walk` reads the media
//! structures the way replay does, but goes on behind damage and writes nothing, and `blocks` is
//! what it finds; `scan`, `salvage`, `unspoken` and `chain` are what `repair` makes of what is
//! left. One lane after the other, since all of a large cache would take too much RAM.

use serde::Serialize;

mod blocks;
mod chain;
mod check;
mod detach;
mod dump;
mod format;
#[cfg(test)]
mod harm;
mod layout;
mod reader;
mod repair;
mod salvage;
mod scan;
mod unspoken;
mod walk;

#[cfg(test)]
mod tests;

pub use check::{CheckError, CheckReport, Damage, DamageKind, check};
pub(crate) use detach::dirty;
pub use detach::{DetachError, DetachReport, detach};
pub use dump::{DumpReport, dump};
pub use format::{FormatError, FormatOptions, FormatReport, format};
pub(crate) use format::{occupants, superblock_in_ram, wipe};
pub use layout::{LANES_MAX, LayoutError, SEGMENT_BYTES_DEFAULT};
pub use repair::{Older, Repair, RepairError, RepairReport, UnknownLoss};

/// A path for JSON, where one that isn't UTF-8 has a form too: no report is to fail after what it
/// reports was done.
fn shown<S: serde::Serializer>(path: &std::path::Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// Shows a path that may be absent.
fn shown_if_any<S: serde::Serializer>(path: &Option<std::path::PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(to)
}

/// A UUID in its usual spelling.
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex).join("-")
}

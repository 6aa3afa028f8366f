// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block traces say what clients once asked of real disks. They are read as a stream of
//! [`Record`]s.
//!
//! A [`Reader`] unpacks compressed traces, and knows or is told the [`Format`]. It never holds more
//! than its buffers, so a trace may be longer than RAM. It counts and shows lines that it can't
//! read, and requests that it leaves out on purpose ([`Report`]). Requests read, lines skipped and
//! bad lines add up to the file.
//!
//! [`Grid`] cuts a record into blocks. [`GridFinder`] finds where the blocks of the traced disk
//! begin. [`Echoes`] drops requests that were traced twice.

mod action;
mod buffer;
mod compressed;
mod echo;
mod format;
mod grid_finder;
mod head;
mod item;
pub(crate) mod made;
mod names;
mod reader;
mod record;
mod report;
mod split;
#[cfg(test)]
mod tests;
mod text;
mod times;

pub use action::Action;
pub use echo::Echoes;
pub(crate) use format::is_event;
pub use format::{Format, FormatError};
pub use grid_finder::{Ahead, DiskGrid, GridFinder};
pub use made::Load as MadeLoad;
pub use reader::{OpenError, Options, ReadError, Reader};
pub use record::{DATA_SECTORS_MAX, Op, PLACE_SECTORS_MAX, Record, SECTOR_BYTES, SECTOR_MAX};
pub use report::{BAD_SHOWN, Bad, Position, Reason, Report};
pub use split::{Access, Accesses, Grid};
pub use times::FAR_NS;

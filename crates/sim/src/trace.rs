// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block traces: what clients once asked of real disks, read as a stream of [`Record`]s.
//!
//! A [`Reader`] unpacks what is compressed, knows or is told the [`Format`], and never holds more
//! than its buffers: a trace may be longer than RAM. What it can't read it counts and shows
//! ([`Report`]), what it leaves out on purpose too: requests read, lines skipped and lines that are
//! bad add up to the file. [`Grid`] cuts a record into blocks, [`Phases`] finds where the blocks of
//! the traced disk begin, [`Echoes`] drops requests that were traced twice.

mod buffer;
mod compressed;
mod echo;
mod format;
mod head;
pub(crate) mod made;
mod names;
mod phase;
mod reader;
mod report;
mod split;
#[cfg(test)]
mod tests;
mod text;

pub use echo::Echoes;
pub use format::{Action, Format, FormatError};
pub use made::Load as MadeLoad;
pub use phase::{Ahead, DiskPhase, Phases};
pub use reader::{OpenError, Options, ReadError, Reader};
pub use report::{BAD_SHOWN, Bad, Place, Reason, Report};
pub use split::{Access, Accesses, Grid};

/// Bytes of a sector, whatever unit a trace counts in.
pub const SECTOR_BYTES: u64 = 512;

/// Reads and writes longer than this are no requests but garbage: 1 GiB. The block layer's longest
/// is some MiB.
pub const DATA_SECTORS_MAX: u64 = 1 << 21;

/// No record ends behind this sector, so that sums of places don't overflow.
pub const SECTOR_MAX: u64 = 1 << 62;

/// What a request wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// To read; also where a trace doesn't tell.
    Read,
    /// To write.
    Write,
    /// To discard, for which others say trim.
    Discard,
    /// To have durable what was written before; without a place.
    Flush,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, by the trace's own clock; from boot, 1970, 1601 or the start of the trace.
    pub time_ns: Option<u64>,
    /// What.
    pub op: Op,
    /// On which disk of the trace: its number there (`major << 20 | minor` for those of Linux), or
    /// else the how-manieth name it was.
    pub device: u32,
    /// From which sector of 512 bytes on.
    pub sector: u64,
    /// How many; above 0 but for [`Op::Flush`].
    pub sectors: u32,
}

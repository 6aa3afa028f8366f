// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a volume is opened for, and by whom.

use crate::holder::Holder;

/// The one that opens a volume to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writer {
    /// A random number, new for each opening.
    pub id: [u8; 16],
    /// The host, for people.
    pub host: String,
    /// The machine and the cache; `None`: nobody knows.
    pub holder: Option<Holder>,
    /// Seconds since 1970, for people.
    pub now: u64,
    /// The opening that this one may follow. If there is a newer one, somebody has come between,
    /// and is not fenced. `None`: any.
    pub after: Option<u32>,
}

/// What a volume is opened for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To be read, as the newest manifest has it.
    Read,
    /// To be read, as this manifest has it.
    ReadAt(u64),
    /// To be written. Any other writer is fenced.
    Write(Writer),
}

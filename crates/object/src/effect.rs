// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine asks its carrier for, and what comes back.

use std::sync::Arc;

use crate::name::{Key, Name};
use crate::wire::crc;

/// The number of a request to the store. Unique while the machine lives.
pub type Token = u64;

/// The caller's number of a flush, a read, or other work.
pub type Ticket = u64;

/// A page of the map, as an object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredPage {
    /// Its first byte in the object.
    pub at: u64,
    /// Its length.
    pub bytes: u32,
    /// Its checksum (CRC-32C).
    pub crc: u32,
}

impl StoredPage {
    /// Whether this is the page.
    #[must_use]
    pub fn is(&self, content: &[u8]) -> bool {
        content.len() == self.bytes as usize && crc(&[content]) == self.crc
    }
}

/// What a machine wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Store an object of this volume.
    Put {
        /// Comes back with the answer.
        token: Token,
        /// The object.
        name: Name,
        /// All of it.
        body: Arc<Vec<u8>>,
        /// Only if the name is free; else the answer is [`Fault::Taken`]. Without this, an object
        /// with the name is replaced: it has the same bytes, or is torn.
        create: bool,
        /// Tries before this one. The carrier waits the longer, the more there were.
        attempt: u32,
    },
    /// Fetch an object or a range of it.
    Get {
        /// Comes back with the answer.
        token: Token,
        /// The object.
        key: Key,
        /// First byte and length; `None`: all.
        range: Option<(u64, u64)>,
        /// The pages of the map in the range, if nothing else of it is wanted. A carrier may have
        /// kept these.
        pages: Vec<StoredPage>,
        /// As above.
        attempt: u32,
    },
    /// List the numbers of the manifests.
    List {
        /// Comes back with the answer.
        token: Token,
        /// As above.
        attempt: u32,
    },
    /// Delete an object of this volume.
    Delete {
        /// Comes back with the answer.
        token: Token,
        /// The object.
        name: Name,
        /// As above.
        attempt: u32,
    },
    /// Tell the caller how its work has ended.
    Told {
        /// The work.
        ticket: Ticket,
        /// How it ended.
        result: Result<Told, Trouble>,
    },
}

/// What work has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A flush: all writes before it are in a manifest of this number.
    Flushed(u64),
    /// The bytes of a read.
    Read(Vec<u8>),
    /// A part of what is no zeroes.
    Content(Content),
    /// Bytes that were moved out of an object, so that it can be deleted; `None`: no object is
    /// worth it.
    Collected(Option<u64>),
}

/// The ranges with content in a part of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// First sector and sectors, in the order in which objects have them. Many ranges that follow
    /// each other come by one request.
    pub ranges: Vec<(u64, u64)>,
    /// The first sector behind the part; `None`: there is no content behind it.
    pub next: Option<u64>,
}

/// The store's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Stored, or deleted (also if it was absent).
    Done,
    /// The bytes that were asked for, neither more nor fewer.
    Bytes(Vec<u8>),
    /// The numbers of the manifests, in any order.
    Numbers(Vec<u64>),
}

/// Why a request was not carried out, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no such object.
    #[error("there is no such object")]
    Absent,
    /// The name is in use.
    #[error("the name is in use")]
    Taken,
    /// Nobody knows whether it was carried out. Worth another try.
    #[error("{0}")]
    Away(String),
    /// The store refuses it, and would again.
    #[error("{0}")]
    Refused(String),
}

/// Why work was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Another writer has opened the volume.
    #[error("another writer has opened the volume ({0})")]
    Fenced(String),
    /// An object is not what it should be.
    #[error("{name}: {what}")]
    Damaged {
        /// The object.
        name: Name,
        /// What is wrong.
        what: String,
    },
}

/// Why a volume can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenFault {
    /// There is no manifest.
    #[error("there is no volume here: no manifest was found")]
    NoVolume,
    /// The manifest that was asked for is not there.
    #[error("there is no manifest {0}")]
    NoManifest(u64),
    /// An object is absent, or not what it should be.
    #[error("{name} is damaged: {what}")]
    Damaged {
        /// The object.
        name: Name,
        /// What is wrong.
        what: String,
    },
    /// Another writer has opened the volume since it was looked at.
    #[error("another writer has opened the volume since it was looked at ({0})")]
    Overtaken(String),
    /// A manifest has what this version does not know.
    #[error("{name} has {what}, which this version of Flashfront does not know")]
    Foreign {
        /// The manifest.
        name: Name,
        /// What it has.
        what: String,
    },
}

impl Effect {
    /// The request, once more.
    pub(crate) fn again(mut self) -> Self {
        match &mut self {
            Self::Put { attempt, .. }
            | Self::Get { attempt, .. }
            | Self::List { attempt, .. }
            | Self::Delete { attempt, .. } => *attempt += 1,
            Self::Told { .. } => {}
        }
        self
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of the link to a server, for whoever wants to know.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use flashfront_bucket::Tally;

use super::open_by::OpenBy;

/// The link to a server, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Since when there is no connection, and why; `None` while there is one.
    pub away: Option<(Instant, String)>,
    /// How often the connection was lost and made again.
    pub reconnects: u64,
    /// What is known of a volume in an object store.
    pub store: Option<StoreState>,
}

/// A volume in an object store, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// Bytes that were written to the device and that the store does not have.
    pub unsent_bytes: u64,
    /// The time since which the oldest of them wait.
    pub unsent_since: Option<Instant>,
    /// The writer that has taken the volume over.
    pub fenced: Option<String>,
    /// The writer that had the volume open when it was opened here.
    pub open_by: Option<OpenBy>,
    /// The requests to the store, in the order of [`Verb::ALL`](flashfront_bucket::Verb::ALL).
    pub requests: [Tally; 4],
}

/// What has become of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkNews {
    /// The connection was lost.
    Lost {
        /// Why.
        why: String,
        /// Whether there was something that no flush had covered: the next flush fails.
        unflushed: bool,
    },
    /// The server is there again, and is not let in.
    Refused {
        /// Why.
        why: String,
    },
    /// Somebody else has opened the volume in the object store to write.
    Fenced {
        /// The other writer.
        by: String,
    },
    /// The connection is there again.
    Back {
        /// How long it was away.
        after: Duration,
    },
}

/// Reads a range of the server's export, for a check.
pub type ReadAt<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;

/// Judges a server that is there again; says what is wrong with its content.
pub type LinkCheck = Box<dyn Fn(&mut ReadAt<'_>) -> Result<(), String> + Send + Sync>;

/// Somebody who looks after the link.
pub struct LinkWatch {
    /// Asked before a server that is there again is used.
    pub check: LinkCheck,
    /// Told what is new, by a thread of the link's own.
    pub told: Box<dyn Fn(&LinkNews) + Send + Sync>,
}

impl fmt::Debug for LinkWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkWatch")
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of the NBD server: its connection, its socket, and what was last seen of both.

use flashfront_device::Share;
use flashfront_engine::Time;

use super::super::Core;
use super::super::visit::Visit;
use super::connection::Connection;
use super::parked::Resumed;
use super::stream::Stream;
use super::wait::Wait;
use super::way::Place;

/// A client.
#[derive(Debug)]
pub(super) struct Peer {
    /// The socket; none after the client was hung up on.
    pub(super) stream: Option<Stream>,
    pub(super) connection: Connection,
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) stuck: Option<Stuck>,
    /// The client has shut its side down, so a short read isn't the last.
    pub(super) closing: bool,
    pub(super) wait: Wait,
    /// The client is on the list of those that the end of the turn looks at.
    pub(super) dirty: bool,
    pub(super) since: Since,
    pub(super) visit: Visit,
    /// The client's place at the gate, which is free again when the client is dropped.
    _place: Option<Place>,
}

/// A client whose socket is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    /// When that was first seen.
    pub(super) since: Time,
    /// Bytes that were sent by then.
    pub(super) progress: u64,
}

/// When a client last moved, as of the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since {
    pub(super) accepted: Option<Time>,
    pub(super) moved: Option<Time>,
    pub(super) progress: u64,
}

impl Peer {
    pub(super) fn new(stream: Stream, connection: Connection, visit: Visit, place: Option<Place>) -> Self {
        Self {
            stream: Some(stream),
            connection,
            readable: false,
            writable: true,
            stuck: None,
            closing: false,
            wait: Wait::Input,
            dirty: false,
            since: Since::default(),
            visit,
            _place: place,
        }
    }

    /// Whether there is something to send.
    pub(super) fn has_output(&self) -> bool {
        self.connection.has_output() || self.stream.as_ref().is_some_and(Stream::holds_output)
    }

    /// Whether everything is said and sent.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_over() && !self.has_output()
    }

    /// Tries the first of the parked requests. Answers that were dropped come before it, if the
    /// client reads them now.
    pub(super) fn resume(&mut self, share: Share, core: &mut dyn Core) -> Resumed {
        self.connection.resume(share, self.writable, core)
    }
}

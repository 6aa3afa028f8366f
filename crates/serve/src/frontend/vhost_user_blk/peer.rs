// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of the vhost-user-blk server: its conversation, its requests, and why it leaves.

use flashfront_engine::{RequestError, Time};

use super::super::piece::PieceId;
use super::super::visit::Visit;
use super::broken::Broken;
use super::messages::Talk;
use super::work::Work;

/// A client.
pub(super) struct Peer {
    /// `None` once the client is gone, while the engine still has requests of it.
    pub(super) talk: Option<Talk>,
    pub(super) work: Work,
    /// Answers of the engine that are not given back yet.
    pub(super) answers: Vec<(PieceId, Result<(), RequestError>)>,
    /// Why the server is about to hang up on the client.
    pub(super) broken: Option<Broken>,
    /// The server is about to end or to be handed over, and has made durable what it owed the
    /// client.
    pub(super) settled: bool,
    /// When the server hangs up on the client, if it has said nothing.
    pub(super) silent_until: Option<Time>,
    visit: Visit,
}

impl Peer {
    pub(super) fn new(talk: Talk, work: Work, visit: Visit) -> Self {
        let (talk, answers) = (Some(talk), Vec::new());
        Self { talk, work, answers, broken: None, settled: false, silent_until: None, visit }
    }

    /// Whether nothing is under way, and nothing is owed.
    pub(super) fn is_at_border(&self) -> bool {
        let quiet = self.work.in_flight() == 0 && self.answers.is_empty() && !self.work.has_done();
        quiet && self.settled && self.talk.is_some() && self.broken.is_none()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let (received, sent) = self.work.moved();
        self.visit.receive(received);
        self.visit.send(sent);
    }
}

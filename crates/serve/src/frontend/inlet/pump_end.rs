// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pump's end: takes requests from the threads, as far as limits allow, and answers them.
//!
//! A front-end calls it from the methods of [`Frontend`](super::super::Frontend) that have the same
//! names.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use flashfront_engine::{RequestError, RequestId, Time};
use mio::Registry;

use super::super::bell::Bell;
use super::super::{Core, TokenRange};
use super::{Ask, FEED_MAX, Feed, Table};

/// The pump's end.
#[derive(Debug)]
pub(in crate::frontend) struct Inlet<A> {
    /// The channel of requests; none: it is closed.
    asks: Option<Receiver<A>>,
    bell: Arc<Bell>,
    /// Taken from the channel, and waiting for a place or buffers.
    next: Option<A>,
    table: Table<A>,
    stopping: bool,
}

impl<A: Ask + Send> Inlet<A> {
    /// An inlet, and the end for the threads.
    pub(in crate::frontend) fn new() -> io::Result<(Self, Feed<A>)> {
        let (sender, asks) = sync_channel(FEED_MAX);
        let bell = Arc::new(Bell::new()?);
        let (table, stopping) = (Table::default(), false);
        let inlet = Self { asks: Some(asks), bell: Arc::clone(&bell), next: None, table, stopping };
        Ok((inlet, Feed::new(sender, bell)))
    }

    /// Takes the first token.
    pub(in crate::frontend) fn register(&self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        let token = tokens.get(0).ok_or(io::ErrorKind::InvalidInput)?;
        self.bell.register(registry, token)
    }

    /// Takes what has come; says whether something was submitted.
    pub(in crate::frontend) fn take_in(&mut self, core: &mut dyn Core) -> bool {
        self.bell.heard();
        let mut submitted = false;
        while let Some(ask) = self.next.take().or_else(|| self.asks.as_ref()?.try_recv().ok()) {
            if self.stopping {
                ask.answer(Err(RequestError::Stopping));
                continue;
            }
            match self.table.accept(ask, core) {
                None => submitted = true,
                // Tried again at the end of every turn.
                waiting => {
                    self.next = waiting;
                    break;
                }
            }
        }
        submitted
    }

    /// The engine has answered a part.
    pub(in crate::frontend) fn reply(&mut self, id: RequestId, result: Result<(), RequestError>) {
        self.table.reply(id, result);
    }

    /// The engine was not asked for a part that would have to wait.
    pub(in crate::frontend) fn refused(&mut self, id: RequestId) {
        self.table.refused(id);
    }

    /// Answers, and goes on with requests that wait. `true`: there is more to do at once.
    pub(in crate::frontend) fn turn_end(&mut self, now: Time, core: &mut dyn Core) -> bool {
        self.table.answer(core);
        self.table.resume(now, core) | self.take_in(core)
    }

    /// When [`Inlet::turn_end`] wants to be called at the latest.
    pub(in crate::frontend) fn next_timer(&self) -> Option<Time> {
        self.table.next_timer()
    }

    /// Takes no more; what the engine has is still answered.
    pub(in crate::frontend) fn stop(&mut self, core: &mut dyn Core) {
        self.stopping = true;
        self.take_in(core);
    }

    /// Whether all are answered that were taken.
    pub(in crate::frontend) fn is_idle(&self) -> bool {
        self.table.is_empty() && self.next.is_none()
    }

    /// Refuses whatever still comes, without the pump.
    pub(in crate::frontend) fn close(&mut self) {
        self.next = None;
        self.asks = None;
    }
}

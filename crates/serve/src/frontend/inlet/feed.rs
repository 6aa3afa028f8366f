// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads' end: hands requests over, and waits when the pump has enough.

use std::sync::Arc;
use std::sync::mpsc::{SendError, SyncSender};

use flashfront_engine::RequestError;

use super::super::bell::Bell;
use super::Ask;

/// The way to the pump, for any thread.
#[derive(Debug)]
pub(in crate::frontend) struct Feed<A> {
    asks: SyncSender<A>,
    bell: Arc<Bell>,
}

impl<A: Ask + Send> Feed<A> {
    pub(super) fn new(asks: SyncSender<A>, bell: Arc<Bell>) -> Self {
        Self { asks, bell }
    }

    /// Hands it over. The answer comes by itself, from another thread; at once when the daemon is
    /// ending.
    pub(in crate::frontend) fn put(&self, ask: A) {
        match self.asks.send(ask) {
            Ok(()) => self.bell.ring(),
            Err(SendError(ask)) => ask.answer(Err(RequestError::Stopping)),
        }
    }

    /// Lets the pump look, though there is no request.
    pub(in crate::frontend) fn ring(&self) {
        self.bell.ring();
    }
}

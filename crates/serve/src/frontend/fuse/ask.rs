// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request of the kernel on its way through the pump, with the reply that it waits for.
//!
//! A request that is dropped unanswered is answered EIO by fuser.

use std::time::Instant;

use flashfront_engine::{RequestError, Time};
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use super::super::Core;
use super::super::inlet::{Ask, Want};

/// How a request is answered.
#[derive(Debug)]
pub(super) enum Reply {
    /// A part of the sectors that are read: a reader need not ask for whole ones.
    Data {
        reply: ReplyData,
        skip: usize,
        len: usize,
    },
    Written(ReplyWrite),
    Empty(ReplyEmpty),
}

/// A request.
#[derive(Debug)]
pub(super) struct FuseAsk {
    pub(super) want: Want,
    /// When fuser's thread had it.
    pub(super) since: Instant,
    pub(super) payload: Box<[u8]>,
    pub(super) reply: Reply,
}

impl Ask for FuseAsk {
    fn want(&self) -> Want {
        self.want
    }

    fn since(&self, core: &dyn Core) -> Time {
        core.time_of(self.since)
    }

    fn fill(&mut self, at: usize, into: &mut [u8]) -> Result<(), RequestError> {
        let from = self.payload.get(at..at + into.len()).ok_or(RequestError::Invalid)?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn taken(&mut self) {
        self.payload = Box::default();
    }

    fn answer(self, result: Result<&[&[u8]], RequestError>) {
        let error = match result {
            Err(RequestError::Invalid) => Errno::EINVAL,
            Err(RequestError::NoSpace) => Errno::ENOSPC,
            Err(RequestError::ReadOnly) => Errno::EROFS,
            Err(RequestError::Io | RequestError::Stopping) | Ok(_) => Errno::EIO,
        };
        match (self.reply, result) {
            (Reply::Data { reply, skip, len }, Ok([one])) => match one.get(skip..skip + len) {
                Some(data) => reply.data(data),
                None => reply.error(error),
            },
            // A long read that is not aligned to blocks comes in two parts: the kernel takes one.
            (Reply::Data { reply, skip, len }, Ok(parts)) => match parts.concat().get(skip..skip + len) {
                Some(data) => reply.data(data),
                None => reply.error(error),
            },
            (Reply::Written(reply), Ok(_)) => reply.written(self.want.len as u32),
            (Reply::Empty(reply), Ok(_)) => reply.ok(),
            (Reply::Data { reply, .. }, Err(_)) => reply.error(error),
            (Reply::Written(reply), Err(_)) => reply.error(error),
            (Reply::Empty(reply), Err(_)) => reply.error(error),
        }
    }
}

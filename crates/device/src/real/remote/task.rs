// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task for a server: one request after another, as its length may be more than a server takes at
//! once. A task owns its memory, so that whoever ordered it may be gone before it ends.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::client::Extent;
use rustix::io::Errno;

use crate::real::aligned::AlignedBuf;

/// The next request of a task.
#[derive(Clone, Copy, Debug)]
pub(in crate::real) struct Wish {
    pub(in crate::real) ask: Ask,
    pub(in crate::real) offset: u64,
    pub(in crate::real) bytes: u64,
    /// The memory of a read or a write: `bytes` long, and the task's until the request is answered.
    pub(in crate::real) at: Option<NonNull<u8>>,
}

/// A task.
pub(in crate::real) trait Task: fmt::Debug + Send {
    /// What to ask for next, if the server takes `payload_max` bytes at a time.
    fn next(&mut self, payload_max: u64) -> Wish;

    /// Takes what the server says of holes, before the answer to the request.
    fn note_extents(&mut self, told: &[Extent]) -> Result<(), Errno>;

    /// Takes the answer to the request: the task if there is more of it. A task that has ended has
    /// told that.
    fn advance(self: Box<Self>, outcome: Result<u32, Errno>) -> Option<Box<dyn Task>>;

    /// A number that is the same for all tasks of one who orders.
    fn owner(&self) -> usize;
}

/// Somebody waits for this.
#[derive(Debug)]
pub(in crate::real) struct Call {
    pub(in crate::real) ask: Ask,
    pub(in crate::real) offset: u64,
    pub(in crate::real) bytes: u64,
    pub(in crate::real) memory: AlignedBuf,
    pub(in crate::real) answer: Sender<(Result<(), Errno>, AlignedBuf)>,
    /// There as long as the call is.
    pub(in crate::real) _alive: Arc<()>,
}

impl Task for Call {
    fn next(&mut self, _payload_max: u64) -> Wish {
        let has_payload = matches!(self.ask, Ask::Read { .. } | Ask::Write);
        let at = has_payload.then(|| NonNull::from(&mut self.memory[0]));
        Wish { ask: self.ask, offset: self.offset, bytes: self.bytes, at }
    }

    fn note_extents(&mut self, _told: &[Extent]) -> Result<(), Errno> {
        Ok(())
    }

    fn advance(self: Box<Self>, outcome: Result<u32, Errno>) -> Option<Box<dyn Task>> {
        let Self { memory, answer, .. } = *self;
        // Whoever called may have lost patience.
        let _ = answer.send((outcome.map(drop), memory));
        None
    }

    fn owner(&self) -> usize {
        0
    }
}

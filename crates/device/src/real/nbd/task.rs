// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task for a server: a device's I/O, or a call of somebody who waits for its answer.
//!
//! A task is one request after another, as its length may be more than a server takes at once. It
//! owns its memory, so that whoever ordered it may be gone before it ends.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use flashfront_engine::{Extent, SECTOR_BYTES, put_extents};
use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::client;
use flashfront_nbd_proto::wire::state;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::real::aligned::AlignedBuf;
use crate::real::job::{Job, Step};
use crate::real::threads::Ended;

/// The longest range that is zeroed or discarded by one request: servers answer before the client
/// loses patience.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// The next request of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) ask: Ask,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) fua: bool,
    /// The memory of a read or a write.
    pub(super) at: Option<NonNull<u8>>,
}

/// Somebody waits for this.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) ask: Ask,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) memory: AlignedBuf,
    pub(super) answer: Sender<(Result<(), Errno>, AlignedBuf)>,
}

/// A task.
#[derive(Debug)]
pub(super) enum Task {
    /// Of a range without payload, `done` bytes are done.
    Job {
        job: Box<Job>,
        ended: Arc<Ended>,
        done: u64,
    },
    Call(Box<Call>),
}

impl Task {
    /// What to ask for next, if the server takes `payload_max` bytes at a time.
    pub(super) fn next(&mut self, payload_max: u64) -> Wish {
        let wish = |ask, offset, bytes, at| Wish { ask, offset, bytes, fua: false, at };
        match self {
            Self::Call(call) => {
                let at = NonNull::from(&mut call.memory[0]);
                wish(call.ask, call.offset, call.bytes, Some(at).filter(|_| has_payload(call.ask)))
            }
            Self::Job { job, done, .. } => match job.step() {
                Step::Read { offset, len, to } => wish(Ask::READ, offset, u64::from(len).min(payload_max), Some(to)),
                Step::Write { offset, len, from } => {
                    wish(Ask::Write, offset, u64::from(len).min(payload_max), Some(from))
                }
                Step::SyncData => wish(Ask::Flush, 0, 0, None),
                Step::Fallocate { mode, offset, len } => {
                    let may_discard = mode.contains(FallocateFlags::PUNCH_HOLE);
                    let ask = if job.discards() { Ask::Trim } else { Ask::Zeroes { may_discard, fast: false } };
                    wish(ask, offset + *done, (len - *done).min(RANGE_BYTES_MAX), None)
                }
                Step::BlkDiscard { offset, len } => {
                    wish(Ask::Trim, offset + *done, (len - *done).min(RANGE_BYTES_MAX), None)
                }
                Step::Map { offset, len, .. } => {
                    wish(Ask::Status { one: false }, offset, len.min(RANGE_BYTES_MAX), None)
                }
            },
        }
    }

    /// Takes the answer to the request: the task if there is more of it. A task that has ended has
    /// told that.
    pub(super) fn advance(self, outcome: Result<u32, Errno>) -> Option<Self> {
        match self {
            Self::Call(call) => {
                let Call { memory, answer, .. } = *call;
                // Whoever called may have lost patience.
                let _ = answer.send((outcome.map(drop), memory));
                None
            }
            Self::Job { mut job, ended, done } => {
                let whole = match job.step() {
                    Step::Fallocate { len, .. } | Step::BlkDiscard { len, .. } => len,
                    _ => 0,
                };
                if let Ok(bytes) = outcome
                    && done + u64::from(bytes) < whole
                {
                    return Some(Self::Job { job, ended, done: done + u64::from(bytes) });
                }
                match job.advance(outcome) {
                    None => Some(Self::Job { job, ended, done: 0 }),
                    Some(result) => {
                        ended.push(*job, result);
                        None
                    }
                }
            }
        }
    }

    /// Writes what the server says of holes where the task wants it.
    pub(super) fn note_extents(&mut self, told: &[client::Extent]) -> Result<(), Errno> {
        let Self::Job { job, .. } = self else { return Ok(()) };
        if told.is_empty() {
            return Ok(());
        }
        job.note(|into, len| {
            let mut left = len;
            let mut extents = Vec::with_capacity(told.len());
            for extent in told {
                let bytes = extent.bytes.min(left);
                // A sector that is a hole in part is data.
                let is_whole = bytes.is_multiple_of(SECTOR_BYTES);
                let hole = extent.flags & u64::from(state::HOLE | state::ZERO) == u64::from(state::HOLE | state::ZERO);
                if !is_whole {
                    return Err(Errno::OPNOTSUPP);
                }
                extents.push(Extent { bytes, hole });
                left -= bytes;
            }
            put_extents(into, extents);
            Ok(())
        })
    }

    pub(super) fn is_of(&self, other: &Arc<Ended>) -> bool {
        matches!(self, Self::Job { ended, .. } if Arc::ptr_eq(ended, other))
    }
}

fn has_payload(ask: Ask) -> bool {
    matches!(ask, Ask::Read { .. } | Ask::Write)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device's job as a task for a device with a thread.

use std::sync::Arc;

use flashfront_engine::{Extent, SECTOR_BYTES, put_extents};
use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::client;
use flashfront_nbd_proto::wire::state;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::job::{Job, Step};
use super::remote::{Task, Wish};
use super::threads::Ended;

/// The longest range that is zeroed or discarded by one request: servers answer before the client
/// loses patience.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// A job, and who hears of its end.
#[derive(Debug)]
pub(super) struct RemoteJob {
    job: Job,
    ended: Arc<Ended>,
    /// Bytes that are done, of a range without payload.
    done: u64,
}

impl RemoteJob {
    pub(super) fn new(job: Job, ended: &Arc<Ended>) -> Self {
        Self { job, ended: Arc::clone(ended), done: 0 }
    }

    /// The owner of all tasks of which this one hears.
    pub(super) fn owner_of(ended: &Arc<Ended>) -> usize {
        Arc::as_ptr(ended).addr()
    }
}

impl Task for RemoteJob {
    fn next(&mut self, payload_max: u64) -> Wish {
        let done = self.done;
        let range = |ask: Ask, offset: u64, len: u64| {
            let bytes = (len - done).min(RANGE_BYTES_MAX);
            Wish { ask, offset: offset + done, bytes, at: None }
        };
        match self.job.step() {
            Step::Read { offset, len, to } => {
                Wish { ask: Ask::READ, offset, bytes: u64::from(len).min(payload_max), at: Some(to) }
            }
            Step::Write { offset, len, from } => {
                Wish { ask: Ask::Write, offset, bytes: u64::from(len).min(payload_max), at: Some(from) }
            }
            Step::SyncData => Wish { ask: Ask::Flush, offset: 0, bytes: 0, at: None },
            Step::Fallocate { offset, len, .. } if self.job.discards() => range(Ask::Trim, offset, len),
            Step::Fallocate { mode, offset, len } => {
                let may_discard = mode.contains(FallocateFlags::PUNCH_HOLE);
                range(Ask::Zeroes { may_discard, fast: false }, offset, len)
            }
            Step::BlkDiscard { offset, len } => range(Ask::Trim, offset, len),
            Step::Map { offset, len, .. } => range(Ask::Status { one: false }, offset, len),
        }
    }

    fn note_extents(&mut self, told: &[client::Extent]) -> Result<(), Errno> {
        const HOLE: u64 = (state::HOLE | state::ZERO) as u64;
        if told.is_empty() {
            return Ok(());
        }
        self.job.note(|into, len| {
            let mut left = len;
            let mut extents = Vec::with_capacity(told.len());
            for extent in told {
                let bytes = extent.bytes.min(left);
                // A server with such parts is not asked again.
                if !bytes.is_multiple_of(SECTOR_BYTES) {
                    return Err(Errno::OPNOTSUPP);
                }
                extents.push(Extent { bytes, hole: extent.flags & HOLE == HOLE });
                left -= bytes;
            }
            put_extents(into, extents);
            Ok(())
        })
    }

    fn advance(mut self: Box<Self>, outcome: Result<u32, Errno>) -> Option<Box<dyn Task>> {
        let whole = match self.job.step() {
            Step::Fallocate { len, .. } | Step::BlkDiscard { len, .. } => len,
            _ => 0,
        };
        if let Ok(bytes) = outcome
            && self.done + u64::from(bytes) < whole
        {
            self.done += u64::from(bytes);
            return Some(self);
        }
        match self.job.advance(outcome) {
            None => {
                self.done = 0;
                Some(self)
            }
            Some(result) => {
                let Self { job, ended, .. } = *self;
                ended.push(job, result);
                None
            }
        }
    }

    fn owner(&self) -> usize {
        Self::owner_of(&self.ended)
    }
}

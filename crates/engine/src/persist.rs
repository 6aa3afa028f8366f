// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the superblock while the engine runs: when a mode changes, and when the cache device fails.
//!
//! The last copy first, then the first one, each followed by a flush, so that one whole copy exists
//! at every moment.

use alloc::vec::Vec;

use crate::event::Event;
use crate::format::Superblock;
use crate::io::{DeviceError, DeviceId, Op};
use crate::memory::Buf;
use crate::shared::{COORDINATOR, Cx, FailureRecord, blocks_span};
use crate::types::{Mode, OriginId};

/// Numbers of the coordinator's I/O for the superblock.
pub(crate) const PERSIST_WRITE: usize = 1 << 20;
pub(crate) const PERSIST_FLUSH: usize = PERSIST_WRITE + 1;

/// The mark that says that the cache device failed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mark {
    #[default]
    None,
    Wanted,
    Writing,
    /// Written, or refused.
    Over,
}

/// State of the superblock's writing.
#[derive(Default)]
pub(crate) struct Persist {
    buf: Option<Buf>,
    /// Copies still to write.
    copies: u32,
    wanted: bool,
    mark: Mark,
    /// Mode changes to tell of when the write under way, and when the next one, is done.
    telling: Vec<(OriginId, Mode)>,
    changed: Vec<(OriginId, Mode)>,
}

impl Persist {
    pub(crate) fn idle(&self) -> bool {
        self.buf.is_none() && !self.wanted
    }

    pub(crate) fn mode_changed(&mut self, origin: OriginId, mode: Mode) {
        self.wanted = true;
        self.changed.push((origin, mode));
    }

    /// Marks the superblock, once, after the cache device failed.
    pub(crate) fn mark_failed(&mut self, cx: &mut Cx<'_>) {
        if self.mark == Mark::None {
            (self.mark, self.wanted) = (Mark::Wanted, true);
            (cx.shared.superblock.clean, cx.shared.superblock.failed) = (false, true);
        }
    }

    pub(crate) fn step(&mut self, cx: &mut Cx<'_>) {
        if !self.wanted || self.buf.is_some() {
            return;
        }
        self.wanted = false;
        if self.mark == Mark::Wanted {
            self.mark = Mark::Writing;
            cx.shared.superblock.dirty_blocks = cx.shared.dirty;
        }
        self.telling = core::mem::take(&mut self.changed);
        cx.shared.superblock.update += 1;
        let buf = cx.alloc(1);
        let block = cx.shared.superblock.encode();
        cx.mem.bytes_mut(blocks_span(buf, 0, 1)).copy_from_slice(&block);
        self.buf = Some(buf);
        self.copies = 2;
        self.write(cx);
    }

    fn write(&mut self, cx: &mut Cx<'_>) {
        let Some(buf) = self.buf else { return };
        self.copies -= 1;
        let offset = Superblock::offsets(cx.shared.superblock.cache_bytes)[self.copies as usize];
        let span = Some(blocks_span(buf, 0, 1));
        cx.io(COORDINATOR, PERSIST_WRITE, DeviceId::Cache, Op::Write, offset, span);
    }

    pub(crate) fn io_done(&mut self, io: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        if let Err(error) = result {
            cx.event(Event::DeviceFailed { device: DeviceId::Cache, op: Op::Write, offset: 0, error });
            cx.fail_cache();
            if self.mark == Mark::Writing {
                self.mark = Mark::Over;
                cx.event(Event::FailureUnmarked);
            }
            self.end(cx);
        } else if io == PERSIST_WRITE {
            cx.io(COORDINATOR, PERSIST_FLUSH, DeviceId::Cache, Op::Flush, 0, None);
        } else if self.copies > 0 {
            self.write(cx);
        } else {
            for (origin, mode) in core::mem::take(&mut self.telling) {
                cx.event(Event::ModeChanged { origin, mode });
            }
            if self.mark == Mark::Writing {
                self.mark = Mark::Over;
                cx.shared.failure = FailureRecord::Durable;
            }
            self.end(cx);
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        if let Some(buf) = self.buf.take() {
            cx.free(buf, 1);
        }
    }
}

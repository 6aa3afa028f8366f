// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the superblock while the engine runs: when a mode changes, and when the cache device
//! fails.
//!
//! The last copy first, then the first one, each followed by a flush, so that one whole copy exists
//! at every moment.

use alloc::vec::Vec;

use crate::cx::{COORDINATOR, Cx, Turn, blocks_span};
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, Op};
use crate::fact::memory::Buf;
use crate::fact::types::{Mode, OriginId};
use crate::format::{Pairing, Superblock};
use crate::organ::members::FailureRecord;
use crate::organ::members::{MembersState, device};

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

/// MembersState of the superblock's writing.
pub(crate) struct Persist {
    buf: Option<Buf>,
    /// Copies still to write, the next one last: of which member, with which number of update, at
    /// which byte.
    copies: Vec<(u8, u64, u64)>,
    /// The member whose copy is being written.
    writing: u8,
    /// What the members were when the writing under way began.
    begun: MembersState,
    wanted: bool,
    mark: Mark,
    /// Mode changes to tell of when the write under way, and when the next one, is done.
    telling: Vec<(OriginId, Mode)>,
    changed: Vec<(OriginId, Mode)>,
}

impl Default for Persist {
    fn default() -> Self {
        Self {
            buf: None,
            copies: Vec::new(),
            writing: 0,
            begun: MembersState::Single,
            wanted: false,
            mark: Mark::None,
            telling: Vec::new(),
            changed: Vec::new(),
        }
    }
}

impl Persist {
    pub(crate) fn idle(&self) -> bool {
        self.buf.is_none() && !self.wanted
    }

    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    pub(crate) fn mode_changed(&mut self, origin: OriginId, mode: Mode) {
        self.wanted = true;
        self.changed.push((origin, mode));
    }

    /// Marks the superblock, once, after the cache device failed.
    pub(crate) fn mark_failed(&mut self, turn: &mut Turn<'_>) {
        if self.mark == Mark::None {
            (self.mark, self.wanted) = (Mark::Wanted, true);
            let superblock = &mut turn.change().superblock;
            (superblock.clean, superblock.failed) = (false, true);
        }
    }

    /// Whether [`Self::step`] has anything to do.
    pub(crate) const fn has_work(&self, cx: &Cx<'_>) -> bool {
        let members = &cx.delta.members;
        self.wanted | members.to_record | members.has_new_pairing()
    }

    /// Takes over what has changed, and begins to write, if that is wanted.
    pub(crate) fn step(&mut self, turn: &mut Turn<'_>) {
        if let Some(pairing) = turn.delta.members.take_pairing() {
            turn.change().superblock.pairing = pairing;
        }
        self.wanted |= turn.delta.members.to_record;
        if !self.wanted || self.buf.is_some() {
            return;
        }
        self.wanted = false;
        turn.delta.members.is_recorded();
        if self.mark == Mark::Wanted {
            self.mark = Mark::Writing;
            turn.change().superblock.dirty_blocks = turn.delta.dirty();
        }
        self.telling.append(&mut self.changed);
        turn.change().superblock.update += 1;
        let update = turn.facts.superblock.update;
        self.begun = turn.delta.members.state;
        if self.begun == MembersState::Pairing {
            turn.delta.members.change_pairing().paired = update;
            turn.change().superblock.pairing.paired = update;
        }
        let offsets = Superblock::offsets(turn.facts.superblock.cache_bytes);
        let members = turn.delta.members.to_write(update);
        let copies = members.iter().flat_map(|&(member, update)| offsets.map(|offset| (member, update, offset)));
        self.copies = copies.collect();
        // The last copy of each first.
        self.copies.chunks_exact_mut(2).for_each(|copies| copies.swap(0, 1));
        self.copies.reverse();
        let mut cx = turn.cx();
        self.buf = Some(cx.alloc(1));
        self.write(&mut cx);
    }

    fn write(&mut self, cx: &mut Cx<'_>) {
        let (Some(buf), Some((member, update, offset))) = (self.buf, self.copies.pop()) else { return };
        self.writing = member;
        let mut copy = cx.facts.superblock.clone();
        copy.pairing = Pairing { member, ..cx.delta.members.pairing() };
        copy.update = update;
        let span = blocks_span(buf, 0, 1);
        cx.mem.bytes_mut(span).copy_from_slice(&copy.encode());
        cx.io(COORDINATOR, PERSIST_WRITE, device(member), Op::Write, offset, Some(span));
    }

    pub(crate) fn io_done(&mut self, io: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        if let Err(error) = result {
            cx.event(Event::DeviceFailed { device: device(self.writing), op: Op::Write, offset: 0, error });
            cx.fail_member(device(self.writing));
            if !cx.cache_failed() {
                // The other member goes on; it is told so, and all that was to be told now.
                self.wanted = true;
            } else if self.mark == Mark::Writing {
                self.mark = Mark::Over;
                cx.event(Event::FailureUnmarked);
            }
            self.end(cx);
        } else if cx.delta.members.state != self.begun {
            // What was put down is no longer so.
            self.wanted = true;
            self.end(cx);
        } else if io == PERSIST_WRITE {
            cx.io(COORDINATOR, PERSIST_FLUSH, device(self.writing), Op::Flush, 0, None);
        } else if !self.copies.is_empty() {
            self.write(cx);
        } else {
            for (origin, mode) in core::mem::take(&mut self.telling) {
                cx.event(Event::ModeChanged { origin, mode });
            }
            if self.mark == Mark::Writing {
                self.mark = Mark::Over;
                cx.delta.members.note_failure(FailureRecord::Durable);
            }
            self.end(cx);
            cx.recorded(self.begun);
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        if let Some(buf) = self.buf.take() {
            cx.free(buf, 1);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the superblock while the engine runs: when a volume changes, and when the cache device
//! fails.
//!
//! With format version 2 the table of volumes is written first, to all members, and flushed. The
//! last copy of the superblock follows, then the first one, each with a flush after it. So one
//! whole copy exists at every moment, and the table that it names.

mod table;

use alloc::vec::Vec;

use crate::cx::{COORDINATOR, Cx, Turn, blocks_span};
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, Op};
use crate::fact::memory::Buf;
use crate::fact::types::{BLOCK_BYTES, Mode, OriginId};
use crate::fact::volume::VolumeError;
use crate::format::{Pairing, Superblock};
use crate::organ::members::FailureRecord;
use crate::organ::members::{MembersState, device};

use table::Tables;

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

/// What is written in one step, at which byte of a member.
#[derive(Clone, Copy)]
struct Step {
    member: u8,
    offset: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// This block of the table of volumes.
    Table { nth: usize, is_last: bool },
    /// A copy of the superblock, with this number of update.
    Copy { update: u64 },
}

/// A change to tell of when it is durable.
#[derive(Clone, Copy)]
pub(crate) enum Told {
    Mode(OriginId, Mode),
    /// A change of a volume that was asked for by this number.
    Volume {
        ticket: u64,
        origin: OriginId,
    },
}

/// MembersState of the superblock's writing.
pub(crate) struct Persist {
    buf: Option<Buf>,
    /// What is still to be written, the next step last.
    steps: Vec<Step>,
    /// The step under way.
    step: Option<Step>,
    tables: Tables,
    /// What the members were when the writing under way began.
    begun: MembersState,
    wanted: bool,
    mark: Mark,
    /// What to tell of when the write under way, and when the next one, is done.
    telling: Vec<Told>,
    changed: Vec<Told>,
    /// Changes of volumes that are durable now, or failed: [`Self::take_ended`].
    ended: Vec<(u64, OriginId, Result<(), VolumeError>)>,
}

impl Default for Persist {
    fn default() -> Self {
        Self {
            buf: None,
            steps: Vec::new(),
            step: None,
            tables: Tables::default(),
            begun: MembersState::Single,
            wanted: false,
            mark: Mark::None,
            telling: Vec::new(),
            changed: Vec::new(),
            ended: Vec::new(),
        }
    }
}

impl Persist {
    pub(crate) fn idle(&self) -> bool {
        self.buf.is_none() && !self.wanted && self.ended.is_empty()
    }

    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// Something has changed that is to be told of when it is durable.
    pub(crate) fn tell(&mut self, told: Told) {
        self.wanted = true;
        self.tables.change();
        self.changed.push(told);
    }

    /// Whether [`Self::take_ended`] has anything.
    pub(crate) const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes out the changes of volumes that are durable now, or never will be.
    pub(crate) fn take_ended(&mut self) -> Vec<(u64, OriginId, Result<(), VolumeError>)> {
        core::mem::take(&mut self.ended)
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
        if self.tables.begin(turn) {
            self.telling.append(&mut self.changed);
        }
        turn.change().superblock.update += 1;
        let update = turn.facts.superblock.update;
        self.begun = turn.delta.members.state;
        if self.begun == MembersState::Pairing {
            turn.delta.members.change_pairing().paired = update;
            turn.change().superblock.pairing.paired = update;
        }
        let superblock = &turn.facts.superblock;
        self.steps.clear();
        let members = turn.delta.members.to_write(update);
        if let Some(table) = superblock.table {
            let mut of: Vec<u8> = members.iter().map(|(member, _)| *member).collect();
            of.sort_unstable();
            of.dedup();
            for member in of {
                let blocks = self.tables.blocks_for(member);
                let end = blocks.end;
                self.steps.extend(blocks.map(|nth| {
                    let offset = table.offset(table.number) + nth as u64 * BLOCK_BYTES;
                    Step { member, offset, what: What::Table { nth, is_last: nth + 1 == end } }
                }));
            }
        }
        // The last copy of each first.
        let offsets = Superblock::offsets(superblock.cache_bytes);
        for (member, update) in members {
            let copies = offsets.iter().rev().map(|&offset| Step { member, offset, what: What::Copy { update } });
            self.steps.extend(copies);
        }
        self.steps.reverse();
        let mut cx = turn.cx();
        self.buf = Some(cx.alloc(1));
        self.write(&mut cx);
    }

    fn write(&mut self, cx: &mut Cx<'_>) {
        let (Some(buf), Some(step)) = (self.buf, self.steps.pop()) else { return };
        self.step = Some(step);
        let span = blocks_span(buf, 0, 1);
        match step.what {
            What::Table { nth, .. } => {
                cx.mem.bytes_mut(span).copy_from_slice(self.tables.block(nth));
            }
            What::Copy { update } => {
                self.tables.is_named();
                let pairing = Pairing { member: step.member, ..cx.delta.members.pairing() };
                let copy = cx.facts.superblock.encode_as(update, pairing);
                cx.mem.bytes_mut(span).copy_from_slice(&copy);
            }
        }
        cx.io(COORDINATOR, PERSIST_WRITE, device(step.member), Op::Write, step.offset, Some(span));
    }

    pub(crate) fn io_done(&mut self, io: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let Some(step) = self.step else { return };
        // A block of the table that is not the last one needs no flush of its own.
        let flushed = io == PERSIST_FLUSH || matches!(step.what, What::Table { is_last: false, .. });
        if let Err(error) = result {
            cx.event(Event::DeviceFailed { device: device(step.member), op: Op::Write, offset: 0, error });
            cx.fail_member(device(step.member));
            if !cx.cache_failed() {
                // The other member goes on; it is told so, and all that was to be told now.
                self.wanted = true;
            } else {
                if self.mark == Mark::Writing {
                    self.mark = Mark::Over;
                    cx.event(Event::FailureUnmarked);
                }
                self.fail_all();
            }
            self.end(cx);
        } else if cx.delta.members.state != self.begun {
            // What was put down is no longer so.
            self.wanted = true;
            self.end(cx);
        } else if !flushed {
            cx.io(COORDINATOR, PERSIST_FLUSH, device(step.member), Op::Flush, 0, None);
        } else if !self.steps.is_empty() {
            if matches!(step.what, What::Table { is_last: true, .. }) {
                self.tables.is_on(step.member);
            }
            self.write(cx);
        } else {
            self.tables.all_name_it();
            self.wanted |= self.tables.has_changed();
            for told in core::mem::take(&mut self.telling) {
                match told {
                    Told::Mode(origin, mode) => cx.event(Event::ModeChanged { origin, mode }),
                    Told::Volume { ticket, origin } => self.ended.push((ticket, origin, Ok(()))),
                }
            }
            if self.mark == Mark::Writing {
                self.mark = Mark::Over;
                cx.delta.members.note_failure(FailureRecord::Durable);
            }
            self.end(cx);
            cx.recorded(self.begun);
        }
    }

    /// The cache device can't be written: who waits for that is told.
    fn fail_all(&mut self) {
        for told in self.telling.drain(..).chain(self.changed.drain(..)) {
            if let Told::Volume { ticket, origin } = told {
                self.ended.push((ticket, origin, Err(VolumeError::CacheFailed)));
            }
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.step = None;
        self.tables.give_up();
        if let Some(buf) = self.buf.take() {
            cx.free(buf, 1);
        }
    }
}

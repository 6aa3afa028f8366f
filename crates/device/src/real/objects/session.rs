// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume at work: tasks in, their ends out, and requests to the store between.
//!
//! Writes are taken in their order, as soon as the volume has room for them. A flush covers the
//! writes that have ended before it, as of any device. So it passes writes that wait for room.
#![expect(unsafe_code, reason = "payload lies in memory that tasks own")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use flashfront_bucket::Carrier;
use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::client::Extent;
use flashfront_nbd_proto::wire::state;
use flashfront_object::{Effect, SECTOR_BYTES, Ticket, Told, Trouble, Volume, WriteFault};
use rustix::io::Errno;

use super::faults::{Faults, News};
use super::{Shared, mark_of};
use crate::real::remote::{LinkNews, Task, Wish, locked};

/// The longest payload of a write or a read.
const PAYLOAD_BYTES_MAX: u64 = 8 << 20;
/// Reads under way have so many bytes at most: three times what 100 MB/s bring in 50 ms. Others
/// wait. Each byte is in RAM twice, as it comes and for its reader.
const READING_BYTES_MAX: u64 = 16 << 20;
/// An object with less than so many percent of it in use is worth to be moved. Under random
/// overwrites that is 1.26 bytes sent for each that clients write, and 1.37 with 30 %.
const LIVE_PERCENT: u64 = 22;
/// Objects that are moved between two flushes at most.
const MOVES_MAX: u32 = 4;

/// What waits for a ticket.
#[derive(Debug)]
enum Waiting {
    /// A read of so many bytes.
    Read(Box<dyn Task>, u64),
    Flush(Box<dyn Task>),
    /// An object is being moved.
    Collect,
    /// What was moved is on its way.
    Moved,
    Close,
}

/// A volume at work.
#[derive(Debug)]
pub(super) struct Session {
    shared: Arc<Shared>,
    volume: Box<Volume>,
    /// None after the end.
    carrier: Option<Carrier>,
    fx: Vec<Effect>,
    /// Writes that wait for room, the oldest first.
    writes: VecDeque<Box<dyn Task>>,
    /// Reads that wait for those under way, the oldest first; and the bytes of these.
    reads: VecDeque<Box<dyn Task>>,
    reading_bytes: u64,
    /// Flushes that wait until nothing is moved any more.
    flushes: Vec<Box<dyn Task>>,
    waiting: BTreeMap<Ticket, Waiting>,
    /// Objects that were moved since a flush.
    moves: u32,
    tickets: Ticket,
    faults: Faults,
    /// Batches that the store does not have, and when each began.
    began: VecDeque<(u64, Instant)>,
    opening: Option<u32>,
    /// Nothing goes on by itself any more, until the next write.
    is_settling: bool,
    is_fence_told: bool,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, volume: Box<Volume>, carrier: Carrier) -> Self {
        Self {
            shared,
            volume,
            carrier: Some(carrier),
            fx: Vec::new(),
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            reading_bytes: 0,
            flushes: Vec::new(),
            waiting: BTreeMap::new(),
            moves: 0,
            tickets: 0,
            faults: Faults::default(),
            began: VecDeque::new(),
            opening: None,
            is_settling: false,
            is_fence_told: false,
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Goes on with the volume as it was opened to be written. Reads under way begin anew.
    pub(super) fn take_over(&mut self, volume: Box<Volume>, carrier: Carrier) {
        self.opening = Some(volume.manifest().epoch);
        self.volume = volume;
        if let Some(before) = self.carrier.replace(carrier) {
            before.abandon();
        }
        self.fx.clear();
        self.reading_bytes = 0;
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            if let Waiting::Read(task, _) | Waiting::Flush(task) = waiting {
                self.begin(task);
            }
        }
        self.report();
    }

    /// Has the next flush leave the volume as it will be found.
    pub(super) fn settle(&mut self) {
        self.is_settling = true;
    }

    /// Notes whether a cache holds writes that are not in the store. The end says so there.
    pub(super) fn owe(&mut self, owes: bool) {
        self.volume.owe(owes);
    }

    /// Drops the tasks of an owner.
    pub(super) fn forget(&mut self, owner: usize) {
        self.writes.retain(|task| task.owner() != owner);
        self.flushes.retain(|task| task.owner() != owner);
        self.reads.retain(|task| task.owner() != owner);
        self.waiting.retain(|_, waiting| match waiting {
            Waiting::Flush(task) => task.owner() != owner,
            Waiting::Read(task, bytes) => {
                let stays = task.owner() != owner;
                self.reading_bytes -= if stays { 0 } else { *bytes };
                stays
            }
            Waiting::Collect | Waiting::Moved | Waiting::Close => true,
        });
        self.begin_reads();
    }

    /// Begins a task.
    pub(super) fn begin(&mut self, mut task: Box<dyn Task>) {
        let wish = task.next(PAYLOAD_BYTES_MAX);
        let (start, sectors) = (wish.offset / SECTOR_BYTES, wish.bytes / SECTOR_BYTES);
        match wish.ask {
            Ask::Read { .. } => {
                self.reads.push_back(task);
                self.begin_reads();
            }
            Ask::Flush if self.is_settling && self.is_collecting() => self.flushes.push(task),
            Ask::Flush => self.flush(task),
            Ask::Status { .. } => {
                let extent = |(sectors, is_data): (u64, bool)| Extent {
                    bytes: sectors * SECTOR_BYTES,
                    flags: if is_data { 0 } else { u64::from(state::HOLE | state::ZERO) },
                };
                let extents: Vec<Extent> = self.volume.parts(start, sectors).into_iter().map(extent).collect();
                let outcome = task.note_extents(&extents).map(|()| wish.bytes as u32);
                self.advance(task, outcome);
            }
            Ask::Write | Ask::Trim | Ask::Zeroes { .. } => self.writes.push_back(task),
            Ask::Cache => self.advance(task, Ok(wish.bytes as u32)),
        }
    }

    /// Begins reads while there is room for their bytes. One alone always has room.
    fn begin_reads(&mut self) {
        while let Some(mut task) = self.reads.pop_front() {
            let Wish { offset, bytes, .. } = task.next(PAYLOAD_BYTES_MAX);
            if self.reading_bytes > 0 && self.reading_bytes + bytes > READING_BYTES_MAX {
                self.reads.push_front(task);
                return;
            }
            self.reading_bytes += bytes;
            let ticket = self.wait_for(Waiting::Read(task, bytes));
            self.volume.read(ticket, offset / SECTOR_BYTES, bytes / SECTOR_BYTES, &mut self.fx);
        }
    }

    /// Ends the request of a task, and begins its next one.
    fn advance(&mut self, task: Box<dyn Task>, outcome: Result<u32, Errno>) {
        if let Some(more) = task.advance(outcome) {
            self.begin(more);
        }
    }

    fn wait_for(&mut self, waiting: Waiting) -> Ticket {
        self.tickets += 1;
        self.waiting.insert(self.tickets, waiting);
        self.tickets
    }

    fn is_collecting(&self) -> bool {
        self.waiting.values().any(|it| matches!(it, Waiting::Collect))
    }

    fn is_moving(&self) -> bool {
        self.waiting.values().any(|it| matches!(it, Waiting::Collect | Waiting::Moved))
    }

    fn flush(&mut self, task: Box<dyn Task>) {
        let has_more = !self.volume.manifest().tail.is_empty() || self.volume.unsent().bytes > 0;
        if self.is_settling && self.opening.is_some() && has_more {
            self.volume.checkpoint(&mut self.fx);
        }
        let ticket = self.wait_for(Waiting::Flush(task));
        self.volume.flush(ticket, &mut self.fx);
    }

    /// Takes what the store has answered.
    pub(super) fn take_answers(&mut self) {
        while let Some(back) = self.carrier.as_ref().and_then(Carrier::take) {
            match self.faults.judge(&back) {
                Some(News::Lost) => {
                    let why = self.faults.away().map_or_else(String::new, |(_, why)| why.clone());
                    self.shared.tell(&LinkNews::Lost { why, unflushed: false });
                }
                Some(News::Back(after)) => {
                    locked(&self.shared.link).reconnects += 1;
                    self.shared.tell(&LinkNews::Back { after });
                }
                None => {}
            }
            self.volume.done(back.token, back.answer, &mut self.fx);
        }
    }

    /// Does what can be done now: requests go out, ends are told, writes are taken.
    pub(super) fn work(&mut self) {
        loop {
            for effect in std::mem::take(&mut self.fx) {
                match (effect, &self.carrier) {
                    (Effect::Told { ticket, result }, _) => self.told(ticket, result),
                    (effect, Some(carrier)) => carrier.start(effect),
                    (_, None) => {}
                }
            }
            if self.fx.is_empty() && !self.take_write() {
                break;
            }
        }
        self.report();
    }

    /// Takes the next write if there is room for it.
    fn take_write(&mut self) -> bool {
        if !self.volume.has_room() && self.volume.fenced().is_none() {
            return false;
        }
        let Some(mut task) = self.writes.pop_front() else { return false };
        let Wish { ask, offset, bytes, at } = task.next(PAYLOAD_BYTES_MAX);
        let (start, batch) = (offset / SECTOR_BYTES, self.volume.unsent().open);
        let written = match at {
            Some(from) if ask == Ask::Write => {
                // SAFETY: `bytes` bytes at `from` are the task's, which is here, and no code
                // changes them until the task has ended.
                let payload = unsafe { std::slice::from_raw_parts(from.as_ptr(), bytes as usize) };
                self.volume.write(start, payload, &mut self.fx)
            }
            _ => self.volume.zero(start, bytes / SECTOR_BYTES, &mut self.fx),
        };
        if written.is_ok() {
            self.is_settling = false;
            if self.began.back().is_none_or(|(last, _)| *last != batch) {
                self.began.push_back((batch, Instant::now()));
            }
        }
        let errno = |_: WriteFault| Errno::ROFS;
        self.advance(task, written.map(|()| bytes as u32).map_err(errno));
        true
    }

    fn told(&mut self, ticket: Ticket, result: Result<Told, Trouble>) {
        let Some(waiting) = self.waiting.remove(&ticket) else { return };
        let outcome = match &result {
            Ok(_) => Ok(0),
            Err(Trouble::Fenced(_)) => Err(Errno::ROFS),
            Err(Trouble::Damaged { .. }) => Err(Errno::IO),
        };
        match waiting {
            Waiting::Read(mut task, bytes) => {
                self.reading_bytes -= bytes;
                let outcome = match result {
                    Ok(Told::Read(bytes)) => Ok(copy(&bytes, &task.next(PAYLOAD_BYTES_MAX))),
                    _ => outcome.and(Err(Errno::IO)),
                };
                self.advance(task, outcome);
                self.begin_reads();
            }
            Waiting::Flush(task) => {
                // A checkpoint that was under way already may have left something behind it.
                let is_left = self.is_settling && !self.volume.manifest().tail.is_empty();
                if outcome.is_ok() && is_left && self.opening.is_some() {
                    return self.flush(task);
                }
                // Whoever hears of the flush looks at the mark.
                self.report();
                self.advance(task, outcome);
                self.moves = 0;
                self.collect();
            }
            Waiting::Collect => match result {
                Ok(Told::Collected(Some(_))) if self.moves + 1 < MOVES_MAX => {
                    self.moves += 1;
                    self.collect();
                    self.moved();
                }
                Ok(Told::Collected(Some(_))) => {
                    // What was moved is in the next manifest, and that is not before a flush.
                    let ticket = self.wait_for(Waiting::Moved);
                    self.volume.await_flush(ticket, &mut self.fx);
                    self.moved();
                }
                _ => self.moved(),
            },
            Waiting::Moved => {
                self.moves = 0;
                self.collect();
            }
            Waiting::Close => {}
        }
    }

    /// Moves what is left of an object that is worn, if there is one.
    fn collect(&mut self) {
        let may = self.opening.is_some() && !self.is_settling && !self.is_moving() && self.volume.has_room();
        if may {
            let ticket = self.wait_for(Waiting::Collect);
            self.volume.collect(ticket, LIVE_PERCENT, &mut self.fx);
        }
    }

    /// Nothing is being read to be moved: flushes that waited for that go on.
    fn moved(&mut self) {
        for task in std::mem::take(&mut self.flushes) {
            self.begin(task);
        }
    }

    /// Notes what others may want to know.
    fn report(&mut self) {
        let unsent = self.volume.unsent();
        let is_sent = |it: &(u64, Instant)| it.0 < unsent.oldest || unsent.bytes == 0;
        while self.began.pop_front_if(|it| is_sent(it)).is_some() {}
        let fenced = self.volume.fenced().map(str::to_owned);
        let mut link = locked(&self.shared.link);
        link.away = self.faults.away().cloned();
        let store = link.store.get_or_insert_default();
        // What is only moved is there already.
        store.unsent_bytes = if self.began.is_empty() { 0 } else { unsent.bytes };
        store.unsent_since = self.began.front().map(|it| it.1);
        store.fenced.clone_from(&fenced);
        drop(link);
        *locked(&self.shared.mark) = mark_of(&self.volume, self.opening);
        if let Some(by) = fenced.filter(|_| !self.is_fence_told) {
            self.is_fence_told = true;
            self.shared.tell(&LinkNews::Fenced { by });
        }
    }

    /// Begins to say in the store that no writer has the volume open. What no flush has covered is
    /// not to be there, as after a power cut. Then nothing is said.
    pub(super) fn close(&mut self) {
        let may = self.opening.is_some() && self.volume.fenced().is_none() && self.faults.away().is_none();
        let may = may && !self.volume.is_unflushed();
        if may {
            let ticket = self.wait_for(Waiting::Close);
            self.volume.close(ticket, &mut self.fx);
            self.work();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.waiting.values().any(|it| matches!(it, Waiting::Close))
    }

    /// Ends without waiting for the store.
    pub(super) fn abandon(mut self) {
        if let Some(carrier) = self.carrier.take() {
            carrier.abandon();
        }
    }
}

/// Copies what was read to where it is wanted; says how much that is.
fn copy(bytes: &[u8], wish: &Wish) -> u32 {
    if let Some(to) = wish.at {
        let len = bytes.len().min(wish.bytes as usize);
        // SAFETY: `wish.bytes` bytes at `to` are the task's, which is here; until it has ended they
        // are its alone.
        unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), len) }.copy_from_slice(&bytes[..len]);
        return len as u32;
    }
    0
}

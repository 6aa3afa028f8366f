// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oracle knows for each sector what a read may return.
//!
//! A sector is a register: a read returns what was there at some moment between its submission and
//! its answer. A write is ruled out for a read if another write came between the two. That one
//! began after the first had ended, and ended before the read began. A write also *has ended* once
//! a read has returned it. After a crash a sector holds any write that no durable write has
//! replaced in this sense. The first read tells for good which write that is. The rule never blames
//! an innocent engine. It overlooks a few exotic orders of writes that overlap.

use std::fmt;

use crate::order::History;
use crate::stamp::{Content, SECTOR, identify};

/// A violation: a read returned something that it may not.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Number of the origin.
    pub origin: usize,
    /// The sector.
    pub sector: u64,
    /// The content that the read found.
    pub found: Content,
    /// The contents that would have been right.
    pub allowed: Vec<Content>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, sector, found, allowed } = self;
        let block = sector / 8;
        write!(f, "origin {origin} sector {sector} (block {block}): found {found:?}, allowed {allowed:?}")
    }
}

/// A write, discard or write-zeroes.
#[derive(Clone, Copy, Debug)]
struct Op {
    start: u64,
    end: Option<u64>,
    /// Whether the request failed. Then the write may have happened or not.
    failed: bool,
    /// The moment from which it must survive a crash.
    durable: bool,
    origin: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    op: u32,
    content: Content,
    /// The moment at which a read returned the content first.
    seen: Option<u64>,
}

#[derive(Clone, Debug)]
struct Sector {
    /// The contents that the sector may have held in the beginning or after the last crash.
    base: Vec<Content>,
    entries: Vec<Entry>,
    /// The moment at which the origin's server last lost something; 0 = never. What began before
    /// may be gone or not, and need not stay what a read found.
    lost_at: u64,
    /// Contents that a power cut may bring up after the daemon was killed, until the origin has
    /// been flushed.
    killed: Option<Vec<Content>>,
    /// All writes to this sector; they are kept only if that was asked for.
    past: Vec<Content>,
}

/// The history of all sectors.
#[derive(Clone, Debug)]
pub struct Oracle {
    origins: Vec<Vec<Sector>>,
    ops: Vec<Op>,
    now: u64,
    /// The moment at which the daemon was killed last.
    killed_at: u64,
    /// Acknowledged writes that no flush has covered.
    undurable: Vec<u32>,
    /// Starts of reads in flight. What they may still return is kept.
    reads: Vec<u64>,
    forgiving: bool,
    remembering: bool,
    distrusting: bool,
    fickle: bool,
    /// All that was written, where the origins are judged alone.
    pub(crate) history: Option<History>,
}

impl Oracle {
    /// An oracle for origins of these sizes in sectors. All their sectors hold write 0.
    #[must_use]
    pub fn new(sectors: &[u64]) -> Self {
        let fresh = Sector::fresh();
        Self {
            origins: sectors.iter().map(|&sectors| vec![fresh.clone(); sectors as usize]).collect(),
            ops: vec![Op { start: 0, end: Some(0), failed: false, durable: true, origin: usize::MAX }],
            now: 1,
            killed_at: 0,
            undurable: Vec::new(),
            reads: Vec::new(),
            forgiving: false,
            remembering: false,
            distrusting: false,
            fickle: false,
            history: None,
        }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Begins a write (its number is its stamp), a discard ([`Content::Any`]) or write-zeroes.
    /// Returns its number.
    pub fn begin_write(&mut self, origin: usize, sector: u64, sectors: u64, special: Option<Content>) -> u32 {
        let start = self.tick();
        let op = self.ops.len() as u32;
        self.ops.push(Op { start, end: None, failed: false, durable: false, origin });
        let content = special.unwrap_or(Content::Write(op));
        if let Some(history) = &mut self.history {
            history.begin(origin, sector, sectors, content, start);
        }
        let floor = self.reads.iter().copied().min().unwrap_or(start);
        for sector in sector..sector + sectors {
            let cell = &mut self.origins[origin][sector as usize];
            cell.forget(&self.ops, floor);
            if self.remembering {
                cell.past.push(content);
            }
            cell.entries.push(Entry { op, content, seen: None });
        }
        op
    }

    /// A write was answered. `durable`: it must survive a crash from now on.
    pub fn end_write(&mut self, op: u32, ok: bool, durable: bool) {
        let end = self.tick();
        let it = &mut self.ops[op as usize];
        (it.end, it.failed, it.durable) = (Some(end), !ok, ok && durable);
        if let Some(history) = self.history.as_mut().filter(|_| ok) {
            history.end(it.origin, op, durable, end);
        }
        if ok && !durable {
            self.undurable.push(op);
        }
    }

    /// Begins a FLUSH or a read. The number that is returned is given back at its end.
    pub fn begin_read(&mut self) -> u64 {
        let start = self.tick();
        self.reads.push(start);
        start
    }

    /// A FLUSH of this origin that began at `start` was acknowledged (`ok`) or failed.
    pub fn end_flush(&mut self, origin: usize, start: u64, ok: bool) {
        self.abandon_read(start);
        if !ok {
            if self.fickle {
                let ops = &self.ops;
                self.undurable.retain(|&op| ops[op as usize].origin != origin);
                self.killed_at = u64::MAX;
                if let Some(history) = &mut self.history {
                    history.forget_undurable(origin);
                }
            }
            return;
        }
        let now = self.tick();
        if let Some(history) = &mut self.history {
            history.flushed(origin, start, now);
        }
        let ops = &mut self.ops;
        self.undurable.retain(|&op| {
            let it = &mut ops[op as usize];
            it.durable |= it.origin == origin && it.end.is_some_and(|end| end < start);
            !it.durable
        });
        if start > self.killed_at {
            self.origins[origin].iter_mut().for_each(|cell| cell.killed = None);
        }
    }

    /// A read failed.
    pub fn abandon_read(&mut self, start: u64) {
        let nth = self.reads.iter().position(|it| *it == start).expect("a read that began");
        self.reads.swap_remove(nth);
    }

    /// A read that began at `start` returned these bytes.
    ///
    /// # Errors
    /// The first sector that can't be so.
    pub fn end_read(&mut self, origin: usize, sector: u64, start: u64, bytes: &[u8]) -> Result<(), Violation> {
        self.abandon_read(start);
        let now = self.tick();
        for (sector, bytes) in (sector..).zip(bytes.chunks_exact(SECTOR)) {
            let found = identify(origin, sector, bytes);
            let cell = &mut self.origins[origin][sector as usize];
            cell.read(&self.ops, start, now, found, self.forgiving).map_err(|allowed| Violation {
                origin,
                sector,
                found,
                allowed,
            })?;
        }
        Ok(())
    }

    /// A map that began at `start` says whether these sectors are a hole. A hole is judged as a
    /// read of zeroes.
    ///
    /// # Errors
    /// The first sector that can't be so.
    pub fn end_map(&mut self, origin: usize, sector: u64, start: u64, holes: &[bool]) -> Result<(), Violation> {
        self.abandon_read(start);
        let now = self.tick();
        for (sector, _) in (sector..).zip(holes).filter(|(_, hole)| **hole) {
            let (cell, found) = (&mut self.origins[origin][sector as usize], Content::Zero);
            let read = cell.read(&self.ops, start, now, found, self.forgiving);
            read.map_err(|allowed| Violation { origin, sector, found, allowed })?;
        }
        Ok(())
    }

    /// The contents that a sector may hold if it is read now and nothing is in flight.
    #[must_use]
    pub fn allowed(&self, origin: usize, sector: u64) -> Vec<Content> {
        self.origins[origin][sector as usize].allowed(&self.ops, self.now)
    }

    /// The server of an origin is gone, or its connection, and with it perhaps what no FLUSH had
    /// covered. Until a later write has ended a sector may hold that or what a crash would leave.
    pub fn lose(&mut self, origin: usize) {
        let (now, ops) = (self.tick(), &self.ops);
        self.undurable.retain(|&op| ops[op as usize].origin != origin);
        let floor = self.reads.iter().copied().min().unwrap_or(now);
        self.origins[origin].iter_mut().for_each(|cell| cell.lose(ops, floor, now));
        if let Some(history) = &mut self.history {
            history.lose(origin, now);
        }
    }

    /// From now on what the first read after a crash returned need not stay.
    pub fn forgive_time_travel(&mut self) {
        self.forgiving = true;
    }

    /// From now on origins drop what they fail to flush: once a FLUSH has failed, no later one
    /// makes sure of what came before it.
    pub fn expect_fickle_origins(&mut self) {
        self.fickle = true;
    }

    /// From now on all that is written is kept in mind, for [`Oracle::distrust`].
    pub fn remember(&mut self) {
        self.remembering = true;
    }

    /// The cache device lies: after the next crash a sector may hold anything that was ever written
    /// there, though never anything else.
    ///
    /// # Panics
    /// If nothing was kept in mind.
    pub fn distrust(&mut self) {
        assert!(self.remembering, "only what was remembered can be allowed");
        (self.distrusting, self.forgiving) = (true, true);
    }

    /// A block is reported as lost. What the origin has there is no promise any more.
    pub fn excuse(&mut self, origin: usize, block: u64) {
        let sectors = &mut self.origins[origin];
        let end = sectors.len().min(block as usize * 8 + 8);
        for cell in &mut sectors[block as usize * 8..end] {
            (cell.base, cell.killed, cell.entries) = (vec![Content::Any], None, Vec::new());
        }
    }

    /// A fresh origin comes in this place, behind all others or instead of one. All its sectors
    /// hold write 0.
    pub fn put_origin(&mut self, origin: usize, sectors: u64) {
        self.history = None;
        let fresh = Sector::fresh();
        let fresh = vec![fresh; sectors as usize];
        if origin < self.origins.len() {
            self.origins[origin] = fresh;
        } else {
            self.origins.push(fresh);
        }
    }

    /// An origin has these sectors now. Those that are new hold write 0.
    pub fn grow_origin(&mut self, origin: usize, sectors: u64) {
        self.history = None;
        let fresh = Sector::fresh();
        self.origins[origin].resize(sectors as usize, fresh);
    }

    /// What an origin lacks was given up: it may hold anything.
    pub fn excuse_origin(&mut self, origin: usize) {
        self.history = None;
        (0..self.origins[origin].len() as u64).step_by(8).for_each(|sector| self.excuse(origin, sector / 8));
    }

    /// The daemon has stopped cleanly: all that was acknowledged is durable.
    pub fn stop(&mut self) {
        for op in self.undurable.drain(..) {
            self.ops[op as usize].durable = true;
        }
        self.origins.iter_mut().flatten().for_each(|cell| cell.killed = None);
    }

    /// The daemon was killed. What it had in RAM is gone, as after a power cut. What the devices
    /// have in their volatile caches is there until the power is cut.
    pub fn kill(&mut self) {
        self.crash();
        self.origins.iter_mut().flatten().for_each(|cell| cell.killed = Some(cell.base.clone()));
        let now = self.tick();
        self.killed_at = self.killed_at.max(now);
    }

    /// The power was cut.
    pub fn crash(&mut self) {
        if let Some(history) = &mut self.history {
            history.crashed();
        }
        for cell in self.origins.iter_mut().flatten() {
            if let Some(killed) = cell.killed.take() {
                cell.base = killed;
            }
            if !cell.entries.is_empty() {
                cell.base = cell.survivors(&self.ops);
                cell.entries.clear();
            }
            if self.distrusting {
                cell.base.push(Content::Write(0));
                cell.base.extend_from_slice(&cell.past);
                cell.base.sort_unstable();
                cell.base.dedup();
            }
        }
        self.undurable.clear();
        self.reads.clear();
    }
}

impl Sector {
    /// A sector that holds write 0.
    fn fresh() -> Self {
        Self { base: vec![Content::Write(0)], entries: Vec::new(), lost_at: 0, killed: None, past: Vec::new() }
    }

    /// All that a read or a crash may bring up may be there from now on. Writes in flight are asked
    /// for again.
    fn lose(&mut self, ops: &[Op], floor: u64, now: u64) {
        if self.entries.is_empty() && self.killed.is_none() {
            return;
        }
        let mut all = self.survivors(ops);
        all.append(&mut self.allowed(ops, floor));
        all.extend(self.killed.iter().flatten());
        all.sort_unstable();
        all.dedup();
        self.base = all;
        self.entries.retain(|entry| ops[entry.op as usize].end.is_none());
        self.entries.iter_mut().for_each(|entry| entry.seen = None);
        self.killed = self.killed.take().map(|_| self.base.clone());
        self.lost_at = now;
    }

    /// Whether something that ended at `end` was certainly replaced before `moment`.
    fn replaced(&self, ops: &[Op], end: Option<u64>, moment: u64, durable: bool) -> bool {
        let Some(end) = end else { return false };
        self.entries.iter().any(|entry| {
            let op = &ops[entry.op as usize];
            let ended = if op.failed { entry.seen } else { entry.seen.into_iter().chain(op.end).min() };
            op.start > end && ended.is_some_and(|ended| ended <= moment) && (op.durable || !durable)
        })
    }

    fn end_of(&self, ops: &[Op], entry: &Entry) -> Option<u64> {
        entry.seen.into_iter().chain(ops[entry.op as usize].end).min()
    }

    fn allowed(&self, ops: &[Op], start: u64) -> Vec<Content> {
        let base = if self.replaced(ops, Some(self.lost_at), start, false) { &[][..] } else { &self.base[..] };
        let current = |entry: &&Entry| !self.replaced(ops, self.end_of(ops, entry), start, false);
        base.iter().copied().chain(self.entries.iter().filter(current).map(|entry| entry.content)).collect()
    }

    fn read(&mut self, ops: &[Op], start: u64, now: u64, found: Content, forgiving: bool) -> Result<(), Vec<Content>> {
        let allowed = self.allowed(ops, start);
        if allowed.contains(&Content::Any) {
            return Ok(());
        }
        if found == Content::Any || !allowed.contains(&found) {
            return Err(allowed);
        }
        // Zeroes may be of several writes: then nothing is learned.
        let mut entries = self.entries.iter_mut().filter(|entry| entry.content == found);
        match (self.base.contains(&found), entries.next()) {
            (true, None) if !forgiving && self.lost_at == 0 => self.base = vec![found],
            (false, Some(entry)) if entries.next().is_none() && ops[entry.op as usize].start > self.lost_at => {
                entry.seen = entry.seen.or(Some(now));
            }
            _ => {}
        }
        Ok(())
    }

    fn survivors(&self, ops: &[Op]) -> Vec<Content> {
        let base = if self.replaced(ops, Some(self.lost_at), u64::MAX, true) { &[][..] } else { &self.base[..] };
        let current = |entry: &&Entry| !self.replaced(ops, self.end_of(ops, entry), u64::MAX, true);
        let mut all: Vec<_> = base.to_vec();
        all.extend(self.entries.iter().filter(current).map(|entry| entry.content));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Drops what no read and no crash can bring up any more.
    fn forget(&mut self, ops: &[Op], floor: u64) {
        if self.entries.len() < 2 {
            return;
        }
        let gone = |end| self.replaced(ops, end, floor, true);
        let base_gone = gone(Some(self.lost_at));
        let keep: Vec<Entry> = self.entries.iter().filter(|entry| !gone(self.end_of(ops, entry))).copied().collect();
        self.entries = keep;
        if base_gone {
            self.base.clear();
            (self.killed, self.lost_at) = (None, 0);
        }
    }
}

#[cfg(test)]
mod tests;

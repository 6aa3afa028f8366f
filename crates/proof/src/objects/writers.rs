// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writers of a life: what each has written, what was acknowledged, and from whom it took over.

use std::collections::{BTreeMap, BTreeSet};

use flashfront_object::{Effect, Opening, Told, Trouble, Volume};

use super::content::{BLOCK_SECTORS, BLOCKS, Change, Content, sector, stamps};

/// From which state of which writer another one has taken over.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) parent: usize,
    /// Changes of the parent that are in it.
    pub(super) changes: usize,
    pub(super) content: Content,
}

/// What a writer waits for.
#[derive(Clone, Debug)]
pub(super) enum Waited {
    /// A flush after so many changes.
    Flush(usize),
    /// A read of some blocks, begun after so many changes.
    Read { block: usize, blocks: usize, changes: usize },
    /// A collection.
    Collect,
}

/// A writer.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) opening: Option<Opening>,
    pub(super) volume: Option<Box<Volume>>,
    /// The epoch in which it has opened the volume.
    pub(super) epoch: Option<u32>,
    /// Known from that moment.
    pub(super) base: Option<Base>,
    pub(super) changes: Vec<Change>,
    /// Changes that a flush was acknowledged for.
    pub(super) flushed: usize,
    pub(super) waited: BTreeMap<u64, Waited>,
    pub(super) tickets: u64,
    /// What lies between two flushes is in the bucket as a whole or not at all.
    pub(super) whole: bool,
    /// The changes before each flush that was asked for.
    pub(super) borders: BTreeSet<usize>,
    /// Nothing reaches it before this time.
    pub(super) paused_until: u64,
    /// The opening that it has looked at, and follows alone.
    pub(super) after: Option<u32>,
}

impl Writer {
    /// The first one: it has made an empty volume, and is gone.
    pub(super) fn maker() -> Self {
        Self { epoch: Some(1), base: Some(Base { parent: 0, changes: 0, content: vec![0; BLOCKS] }), ..Self::default() }
    }

    /// A writer that opens the volume.
    pub(super) fn opens(opening: Opening, whole: bool) -> Self {
        Self { opening: Some(opening), whole, ..Self::default() }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.opening.is_some() || self.volume.is_some()
    }

    /// What is known of this writer, without its volume.
    pub(super) fn record(&self) -> Self {
        Self {
            opening: None,
            volume: None,
            epoch: self.epoch,
            base: self.base.clone(),
            changes: self.changes.clone(),
            flushed: self.flushed,
            waited: BTreeMap::new(),
            tickets: self.tickets,
            whole: self.whole,
            borders: self.borders.clone(),
            paused_until: 0,
            after: self.after,
        }
    }

    pub(super) fn die(&mut self) {
        (self.opening, self.volume) = (None, None);
    }

    /// The volume, which is open.
    pub(super) fn open(&mut self) -> &mut Volume {
        self.volume.as_mut().expect("bug: the writer has no volume")
    }

    /// Writes one stamp to blocks that follow each other, 0 as zeroes. A volume that refuses the
    /// write is not written to.
    pub(super) fn write(&mut self, block: usize, blocks: usize, stamp: u64, fx: &mut Vec<Effect>) {
        let Some(volume) = &mut self.volume else { return };
        let change = Change::write(block, blocks, stamp);
        let start = sector(block);
        let written = match stamp {
            0 => volume.zero(start, blocks as u64 * BLOCK_SECTORS, fx),
            _ => volume.write(start, &change.bytes(), fx),
        };
        if written.is_ok() {
            self.changes.push(change);
        }
    }

    /// Waits for something. Returns the ticket.
    pub(super) fn wait(&mut self, waited: Waited) -> u64 {
        if let Waited::Flush(changes) = waited {
            self.borders.insert(changes);
        }
        self.tickets += 1;
        self.waited.insert(self.tickets, waited);
        self.tickets
    }

    /// What this writer waited for has ended. Returns whether a flush was acknowledged.
    /// `is_overtaken`: another writer has opened the volume. `is_harmed`: bytes are harmed on their
    /// way now and then.
    pub(super) fn told(
        &mut self,
        ticket: u64,
        result: Result<Told, Trouble>,
        is_overtaken: bool,
        is_harmed: bool,
    ) -> Result<bool, String> {
        let Some(waited) = self.waited.remove(&ticket) else { return Ok(false) };
        match (waited, result) {
            (Waited::Flush(changes), Ok(Told::Flushed(_))) => {
                self.flushed = self.flushed.max(changes);
                Ok(true)
            }
            (Waited::Read { block, blocks, changes }, Ok(Told::Read(bytes))) => {
                let found = stamps(&bytes).map_err(|what| format!("a read: {what}"))?;
                assert_eq!(found.len(), blocks);
                self.may_read(block, changes, &found).map_err(|what| format!("a read: {what}"))?;
                Ok(false)
            }
            (Waited::Collect, Ok(Told::Collected(_)) | Err(Trouble::Damaged { .. })) => Ok(false),
            // Bytes that are harmed on their way again and again.
            (Waited::Read { .. }, Err(Trouble::Damaged { what, .. })) if what.contains("checksum") && is_harmed => {
                Ok(false)
            }
            (_, Err(_)) if is_overtaken => Ok(false),
            (_, Err(trouble)) => Err(format!("nobody has overtaken it: {trouble}")),
            (waited, told) => Err(format!("it waits for {waited:?} and is told {told:?}")),
        }
    }

    /// Whether a read that began after so many changes may bring this.
    pub(super) fn may_read(&self, block: usize, changes: usize, found: &[u64]) -> Result<(), String> {
        let mut content = self.base.as_ref().map_or_else(|| vec![0; BLOCKS], |base| base.content.clone());
        self.changes[..changes].iter().for_each(|change| change.apply(&mut content));
        let mut may: Vec<Vec<u64>> = content[block..block + found.len()].iter().map(|it| vec![*it]).collect();
        for change in &self.changes[changes..] {
            change.apply(&mut content);
            may.iter_mut().zip(&content[block..]).for_each(|(may, now)| may.push(*now));
        }
        match found.iter().zip(&may).all(|(found, may)| may.contains(found)) {
            true => Ok(()),
            false => Err(format!("found {found:?}, and each may be one of {may:?}")),
        }
    }

    /// After how many changes the volume was in this state: the latest such moment, and none
    /// before the last acknowledged flush. Where flushes are whole, it is one at a flush.
    pub(super) fn moment_of(&self, wanted: &Content) -> Result<usize, String> {
        let base = self.base.as_ref().ok_or("its base is not known")?;
        let mut content = base.content.clone();
        let mut found = None;
        for (nth, change) in std::iter::once(None).chain(self.changes.iter().map(Some)).enumerate() {
            if let Some(change) = change {
                change.apply(&mut content);
            }
            let may_be = !self.whole || nth == 0 || self.borders.contains(&nth);
            if may_be && content == *wanted {
                found = Some(nth);
            }
        }
        let changes = self.changes.len();
        match found {
            Some(nth) if nth >= self.flushed => Ok(nth),
            Some(nth) => Err(format!("the state after {nth} of {changes} changes, and {} were flushed", self.flushed)),
            None => Err(format!("no state in which the volume was ({changes} changes, {} flushed)", self.flushed)),
        }
    }
}

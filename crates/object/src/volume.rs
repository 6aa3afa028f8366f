// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open volume: takes writes, flushes and reads, and answers of the store.
//!
//! A write is in RAM until its batch is an object, and a manifest names the object. Objects are
//! uploaded several at a time. A manifest names those before which there is no gap.

mod checkpoint;
mod checkpointing;
mod clone;
mod collect;
mod flush;
mod load;
mod publish;
mod read;
mod remove;
mod roll_back;
mod seal;
mod state;
mod walk;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::batch::{Head, Record};
use crate::effect::{Answer, Effect, Fault, Ticket, Token};
use crate::form::Keys;
use crate::loading::Loaded;
use crate::manifest::Manifest;
use crate::mode::Writer;
use crate::name::Key;
use crate::options::{Options, Unsent, Usage, WriteFault};
use crate::pages::PageRequest;
use crate::table::{Entry, Kind, Retired};
use crate::wire::SECTOR_BYTES;
use state::{For, State};

/// An open volume.
#[derive(Debug)]
pub struct Volume {
    state: State,
    /// Damaged manifests that were passed over, by their numbers.
    passed: BTreeMap<u64, String>,
}

impl Volume {
    pub(crate) fn new(loaded: Loaded, passed: BTreeMap<u64, String>, writer: Option<Writer>, options: Options) -> Self {
        Self { state: State::new(loaded, writer, options), passed }
    }

    /// Damaged manifests above the state that was opened, by their numbers, and what is wrong with
    /// them. What only they named is not in this state.
    #[must_use]
    pub const fn passed(&self) -> &BTreeMap<u64, String> {
        &self.passed
    }

    /// Takes the keys of an encrypted volume. Nothing can be written to it before.
    ///
    /// # Panics
    /// If something was written already.
    pub fn use_keys(&mut self, keys: Keys) {
        assert!(self.state.queue.is_empty() && self.state.open.is_none(), "bug: keys come before writes");
        self.state.use_keys(keys);
    }

    /// Says what is wrong with an extent of an object that was read as a whole. Its checksum may be
    /// wrong, or this volume's keys don't open it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge_extent(&self, head: &Head, record: &Record, object: &[u8]) -> Result<(), String> {
        let wrong = || format!("the extent at sector {} has a wrong checksum", record.start);
        let stored = head.payload_of(record, object).ok_or_else(wrong)?;
        self.state.former.content(head.is_framed, (record.start, record.sectors), stored).map(drop)
    }

    /// Writes whole sectors. No state of the store ever has half of a write.
    ///
    /// # Errors
    /// [`WriteFault`]. Nothing was written then.
    pub fn write(&mut self, start: u64, bytes: &[u8], fx: &mut Vec<Effect>) -> Result<(), WriteFault> {
        write::write(&mut self.state, start, bytes, fx)
    }

    /// Makes a range zeroes. It takes no space then.
    ///
    /// # Errors
    /// [`WriteFault`]. Nothing was written then.
    pub fn zero(&mut self, start: u64, sectors: u64, fx: &mut Vec<Effect>) -> Result<(), WriteFault> {
        write::zero(&mut self.state, start, sectors, fx)
    }

    /// Reads whole sectors. What was never written is zeroes.
    pub fn read(&mut self, ticket: Ticket, start: u64, sectors: u64, fx: &mut Vec<Effect>) {
        read::read(&mut self.state, ticket, vec![(start, sectors)], fx);
    }

    /// Reads ranges of whole sectors by as few requests as bring them. Their bytes follow each
    /// other, in the order of the ranges.
    pub fn read_ranges(&mut self, ticket: Ticket, ranges: Vec<(u64, u64)>, fx: &mut Vec<Effect>) {
        read::read(&mut self.state, ticket, ranges, fx);
    }

    /// Tells what has content from this sector on, as [`Told::Content`]: as large a part of the
    /// volume as the map in RAM allows. A part begins at 0, or where the part before has ended.
    ///
    /// # Panics
    /// If the part before was not told yet.
    pub fn walk(&mut self, ticket: Ticket, from: u64, fx: &mut Vec<Effect>) {
        walk::walk(&mut self.state, ticket, from, fx);
    }

    /// Flushes: tells when all writes so far are in a manifest.
    pub fn flush(&mut self, ticket: Ticket, fx: &mut Vec<Effect>) {
        flush::flush(&mut self.state, ticket, fx);
    }

    /// Tells when all writes so far are in a manifest, which somebody else's flush brings about.
    pub fn await_flush(&mut self, ticket: Ticket, fx: &mut Vec<Effect>) {
        flush::await_flush(&mut self.state, ticket, fx);
    }

    /// Whether something was written that no flush covers.
    #[must_use]
    pub fn is_unflushed(&self) -> bool {
        flush::is_unflushed(&self.state)
    }

    /// Flushes, and creates a manifest even if nothing is new.
    pub fn publish(&mut self, ticket: Ticket, fx: &mut Vec<Effect>) {
        flush::publish(&mut self.state, ticket, fx);
    }

    /// Writes a checkpoint soon.
    pub fn checkpoint(&mut self, fx: &mut Vec<Effect>) {
        flush::checkpoint(&mut self.state, false, fx);
    }

    /// Writes a checkpoint soon that puts all changes into their pages. After it the books know
    /// which objects nobody needs, and an opening reads the least. One that is under way is not
    /// changed: wait for room, and flush before.
    pub fn checkpoint_whole(&mut self, fx: &mut Vec<Effect>) {
        flush::checkpoint(&mut self.state, true, fx);
    }

    /// Notes whether a cache holds writes that never came here. The last manifest says so.
    pub const fn owe(&mut self, owes: bool) {
        self.state.owes = owes;
    }

    /// Writes a checkpoint and a last manifest, which says that no writer has the volume open.
    pub fn close(&mut self, ticket: Ticket, fx: &mut Vec<Effect>) {
        flush::close(&mut self.state, ticket, fx);
    }

    /// Moves what is live of the object with the least, if that is less than so many percent.
    pub fn collect(&mut self, ticket: Ticket, live_percent: u64, fx: &mut Vec<Effect>) {
        collect::collect(&mut self.state, ticket, live_percent, fx);
    }

    /// Puts the state of an older manifest, which was opened to be read, in place of this one.
    /// Tells when a manifest has it.
    ///
    /// # Panics
    /// If there are writes that were not flushed, or a checkpoint since the last flush.
    pub fn roll_back(&mut self, older: Self, ticket: Ticket, fx: &mut Vec<Effect>) {
        roll_back::roll_back(&mut self.state, older.state, ticket, fx);
    }

    /// Lets a volume that was opened to be read become a clone of itself, at another place. Tells
    /// when the clone's first manifest is there. `source` is the prefix of this volume. The store
    /// is from now on that of the clone.
    ///
    /// # Panics
    /// If the volume was opened to be written, or waits for the store.
    pub fn become_clone(
        &mut self,
        source: &Arc<str>,
        volume: [u8; 16],
        writer: Writer,
        ticket: Ticket,
        fx: &mut Vec<Effect>,
    ) {
        clone::become_clone(&mut self.state, source, volume, writer, ticket, fx);
    }

    /// Takes an answer.
    pub fn done(&mut self, token: Token, answer: Result<Answer, Fault>, fx: &mut Vec<Effect>) {
        let state = &mut self.state;
        let Some((what, effect)) = state.asked.remove(&token) else { return };
        let changes = !matches!(what, For::Read(..) | For::Pages(..) | For::Collect);
        if changes && state.fenced.is_some() {
            return;
        }
        if let Err(Fault::Away(_) | Fault::Refused(_)) = answer {
            let effect = effect.again();
            fx.push(effect.clone());
            state.asked.insert(token, (what, effect));
            return;
        }
        match what {
            For::Upload(position) => publish::uploaded(state, position, fx),
            For::Publish => publish::published(state, answer, fx),
            For::Confirm => publish::confirmed(state, answer, fx),
            For::Read(reading, parts) => read::part_read(state, reading, parts, answer, fx),
            For::Pages(pages) => {
                let missed = load::fetched(state, &pages, &answer);
                read::go_on(state, &missed, fx);
                collect::go_on(state, &missed, fx);
                checkpoint::go_on(state, &missed, fx);
                walk::go_on(state, &missed, fx);
                publish::go_on(state, fx);
                load::evict(state);
            }
            For::Collect => collect::collected(state, answer, fx),
            For::Wish => remove::wish_read(state, answer, fx),
            For::Delete(key) => remove::deleted(state, &key, fx),
        }
    }

    /// The newest manifest that this writer has created, or that was opened.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.state.manifest
    }

    /// By whom the volume was taken over, if it was.
    #[must_use]
    pub fn fenced(&self) -> Option<&str> {
        self.state.fenced.as_deref()
    }

    /// Whether there is room for more writes. A caller that has them should wait if not.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let queued = self.state.queue.iter().filter(|it| !it.is_there()).count();
        // A fenced volume has room: it refuses the next write, and says why.
        let has_room = self.state.checkpointing.is_none() && queued <= self.state.options.uploads;
        has_room || self.state.fenced.is_some()
    }

    /// What the store does not have yet.
    #[must_use]
    pub fn unsent(&self) -> Unsent {
        let queued: u64 = self.state.queue.iter().map(|it| it.bytes).sum();
        let (oldest, queue) = (self.state.popped, self.state.queue.len() as u64);
        Unsent { bytes: queued + self.state.batch.bytes() as u64, oldest, open: oldest + queue }
    }

    /// Whether requests to the store are under way that change something.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.state.queue.is_empty()
            || self.state.publishing.is_some()
            || self.state.checkpointing.is_some()
            || self.state.is_probing
            || self.state.deleting > 0
    }

    /// How much it holds.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut usage = Usage { extents: self.state.map.extents() as u64, ..Usage::default() };
        for (_, entry) in self.state.table.entries() {
            usage.objects += 1;
            usage.content_bytes += if entry.kind == Kind::Data { entry.live * SECTOR_BYTES } else { 0 };
            usage.live_bytes += entry.live_bytes();
            usage.dead_bytes += entry.bytes.saturating_sub(entry.live_bytes() + u64::from(entry.head));
        }
        usage.dead_bytes += self.state.table.retired().iter().map(|it| it.entry.bytes).sum::<u64>();
        usage
    }

    /// The objects in use.
    pub fn objects(&self) -> impl Iterator<Item = &Entry> {
        self.state.table.entries().map(|(_, entry)| entry)
    }

    /// The objects that are not in use any more and not deleted.
    #[must_use]
    pub fn retired(&self) -> &[Retired] {
        self.state.table.retired()
    }

    /// The requests that bring pages of the map that are in the store alone. `is_wanted` sees the
    /// object of each page, and its place there.
    #[must_use]
    pub fn page_requests(&self, is_wanted: impl FnMut(&Key, u64) -> bool) -> Vec<PageRequest> {
        PageRequest::all(&self.state.table, self.state.map.places_in_store(), is_wanted)
    }

    /// Says what is wrong with each page that a request has brought.
    #[must_use]
    pub fn judge_pages(&self, request: &PageRequest, bytes: &[u8]) -> Vec<String> {
        request.judge(&self.state.table, bytes)
    }

    /// Cuts a range into parts with and without content: sectors, and whether there may be content.
    /// A range whose page of the map is not in RAM may have some.
    pub fn parts(&mut self, start: u64, sectors: u64) -> Vec<(u64, bool)> {
        if !self.state.map.missing(start, sectors).is_empty() {
            return vec![(sectors, true)];
        }
        let pieces = self.state.map.pieces(start, sectors).into_iter();
        pieces.map(|it| (it.sectors, it.extent.is_some())).collect()
    }
}

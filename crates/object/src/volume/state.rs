// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an open volume knows. The files beside this one change it, each by a verb.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::checkpointing::Checkpointing;
use crate::batch::{Batch, Head};
use crate::effect::{Effect, Ticket, Token, Trouble};
use crate::extent::Extent;
use crate::form::{Former, Keys};
use crate::loading::Loaded;
use crate::manifest::{CheckpointRef, Manifest};
use crate::map::{Map, Piece};
use crate::mode::Writer;
use crate::name::{Key, Stamp};
use crate::options::Options;
use crate::place::PagePlace;
use crate::recent::Recent;
use crate::table::Table;

/// A sealed object on its way.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) what: What,
    /// Number of the object in the table.
    pub(super) object: u32,
    pub(super) stamp: Stamp,
    pub(super) born: u64,
    pub(super) head: u32,
    /// Empty once it is there: nobody keeps in RAM what the store has.
    pub(super) body: Arc<Vec<u8>>,
    /// Bytes of the body.
    pub(super) bytes: u64,
    pub(super) stage: Stage,
}

impl Upload {
    /// Whether the store has it.
    pub(super) fn is_there(&self) -> bool {
        self.stage == Stage::There
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Data,
    /// Pages of a checkpoint whose root comes later.
    Pages,
    /// The root of a checkpoint, behind the last pages.
    Map(CheckpointRef),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    UnderWay,
    There,
}

/// What an answer is for.
#[derive(Clone, Debug)]
pub(super) enum For {
    /// The upload of this position.
    Upload(u64),
    /// The manifest.
    Publish,
    /// The manifest that has its number.
    Confirm,
    /// Stored extents of a read.
    Read(u64, Vec<Part>),
    /// Pages of the map, which lie beside each other.
    Pages(Vec<(u64, PagePlace)>),
    /// A whole object, to be moved.
    Collect,
    /// The next wish.
    Wish,
    /// An object that is deleted.
    Delete(Key),
}

/// Somebody waits until all before it is in a manifest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flush {
    pub(super) ticket: Ticket,
    /// Sealed objects before it; `u64::MAX`: those before the end of the checkpoint under way.
    pub(super) upto: u64,
    /// A manifest after this one is wanted, even if nothing is new.
    pub(super) after: u64,
    /// A manifest may end here. Else it waits for one that ends here or behind it.
    pub(super) is_border: bool,
}

/// A manifest on its way.
#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) manifest: Manifest,
    pub(super) body: Arc<Vec<u8>>,
    /// Objects of the queue that it names.
    pub(super) covers: usize,
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) ticket: Ticket,
    /// First sector and sectors of what is read.
    pub(super) ranges: Vec<(u64, u64)>,
    /// The content of the ranges, one after the other.
    pub(super) bytes: Vec<u8>,
    /// Requests without an answer.
    pub(super) left: usize,
    pub(super) retries: u32,
    /// What went wrong with one of them.
    pub(super) wrong: Option<Trouble>,
}

/// A read that waits for pages of the map.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) reading: Reading,
    /// Its pages, of which some are on their way.
    pub(super) pages: Vec<u64>,
}

/// Somebody wants to know what has content, part by part, and waits for pages of the map.
#[derive(Debug)]
pub(super) struct Walking {
    pub(super) ticket: Ticket,
    /// The part: these pages.
    pub(super) part: Range<u64>,
    /// Its pages, while some of them are on their way.
    pub(super) pages: Vec<u64>,
    pub(super) retries: u32,
}

/// An object whose live extents are being moved.
#[derive(Debug)]
pub(super) struct Collecting {
    pub(super) ticket: Ticket,
    /// Number of the object in the table.
    pub(super) object: u32,
    pub(super) fetched: Option<(Head, Vec<u8>)>,
    /// Records of its head that are done with.
    pub(super) done: usize,
    /// Bytes that were moved.
    pub(super) moved: u64,
    /// Pages of the map that it waits for.
    pub(super) pages: Vec<u64>,
}

/// A piece of a read that the store has.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) piece: Piece,
    pub(super) extent: Extent,
    /// Where the piece begins in the bytes of the read.
    pub(super) to: usize,
}

/// What an open volume knows.
#[derive(Debug)]
pub(super) struct State {
    pub(super) options: Options,
    pub(super) writer: Option<Writer>,
    pub(super) fenced: Option<String>,
    /// The newest manifest that is this writer's.
    pub(super) manifest: Manifest,
    /// The number of the next one.
    pub(super) next: u64,
    pub(super) map: Map,
    pub(super) table: Table,
    pub(super) former: Former,
    pub(super) batch: Batch,
    /// The object that the batch will be.
    pub(super) open: Option<(u32, Stamp, u64)>,
    pub(super) sequence: u64,
    /// Sealed objects that no manifest names.
    pub(super) queue: VecDeque<Upload>,
    /// Sealed objects before those in the queue.
    pub(super) popped: u64,
    pub(super) publishing: Option<Publishing>,
    pub(super) flushes: VecDeque<Flush>,
    pub(super) wants_checkpoint: bool,
    /// The one that is wanted leaves no changes beside pages.
    pub(super) is_checkpoint_whole: bool,
    pub(super) checkpointing: Option<Checkpointing>,
    /// Flushes wait for the checkpoint that is wanted or being made.
    pub(super) is_checkpoint_awaited: bool,
    pub(super) is_closing: bool,
    /// A cache holds writes that never came here.
    pub(super) owes: bool,
    pub(super) readings: BTreeMap<u64, Reading>,
    /// Reads that wait for pages.
    pub(super) parked: Vec<Parked>,
    pub(super) walking: Option<Walking>,
    /// Pages that are on their way.
    pub(super) fetching: BTreeSet<u64>,
    pub(super) recent: Recent,
    pub(super) collecting: Option<Collecting>,
    /// Objects from which all was moved. The books learn of it when their pages are stored.
    pub(super) moved: BTreeSet<u32>,
    /// Objects that could not be moved, until the next checkpoint.
    pub(super) put_off: BTreeSet<u32>,
    /// The next wish is being looked for.
    pub(super) is_probing: bool,
    pub(super) deleting: usize,
    /// Numbers of the manifests that this opening has created, but for its first.
    pub(super) own: VecDeque<u64>,
    pub(super) asked: BTreeMap<Token, (For, Effect)>,
    pub(super) tokens: Token,
}

impl State {
    pub(super) fn new(loaded: Loaded, writer: Option<Writer>, options: Options) -> Self {
        let Loaded { manifest, map, table, tokens } = loaded;
        let former = Former::new(manifest.form, Keys::default(), opening_of(writer.as_ref()));
        Self {
            options,
            writer,
            fenced: None,
            next: manifest.number + 1,
            sequence: manifest.sequence,
            manifest,
            map,
            table,
            former,
            batch: Batch::default(),
            open: None,
            queue: VecDeque::new(),
            popped: 0,
            publishing: None,
            flushes: VecDeque::new(),
            wants_checkpoint: false,
            is_checkpoint_whole: false,
            checkpointing: None,
            is_checkpoint_awaited: false,
            is_closing: false,
            owes: false,
            readings: BTreeMap::new(),
            parked: Vec::new(),
            walking: None,
            fetching: BTreeSet::new(),
            recent: Recent::new(options.recent_bytes),
            collecting: None,
            moved: BTreeSet::new(),
            put_off: BTreeSet::new(),
            is_probing: false,
            deleting: 0,
            own: VecDeque::new(),
            asked: BTreeMap::new(),
            tokens,
        }
    }

    /// Takes keys. New extents are encrypted with the first one, if the volume is encrypted.
    pub(super) fn use_keys(&mut self, keys: Keys) {
        let form = &mut self.manifest.form;
        if self.writer.is_some() && form.key.is_some() {
            form.key = keys.first().or(form.key);
        }
        self.former = Former::new(*form, keys, opening_of(self.writer.as_ref()));
    }

    /// Asks the store for something.
    pub(super) fn ask(&mut self, what: For, make: impl FnOnce(Token) -> Effect, fx: &mut Vec<Effect>) {
        let token = self.tokens;
        self.tokens += 1;
        let effect = make(token);
        fx.push(effect.clone());
        self.asked.insert(token, (what, effect));
    }

    /// Another writer has the volume. From now on nothing is changed.
    pub(super) fn fence(&mut self, by: String, fx: &mut Vec<Effect>) {
        for flush in std::mem::take(&mut self.flushes) {
            fx.push(Effect::Told { ticket: flush.ticket, result: Err(Trouble::Fenced(by.clone())) });
        }
        self.publishing = None;
        self.is_probing = false;
        self.deleting = 0;
        self.fenced = Some(by);
    }

    /// A number that no object has had.
    pub(super) fn next_stamp(&mut self) -> Stamp {
        self.sequence += 1;
        Stamp { epoch: self.manifest.epoch, sequence: self.sequence }
    }
}

fn opening_of(writer: Option<&Writer>) -> [u8; 16] {
    writer.map_or([0; 16], |writer| writer.id)
}

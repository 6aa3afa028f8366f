// SPDX-License-Identifier: MIT OR Apache-2.0
//! This is the target until Linux 4.11.
//!
//! - A promotion reads the block from the origin, writes it to the cache device, and commits the
//!   metadata. Until then requests for the block wait, and so does the request that caused it. A
//!   write of a whole block saves the copy. If another block has to leave, that is committed first,
//!   too.
//! - Nothing is promoted while as much is being copied as `migration_threshold` says.
//! - A dirty block is copied back as a whole when the policy wants it and that threshold leaves
//!   room. Requests for the block wait until the copy is over.
//! - One thread does the commits and all bookkeeping. During a commit no copy is begun or finished,
//!   and nothing is promoted. Hits and misses go on.

use hashbrown::HashMap;

use super::part::{PAGE, Part, last_of, look_up};
use super::setup::{COMMIT_NS, Setup};
use crate::rival::rig::{Io, Rig, Rival, SECOND_NS, Stats};
use crate::rival::spec::Geometry;
use crate::system::{Ask, System, SystemRequest};

/// Blocks of metadata of 4 KiB that each commit writes, and those for each block that came or went.
/// One change writes 6 blocks, as the log has it (24 KiB). The division between the two is a guess.
const COMMIT_BLOCKS: u64 = 4;
const CHANGE_BLOCKS: u64 = 2;

/// A policy's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The block is cached there.
    Hit(u32),
    /// The block is not cached, and stays so.
    Miss,
    /// The block shall be cached there. Perhaps another block leaves that place.
    Promote { place: u32, demotes: bool },
    /// The block would perhaps be promoted, but that can't be begun now. Nothing was noted.
    Later,
}

/// Whether a promotion could be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chance {
    Now,
    /// The thread is at work. The request is asked again when it is not.
    Later,
    /// Too much is being copied.
    Never,
}

/// A policy says which blocks are cached, and which are copied back. Blocks are numbered as on the
/// origin, places as on the cache device.
pub(super) trait Policy {
    /// A request for a block. With `whole` it overwrites all of the block.
    fn ask(&mut self, now_ns: u64, block: u64, write: bool, whole: bool, chance: Chance) -> Verdict;

    /// A cached block was written.
    fn dirtied(&mut self, block: u64);

    /// Returns a dirty block to copy back, which counts as clean from now on. `idle` says that
    /// there was no request for a second.
    fn next_writeback(&mut self, idle: bool) -> Option<(u64, u32)>;

    /// A chosen request is over, and the next one will be chosen.
    fn tick(&mut self, now_ns: u64);

    /// Blocks that are dirty.
    fn dirty(&self) -> u64;
}

/// What an I/O was done for, or a moment awaited.
#[derive(Clone, Copy, Debug)]
enum Tag {
    /// A request was looked up.
    Start(Part),
    /// The I/O of a part is over.
    Served(Part),
    /// Copies: read from the origin and written to the cache device, or the other way round.
    Read(u64, u32),
    Promoted(u64),
    ReadBack(u64),
    WrittenBack(u64),
    /// A commit: its blocks, flush, superblock, flush, and the rest.
    Block,
    Flushed,
    Superblock,
    FlushedAgain,
    Committed,
    /// A device was flushed, for a FLUSH of a client.
    Durable(u64),
    /// Perhaps a second has gone by without requests.
    Idle,
}

/// Something that awaits a commit.
#[derive(Clone, Copy)]
enum Change {
    /// The block at this place has left; the new one may be copied.
    Gone(u64, u32),
    /// This block has come.
    Here(u64),
    /// A client's FLUSH.
    Flush(u64),
}

struct DmCache<P> {
    setup: Setup,
    policy: P,
    /// Blocks that are being copied, and the requests that wait for them.
    busy: HashMap<u64, Vec<Part>>,
    /// Requests that wait for the thread.
    deferred: Vec<Part>,
    /// Blocks whose copies back are over. The thread has yet to note them.
    written_back: Vec<u64>,
    /// What awaits the next commit, and what awaits the commit that is running.
    changes: Vec<Change>,
    committing: Vec<Change>,
    is_committing: bool,
    blocks_left: u64,
    metadata_at: u64,
    /// The number of blocks being copied back, and of all being copied.
    writing_back: u64,
    copying: u64,
    /// The number of parts left, of requests that have several.
    parts: HashMap<u64, u32>,
    /// The number of devices that each FLUSH waits for.
    flushing: HashMap<u64, u32>,
    /// The last request's number and time, and the first request that can make the next tick of the
    /// policy.
    last_number: u64,
    last_request_ns: u64,
    ticking: u64,
    awaits_idleness: bool,
    stats: Stats,
}

pub(super) fn build<P: Policy + 'static>(
    geometry: &Geometry,
    setup: &Setup,
    policy: impl FnOnce(usize, u64) -> P,
) -> Box<dyn System> {
    let places = setup.places(geometry);
    let target = DmCache {
        setup: *setup,
        policy: policy(places as usize, geometry.origin_bytes / setup.block_bytes),
        busy: HashMap::new(),
        deferred: Vec::new(),
        written_back: Vec::new(),
        changes: Vec::new(),
        committing: Vec::new(),
        is_committing: false,
        blocks_left: 0,
        metadata_at: 0,
        writing_back: 0,
        copying: 0,
        parts: HashMap::new(),
        flushing: HashMap::new(),
        last_number: 0,
        last_request_ns: 0,
        ticking: 0,
        awaits_idleness: false,
        stats: Stats::default(),
    };
    Box::new(Rig::new(geometry, target, |_, _| ()))
}

impl<P: Policy> DmCache<P> {
    fn may_copy(&self) -> bool {
        (self.copying + 1) * self.setup.block_bytes <= self.setup.migration_threshold_bytes
    }

    fn start(&mut self, part: Part, io: &mut Io<Tag>) {
        if let Some(waiting) = self.busy.get_mut(&part.block) {
            waiting.push(part);
            return;
        }
        let chance = match (self.is_committing, self.may_copy()) {
            (_, false) => Chance::Never,
            (true, true) => Chance::Later,
            (false, true) => Chance::Now,
        };
        let whole = part.len == self.setup.block_bytes;
        let verdict = self.policy.ask(io.now().0, part.block, part.write, whole, chance);
        match verdict {
            Verdict::Hit(place) => {
                let at = self.setup.place_at(place) + part.at;
                if part.write {
                    self.policy.dirtied(part.block);
                    io.write_cache(at, part.len, Tag::Served(part));
                } else {
                    self.stats.read_hit_blocks += part.len / PAGE;
                    io.read_cache(at, part.len, Tag::Served(part));
                }
            }
            Verdict::Miss => self.pass(part, io),
            Verdict::Promote { place, demotes } => {
                let overwrites = part.write && whole;
                self.busy.insert(part.block, vec![part]);
                self.copying += 1;
                match (demotes, overwrites) {
                    (true, _) => self.changes.push(Change::Gone(part.block, place)),
                    (false, true) => self.changes.push(Change::Here(part.block)),
                    (false, false) => self.copy(part.block, place, io),
                }
            }
            Verdict::Later => self.deferred.push(part),
        }
    }

    /// Serves a part past the cache.
    fn pass(&self, part: Part, io: &mut Io<Tag>) {
        let offset = part.block * self.setup.block_bytes + part.at;
        if part.write {
            io.write_origin(offset, part.len, Tag::Served(part));
        } else {
            io.read_origin(offset, part.len, Tag::Served(part));
        }
    }

    fn copy(&self, block: u64, place: u32, io: &mut Io<Tag>) {
        io.read_origin(block * self.setup.block_bytes, self.setup.block_bytes, Tag::Read(block, place));
    }

    /// Does what the thread does whenever it is woken.
    fn work(&mut self, io: &mut Io<Tag>) {
        if self.is_committing {
            return;
        }
        for block in std::mem::take(&mut self.written_back) {
            self.writing_back -= 1;
            self.release(block, io);
        }
        for part in std::mem::take(&mut self.deferred) {
            self.start(part, io);
        }
        let idle = io.now().0 - self.last_request_ns >= SECOND_NS;
        while self.may_copy()
            && let Some((block, place)) = self.policy.next_writeback(idle)
        {
            self.busy.insert(block, Vec::new());
            (self.writing_back, self.copying) = (self.writing_back + 1, self.copying + 1);
            io.read_cache(self.setup.place_at(place), self.setup.block_bytes, Tag::ReadBack(block));
        }
        if !self.changes.is_empty() && !self.is_committing {
            self.commit(io);
        }
        if self.policy.dirty() > 0 && !self.awaits_idleness {
            self.awaits_idleness = true;
            io.after(SECOND_NS, Tag::Idle);
        }
    }

    /// A copy is over. The requests that waited go on.
    fn release(&mut self, block: u64, io: &mut Io<Tag>) {
        self.copying -= 1;
        for part in self.busy.remove(&block).expect("a block that is copied is busy") {
            self.start(part, io);
        }
    }

    fn commit(&mut self, io: &mut Io<Tag>) {
        self.committing = std::mem::take(&mut self.changes);
        self.is_committing = true;
        let changes = self.committing.iter().filter(|change| !matches!(change, Change::Flush(_))).count() as u64;
        // One of the blocks is the superblock, which comes last.
        self.blocks_left = COMMIT_BLOCKS + CHANGE_BLOCKS * changes - 1;
        for _ in 0..self.blocks_left {
            // Metadata is copied on write: no block goes where the last one was.
            self.metadata_at = (self.metadata_at + 2 * PAGE) % (self.setup.metadata_bytes - PAGE);
            io.write_cache(PAGE + self.metadata_at, PAGE, Tag::Block);
        }
    }

    fn committed(&mut self, io: &mut Io<Tag>) {
        self.is_committing = false;
        for change in std::mem::take(&mut self.committing) {
            match change {
                Change::Gone(block, place) => {
                    let overwrites = self.busy.get(&block).and_then(|waiting| waiting.first());
                    if overwrites.is_some_and(|part| part.write && part.len == self.setup.block_bytes) {
                        self.changes.push(Change::Here(block));
                    } else {
                        self.copy(block, place, io);
                    }
                }
                Change::Here(block) => self.release(block, io),
                Change::Flush(number) => {
                    self.flushing.insert(number, 2);
                    io.flush_cache(Tag::Durable(number));
                    io.flush_origin(Tag::Durable(number));
                }
            }
        }
        self.work(io);
    }

    fn served(&mut self, part: Part, io: &mut Io<Tag>) {
        if part.alone || last_of(&mut self.parts, part.number) {
            io.answer(part.number);
            if part.number >= self.ticking {
                self.ticking = self.last_number + 1;
                self.policy.tick(io.now().0);
            }
        }
        if part.write {
            self.work(io);
        }
    }
}

impl<P: Policy> Rival for DmCache<P> {
    type Tag = Tag;

    fn submit(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        let SystemRequest { number, ask, len, .. } = request;
        (self.last_number, self.last_request_ns) = (number, io.now().0);
        if ask == Ask::Flush {
            self.changes.push(Change::Flush(number));
            self.work(io);
            return;
        }
        if ask == Ask::Read {
            self.stats.read_blocks += len / PAGE;
        }
        look_up(&request, self.setup.block_bytes, &mut self.parts, io, Tag::Start);
    }

    fn done(&mut self, tag: Tag, io: &mut Io<Tag>) {
        match tag {
            Tag::Start(part) => {
                self.start(part, io);
                self.work(io);
            }
            Tag::Served(part) => self.served(part, io),
            Tag::Read(block, place) => {
                io.write_cache(self.setup.place_at(place), self.setup.block_bytes, Tag::Promoted(block));
            }
            Tag::Promoted(block) => {
                self.changes.push(Change::Here(block));
                self.work(io);
            }
            Tag::ReadBack(block) => {
                io.write_origin(block * self.setup.block_bytes, self.setup.block_bytes, Tag::WrittenBack(block));
            }
            Tag::WrittenBack(block) => {
                self.written_back.push(block);
                self.work(io);
            }
            Tag::Block => {
                self.blocks_left -= 1;
                if self.blocks_left == 0 {
                    io.flush_cache(Tag::Flushed);
                }
            }
            Tag::Flushed => io.write_cache(0, PAGE, Tag::Superblock),
            Tag::Superblock => io.flush_cache(Tag::FlushedAgain),
            Tag::FlushedAgain => io.after(COMMIT_NS, Tag::Committed),
            Tag::Committed => self.committed(io),
            Tag::Durable(number) => {
                if last_of(&mut self.flushing, number) {
                    io.answer(number);
                }
            }
            Tag::Idle => {
                self.awaits_idleness = false;
                self.work(io);
            }
        }
    }

    fn stats(&self) -> Stats {
        let dirty_bytes = (self.policy.dirty() + self.writing_back) * self.setup.block_bytes;
        Stats { dirty_bytes, ..self.stats }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! This is the target since Linux 4.12 (`dm-cache-target.c`, `dm-bio-prison-v2.c`).
//!
//! - A request is looked up at once and goes to the cache device or the origin. The policy may want
//!   a block promoted, demoted or copied back. That work begins behind the request, however much is
//!   being copied: `migration_threshold` counts only for copying back when idle.
//! - Such work first locks the block against writes. It waits until no request is at the block; the
//!   request that caused a promotion counts, too. During the copy reads go on where they went
//!   before. Then reads are locked out as well. Once none is at the block any more, the mapping
//!   changes.
//! - A write of a whole block that shall be promoted is the copy itself. The block is locked
//!   against all other requests.
//! - A promotion is not committed. A demotion is: only then is its place free. While a commit runs,
//!   no mapping changes.
//! - A request that finds its block locked waits. It lets a commit begin as soon as something
//!   awaits one. Each second does so, too.
//! - After a second without requests, dirty blocks are copied back.
//! - A FLUSH commits, then flushes both devices.

use hashbrown::HashMap;

use super::part::{PAGE, Part, last_of, look_up};
use super::setup::{COMMIT_NS, Setup};
use super::smq::{Kind, Smq, Work};
use crate::rival::rig::{Io, Rig, Rival, SECOND_NS, Stats};
use crate::rival::spec::Geometry;
use crate::system::{Ask, System, SystemRequest};

/// Mappings in a block of the metadata. Each has 8 bytes, behind a header of 24.
const MAPPINGS_PER_BLOCK: u64 = (PAGE - 24) / 8;
/// Blocks of metadata that each commit writes beside those with changed mappings: the superblock,
/// the root of their tree, the space map. Measured with Linux 6.1 in a virtual machine, whose cache
/// has ten blocks of mappings. 960 commits of 2.8 changes each wrote 5.3 blocks, and 245 of 2.0
/// wrote 5.4.
const COMMIT_BLOCKS: u64 = 3;

/// What an I/O was done for, or a moment awaited.
#[derive(Clone, Copy)]
pub(super) enum Tag {
    /// A request was looked up.
    Start(Part),
    /// The I/O of a part is over. If the flag is set it makes a tick.
    Served(Part, bool),
    /// The steps of a copy: its source was read; the copy is over.
    Read(Task),
    Copied(Task),
    /// A commit: its blocks, flush, superblock, flush, and the rest.
    Block,
    Flushed,
    Superblock,
    FlushedAgain,
    Committed,
    /// A device was flushed, for a FLUSH of a client.
    Durable(u64),
    Second,
}

/// Work in progress.
#[derive(Clone, Copy)]
pub(super) struct Task {
    work: Work,
    /// The write of a whole block, if it is the copy.
    overwrite: Option<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    Writes,
    All,
}

/// What a task does once no request is at the block any more.
#[derive(Clone, Copy)]
enum Step {
    Copy,
    Change,
}

/// A block that is in use.
#[derive(Default)]
struct Cell {
    /// Requests that are at the block.
    users: u32,
    lock: Option<Lock>,
    next: Option<(Step, Task)>,
    waiting: Vec<Part>,
}

/// Something that awaits a commit.
#[derive(Clone, Copy)]
enum Awaiting {
    Demotion(Task),
    Flush(u64),
}

struct Target {
    setup: Setup,
    policy: Smq,
    cells: HashMap<u64, Cell>,
    /// Copies under way. A client's write that is the copy doesn't count.
    copying: u64,
    commit: Commit,
    /// Tasks that change a mapping after the commit.
    held: Vec<Task>,
    /// The number of parts left, of requests that have several.
    parts: HashMap<u64, u32>,
    /// The number of devices that each FLUSH waits for.
    flushing: HashMap<u64, u32>,
    /// Whether a request that makes the next tick of the policy is under way.
    awaits_tick: bool,
    in_flight: u64,
    idle_since_ns: u64,
    stats: Stats,
}

#[derive(Default)]
struct Commit {
    /// What awaits the next commit, and what awaits the commit that is running.
    awaiting: Vec<Awaiting>,
    served: Vec<Awaiting>,
    is_running: bool,
    /// Whether a commit shall begin as soon as something awaits it.
    is_due: bool,
    /// Mappings changed since the last commit.
    changes: u64,
    blocks_left: u64,
    metadata_at: u64,
}

pub(super) fn build(geometry: &Geometry, setup: &Setup) -> Box<dyn System> {
    let places = setup.places(geometry);
    let target = Target {
        setup: *setup,
        policy: Smq::new(places as usize, geometry.origin_bytes / setup.block_bytes),
        cells: HashMap::new(),
        copying: 0,
        commit: Commit::default(),
        held: Vec::new(),
        parts: HashMap::new(),
        flushing: HashMap::new(),
        awaits_tick: false,
        in_flight: 0,
        idle_since_ns: 0,
        stats: Stats::default(),
    };
    Box::new(Rig::new(geometry, target, |target, io| target.second(io)))
}

impl Target {
    fn cell(&mut self, block: u64) -> &mut Cell {
        self.cells.get_mut(&block).expect("a block at work is in use")
    }

    fn start(&mut self, part: Part, io: &mut Io<Tag>) {
        let cell = self.cells.entry(part.block).or_default();
        if cell.lock == Some(Lock::All) || (cell.lock.is_some() && part.write) {
            cell.waiting.push(part);
            self.commit_soon(io);
            return;
        }
        cell.users += 1;
        let overwrites = part.write && part.len == self.setup.block_bytes;
        let (place, work) = self.policy.ask(part.block, overwrites);
        if let Some(work) = work.filter(|work| overwrites && work.kind == Kind::Promote) {
            self.cell(part.block).users -= 1;
            self.begin(Task { work, overwrite: Some(part) }, io);
            return;
        }
        self.serve(part, place, io);
        if let Some(work) = work {
            self.begin(Task { work, overwrite: None }, io);
        }
    }

    /// Does the I/O of the request itself.
    fn serve(&mut self, part: Part, place: Option<u32>, io: &mut Io<Tag>) {
        self.in_flight += 1;
        let ticks = !std::mem::replace(&mut self.awaits_tick, true);
        let tag = Tag::Served(part, ticks);
        let origin_at = part.block * self.setup.block_bytes + part.at;
        match place {
            Some(place) if part.write => {
                self.policy.dirtied(place);
                io.write_cache(self.setup.place_at(place) + part.at, part.len, tag);
            }
            Some(place) => {
                self.stats.read_hit_blocks += part.len / PAGE;
                io.read_cache(self.setup.place_at(place) + part.at, part.len, tag);
            }
            None if part.write => io.write_origin(origin_at, part.len, tag),
            None => io.read_origin(origin_at, part.len, tag),
        }
    }

    fn served(&mut self, part: Part, ticks: bool, io: &mut Io<Tag>) {
        self.answer(part, io);
        if ticks {
            self.policy.tick(io.now().0);
            self.awaits_tick = false;
        }
        self.cell(part.block).users -= 1;
        self.proceed(part.block, io);
    }

    fn answer(&mut self, part: Part, io: &mut Io<Tag>) {
        if part.alone || last_of(&mut self.parts, part.number) {
            io.answer(part.number);
        }
        self.in_flight -= 1;
        self.idle_since_ns = io.now().0;
    }

    fn begin(&mut self, task: Task, io: &mut Io<Tag>) {
        self.copying += u64::from(task.overwrite.is_none());
        let cell = self.cells.entry(task.work.block).or_default();
        cell.lock = Some(if task.overwrite.is_some() { Lock::All } else { Lock::Writes });
        cell.next = Some((Step::Copy, task));
        self.proceed(task.work.block, io);
    }

    /// Goes on with a block, if no request is at it any more.
    fn proceed(&mut self, block: u64, io: &mut Io<Tag>) {
        let cell = self.cell(block);
        if cell.users > 0 {
            return;
        }
        match cell.next.take() {
            Some((Step::Copy, task)) => self.copy(task, io),
            Some((Step::Change, task)) => self.change(task, io),
            None if cell.lock.is_none() => drop(self.cells.remove(&block)),
            None => (),
        }
    }

    fn copy(&mut self, task: Task, io: &mut Io<Tag>) {
        let Work { kind, block, place } = task.work;
        let (at, len) = (self.setup.place_at(place), self.setup.block_bytes);
        match (kind, task.overwrite) {
            (Kind::Promote, Some(_)) => {
                self.in_flight += 1;
                io.write_cache(at, len, Tag::Copied(task));
            }
            (Kind::Promote, None) => io.read_origin(block * len, len, Tag::Read(task)),
            (Kind::WriteBack, _) => io.read_cache(at, len, Tag::Read(task)),
            (Kind::Demote, _) => self.copied(task, io),
        }
    }

    fn read(&self, task: Task, io: &mut Io<Tag>) {
        let Work { kind, block, place } = task.work;
        let len = self.setup.block_bytes;
        match kind {
            Kind::Promote => io.write_cache(self.setup.place_at(place), len, Tag::Copied(task)),
            _ => io.write_origin(block * len, len, Tag::Copied(task)),
        }
    }

    fn copied(&mut self, task: Task, io: &mut Io<Tag>) {
        let cell = self.cell(task.work.block);
        cell.lock = Some(Lock::All);
        cell.next = Some((Step::Change, task));
        self.proceed(task.work.block, io);
    }

    fn change(&mut self, task: Task, io: &mut Io<Tag>) {
        match task.work.kind {
            Kind::WriteBack => return self.complete(task, io),
            _ if self.commit.is_running => return self.held.push(task),
            Kind::Promote => self.complete(task, io),
            Kind::Demote => {
                self.commit.awaiting.push(Awaiting::Demotion(task));
                self.commit_soon(io);
            }
        }
        self.commit.changes += 1;
    }

    fn complete(&mut self, task: Task, io: &mut Io<Tag>) {
        let Work { block, place, .. } = task.work;
        self.policy.complete(task.work);
        if let Some(part) = task.overwrite {
            self.policy.dirtied(place);
            self.answer(part, io);
        } else {
            self.copying -= 1;
        }
        let cell = self.cell(block);
        cell.lock = None;
        let waiting = std::mem::take(&mut cell.waiting);
        self.proceed(block, io);
        for part in waiting {
            self.start(part, io);
        }
        self.copy_back_if_idle(io);
    }

    fn copy_back_if_idle(&mut self, io: &mut Io<Tag>) {
        let idle = self.in_flight == 0 && io.now().0 - self.idle_since_ns > SECOND_NS;
        while idle
            && (self.copying + 1) * self.setup.block_bytes <= self.setup.migration_threshold_bytes
            && let Some(work) = self.policy.next_writeback()
        {
            self.begin(Task { work, overwrite: None }, io);
        }
    }

    fn second(&mut self, io: &mut Io<Tag>) {
        self.policy.tick(io.now().0);
        self.copy_back_if_idle(io);
        self.commit_soon(io);
        io.after(SECOND_NS, Tag::Second);
    }

    /// Commits now if something awaits it, or else as soon as something does.
    fn commit_soon(&mut self, io: &mut Io<Tag>) {
        self.commit.is_due = true;
        self.commit_if_due(io);
    }

    fn commit_if_due(&mut self, io: &mut Io<Tag>) {
        let commit = &mut self.commit;
        if commit.is_running || !commit.is_due || commit.awaiting.is_empty() {
            return;
        }
        (commit.is_running, commit.is_due) = (true, false);
        commit.served = std::mem::take(&mut commit.awaiting);
        let changes = std::mem::take(&mut commit.changes);
        if changes == 0 {
            self.committed(io);
            return;
        }
        // Each change counts for a block of its own, but there are no more than `all`.
        let all = self.policy.places().div_ceil(MAPPINGS_PER_BLOCK);
        let commit = &mut self.commit;
        // One of the blocks is the superblock, which comes last.
        commit.blocks_left = COMMIT_BLOCKS + changes.min(all) - 1;
        for _ in 0..commit.blocks_left {
            // Metadata is copied on write: no block goes where the last one was.
            commit.metadata_at = (commit.metadata_at + 2 * PAGE) % (self.setup.metadata_bytes - PAGE);
            io.write_cache(PAGE + commit.metadata_at, PAGE, Tag::Block);
        }
    }

    fn committed(&mut self, io: &mut Io<Tag>) {
        self.commit.is_running = false;
        for awaiting in std::mem::take(&mut self.commit.served) {
            match awaiting {
                Awaiting::Demotion(task) => self.complete(task, io),
                Awaiting::Flush(number) => {
                    self.flushing.insert(number, 2);
                    io.flush_cache(Tag::Durable(number));
                    io.flush_origin(Tag::Durable(number));
                }
            }
        }
        for task in std::mem::take(&mut self.held) {
            self.change(task, io);
        }
        self.commit_if_due(io);
    }
}

impl Rival for Target {
    type Tag = Tag;

    fn submit(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        let SystemRequest { number, ask, len, .. } = request;
        if ask == Ask::Flush {
            self.commit.awaiting.push(Awaiting::Flush(number));
            self.commit_soon(io);
            return;
        }
        if ask == Ask::Read {
            self.stats.read_blocks += len / PAGE;
        }
        look_up(&request, self.setup.block_bytes, &mut self.parts, io, Tag::Start);
    }

    fn done(&mut self, tag: Tag, io: &mut Io<Tag>) {
        match tag {
            Tag::Start(part) => self.start(part, io),
            Tag::Served(part, ticks) => self.served(part, ticks, io),
            Tag::Read(task) => self.read(task, io),
            Tag::Copied(task) => self.copied(task, io),
            Tag::Block => {
                self.commit.blocks_left -= 1;
                if self.commit.blocks_left == 0 {
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
            Tag::Second => self.second(io),
        }
    }

    fn stats(&self) -> Stats {
        Stats { dirty_bytes: self.policy.dirty_blocks() * self.setup.block_bytes, ..self.stats }
    }
}

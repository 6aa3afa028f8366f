// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a day of a build server: checkout, compile, test, artefacts, delete, and again.
//!
//! Published figures:
//!
//! - A source tree is written out, compiled, cleaned and deleted again and again. Trees of one
//!   project differ little. Most written data is objects and programs, which few read again.
//!   (Mason's compilebench, which replays file sizes of trees of Linux before and after a build.)
//! - A build begins in a clean environment. The files of dependencies are restored from an archive,
//!   and saved to it at times. (Gallaba and others, "Accelerating continuous integration by caching
//!   environments and inferring dependencies", IEEE TSE 2022.)
//! - Temporary files of compilers live less than a tenth of a second (bcc's `filelife`, its example
//!   is a build of Linux). So they never reach the disk.
//! - Sizes of files are lognormal (Agrawal and others, FAST 2007).
//!
//! Guesses: four runners, six projects, the sizes of trees (an eighth of Linux 2.6.20), archives
//! and artefacts, and the server's page cache of 512 MiB. The seed changes the size of trees and
//! the page cache.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flashfront_device::Rng;

use super::files::{Files, SECOND_US, file_blocks};
use super::maker::{Asked, Maker, Seed};
use crate::zipf::Zipf;

const PAGE_CACHE_BLOCKS: u64 = 128 << 10;
const METADATA_BLOCKS: u64 = 8000;
const RUNNERS: u64 = 4;
const PROJECTS: u64 = 6;
const JOBS: u64 = 36;
const SOURCES: u64 = 2500;
/// The blocks of a project's packed history.
const PACK_BLOCKS: u64 = 9000;
/// The blocks of compilers and libraries.
const TOOL_BLOCKS: u64 = 12_000;
/// The blocks of the archive of a project's dependencies.
const ARCHIVE_BLOCKS: u64 = 3000;
const ARTEFACT_BLOCKS: u64 = 2500;
/// The number of artefacts that are kept.
const ARTEFACTS: u64 = 16;
const HEADERS: u64 = 400;

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Checkout,
    Restore,
    Compile,
    Link,
    Test,
    Save,
    Delete,
}

struct Runner {
    step: Step,
    /// The number of pieces of this step that are done.
    nth: u64,
    project: usize,
    /// The runner's room of the disk. A file goes to the place after the last file, round and
    /// round.
    from: u64,
    at: u64,
    sources: Vec<(u64, u64)>,
    objects: Vec<(u64, u64)>,
    program: (u64, u64),
}

pub(super) struct Ci {
    rng: Rng,
    system: Files,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    runners: Vec<Runner>,
    /// Sizes of the files of each project.
    projects: Vec<Vec<u64>>,
    room: u64,
    packs: u64,
    tools: u64,
    archives: u64,
    artefacts: u64,
    tool: Zipf,
    header: Zipf,
    jobs: u64,
    kept: u64,
}

impl Ci {
    pub(super) fn new(seed: &mut Seed) -> Self {
        let mut rng = seed.rng(620);
        let system = Files::new(seed.about(PAGE_CACHE_BLOCKS), METADATA_BLOCKS);
        let sources = seed.about(SOURCES);
        let packs = system.data();
        let tools = packs + PROJECTS * PACK_BLOCKS;
        let archives = tools + TOOL_BLOCKS;
        let artefacts = archives + PROJECTS * ARCHIVE_BLOCKS;
        let rooms = artefacts + ARTEFACTS * ARTEFACT_BLOCKS;
        // The median is 2 blocks.
        let project = |_| (0..sources).map(|_| file_blocks(0.6, 1.1, 256, &mut rng)).collect::<Vec<_>>();
        let projects: Vec<_> = (0..PROJECTS).map(project).collect();
        let tree = projects.iter().map(|sizes| sizes.iter().sum::<u64>()).max().unwrap_or_default();
        // Objects take as much room as sources. With archive and artefacts, a build fills two
        // thirds of its room.
        let room = 3 * (2 * tree + ARCHIVE_BLOCKS + 2 * ARTEFACT_BLOCKS) / 2;
        let runner = |nth| Runner {
            step: Step::Delete,
            nth: 0,
            project: 0,
            from: rooms + nth * room,
            at: 0,
            sources: Vec::new(),
            objects: Vec::new(),
            program: (0, 0),
        };
        Self {
            next: (0..RUNNERS as usize).map(|nth| Reverse((rng.below(300 * SECOND_US), nth))).collect(),
            runners: (0..RUNNERS).map(runner).collect(),
            rng,
            system,
            projects,
            room,
            packs,
            tools,
            archives,
            artefacts,
            tool: Zipf::new(TOOL_BLOCKS / 32, 1.2),
            header: Zipf::new(HEADERS, 0.9),
            jobs: 0,
            kept: 0,
        }
    }

    /// Writes a new file of a runner.
    fn create(&mut self, nth: usize, blocks: u64, asked: &mut Asked) -> (u64, u64) {
        let runner = &mut self.runners[nth];
        if runner.at + blocks > self.room {
            runner.at = 0;
        }
        let from = runner.from + runner.at;
        runner.at += blocks;
        self.system.write(from, blocks, asked);
        self.system.change(1, &mut self.rng);
        (from, blocks)
    }

    /// Writes a source file that comes out of the pack.
    fn check_out(&mut self, nth: usize, file: u64, asked: &mut Asked) {
        let project = self.runners[nth].project;
        let blocks = self.projects[project][file as usize];
        let pack = self.packs + project as u64 * PACK_BLOCKS;
        let at = file * (PACK_BLOCKS - 8) / self.projects[project].len() as u64;
        self.system.read(pack + at, 1 + blocks / 4, asked);
        let made = self.create(nth, blocks, asked);
        self.runners[nth].sources.push(made);
    }

    /// Unpacks a part of the archive.
    fn restore(&mut self, nth: usize, part: u64, asked: &mut Asked) {
        let archive = self.archives + self.runners[nth].project as u64 * ARCHIVE_BLOCKS;
        self.system.read(archive + part * 30, 30, asked);
        self.create(nth, 30, asked);
    }

    /// Reads a source, some headers and a part of the compiler, and writes an object.
    fn compile(&mut self, nth: usize, file: u64, asked: &mut Asked) {
        let tool = self.tools + self.tool.sample(&mut self.rng) * 32;
        self.system.read(tool, 32, asked);
        for _ in 0..6 {
            let header = self.header.sample(&mut self.rng) as usize;
            if let Some(&(from, blocks)) = self.runners[nth].sources.get(header) {
                self.system.read(from, blocks, asked);
            }
        }
        let (from, blocks) = self.runners[nth].sources[file as usize];
        self.system.look(from, asked);
        self.system.read(from, blocks, asked);
        let made = self.create(nth, blocks, asked);
        self.runners[nth].objects.push(made);
    }

    fn link(&mut self, nth: usize, asked: &mut Asked) {
        for at in 0..self.runners[nth].objects.len() {
            let (from, blocks) = self.runners[nth].objects[at];
            self.system.read(from, blocks, asked);
        }
        self.runners[nth].program = self.create(nth, ARTEFACT_BLOCKS, asked);
    }

    /// Runs the program as a test, which leaves a file behind.
    fn test(&mut self, nth: usize, asked: &mut Asked) {
        let (from, blocks) = self.runners[nth].program;
        let at = self.rng.below(blocks / 2);
        self.system.read(from + at, blocks / 4, asked);
        let blocks = 1 + self.rng.below(32);
        self.create(nth, blocks, asked);
    }

    /// Keeps the artefact, and one time in five makes the archive anew.
    fn save(&mut self, nth: usize, asked: &mut Asked) {
        let (from, blocks) = self.runners[nth].program;
        self.system.read(from, blocks, asked);
        let slot = self.kept % ARTEFACTS;
        self.kept += 1;
        self.system.write(self.artefacts + slot * ARTEFACT_BLOCKS, ARTEFACT_BLOCKS, asked);
        if self.rng.below(5) == 0 {
            let archive = self.archives + self.runners[nth].project as u64 * ARCHIVE_BLOCKS;
            self.system.write(archive, ARCHIVE_BLOCKS, asked);
        }
        self.system.change(20, &mut self.rng);
    }

    /// Does a piece of the runner's step. Returns whether the step is over.
    fn piece(&mut self, nth: usize, asked: &mut Asked) -> bool {
        let (step, piece) = (self.runners[nth].step, self.runners[nth].nth);
        self.runners[nth].nth += 1;
        let files = self.projects[self.runners[nth].project].len() as u64;
        match step {
            Step::Checkout => self.check_out(nth, piece, asked),
            Step::Restore => self.restore(nth, piece, asked),
            Step::Compile => self.compile(nth, piece, asked),
            Step::Link => self.link(nth, asked),
            Step::Test => self.test(nth, asked),
            Step::Save => self.save(nth, asked),
            Step::Delete => self.system.change(300, &mut self.rng),
        }
        let pieces = match step {
            Step::Checkout | Step::Compile => files,
            Step::Restore => ARCHIVE_BLOCKS / 30,
            Step::Test => 20,
            Step::Link | Step::Save | Step::Delete => 1,
        };
        piece + 1 == pieces
    }

    /// Begins the next step. Returns false if there is no other job.
    fn step(&mut self, nth: usize) -> bool {
        let runner = &mut self.runners[nth];
        runner.nth = 0;
        runner.step = match runner.step {
            Step::Checkout => Step::Restore,
            Step::Restore => Step::Compile,
            Step::Compile => Step::Link,
            Step::Link => Step::Test,
            Step::Test => Step::Save,
            Step::Save => Step::Delete,
            Step::Delete => {
                if self.jobs == JOBS {
                    return false;
                }
                self.jobs += 1;
                // Some projects are built more often than others.
                runner.project = self.rng.below(PROJECTS).min(self.rng.below(PROJECTS)) as usize;
                runner.sources.clear();
                runner.objects.clear();
                Step::Checkout
            }
        };
        true
    }
}

impl Maker for Ci {
    fn act(&mut self, asked: &mut Asked) -> bool {
        let Some(Reverse((now_us, nth))) = self.next.pop() else { return false };
        asked.time_us = now_us;
        self.system.tick(asked);
        let over = self.piece(nth, asked);
        if !over || self.step(nth) {
            let rest_us = if self.runners[nth].step == Step::Checkout && over { 60 * SECOND_US } else { SECOND_US / 3 };
            self.next.push(Reverse((now_us + 1 + self.rng.below(2 * rest_us), nth)));
        }
        true
    }
}

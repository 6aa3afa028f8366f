// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for lanes that work at the same time: an arena for each, so that taking a buffer takes no
//! lock.
//!
//! A lane's arena goes with its work from thread to thread ([`super::hands`]); it knows the buffers
//! of all others. In between all arenas are here, and a buffer that is freed here is freed in its
//! own arena. Copies that are still on their way end before work changes hands
//! (`Unfenced::end_all`). The lane alone determines which buffer it gets, and not the thread (test:
//! `threads_change_no_effect` of the simulation).

use std::io;

use flashfront_engine::{Buf, LaneJob, Time};

use super::Arena;
use super::caches::Unfenced;
use super::classes::{CHUNK_NUMBERS, number_of};
use super::hands::{Hands, Work};
use super::lending::NUMBERS;

/// With this many blocks for each of two lanes their work is done apart. That costs 0.5 to 1 us, as
/// much as two or three blocks.
const LEAST_BLOCKS: u64 = 4;

/// The lanes' arenas, and the threads that work with them.
#[derive(Debug)]
pub(super) struct Apart {
    /// An arena for each lane; none while lanes are at work.
    #[expect(clippy::vec_box, reason = "an arena goes to another thread and comes back with each turn")]
    arenas: Vec<Box<Arena>>,
    /// The threads; none when lanes work one after the other again.
    hands: Option<Hands>,
    least_blocks: u64,
    /// How often they were at work.
    turns: u64,
    /// The number of the lanes' first arena among the lending ones.
    first: usize,
}

impl Apart {
    /// The lane whose arena has a buffer.
    pub(super) fn lane_of(&self, buf: Buf) -> Option<usize> {
        let lender = CHUNK_NUMBERS.checked_sub(number_of(buf) + 1)? / NUMBERS;
        lender.checked_sub(self.first).filter(|lane| *lane < self.arenas.len())
    }

    pub(super) fn arena(&mut self, lane: usize) -> &mut Arena {
        &mut self.arenas[lane]
    }

    pub(super) fn trim(&mut self, now: Time) {
        // Their chunks are not registered anywhere.
        (0..self.arenas.len()).for_each(|lane| self.arena(lane).trim(now, |_, _| ()));
    }

    pub(super) fn next_timer(&self) -> Option<Time> {
        self.arenas.iter().filter_map(|arena| arena.next_timer()).min()
    }

    /// The blocks for each of two lanes from which on work is done apart.
    pub(super) fn least_blocks(&self) -> Option<u64> {
        self.hands.is_some().then_some(self.least_blocks)
    }

    /// The number of threads: the engine's and the helpers. If lanes always work apart it is the
    /// number of lanes.
    pub(super) fn threads(&self) -> usize {
        match &self.hands {
            Some(hands) if self.least_blocks > 1 => 1 + hands.helpers(),
            Some(_) => self.arenas.len(),
            None => 1,
        }
    }

    /// Has the jobs done; the engine's own copies have ended.
    pub(super) fn share(&mut self, jobs: &mut Vec<LaneJob>, own: &Unfenced) {
        debug_assert!(own.is_empty(), "the engine's copies end before lanes begin");
        self.turns += 1;
        let Self { arenas, hands, .. } = self;
        let hands = hands.as_ref().expect("bug: lanes don't work apart any more");
        debug_assert_eq!(arenas.len(), jobs.len(), "an arena for each lane");
        let all = jobs.drain(..).zip(arenas.drain(..)).map(|(job, arena)| Work::new(job, arena)).collect();
        for work in hands.share(all) {
            debug_assert!(work.arena.unfenced.is_empty(), "a lane's copies end before its work changes hands");
            jobs.push(work.job);
            arenas.push(work.arena);
        }
    }

    /// Takes buffers that lanes have freed and that belong to other arenas.
    pub(super) fn strays(&mut self) -> Vec<Buf> {
        (0..self.arenas.len()).flat_map(|lane| std::mem::take(&mut self.arena(lane).strays)).collect()
    }
}

impl Arena {
    /// Lets `lanes` lanes work at the same time, in this thread and in `helpers` helpers.
    ///
    /// Each lane has an arena of at most `limit_bytes` for that (32 GiB at most). It is to be
    /// called after all else was borrowed.
    ///
    /// # Errors
    /// When the kernel refuses a thread.
    pub fn set_apart(&mut self, lanes: usize, helpers: usize, limit_bytes: u64) -> io::Result<()> {
        let hands = Some(Hands::new(lanes, helpers)?);
        let first = self.loans();
        let mut arenas = Vec::new();
        for lane in 0..lanes {
            let (arena, loan) = Self::lending(first + lane, limit_bytes);
            self.borrow_from(loan);
            arenas.push(arena);
        }
        self.lend_to_lanes();
        let set_up = |mut arena: Self| {
            arena.borrow_as(self);
            (arena.by_turns, arena.bare) = (true, self.bare);
            Box::new(arena.in_huge_pages(self.huge))
        };
        let arenas = arenas.into_iter().map(set_up).collect();
        self.apart = Some(Box::new(Apart { arenas, hands, least_blocks: LEAST_BLOCKS, turns: 0, first }));
        Ok(())
    }

    /// Lets lanes work one after the other from now on; the helpers end. What lanes have taken for
    /// themselves is freed where it belongs, as before.
    pub fn end_apart(&mut self) {
        if let Some(apart) = &mut self.apart {
            apart.hands = None;
        }
    }

    /// Neither copies nor sums payload: so a benchmark measures what all else costs.
    #[must_use]
    pub const fn without_payload(mut self) -> Self {
        self.bare = true;
        self
    }

    /// How often lanes worked at the same time.
    #[must_use]
    pub fn turns_apart(&self) -> u64 {
        self.apart.as_ref().map_or(0, |apart| apart.turns)
    }

    /// Lets lanes work apart from less work on, and helpers do all of it if there are any: for
    /// tests.
    ///
    /// # Errors
    /// When the kernel refuses a thread.
    pub fn set_apart_always(&mut self, lanes: usize, helpers: usize, limit_bytes: u64) -> io::Result<()> {
        self.set_apart(lanes, helpers, limit_bytes)?;
        if let Some(apart) = &mut self.apart {
            apart.least_blocks = 1;
            apart.hands.iter_mut().for_each(|hands| hands.leaves_all = true);
        }
        Ok(())
    }
}

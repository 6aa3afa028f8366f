// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of one thread that another one reads and writes.
//!
//! A thread that carries clients' bytes has an arena of its own, so that taking a buffer takes no
//! lock; the engine's thread borrows it. Each lending arena has a range of the numbers of chunks,
//! counted from the upper end. So a `Buf` says to which arena it belongs. A list of chunks only
//! grows, and an entry is set once: finding a chunk takes no lock either. The thread that hands a
//! buffer over says when the other may look at it, as with any buffer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::Arena;
use super::chunk::Chunk;
use super::classes::CHUNK_NUMBERS;
use super::quarantine::Quarantine;
use super::used::Pool;

/// Arenas that another one may borrow from: of 63 carriers and 256 lanes.
pub(super) const LOANS_MAX: usize = 320;
/// Chunks that a lending arena may have: 32 GiB.
pub(super) const NUMBERS: usize = 1 << 13;

#[derive(Debug)]
struct Shelf {
    /// The number of the lending arena.
    number: usize,
    chunks: Box<[OnceLock<Arc<Chunk>>]>,
    allocated_bytes: AtomicU64,
    quarantine: Arc<Quarantine>,
}

/// The chunks of an arena that lends its buffers.
#[derive(Clone, Debug)]
pub struct Loan(Arc<Shelf>);

impl Loan {
    pub(super) fn put(&self, number: usize, chunk: &Arc<Chunk>) {
        let put = self.0.chunks[number].set(Arc::clone(chunk));
        debug_assert!(put.is_ok(), "bug: chunk {number} is lent twice");
    }
}

/// The arenas that an arena has borrowed.
#[derive(Debug, Default)]
pub(super) struct Borrowed {
    /// The loans, by the numbers of their owners.
    loans: Vec<Loan>,
    /// The loan of the arena that borrows from all others, for its lanes.
    all_others: Option<Loan>,
}

impl Borrowed {
    /// The chunk of this number.
    ///
    /// # Panics
    /// If no owner has lent it: a bug.
    pub(super) fn chunk(&self, number: usize) -> &Arc<Chunk> {
        let (shelf, at) = self.shelf(number);
        let chunk = shelf.chunks.get(at).and_then(OnceLock::get);
        chunk.unwrap_or_else(|| panic!("bug: chunk {number} is nobody's"))
    }

    /// The quarantine of the arena that has the chunk of this number.
    ///
    /// # Panics
    /// As [`Self::chunk`].
    pub(super) fn quarantine(&self, number: usize) -> &Quarantine {
        &self.shelf(number).0.quarantine
    }

    /// The place of the chunk of this number.
    fn shelf(&self, number: usize) -> (&Shelf, usize) {
        let from_above = CHUNK_NUMBERS - 1 - number;
        match (self.loans.get(from_above / NUMBERS), &self.all_others) {
            (Some(loan), _) => (&loan.0, number % NUMBERS),
            (None, Some(loan)) => (&loan.0, number),
            (None, None) => panic!("bug: chunk {number} is nobody's"),
        }
    }
}

impl Arena {
    /// Makes the lending arena number `number` (from 0, below 320), all of it for front-ends; and
    /// the loan for another arena.
    ///
    /// `limit_bytes` is rounded up to whole chunks, and is 32 GiB at most.
    ///
    /// # Panics
    /// If there is no such number.
    #[must_use]
    pub fn lending(number: usize, limit_bytes: u64) -> (Self, Loan) {
        assert!(number < LOANS_MAX, "bug: {number} arenas that lend");
        let mut arena = Self::with_reserve(limit_bytes, 0);
        arena.chunks_max = arena.chunks_max.min(NUMBERS);
        arena.most[Pool::Passing as usize] = arena.chunks_max;
        arena.first = CHUNK_NUMBERS - (number + 1) * NUMBERS;
        let loan = arena.loan(number);
        arena.lent = Some(loan.clone());
        (arena, loan)
    }

    fn loan(&self, number: usize) -> Loan {
        let chunks = std::iter::repeat_with(OnceLock::new).take(self.chunks_most()).collect();
        let quarantine = Arc::clone(&self.quarantine);
        Loan(Arc::new(Shelf { number, chunks, allocated_bytes: AtomicU64::new(0), quarantine }))
    }

    /// Makes the buffers of another arena known to this one. Its owner alone takes and frees them.
    ///
    /// # Panics
    /// If loans are not borrowed in the order of their numbers.
    pub fn borrow_from(&mut self, loan: Loan) {
        assert_eq!(loan.0.number, self.borrowed.loans.len(), "bug: loans are borrowed out of order");
        self.borrowed.loans.push(loan);
    }

    /// Arenas that it borrows from.
    pub(super) const fn loans(&self) -> usize {
        self.borrowed.loans.len()
    }

    /// Makes its own chunks known to its lanes, from now on.
    pub(super) fn lend_to_lanes(&mut self) {
        let loan = self.loan(0);
        self.chunks.iter().enumerate().for_each(|(number, chunk)| loan.put(number, chunk));
        self.lent_to_lanes = Some(loan);
    }

    /// Makes all buffers that another arena knows known to this one, and its own.
    pub(super) fn borrow_as(&mut self, other: &Self) {
        self.borrowed.loans.clone_from(&other.borrowed.loans);
        self.borrowed.all_others.clone_from(&other.lent_to_lanes);
    }

    /// Bytes of the buffers in use in all arenas that it borrows from.
    #[must_use]
    pub fn borrowed_bytes(&self) -> u64 {
        self.borrowed.loans.iter().map(|loan| loan.0.allocated_bytes.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn tell_borrowers(&self) {
        if let Some(Loan(shelf)) = &self.lent {
            shelf.allocated_bytes.store(self.allocated_bytes, Ordering::Relaxed);
        }
    }
}

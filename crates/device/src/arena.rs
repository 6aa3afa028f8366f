// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that I/O is done from: aligned buffers in chunks that the kernel may pin.
//!
//! A chunk is 4 MiB of anonymous memory and serves buffers of one power-of-two size, 4 KiB to 4
//! MiB. `Buf` is `chunk << 10 | first 4 KiB unit`, so that an address is one array access and an
//! addition. Front-ends ([`Arena::try_alloc`]) and the engine ([`Memory::alloc`]) draw from chunks
//! of their own. So the engine's reserve is there, however many clients there are. The front-ends'
//! part may be divided in shares ([`Share`]), which have chunks of their own as well.
//!
//! Bound: chunks never exceed the limit. A chunk costs RAM only where it was touched (or all of it
//! once registered with io_uring, which pins it). Chunks that have been idle for ten seconds are
//! given back to the kernel ([`Arena::trim`]). Their addresses stay reserved, so their numbers
//! serve again.
//!
//! Chunks are held by `Arc`: a backend keeps the chunks alive that the kernel may still write to.
//! The backend marks chunks whose very pages the kernel holds ([`Chunk::pin`]). Such chunks are
//! never given back: the kernel would go on with pages that aren't ours any more.
//!
//! Chunks of buffers of 1 MiB and more are asked for in pages of 2 MiB. The processor and the
//! kernel's I/O need fewer of these. With [`Arena::in_huge_pages`] all chunks are. The kernel gives
//! them if its setting allows, else small ones.
//!
//! An arena may lend its buffers ([`Arena::lending`]). Another thread's arena reads and writes them
//! then, under the same names, while only the owner takes and frees them (`lending`).
//!
//! Soundness: payload is reached through raw pointers, and a reference lives only as long as one
//! call. The bytes of an I/O in flight must not be changed (write) or looked at (read). That rule
//! is the engine's; breaking it would give wrong bytes, never a wild access.
#![expect(unsafe_code, reason = "raw memory that the kernel shares; every block has its SAFETY comment")]

use std::ptr::NonNull;
use std::sync::Arc;

use flashfront_engine::{Buf, Memory, Span, Time};

mod apart;
mod caches;
mod chunk;
mod classes;
mod hands;
mod lending;
mod memory;
mod quarantine;
mod shares;
mod used;

use apart::Apart;
use caches::Unfenced;
pub use caches::prefetch;
pub(crate) use chunk::Pin;
pub use chunk::{CHUNK_BYTES, Chunk};
use classes::{CHUNK_NUMBERS, CLASSES, UNIT_BITS, UNIT_SHIFT, UNITS, class_bytes, number_of, stood_in};
pub use lending::Loan;
use lending::{Borrowed, LOANS_MAX, NUMBERS};
pub(crate) use quarantine::Grip;
use quarantine::Quarantine;
pub use shares::Share;
use used::{POOLS, Pool, Use};

/// The number of memory that no ring registers.
const NO_NUMBER: u32 = u32::MAX;
/// Chunks of this class of buffers and larger ones are in huge pages: 1 MiB, which commits have.
///
/// Such buffers are filled as a whole. So a huge page costs no RAM but the rest of a page, 2 MiB
/// for a size of buffers at most. In process on a file (EPYC) a write took 1.21 us instead of 1.75.
const HUGE_CLASS: usize = 8;
/// How often [`Arena::trim`] looks; [`IDLE_LOOKS`] says how many looks must find a chunk idle
/// before it is given back.
///
/// Giving a chunk back costs 0.3 ms of work. Using all of the chunk again costs 2.5 ms of page
/// faults (2 shared cores, Linux 6.18). After ten seconds without use that is nothing. Shorter
/// pauses of a load cost nothing at all.
const LOOK_NS: u64 = 1_000_000_000;
const IDLE_LOOKS: u8 = 10;

/// Buffers for I/O, up to a bound.
#[derive(Debug)]
pub struct Arena {
    /// The number of the first chunk; the others follow.
    first: usize,
    chunks: Vec<Arc<Chunk>>,
    uses: Vec<Use>,
    /// The list in which borrowers find its chunks.
    lent: Option<Loan>,
    borrowed: Borrowed,
    quarantine: Arc<Quarantine>,
    /// The list in which its lanes find its chunks.
    lent_to_lanes: Option<Loan>,
    /// The arenas of lanes that work at the same time.
    apart: Option<Box<Apart>>,
    /// Whether the arena is a lane's, and goes from thread to thread with its work.
    by_turns: bool,
    /// Payload is neither copied nor summed: a measurement of all else.
    bare: bool,
    /// Buffers that a lane has freed and that aren't its own, until it is their owner's turn.
    strays: Vec<Buf>,
    /// Free buffers per pool and class, the warmest last.
    free: [[Vec<u32>; CLASSES]; POOLS],
    chunks_max: usize,
    /// Whether all its chunks are asked for in huge pages.
    huge: bool,
    /// The number of chunks of each pool, and the number that it may have.
    chunks_of: [usize; POOLS],
    most: [usize; POOLS],
    /// Chunks without an owner.
    given_back: Vec<u32>,
    /// Others of which no buffer is in use.
    empty_chunks: usize,
    /// When to look next.
    look_at: Time,
    allocated_bytes: u64,
    unfenced: Unfenced,
}

impl Arena {
    /// An arena of at most `limit_bytes` (rounded up to whole chunks), a quarter of it reserved
    /// for the engine. No memory is used before the first buffer is.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self::with_reserve(limit_bytes, limit_bytes / 4)
    }

    /// An arena of at most `limit_bytes`, of which front-ends leave `reserve_bytes` to the engine.
    /// Both are rounded up to whole chunks. A pool needs a chunk for each buffer size it uses at
    /// a time, so give the engine more than the sum of its buffers.
    #[must_use]
    pub fn with_reserve(limit_bytes: u64, reserve_bytes: u64) -> Self {
        let most = CHUNK_NUMBERS - LOANS_MAX * NUMBERS;
        let chunks = |bytes: u64| bytes.div_ceil(u64::from(CHUNK_BYTES)).clamp(1, most as u64) as usize;
        Self {
            first: 0,
            chunks: Vec::new(),
            uses: Vec::new(),
            lent: None,
            borrowed: Borrowed::default(),
            quarantine: Arc::default(),
            lent_to_lanes: None,
            apart: None,
            by_turns: false,
            bare: false,
            strays: Vec::new(),
            free: Default::default(),
            chunks_max: chunks(limit_bytes),
            huge: false,
            chunks_of: [0; POOLS],
            most: [usize::MAX, chunks(limit_bytes).saturating_sub(chunks(reserve_bytes)), 0, 0],
            given_back: Vec::new(),
            empty_chunks: 0,
            look_at: Time(0),
            allocated_bytes: 0,
            unfenced: Unfenced::default(),
        }
    }

    /// Makes all chunks of the arena huge pages, or only those of large buffers. Then each takes
    /// RAM 2 MiB at a time.
    #[must_use]
    pub fn in_huge_pages(self, huge: bool) -> Self {
        Self { huge, ..self }
    }

    /// Whether it asks for huge pages for all its chunks.
    #[must_use]
    pub fn is_in_huge_pages(&self) -> bool {
        self.huge
    }

    /// A buffer of at least `bytes` bytes for a front-end; `None` at the bound: try again when
    /// buffers have been freed. The content is undefined.
    pub fn try_alloc(&mut self, bytes: u32) -> Option<Buf> {
        self.try_alloc_of(Share::Passing, bytes)
    }

    /// Bytes of buffers in use now.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Bytes of chunks that are held, used or not; without those given back.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held() as u64 * u64::from(CHUNK_BYTES)
    }

    fn held(&self) -> usize {
        self.chunks.len() - self.given_back.len()
    }

    /// The bound on [`Arena::held_bytes`].
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.chunks_max as u64 * u64::from(CHUNK_BYTES)
    }

    /// The chunk that a buffer is in, and its number: to be registered. [`Arena::ptr`] gives the
    /// address to read or write there.
    #[must_use]
    pub fn chunk_of(&self, buf: Buf) -> (u32, Arc<Chunk>) {
        let own = self.chunks.get(self.place_of(buf));
        let quarantine = if own.is_some() { &*self.quarantine } else { self.borrowed.quarantine(number_of(buf)) };
        if let Some(stand_in) = quarantine.stand_in(buf) {
            return (NO_NUMBER, stand_in);
        }
        (number_of(buf) as u32, Arc::clone(own.unwrap_or_else(|| self.borrowed.chunk(number_of(buf)))))
    }

    /// Whether a buffer belongs to a lane that may work apart.
    fn is_of_lane(&self, buf: Buf) -> bool {
        self.apart.as_ref().is_some_and(|apart| apart.lane_of(buf).is_some())
    }

    /// Whether another thread may reach a buffer while this one has the arena.
    fn is_shared(&self, buf: Buf) -> bool {
        let of_lanes = self.by_turns || self.is_of_lane(buf);
        !of_lanes && (self.lent.is_some() || self.place_of(buf) >= self.uses.len())
    }

    /// The arena's own chunk that a buffer is in; beyond all of them, if the buffer is another
    /// arena's.
    fn place_of(&self, buf: Buf) -> usize {
        number_of(buf).wrapping_sub(self.first)
    }

    /// The address of a range.
    ///
    /// Asserts that the range is inside its buffer; a range of a borrowed buffer must be inside its
    /// chunk. All bytes that were copied so far are seen there, also by the kernel or another
    /// thread.
    #[must_use]
    pub fn ptr(&self, span: Span) -> NonNull<u8> {
        self.unfenced.end(span.buf());
        self.address(span)
    }

    /// The address of a range that data is streamed to.
    fn address(&self, span: Span) -> NonNull<u8> {
        let own = self.own_address(span);
        match self.quarantine_of(span.buf()).stand_in(span.buf()) {
            Some(stand_in) => stood_in(&stand_in, span),
            None => own,
        }
    }

    /// The address of a range in the buffer's own memory, also while another memory stands in for
    /// it.
    fn own_address(&self, span: Span) -> NonNull<u8> {
        let at = ((span.buf().0 as usize % UNITS) << UNIT_SHIFT) + span.offset() as usize;
        let Some(used) = self.uses.get(self.place_of(span.buf())) else {
            let base = self.borrowed.chunk(number_of(span.buf())).ptr();
            assert!(at + span.len as usize <= CHUNK_BYTES as usize, "bug: {span:?} is outside its chunk");
            // SAFETY: just checked.
            return unsafe { base.add(at) };
        };
        let end = u64::from(span.offset()) + u64::from(span.len);
        assert!(end <= u64::from(class_bytes(usize::from(used.class))), "bug: {span:?} is outside its buffer");
        #[cfg(debug_assertions)]
        assert!(used.is_live(span.buf()), "bug: {span:?} is in a buffer that was freed");
        // SAFETY: unit < 1024 and the range ends within a buffer of the chunk, so `at` is within
        // the mapping.
        unsafe { used.base.add(at) }
    }

    /// The addresses that a copy reads from and writes to.
    fn both(&self, from: Span, to: Span) -> (NonNull<u8>, NonNull<u8>) {
        let (source, target) = (self.ptr(from), self.address(to));
        debug_assert!(
            source.as_ptr().addr().abs_diff(target.as_ptr().addr()) >= from.len as usize,
            "bug: a copy onto itself: {from:?} to {to:?}"
        );
        (source, target)
    }

    /// When [`Arena::trim`] should be called at the latest; `None` while there is nothing to give
    /// back.
    #[must_use]
    pub fn next_timer(&self) -> Option<Time> {
        let own = (self.empty_chunks > 0).then_some(self.look_at);
        let of_lanes = self.apart.as_ref().and_then(|apart| apart.next_timer());
        own.into_iter().chain(of_lanes).min()
    }

    /// Looks once a second for chunks without use, and gives a chunk back that was found idle ten
    /// times in a row.
    ///
    /// Each call gives back one chunk and then is due again at once, so that no caller waits for
    /// many. `unpin` makes a backend let go of the chunk of this number. A chunk that it keeps is
    /// asked for again later.
    pub fn trim(&mut self, now: Time, unpin: impl FnOnce(usize, &Arc<Chunk>)) {
        if let Some(apart) = &mut self.apart {
            apart.trim(now);
        }
        if now < self.look_at || self.held() == 0 {
            return;
        }
        if let Some(number) = self.uses.iter().position(|used| used.idle >= IDLE_LOOKS) {
            unpin(number, &self.chunks[number]);
            return self.give_back(number);
        }
        self.look_at = now.plus_ns(LOOK_NS);
        for used in &mut self.uses {
            used.idle = if used.live == 0 && used.pool != Pool::Nobody { used.idle + 1 } else { 0 };
        }
        // Free buffers of the first chunks are used first, so that what little is in use gathers
        // there.
        for (class, list) in self.free.iter_mut().flat_map(|lists| lists.iter_mut().enumerate()) {
            if list.len() > UNITS >> class {
                list.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
    }

    fn give_back(&mut self, number: usize) {
        let used = &mut self.uses[number];
        debug_assert!(used.live == 0, "bug: chunk {number} is in use and given back");
        used.idle = 0;
        if self.chunks[number].discard() {
            self.empty_chunks -= 1;
            self.disown(number);
            self.uses[number].pool = Pool::Nobody;
            self.given_back.push(number as u32);
        }
    }

    /// Frees a buffer of another arena: of a lane's, or of an arena that has this one for a lane.
    fn free_elsewhere(&mut self, buf: Buf) {
        if self.by_turns {
            return self.strays.push(buf);
        }
        let owner = self.apart.as_mut().and_then(|apart| Some((apart.lane_of(buf)?, apart)));
        let (lane, apart) = owner.unwrap_or_else(|| panic!("bug: {buf:?} is freed, and isn't this arena's"));
        apart.arena(lane).free(buf);
    }

    /// Takes an empty chunk from its pool.
    fn disown(&mut self, number: usize) {
        let (used, named) = (&self.uses[number], self.first + number);
        self.free[used.pool as usize][usize::from(used.class)].retain(|buf| number_of(Buf(*buf)) != named);
        self.chunks_of[used.pool as usize] -= 1;
    }

    /// Whether front-ends have all the chunks of this pool, or of all their pools, that they may
    /// have. Chunks in quarantine do not count.
    fn is_full(&self, pool: Pool) -> bool {
        let kept = self.quarantine.chunks_kept();
        let fronts = Pool::Passing as usize..POOLS;
        let all: usize = self.chunks_of[fronts.clone()].iter().sum();
        let most: usize = self.most[fronts].iter().sum();
        self.chunks_of[pool as usize] >= self.most[pool as usize] + kept || all >= most + kept
    }

    /// A free buffer of this pool and class: a used one, or from a new or emptied chunk.
    fn take(&mut self, pool: Pool, class: usize) -> Option<Buf> {
        for buf in self.quarantine.returned() {
            self.free(buf);
        }
        if self.free[pool as usize][class].is_empty() && !self.grow(pool, class) {
            return None;
        }
        let buf = Buf(self.free[pool as usize][class].pop()?);
        let place = self.place_of(buf);
        let used = &mut self.uses[place];
        self.empty_chunks -= usize::from(used.live == 0);
        used.live += 1;
        used.idle = 0;
        #[cfg(debug_assertions)]
        used.flip(buf);
        self.allocated_bytes += u64::from(class_bytes(class));
        self.tell_borrowers();
        Some(buf)
    }

    /// The bound with all that may be in quarantine.
    fn chunks_most(&self) -> usize {
        (2 * self.chunks_max).min(if self.first > 0 { NUMBERS } else { CHUNK_NUMBERS - LOANS_MAX * NUMBERS })
    }

    /// Gives a pool one more chunk of a class; false at the bound.
    fn grow(&mut self, pool: Pool, class: usize) -> bool {
        let huge = self.huge || class >= HUGE_CLASS;
        let most = (self.chunks_max + self.quarantine.chunks_kept()).min(self.chunks_most());
        let at_bound = pool != Pool::Engine && self.is_full(pool);
        let number = if !at_bound && self.held() < most {
            let number = if let Some(number) = self.given_back.pop() {
                self.chunks[number as usize].turn(huge);
                number as usize
            } else {
                let Some(chunk) = Chunk::map(huge) else { return false };
                self.uses.push(Use::new(chunk.ptr(), pool, class));
                self.chunks.push(Arc::new(chunk));
                let number = self.chunks.len() - 1;
                for lent in self.lent.iter().chain(&self.lent_to_lanes) {
                    lent.put(number, &self.chunks[number]);
                }
                number
            };
            self.empty_chunks += 1;
            number
        } else {
            // Slow and rare: the mix of sizes has changed. An empty chunk is given another size.
            // The engine may also take a front-end's; the other way only below the bound.
            let usable = |used: &Use| used.live == 0 && (used.pool == pool || !at_bound);
            let Some(number) = self.uses.iter().position(usable) else { return false };
            self.disown(number);
            number
        };
        self.chunks_of[pool as usize] += 1;
        self.uses[number] = Use::new(self.chunks[number].ptr(), pool, class);
        self.chunks[number].set_class(class as u8);
        let first = ((self.first + number) << UNIT_BITS) as u32;
        // The lowest address is on top, so that pages are touched in order.
        self.free[pool as usize][class].extend((0..UNITS as u32).step_by(1 << class).rev().map(|unit| first | unit));
        true
    }
}

#[cfg(test)]
mod tests;

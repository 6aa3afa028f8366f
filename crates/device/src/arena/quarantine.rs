// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers whose memory the kernel may still use although their I/O was given up.
//!
//! From then on the buffer has other memory under the same name, a *stand-in* with the same bytes.
//! The buffer's user goes on with it, and late reads and writes of the kernel meet no user (test:
//! `a_late_read_changes_no_buffer`). The old memory serves no buffer before the last such I/O has
//! really ended: a buffer that is freed earlier is kept until then. Kept memory doesn't count to
//! the arena's bound, up to as much again.
//!
//! Several I/Os may be in flight in one buffer, of several devices. I/Os that are not given up end
//! in the memory that they were given. So the bytes that they have read there are copied to the
//! stand-in ([`Arena::carry_over`]).

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashfront_engine::{Buf, Memory, Span};

use super::Arena;
use super::chunk::Chunk;
use super::classes::{UNIT_BITS, class_bytes, number_of, stood_in};

#[derive(Debug, Default)]
struct Entry {
    /// The stand-ins of a buffer, the present one last, and the number of each in its arena.
    stand_ins: Vec<(u32, Arc<Chunk>)>,
    /// I/Os that were given up and have not ended.
    late: u32,
    /// The owner has freed the buffer.
    freed: bool,
}

impl Entry {
    fn now(&self) -> Option<&Arc<Chunk>> {
        self.stand_ins.last().map(|(_, stand_in)| stand_in)
    }
}

/// The buffers of an arena that are in quarantine. The arena and all that borrow from it share it.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    /// The number of buffers, so that the lock is not taken while there are none.
    count: AtomicUsize,
    /// Stand-ins that were ever put here.
    put: AtomicU32,
    entries: Mutex<BTreeMap<u32, Entry>>,
}

impl Quarantine {
    /// Whether no buffer is in quarantine. A buffer is handed over after it was put here, so no
    /// order of memory is needed.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u32, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory that stands in for a buffer.
    pub(super) fn stand_in(&self, buf: Buf) -> Option<Arc<Chunk>> {
        if self.is_empty() {
            return None;
        }
        self.entries().get(&buf.0).and_then(|entry| entry.now()).cloned()
    }

    /// Returns the memory that a buffer had when `put` stand-ins had been put here: a stand-in, or
    /// its own (`None`). Nothing if it has that memory now.
    fn exchanged(&self, buf: Buf, put: u32) -> Option<Option<Arc<Chunk>>> {
        if self.is_empty() {
            return None;
        }
        let entries = self.entries();
        let stand_ins = &entries.get(&buf.0)?.stand_ins;
        let older = stand_ins.partition_point(|(number, _)| *number <= put);
        (older < stand_ins.len()).then(|| older.checked_sub(1).map(|at| Arc::clone(&stand_ins[at].1)))
    }

    fn put(&self, buf: Buf, stand_in: Arc<Chunk>) {
        let mut entries = self.entries();
        let number = self.put.load(Ordering::Relaxed) + 1;
        self.put.store(number, Ordering::Relaxed);
        let entry = entries.entry(buf.0).or_default();
        entry.stand_ins.push((number, stand_in));
        entry.late += 1;
        self.count.store(entries.len(), Ordering::Relaxed);
    }

    /// Notes that an I/O of the buffer has ended; says whether the buffer waits to be freed.
    fn release(&self, buf: Buf) -> bool {
        let mut entries = self.entries();
        let entry = entries.get_mut(&buf.0).expect("bug: an I/O ends late whose buffer is in no quarantine");
        entry.late -= 1;
        entry.late == 0 && entry.freed
    }

    /// Whether a buffer that is freed must be kept. If not, it has its own memory again.
    pub(super) fn keeps(&self, buf: Buf) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut entries = self.entries();
        match entries.get_mut(&buf.0) {
            None => return false,
            Some(entry) if entry.late > 0 => {
                debug_assert!(!entry.freed, "bug: {buf:?} is freed twice");
                entry.freed = true;
                return true;
            }
            Some(_) => {}
        }
        entries.remove(&buf.0);
        self.count.store(entries.len(), Ordering::Relaxed);
        false
    }

    /// Buffers that were freed, and that nothing keeps any more.
    pub(super) fn returned(&self) -> Vec<Buf> {
        if self.is_empty() {
            return Vec::new();
        }
        let entries = self.entries();
        entries.iter().filter(|(_, it)| it.late == 0 && it.freed).map(|(buf, _)| Buf(*buf)).collect()
    }

    /// Chunks in which freed buffers are kept.
    pub(super) fn chunks_kept(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut chunks: Vec<u32> =
            self.entries().iter().filter(|(_, it)| it.freed).map(|(buf, _)| buf >> UNIT_BITS).collect();
        chunks.dedup();
        chunks.len()
    }
}

impl Arena {
    pub(super) fn quarantine_of(&self, buf: Buf) -> &Quarantine {
        if self.place_of(buf) < self.uses.len() { &self.quarantine } else { self.borrowed.quarantine(number_of(buf)) }
    }

    /// Gives a buffer other memory, with the same bytes. An I/O of it was given up, and the kernel
    /// may go on to use the old memory.
    ///
    /// The caller calls this once for each such I/O; [`Arena::release`] tells of its end.
    ///
    /// # Panics
    /// If there is no memory at all.
    pub fn quarantine(&mut self, buf: Buf) {
        let class = self.chunk_of(buf).1.class();
        let bytes = class_bytes(usize::from(class)) as usize;
        let stand_in = Arc::new(Chunk::map(false).expect("4 MiB of addresses"));
        stand_in.set_class(class);
        let old = self.ptr(Span::new(buf, 0, bytes as u32));
        // SAFETY: the buffer's memory and a new mapping that is at least as long. The kernel may be
        // writing to the former: bytes that are copied then are not read before they were written
        // anew.
        unsafe { stand_in.ptr().copy_from_nonoverlapping(old, bytes) };
        self.quarantine_of(buf).put(buf, stand_in);
    }

    /// Names the memory that a buffer has at present, for [`Arena::carry_over`].
    pub(crate) fn memory_of(&self, buf: Buf) -> u32 {
        self.quarantine_of(buf).put.load(Ordering::Relaxed)
    }

    /// Copies the bytes that an I/O has read, if the buffer has other memory by now than at that
    /// time ([`Arena::memory_of`]). The I/O has ended and was not given up.
    pub(crate) fn carry_over(&mut self, span: Span, memory: u32) {
        let Some(was) = self.quarantine_of(span.buf()).exchanged(span.buf(), memory) else { return };
        let from = match was {
            Some(stand_in) => stood_in(&stand_in, span),
            None => self.own_address(span),
        };
        // SAFETY: both have the buffer's length, and the range is inside it. Only the I/O that has
        // ended was to change this range of the old memory.
        unsafe { self.ptr(span).copy_from_nonoverlapping(from, span.len as usize) };
    }

    /// An I/O has ended for which [`Arena::quarantine`] was called.
    pub fn release(&mut self, buf: Buf) {
        if !self.quarantine_of(buf).release(buf) {
            return;
        }
        // The buffer of another thread's arena is freed by that thread, when it wants memory.
        if self.place_of(buf) < self.uses.len() || self.is_of_lane(buf) {
            self.free(buf);
        }
    }

    /// Memory of a buffer as a device in the kernel has it: kept, whatever becomes of the buffer.
    pub(crate) fn grip(&self, span: Span) -> Grip {
        Grip { at: self.ptr(span), len: span.len, _chunk: Arc::clone(&self.chunk_of(span.buf()).1) }
    }
}

/// A piece of memory that an I/O keeps, as the kernel does, also after the I/O was given up.
#[derive(Clone, Debug)]
pub(crate) struct Grip {
    at: NonNull<u8>,
    len: u32,
    _chunk: Arc<Chunk>,
}

// SAFETY: plain memory, which `_chunk` keeps.
unsafe impl Send for Grip {}
// SAFETY: as above; a shared grip can only read.
unsafe impl Sync for Grip {}

impl Grip {
    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Copies the present bytes.
    pub(crate) fn read(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len as usize, "bug: a grip of another length");
        // SAFETY: `len` bytes at `at` are in the chunk, which is kept.
        unsafe { self.at.copy_to_nonoverlapping(NonNull::from(into).cast(), self.len as usize) };
    }

    /// Changes it, as a device does.
    pub(crate) fn write(&mut self, from: &[u8]) {
        assert_eq!(from.len(), self.len as usize, "bug: a grip of another length");
        // SAFETY: as above.
        unsafe { self.at.copy_from_nonoverlapping(NonNull::from(from).cast(), self.len as usize) };
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that survive the daemon: which requests a client has given and not got back.
//!
//! The client keeps the memory (VHOST_USER_GET_INFLIGHT_FD, SET_INFLIGHT_FD) and gives it to the
//! next daemon. That daemon takes the requests up again, in the order they were taken before. A
//! request is noted before it is looked at, and struck out after it is in the used ring. A crash
//! may come between the two writes, and `used` tells which of them was the last. Layout and order
//! of writes: "Inflight I/O tracking" of vhost-user.rst, for split rings. Test:
//! `unfinished_requests_are_taken_up_by_the_next_daemon`.
//!
//! After the queues comes a mark of our own. It says that writes were acknowledged and not flushed,
//! and by which daemon. They are in its RAM, as in a disk's volatile cache. But a guest that comes
//! back to the next daemon has not lost its power. It would take the FLUSH of that daemon for a
//! promise about these writes. So the next daemon knows of them, and fails the FLUSH (test:
//! `a_guest_learns_that_unflushed_writes_died_with_the_daemon`).

use std::fs::File;
use std::io;
use std::sync::atomic::{Ordering, compiler_fence};

use serde::{Deserialize, Serialize};
use vhost::vhost_user::message::VhostUserInflight;
use vhost::vhost_user::{Error, Result};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};

use super::fault::Guard;
use super::guest::map;
use super::limits::{QUEUE_SIZE_MAX, QUEUES_MAX};
use crate::upgrade::{Descriptor, Parcel};

/// Fields of a queue's region: features (8), version, entries, the last head that was used, its
/// used index.
const HEADER_BYTES: u64 = 16;
const VERSION_AT: u64 = 8;
const ENTRIES_AT: u64 = 10;
const LAST_AT: u64 = 12;
const USED_AT: u64 = 14;
/// Fields of an entry: inflight (1), padding (5), next (2), counter (8).
const ENTRY_BYTES: u64 = 16;
const NEXT_AT: u64 = 6;
const COUNTER_AT: u64 = 8;
const VERSION: u16 = 1;
/// Fields of the mark: the daemon, and whether it owes durability.
const DAEMON_AT: u64 = 0;
const OWES_AT: u64 = 8;
const MARK_BYTES: u64 = 64;

fn region_bytes(queue_size: u16) -> u64 {
    (HEADER_BYTES + u64::from(queue_size) * ENTRY_BYTES).next_multiple_of(64)
}

fn all_bytes(inflight: &VhostUserInflight) -> u64 {
    region_bytes(inflight.queue_size) * u64::from(inflight.num_queues) + MARK_BYTES
}

/// The memory of all queues, on its way to another program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedInflight {
    file: Descriptor,
    offset: u64,
    bytes: u64,
    queues: u16,
    queue_size: u16,
}

/// The memory of all queues.
#[derive(Debug)]
pub(super) struct Inflight {
    // Before the memory, so that it goes first.
    guard: Guard,
    memory: GuestMemoryMmap,
    queues: u16,
    queue_size: u16,
}

impl Inflight {
    /// New memory, to be given to the client.
    pub(super) fn create(asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        check(asked)?;
        let bytes = all_bytes(asked);
        let file = sealed(bytes).map_err(Error::ReqHandlerError)?;
        Ok((VhostUserInflight { mmap_size: bytes, mmap_offset: 0, ..*asked }, file))
    }

    /// The client's memory: new, or what a daemon before us left.
    pub(super) fn open(given: &VhostUserInflight, file: File) -> Result<Self> {
        check(given)?;
        if given.mmap_size < all_bytes(given) {
            return Err(Error::InvalidOperation("memory for requests in flight that is too small"));
        }
        let (region, guard) = map(file, given.mmap_offset, given.mmap_size, 0).map_err(Error::ReqHandlerError)?;
        let region = GuestRegionMmap::new(region, GuestAddress(0)).ok_or(Error::InvalidParam)?;
        let memory = GuestMemoryMmap::from_regions(vec![region]).map_err(|_| Error::InvalidParam)?;
        Ok(Self { guard, memory, queues: given.num_queues, queue_size: given.queue_size })
    }

    /// Puts the memory's file into the parcel; returns the rest.
    pub(super) fn save(&self, parcel: &mut Parcel) -> io::Result<SavedInflight> {
        let region = self.memory.iter().next();
        let file = region.and_then(GuestMemoryRegion::file_offset).ok_or(io::ErrorKind::NotFound)?;
        Ok(SavedInflight {
            file: parcel.put(file.file())?,
            offset: file.start(),
            bytes: region.map_or(0, GuestMemoryRegion::len),
            queues: self.queues,
            queue_size: self.queue_size,
        })
    }

    /// Maps the memory of a guest that another program had.
    pub(super) fn restore(saved: &SavedInflight, parcel: &Parcel) -> io::Result<Self> {
        let given = VhostUserInflight::new(saved.bytes, saved.offset, saved.queues, saved.queue_size);
        Self::open(&given, File::from(parcel.descriptor(saved.file)?)).map_err(io::Error::other)
    }

    pub(super) fn is_hit(&self) -> bool {
        self.guard.is_hit()
    }

    /// The daemon that has acknowledged writes which were never flushed, if there are any.
    pub(super) fn debtor(&self) -> Option<u64> {
        let load = |at| self.memory.load::<u64>(self.mark(at), Ordering::Acquire).unwrap_or(0);
        (load(OWES_AT) != 0).then(|| load(DAEMON_AT))
    }

    /// Notes whether writes were acknowledged and not flushed.
    pub(super) fn owe(&self, daemon: u64, owes: bool) {
        let _ = self.memory.store(daemon, self.mark(DAEMON_AT), Ordering::Release);
        let _ = self.memory.store(u64::from(owes), self.mark(OWES_AT), Ordering::Release);
    }

    fn mark(&self, at: u64) -> GuestAddress {
        GuestAddress(u64::from(self.queues) * region_bytes(self.queue_size) + at)
    }

    /// The part of one queue, which has `size` entries.
    pub(super) fn queue(&self, index: usize, size: u16) -> Option<Tracker> {
        let known = index < usize::from(self.queues) && size <= self.queue_size;
        let base = index as u64 * region_bytes(self.queue_size);
        known.then(|| Tracker { memory: self.memory.clone(), base, size, counter: 0 })
    }
}

fn check(inflight: &VhostUserInflight) -> Result<()> {
    if usize::from(inflight.num_queues) > QUEUES_MAX || inflight.queue_size > QUEUE_SIZE_MAX {
        return Err(Error::InvalidOperation("memory for requests in flight of more or longer queues than there are"));
    }
    Ok(())
}

/// Memory that stays as long as it is.
fn sealed(bytes: u64) -> io::Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let fd = rustix::fs::memfd_create("flashfront-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(File::from(fd))
}

/// The memory of one queue. A write that fails means that the mapping is gone (`fault`). Then the
/// server hangs up on the client.
#[derive(Debug)]
pub(super) struct Tracker {
    memory: GuestMemoryMmap,
    base: u64,
    size: u16,
    /// Requests taken so far: their order.
    counter: u64,
}

impl Tracker {
    /// Looks at the requests that were left in flight, of a queue whose used ring is at `used`.
    /// Returns their heads in their order.
    pub(super) fn recover(&mut self, used: u16) -> Vec<u16> {
        if self.load(VERSION_AT) == 0 {
            self.store(VERSION_AT, VERSION);
            self.store(ENTRIES_AT, self.size);
            self.store(USED_AT, used);
            return Vec::new();
        }
        if self.load(USED_AT) != used {
            // The daemon was killed between the used ring and the strike: this request is done.
            let last = self.load(LAST_AT);
            if last < self.size {
                self.set_inflight(last, false);
            }
            self.store(USED_AT, used);
        }
        let mut heads: Vec<(u64, u16)> = (0..self.size)
            .filter(|&head| self.memory.load::<u8>(self.entry(head, 0), Ordering::Relaxed).is_ok_and(|it| it != 0))
            .map(|head| (self.memory.load(self.entry(head, COUNTER_AT), Ordering::Relaxed).unwrap_or(0), head))
            .collect();
        heads.sort_unstable();
        self.counter = heads.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        heads.into_iter().map(|(_, head)| head).collect()
    }

    /// The number of the next request.
    pub(super) const fn counter(&self) -> u64 {
        self.counter
    }

    pub(super) const fn set_counter(&mut self, counter: u64) {
        self.counter = counter;
    }

    /// A request is taken.
    pub(super) fn take(&mut self, head: u16) {
        let counter = self.counter;
        self.counter = counter.wrapping_add(1);
        let _ = self.memory.store(counter, self.entry(head, COUNTER_AT), Ordering::Relaxed);
        compiler_fence(Ordering::Release);
        self.set_inflight(head, true);
    }

    /// Notes that a request is about to be put into the used ring.
    pub(super) fn before_used(&mut self, head: u16) {
        let last = self.load(LAST_AT);
        let _ = self.memory.store(last, self.entry(head, NEXT_AT), Ordering::Relaxed);
        self.store(LAST_AT, head);
    }

    /// Notes that a request is in the used ring, which is at `used` now.
    pub(super) fn after_used(&mut self, head: u16, used: u16) {
        self.set_inflight(head, false);
        compiler_fence(Ordering::Release);
        self.store(USED_AT, used);
    }

    fn entry(&self, head: u16, at: u64) -> GuestAddress {
        GuestAddress(self.base + HEADER_BYTES + u64::from(head) * ENTRY_BYTES + at)
    }

    fn set_inflight(&self, head: u16, inflight: bool) {
        let _ = self.memory.store(u8::from(inflight), self.entry(head, 0), Ordering::Release);
    }

    fn load(&self, at: u64) -> u16 {
        self.memory.load(GuestAddress(self.base + at), Ordering::Acquire).unwrap_or(0)
    }

    fn store(&self, at: u64, value: u16) {
        let _ = self.memory.store(value, GuestAddress(self.base + at), Ordering::Release);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue: which requests a guest has put into its ring, and which are given back.
//!
//! It runs from SET_VRING_KICK to GET_VRING_BASE while it is enabled. The kick is watched
//! edge-triggered and never read: each write to an eventfd is an edge, so the count in it is of no
//! interest. The call is never waited for (`call`). Both are eventfds (`attached`), and nothing is
//! set on them: the client has them too.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use vhost::vhost_user::{Error, Result};
use virtio_bindings::bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::call::Calls;
use super::guest::Guest;
use super::inflight::{Inflight, Tracker};
use super::limits::QUEUE_SIZE_MAX;

mod saved;

pub(super) use saved::SavedRing;

/// An error after which a ring can't go on.
#[derive(Debug, thiserror::Error)]
#[error("a ring outside the memory, or with more requests than entries: {0}")]
pub(super) struct RingError(#[from] virtio_queue::Error);

/// The addresses of descriptor table, used and available ring, as the client calls them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Addresses {
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
}

/// A queue.
#[derive(Debug)]
pub(super) struct Ring {
    queue: Queue,
    addresses: Option<Addresses>,
    pub(super) kick: Option<File>,
    /// Whether the poller watches `kick`.
    pub(super) watched: bool,
    call: Option<File>,
    started: bool,
    pub(super) enabled: bool,
    /// The guest may have put something in.
    pub(super) kicked: bool,
    /// Something was given back that the guest wasn't told of.
    untold: bool,
    /// The guest is told, whether it wants to be or not: the daemon before may have given something
    /// back and not told it.
    nudge: bool,
    /// Requests that were taken and not given back.
    pub(super) in_flight: u16,
    tracker: Option<Tracker>,
    /// Requests that a daemon before us left.
    again: VecDeque<u16>,
}

impl Ring {
    pub(super) fn new() -> Result<Self> {
        let queue = Queue::new(QUEUE_SIZE_MAX).map_err(|_| Error::BackendInternalError)?;
        Ok(Self {
            queue,
            addresses: None,
            kick: None,
            watched: false,
            call: None,
            started: false,
            enabled: false,
            kicked: false,
            untold: false,
            nudge: false,
            in_flight: 0,
            tracker: None,
            again: VecDeque::new(),
        })
    }

    /// Whether requests may be taken from it.
    pub(super) fn runs(&self) -> bool {
        self.started && self.enabled
    }

    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    /// Whether the guest has got something back and doesn't know.
    pub(super) fn is_untold(&self) -> bool {
        self.untold && self.started
    }

    pub(super) fn set_size(&mut self, entries: u32) -> Result<()> {
        self.check_stopped()?;
        let entries = u16::try_from(entries).map_err(|_| Error::InvalidParam)?;
        self.queue
            .try_set_size(entries)
            .map_err(|_| Error::InvalidOperation("a queue whose size is no power of two, or more than can be had"))
    }

    pub(super) fn set_base(&mut self, base: u32) -> Result<()> {
        self.check_stopped()?;
        self.queue.set_next_avail(u16::try_from(base).map_err(|_| Error::InvalidParam)?);
        Ok(())
    }

    fn check_stopped(&self) -> Result<()> {
        if self.started { Err(Error::InvalidOperation("a queue is changed while it runs")) } else { Ok(()) }
    }

    pub(super) fn set_event_idx(&mut self, on: bool) {
        self.queue.set_event_idx(on);
    }

    pub(super) fn set_addresses(&mut self, addresses: Addresses, guest: &Guest) -> Result<()> {
        self.addresses = Some(addresses);
        self.translate(guest)
    }

    /// Finds the ring in the guest's memory, which may have moved.
    pub(super) fn translate(&mut self, guest: &Guest) -> Result<()> {
        let Some(Addresses { descriptors, used, available }) = self.addresses else {
            return Ok(());
        };
        let find = |user: u64| {
            guest.translate(user).ok_or(Error::InvalidOperation("a ring that is not in the memory that was shared"))
        };
        let (descriptors, used, available) = (find(descriptors)?, find(used)?, find(available)?);
        let set = self.queue.try_set_desc_table_address(descriptors);
        let set = set.and_then(|()| self.queue.try_set_used_ring_address(used));
        let set = set.and_then(|()| self.queue.try_set_avail_ring_address(available));
        set.map_err(|_| Error::InvalidOperation("a ring at an address that is not aligned"))?;
        if self.started && !self.queue.is_valid(guest.memory()) {
            return Err(Error::InvalidOperation("a ring that is started and no longer in the memory that is shared"));
        }
        Ok(())
    }

    pub(super) fn set_call(&mut self, call: Option<File>) {
        self.call = call;
        // The last one may have been used in vain.
        (self.untold, self.nudge) = (self.started, self.started);
    }

    /// Starts at the position of the used ring, with the requests that were left in flight.
    pub(super) fn start(&mut self, index: usize, guest: &Guest, inflight: Option<&Inflight>) -> Result<()> {
        self.queue.set_ready(true);
        if self.addresses.is_none() || !self.queue.is_valid(guest.memory()) {
            self.queue.set_ready(false);
            return Err(Error::InvalidOperation("a ring is started that is not in the memory that was shared"));
        }
        let used = self.queue.used_idx(guest.memory(), Ordering::Acquire).map_err(|_| Error::InvalidParam)?.0;
        self.queue.set_next_used(used);
        self.tracker = inflight.and_then(|inflight| inflight.queue(index, self.queue.size()));
        if let Some(tracker) = &mut self.tracker {
            self.again = tracker.recover(used).into();
            // Requests that were taken are either used or left. The client's base may be older: no
            // daemon was there to tell ours.
            self.queue.set_next_avail(used.wrapping_add(self.again.len() as u16));
        }
        (self.started, self.kicked) = (true, true);
        (self.untold, self.nudge) = (true, true);
        Ok(())
    }

    /// Stops; returns where the next start goes on. Nothing is in flight. Requests that were not
    /// taken up again stay noted, and the next start finds them.
    pub(super) fn stop(&mut self) -> u16 {
        debug_assert_eq!(self.in_flight, 0, "messages wait for that");
        self.started = false;
        self.queue.set_ready(false);
        self.tracker = None;
        self.again.clear();
        self.queue.next_avail()
    }

    /// Takes the heads of new requests, as many as there is room for, if the ring was kicked.
    /// `awake`: it is looked at again at once, so that the guest need not kick.
    pub(super) fn take(
        &mut self,
        memory: &GuestMemoryMmap,
        heads: &mut [u16],
        awake: bool,
    ) -> std::result::Result<usize, RingError> {
        let mut taken = 0;
        while self.runs() && self.kicked && taken < heads.len() {
            match self.pop(memory, &mut heads[taken..])? {
                0 if awake => break,
                // If there is something after all, the next look finds it: all of a ring that runs
                // is in the memory (`translate`).
                0 => self.kicked = self.listen(memory)?,
                more => taken += more,
            }
        }
        Ok(taken)
    }

    /// The heads of the next requests, as many as are there.
    fn pop(&mut self, memory: &GuestMemoryMmap, heads: &mut [u16]) -> std::result::Result<usize, RingError> {
        let mut popped = heads.len().min(self.again.len());
        heads.iter_mut().zip(self.again.drain(..popped)).for_each(|(place, head)| *place = head);
        let size = self.queue.size();
        for (place, chain) in heads[popped..].iter_mut().zip(self.queue.iter(memory)?) {
            *place = chain.head_index();
            if *place >= size {
                return Err(virtio_queue::Error::InvalidDescriptorIndex.into());
            }
            if let Some(tracker) = &mut self.tracker {
                tracker.take(*place);
            }
            popped += 1;
        }
        self.in_flight += popped as u16;
        Ok(popped)
    }

    pub(super) fn table(&self) -> (GuestAddress, u16) {
        (GuestAddress(self.queue.desc_table()), self.queue.size())
    }

    /// Gives a request back; `written` bytes of its parts were filled.
    pub(super) fn give_back(
        &mut self,
        memory: &GuestMemoryMmap,
        head: u16,
        written: u32,
    ) -> std::result::Result<(), RingError> {
        self.in_flight -= 1;
        if let Some(tracker) = &mut self.tracker {
            tracker.before_used(head);
        }
        self.queue.add_used(memory, head, written)?;
        if let Some(tracker) = &mut self.tracker {
            tracker.after_used(head, self.queue.next_used());
        }
        self.untold = true;
        Ok(())
    }

    /// Asks to be kicked; true if there is something new already.
    fn listen(&mut self, memory: &GuestMemoryMmap) -> std::result::Result<bool, RingError> {
        Ok(self.queue.enable_notification(memory)?)
    }

    /// Tells the guest what was given back, if it wants to be told.
    pub(super) fn tell(&mut self, memory: &GuestMemoryMmap, calls: &Calls) -> std::result::Result<(), RingError> {
        self.untold = false;
        let asked = self.queue.needs_notification(memory)? && !self.is_quiet(memory);
        if !asked && !std::mem::take(&mut self.nudge) {
            return Ok(());
        }
        if let Some(call) = &self.call
            && !calls.signal(call)
        {
            // The kernel has no memory for it at the moment: tried again at the next turn.
            (self.untold, self.nudge) = (true, true);
        }
        Ok(())
    }

    /// Whether the guest has asked not to be told; with EVENT_IDX it says so otherwise.
    fn is_quiet(&self, memory: &GuestMemoryMmap) -> bool {
        let flags = || memory.load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        !self.queue.event_idx_enabled()
            && flags().is_ok_and(|flags| u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT != 0)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue on its way to another program.

use std::collections::VecDeque;
use std::fs::File;
use std::io;

use serde::{Deserialize, Serialize};
use virtio_queue::QueueT;

use super::super::guest::Guest;
use super::super::inflight::{Inflight, Tracker};
use super::{Addresses, Ring};
use crate::upgrade::{Descriptor, Parcel};

/// A queue of which nothing is in flight, on its way to another program.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct SavedRing {
    size: u16,
    addresses: Option<Addresses>,
    next_available: u16,
    next_used: u16,
    event_idx: bool,
    kick: Option<Descriptor>,
    call: Option<Descriptor>,
    started: bool,
    enabled: bool,
    /// The number of the next request among those noted as in flight.
    counter: Option<u64>,
    /// Requests that a daemon before left, and that were not taken up again.
    again: VecDeque<u16>,
}

impl Ring {
    /// Puts the queue's files into the parcel; returns the rest of it.
    pub(in super::super) fn save(&self, parcel: &mut Parcel) -> io::Result<SavedRing> {
        debug_assert_eq!(self.in_flight, 0, "a guest is handed over between requests");
        Ok(SavedRing {
            size: self.queue.size(),
            addresses: self.addresses,
            next_available: self.queue.next_avail(),
            next_used: self.queue.next_used(),
            event_idx: self.queue.event_idx_enabled(),
            kick: self.kick.as_ref().map(|kick| parcel.put(kick)).transpose()?,
            call: self.call.as_ref().map(|call| parcel.put(call)).transpose()?,
            started: self.started,
            enabled: self.enabled,
            counter: self.tracker.as_ref().map(Tracker::counter),
            again: self.again.clone(),
        })
    }

    /// Goes on with the queue of another program. The guest may have kicked meanwhile, and may not
    /// have been told of everything. So the queue is looked at, and the guest is told once.
    pub(in super::super) fn restore(
        &mut self,
        saved: &SavedRing,
        index: usize,
        guest: &Guest,
        inflight: Option<&Inflight>,
        parcel: &Parcel,
    ) -> io::Result<()> {
        let file = |place: Option<Descriptor>| place.map(|place| parcel.descriptor(place).map(File::from)).transpose();
        self.set_size(saved.size.into()).map_err(io::Error::other)?;
        self.queue.set_next_avail(saved.next_available);
        self.queue.set_next_used(saved.next_used);
        self.queue.set_event_idx(saved.event_idx);
        self.addresses = saved.addresses;
        let found = self.translate(guest);
        if saved.started {
            found.map_err(io::Error::other)?;
            self.queue.set_ready(true);
            if self.addresses.is_none() || !self.queue.is_valid(guest.memory()) {
                return Err(io::Error::other("a started ring that is not in the guest's memory"));
            }
            self.tracker = inflight.and_then(|inflight| inflight.queue(index, saved.size));
            if let (Some(tracker), Some(counter)) = (&mut self.tracker, saved.counter) {
                tracker.set_counter(counter);
            }
            (self.kicked, self.untold, self.nudge) = (true, true, true);
        }
        (self.kick, self.call) = (file(saved.kick)?, file(saved.call)?);
        (self.started, self.enabled) = (saved.started, saved.enabled);
        self.again.clone_from(&saved.again);
        Ok(())
    }
}

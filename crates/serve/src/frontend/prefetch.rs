// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetch: an operator has ranges of a volume brought into the cache.
//!
//! Prefetch is a front-end without clients. Its requests compete for buffers as clients' do. The
//! origin's readers go first ([`Pace`]). An operator orders a short range, and the next one when
//! that is answered. So an operator that has gone leaves nothing behind. Before, an operator may
//! have bytes of the volume compared: whether a file lies on it is seen by that.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashfront_device::Share;
use flashfront_engine::{
    BLOCK_BYTES, BLOCK_SECTORS, Buf, Lba, OriginId, Request, RequestError, RequestId, RequestOp, SECTOR_BYTES, Span,
    Time,
};
use mio::{Registry, event::Event};

use super::{Core, Frontend, TokenRange};
use crate::upgrade::Parcel;

/// Called with the outcome of an order.
pub(crate) type Ended = Box<dyn FnOnce(Result<(), Failed>) + Send>;

/// Why an order was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Request(RequestError),
    /// The volume has other bytes there.
    OtherBytes,
}

/// What is to be done with a range.
pub(crate) enum What {
    Bring {
        /// Blocks of others may leave for it.
        replace: bool,
    },
    /// See whether the range, which is one block, has these bytes at this place.
    Compare { skip: u32, bytes: Vec<u8> },
}

/// A range of a volume, and what is to be done with it.
pub(crate) struct Order {
    pub(crate) origin: OriginId,
    /// First sector, and the one behind the last.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) what: What,
    pub(crate) ended: Ended,
}

/// The orders, as their giver and the front-end share them.
#[derive(Clone, Default)]
pub(crate) struct Orders(Arc<Mutex<VecDeque<Order>>>);

impl Orders {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Order>> {
        // Nothing here can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn give(&self, order: Order) {
        self.lock().push_back(order);
    }
}

/// How fast parts follow each other.
///
/// While clients miss, parts are small, one at a time, and the origin is theirs for nine tenths of
/// the time. Else parts are as large as a disk likes them, and several are in flight for the sake
/// of network volumes.
#[derive(Debug, Default)]
struct Pace {
    /// Reads of clients that needed the origin, when that was last looked at.
    misses: Option<u64>,
    /// Clients have missed lately: until then they count as reading.
    crowded_until: Time,
    /// The next part begins no sooner.
    next_at: Time,
}

/// How long a client that has missed counts as reading.
const CROWDED_NS: u64 = 1_000_000_000;
/// The longest pause after a part.
const PAUSE_MAX_NS: u64 = 1_000_000_000;
/// A part's own time is followed by a pause so many times as long.
const PAUSE_TIMES: u64 = 9;

/// Sectors of a part, and parts in flight.
const ALONE: (u64, usize) = ((256 << 10) / SECTOR_BYTES, 4);
const CROWDED: (u64, usize) = ((64 << 10) / SECTOR_BYTES, 1);

impl Pace {
    /// Sectors of a part, and parts in flight, from now on.
    fn parts(&mut self, misses: u64, now: Time) -> (u64, usize) {
        if self.misses.replace(misses).is_some_and(|before| before != misses) {
            self.crowded_until = now.plus_ns(CROWDED_NS);
        }
        if now < self.crowded_until { CROWDED } else { ALONE }
    }

    /// A part that began then has ended.
    fn ended(&mut self, began: Time, now: Time) {
        if now < self.crowded_until {
            self.next_at = now.plus_ns((now.since_ns(began) * PAUSE_TIMES).min(PAUSE_MAX_NS));
        }
    }
}

/// A part of an order on its way.
#[derive(Debug)]
struct Part {
    id: RequestId,
    buf: Buf,
    began: Time,
}

/// The order that is being carried out.
struct Current {
    order: Order,
    /// The first sector that no part has.
    next: u64,
    error: Option<Failed>,
}

/// The front-end.
pub(crate) struct Prefetch {
    orders: Orders,
    current: Option<Current>,
    parts: Vec<Part>,
    pace: Pace,
    next_id: u64,
    /// No part is begun any more, or not now.
    held: bool,
}

impl Prefetch {
    pub(crate) fn new(orders: Orders) -> Self {
        let (current, parts, pace) = (None, Vec::new(), Pace::default());
        Self { orders, current, parts, pace, next_id: 0, held: false }
    }

    /// Begins parts of the order, as many as there may be; says whether there were any.
    fn begin_parts(&mut self, now: Time, core: &mut dyn Core) -> bool {
        let Some(current) = &mut self.current else { return false };
        let order = &current.order;
        let (sectors, parts) = self.pace.parts(core.missed(order.origin), now);
        let mut begun = false;
        while current.error.is_none()
            && current.next < order.end
            && self.parts.len() < parts
            && now >= self.pace.next_at
        {
            // Clients that lack buffers come first.
            if core.is_short() {
                break;
            }
            let end = (current.next + sectors).min(order.end);
            let first = current.next / BLOCK_SECTORS;
            let bytes = (end.div_ceil(BLOCK_SECTORS) - first) * BLOCK_BYTES;
            let Some(buf) = core.alloc_of(Share::Waiting, bytes as u32, order.origin) else { break };
            let id = RequestId(self.next_id & 0xffff_ffff);
            self.next_id += 1;
            let op = match order.what {
                What::Bring { replace } => RequestOp::Warm { replace },
                What::Compare { .. } => RequestOp::Read,
            };
            core.submit(Request {
                id,
                origin: order.origin,
                op,
                lba: Lba(current.next),
                sectors: end - current.next,
                buf: Some(buf),
                fua: false,
                since: now,
                continues: false,
            });
            self.parts.push(Part { id, buf, began: now });
            current.next = end;
            begun = true;
        }
        begun
    }

    /// Answers the order if all of it is done.
    fn answer(&mut self) -> bool {
        let is_done = |it: &Current| self.parts.is_empty() && (it.error.is_some() || it.next >= it.order.end);
        let Some(current) = self.current.take_if(|it| is_done(it)) else { return false };
        (current.order.ended)(current.error.map_or(Ok(()), Err));
        true
    }
}

impl Frontend for Prefetch {
    fn uri(&self) -> String {
        "prefetch".to_owned()
    }

    fn tokens_max(&self) -> usize {
        0
    }

    fn register(&mut self, _registry: &Registry, _tokens: TokenRange) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, _core: &mut dyn Core) {}

    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, core: &mut dyn Core) {
        let Some(at) = self.parts.iter().position(|part| part.id == id) else { return };
        let part = self.parts.swap_remove(at);
        if let Some(current) = &mut self.current {
            let failed = match (result, &current.order.what) {
                (Err(error), _) => Some(Failed::Request(error)),
                (Ok(()), What::Bring { .. }) => None,
                (Ok(()), What::Compare { skip, bytes }) => {
                    let found = core.memory().bytes(Span::new(part.buf, *skip, bytes.len() as u32));
                    (found != bytes).then_some(Failed::OtherBytes)
                }
            };
            current.error = failed.or(current.error);
        }
        core.free(part.buf);
        self.pace.ended(part.began, core.now());
    }

    /// Buffers of [`Share::Waiting`] are never refused.
    fn refused(&mut self, id: RequestId, core: &mut dyn Core) {
        self.reply(id, Err(RequestError::Io), core);
    }

    fn room(&mut self, _core: &mut dyn Core) {
        // More is begun at the end of the turn.
    }

    fn turn_end(&mut self, now: Time, _registry: &Registry, core: &mut dyn Core) -> bool {
        let mut submitted = false;
        loop {
            if !self.held && self.current.is_none() {
                let next = self.orders.lock().pop_front();
                self.current = next.map(|order| Current { next: order.begin, order, error: None });
            }
            submitted |= !self.held && self.begin_parts(now, core);
            if !self.answer() {
                return submitted;
            }
        }
    }

    fn next_timer(&self) -> Option<Time> {
        let waits = |it: &Current| !self.held && self.parts.is_empty() && it.next < it.order.end;
        self.current.as_ref().is_some_and(waits).then_some(self.pace.next_at)
    }

    fn stop(&mut self, _registry: &Registry, _core: &mut dyn Core) {
        // Operators hear that the daemon stops: their channels are gone.
        self.held = true;
        self.orders.lock().clear();
        self.current = None;
    }

    fn idle(&self) -> bool {
        self.parts.is_empty()
    }

    fn clients(&self) -> usize {
        0
    }

    fn stays(&self) -> Option<String> {
        None
    }

    fn hold(&mut self, _forced: bool, _core: &mut dyn Core) {
        self.held = true;
    }

    fn release(&mut self) {
        self.held = false;
    }

    /// An order is not handed over: its operator asks again.
    fn hand_over(&mut self, _parcel: &mut Parcel, _core: &mut dyn Core) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn beside_clients_that_miss_a_tenth_of_the_time_is_used() {
        let mut pace = Pace::default();
        let at = |ms: u64| Time(ms * MS);
        assert_eq!(pace.parts(7, at(100)), ALONE, "nobody has missed since");
        pace.ended(at(100), at(110));
        assert_eq!(pace.next_at, Time(0));
        assert_eq!(pace.parts(8, at(110)), CROWDED);
        pace.ended(at(110), at(120));
        assert_eq!(pace.next_at, at(210));
        pace.ended(at(210), at(900));
        assert_eq!(pace.next_at, at(1900), "no pause is longer than a second");
        assert_eq!(pace.parts(8, at(1900)), ALONE, "for a second nobody has missed");
    }
}

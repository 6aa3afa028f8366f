// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taps: pass each request that the engine takes to recorders.
//!
//! The pump notes ([`Tapping`]), a thread for each recorder takes away ([`Tap`]). Between them is a
//! list behind a lock that the pump only ever tries. Without a recorder a request costs one look at
//! a number. Bounds: [`TAPS_MAX`] recorders, [`NOTED_MAX`] requests for each; further requests are
//! counted as lost. A recorder that takes nothing away holds up nothing (`tests`).

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use flashfront_engine::{OriginId, Request, RequestOp};

/// The most recorders at a time: each takes at most 2.5 MiB.
pub const TAPS_MAX: usize = 4;
/// Requests that are noted for a recorder until it takes them away, which it does 20 times a
/// second.
const NOTED_MAX: usize = 1 << 16;
/// Requests that wait for the lock. It is held for as long as it takes to swap two lists.
const PENDING_MAX: usize = 1 << 12;

/// The operation of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TappedOp {
    /// The request reads.
    Read,
    /// The request writes.
    Write,
    /// The request discards, or writes zeroes, which brings no data either.
    Discard,
    /// The request makes earlier writes durable.
    Flush,
}

/// A request, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tapped {
    /// When a front-end had it, by the daemon's clock.
    pub time_ns: u64,
    /// First sector; 0 for a flush.
    pub lba: u64,
    /// How many; 0 for a flush.
    pub sectors: u64,
    /// The operation.
    pub op: TappedOp,
    /// Whether it is answered only when it is durable.
    pub fua: bool,
    /// Whether it belongs to the client's request that the one before it, in place, began.
    pub continues: bool,
}

/// Bytes of a [`Tapped`] on a socket.
pub(crate) const TAPPED_BYTES: usize = 32;

impl Tapped {
    /// `None`: nothing that a disk would be asked for.
    fn of(request: &Request) -> Option<Self> {
        let op = match request.op {
            RequestOp::Read => TappedOp::Read,
            RequestOp::Write | RequestOp::WriteBytes { .. } => TappedOp::Write,
            RequestOp::Discard | RequestOp::WriteZeroes { .. } => TappedOp::Discard,
            RequestOp::Flush => TappedOp::Flush,
            RequestOp::Prefetch | RequestOp::Warm { .. } | RequestOp::Map => return None,
        };
        // Its range means nothing.
        let (lba, sectors) = if op == TappedOp::Flush { (0, 0) } else { (request.lba.0, request.sectors) };
        Some(Self { time_ns: request.since.0, lba, sectors, op, fua: request.fua, continues: request.continues })
    }

    pub(crate) fn to_bytes(self) -> [u8; TAPPED_BYTES] {
        let mut bytes = [0; TAPPED_BYTES];
        bytes[..8].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lba.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sectors.to_le_bytes());
        bytes[24] = self.op as u8;
        bytes[25] = u8::from(self.fua);
        bytes[26] = u8::from(self.continues);
        bytes
    }

    /// `None`: another version's.
    pub(crate) fn from_bytes(bytes: &[u8; TAPPED_BYTES]) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|it| u64::from_le_bytes(*it));
        let all = [TappedOp::Read, TappedOp::Write, TappedOp::Discard, TappedOp::Flush];
        let op = all.into_iter().find(|it| *it as u8 == bytes[24])?;
        Some(Self {
            time_ns: word(0)?,
            lba: word(8)?,
            sectors: word(16)?,
            op,
            fua: bytes[25] != 0,
            continues: bytes[26] != 0,
        })
    }
}

/// Requests that were noted since the last time.
#[derive(Debug, Default)]
pub struct Batch {
    /// Requests in the order in which the engine took them.
    pub requests: Vec<Tapped>,
    /// Requests that were lost since the beginning.
    pub lost: u64,
}

/// The recorders of a daemon, for all its threads.
#[derive(Clone, Debug, Default)]
pub struct Taps(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// How many there are.
    open: AtomicUsize,
    all: Mutex<Vec<Listening>>,
}

/// Requests that are noted for one recorder.
#[derive(Debug)]
struct Listening {
    number: u64,
    origin: OriginId,
    batch: Batch,
}

impl Taps {
    fn lock(&self) -> MutexGuard<'_, Vec<Listening>> {
        // Nothing here can panic halfway through a change.
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the requests of an origin from now on; `None`: there are [`TAPS_MAX`] already.
    pub(crate) fn open(&self, origin: OriginId) -> Option<Tap> {
        let mut all = self.lock();
        if all.len() >= TAPS_MAX {
            return None;
        }
        let number = all.iter().map(|it| it.number + 1).max().unwrap_or(0);
        all.push(Listening { number, origin, batch: Batch::default() });
        self.0.open.store(all.len(), Ordering::Release);
        Some(Tap { taps: self.clone(), number })
    }
}

/// A recorder's end. Dropped, nothing is noted for it any more.
#[derive(Debug)]
pub(crate) struct Tap {
    taps: Taps,
    number: u64,
}

impl Tap {
    /// Takes away what was noted; `requests` is where more goes.
    pub(crate) fn take(&self, batch: &mut Batch) {
        batch.requests.clear();
        let mut all = self.taps.lock();
        if let Some(mine) = all.iter_mut().find(|it| it.number == self.number) {
            mem::swap(&mut mine.batch.requests, &mut batch.requests);
            batch.lost = mine.batch.lost;
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let mut all = self.taps.lock();
        all.retain(|it| it.number != self.number);
        self.taps.0.open.store(all.len(), Ordering::Release);
    }
}

/// The pump's end.
#[derive(Debug, Default)]
pub(crate) struct Tapping {
    taps: Taps,
    /// Requests that were noted while the lock was taken.
    pending: Vec<(OriginId, Tapped)>,
    lost: u64,
}

impl Tapping {
    pub(crate) fn new(taps: Taps) -> Self {
        Self { taps, ..Self::default() }
    }

    /// Notes a request, if there is a recorder for it.
    #[inline]
    pub(crate) fn note(&mut self, request: &Request) {
        if self.taps.0.open.load(Ordering::Acquire) > 0 {
            self.note_for_recorders(request);
        }
    }

    #[cold]
    fn note_for_recorders(&mut self, request: &Request) {
        let Some(tapped) = Tapped::of(request) else { return };
        if self.pending.len() >= PENDING_MAX {
            self.hand_over();
        }
        if self.pending.len() < PENDING_MAX {
            self.pending.push((request.origin, tapped));
        } else {
            self.lost += 1;
        }
    }

    /// Passes on the noted requests; says whether some are left, as another thread has the lock.
    pub(crate) fn hand_over(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let mut all = match self.taps.0.all.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(all)) => all.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        for listening in all.iter_mut() {
            let batch = &mut listening.batch;
            // Of which origin they were is not known any more.
            batch.lost += self.lost;
            for (_, tapped) in self.pending.iter().filter(|(origin, _)| *origin == listening.origin) {
                if batch.requests.len() < NOTED_MAX {
                    batch.requests.push(*tapped);
                } else {
                    batch.lost += 1;
                }
            }
        }
        self.lost = 0;
        self.pending.clear();
        false
    }
}

#[cfg(test)]
mod tests {
    use flashfront_engine::{Lba, RequestId, Time};

    use super::*;

    fn request(origin: u8, op: RequestOp, lba: u64) -> Request {
        let (id, origin) = (RequestId(0), OriginId(origin.into()));
        let (fua, since, continues) = (lba == 8, Time(lba), lba == 16);
        Request { id, origin, op, lba: Lba(lba), sectors: 8, buf: None, fua, since, continues }
    }

    fn places(tap: &Tap) -> (Vec<u64>, u64) {
        let mut batch = Batch::default();
        tap.take(&mut batch);
        (batch.requests.iter().map(|it| it.lba).collect(), batch.lost)
    }

    #[test]
    fn each_recorder_gets_the_requests_of_its_volume() {
        let taps = Taps::default();
        let mut tapping = Tapping::new(taps.clone());
        tapping.note(&request(0, RequestOp::Read, 800));
        let (zero, one) = (taps.open(OriginId(0)).unwrap(), taps.open(OriginId(1)).unwrap());
        for (origin, lba) in [(0, 8), (1, 16), (0, 24)] {
            tapping.note(&request(origin, RequestOp::Write, lba));
        }
        tapping.note(&request(0, RequestOp::Map, 32));
        assert!(!tapping.hand_over());
        assert_eq!(places(&zero), (vec![8, 24], 0), "none from before, and none that is no I/O");
        assert_eq!(places(&one), (vec![16], 0));
        drop(one);
        tapping.note(&request(1, RequestOp::Read, 40));
        tapping.note(&request(0, RequestOp::Flush, 48));
        assert!(!tapping.hand_over());
        assert_eq!(places(&zero), (vec![0], 0), "a flush has no place");
    }

    #[test]
    fn a_recorder_that_takes_nothing_holds_up_nobody_and_is_told_what_it_missed() {
        let taps = Taps::default();
        let mut tapping = Tapping::new(taps.clone());
        let tap = taps.open(OriginId(0)).unwrap();
        let more = NOTED_MAX as u64 + 10;
        for lba in 0..more {
            tapping.note(&request(0, RequestOp::Read, lba));
        }
        // Another thread has the lock: the pump goes on without.
        let held = taps.lock();
        assert!(tapping.hand_over());
        for lba in 0..PENDING_MAX as u64 {
            tapping.note(&request(0, RequestOp::Read, lba));
        }
        assert!(tapping.pending.len() <= PENDING_MAX);
        drop(held);
        assert!(!tapping.hand_over());
        let (noted, lost) = places(&tap);
        assert_eq!(noted.len(), NOTED_MAX);
        assert_eq!(lost, 10 + PENDING_MAX as u64);
    }

    #[test]
    fn there_are_at_most_so_many_recorders() {
        let taps = Taps::default();
        let mut all: Vec<Tap> = (0..TAPS_MAX).map(|_| taps.open(OriginId(0)).unwrap()).collect();
        assert!(taps.open(OriginId(0)).is_none());
        all.remove(1);
        assert!(taps.open(OriginId(0)).is_some());
    }

    #[test]
    fn what_is_sent_is_what_is_received() {
        for op in [RequestOp::Read, RequestOp::Write, RequestOp::Discard, RequestOp::Flush] {
            for lba in [8, 16] {
                let tapped = Tapped::of(&request(0, op, lba)).unwrap();
                assert_eq!(Tapped::from_bytes(&tapped.to_bytes()), Some(tapped));
            }
        }
        assert_eq!(Tapped::from_bytes(&[255; TAPPED_BYTES]), None);
    }
}
